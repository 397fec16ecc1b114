"""Writes templates into a folder as `carillon templates push` reads them, and compares a folder with the ledger."""

import difflib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from carillon.domain.templates import Draft
from carillon.intake.carried_fields import KINDS
from carillon.intake.template_files import JINJA_PARTS, LOCALES, PARTS, SHARED, SHARED_CHANNEL

_BESIDE = frozenset({"sample.json", "template.json", *(f"{channel}.json" for channel in KINDS)})
Files = dict[str, str]
"""The content of each file by its path in the folder."""


def files_of(draft: Draft, default_locale: str) -> Files:
    """The files of one template."""
    if draft.kind == "catalogue":
        return {f"{LOCALES}/{draft.locale}.po": _line(draft.body)}
    ending = "jinja" if draft.engine == "jinja" else "tmpl"
    place = f"{draft.template_key}/{draft.locale}/{draft.channel}"
    notes: dict[str, Any] = {"layout": draft.layout} if draft.layout else {}
    shared = next((folder for folder, kind in SHARED.items() if kind == draft.kind), None)
    if shared is not None and (draft.channel, draft.locale) == (SHARED_CHANNEL, default_locale):
        place = f"{shared}/{draft.template_key}"
    elif draft.kind != "message":
        notes["kind"] = draft.kind
    if draft.default_variables:
        notes["defaultVariables"] = draft.default_variables
    said = {"subject": draft.subject, "text": draft.body or None, "html": draft.html, "mjml": draft.mjml}
    found = {f"{place}/{part}.{ending}": _line(text) for part, text in said.items() if text is not None}
    if draft.category is not None:
        found[f"{draft.template_key}/category"] = _line(draft.category)
    if draft.sample:
        found[f"{place}/sample.json"] = _json(draft.sample)
    if draft.fields:
        found[f"{place}/{draft.channel}.json"] = _json(draft.fields)
    if notes:
        found[f"{place}/template.json"] = _json(notes)
    return found


def write(root: Path, files: Mapping[str, str]) -> int:
    """Write the files that differ, and remove parts that a template no longer has; returns how many changed."""
    changed = 0
    for name, content in files.items():
        file = root / name
        if not file.exists() or file.read_text(encoding="utf-8") != content:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content, encoding="utf-8")
            changed += 1
    for folder in {(root / name).parent for name in files}:
        for file in sorted(folder.iterdir()):
            if _is_part(file) and str(file.relative_to(root)) not in files:
                file.unlink()
                changed += 1
    return changed


def _is_part(file: Path) -> bool:
    if file.name in _BESIDE:
        return True
    parts = JINJA_PARTS if file.suffix == ".jinja" else PARTS
    return file.suffix in {".jinja", ".tmpl"} and file.stem in parts


def differences(stored: Iterable[Draft], filed: Iterable[Draft], default_locale: str) -> list[str]:
    """A unified diff from the ledger to the folder, for the templates of the folder."""
    drafts = {(one.template_key, one.channel, one.locale): one for one in stored}
    lines: list[str] = []
    for draft in filed:
        there = drafts.get((draft.template_key, draft.channel, draft.locale))
        before = {} if there is None else files_of(there, default_locale)
        after = files_of(draft, default_locale)
        for name in sorted(before.keys() | after.keys()):
            old, new = before.get(name, "").splitlines(), after.get(name, "").splitlines()
            lines += difflib.unified_diff(old, new, f"ledger/{name}", f"folder/{name}", lineterm="")
    return lines


def _line(text: str) -> str:
    # As they are read: line breaks at the end say nothing.
    return text.rstrip("\n") + "\n"


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, sort_keys=True) + "\n"
