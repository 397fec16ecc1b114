"""A folder of templates as `carillon templates` reads it, writes it and compares it with the ledger."""

import difflib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from carillon.compose.from_settings import categories
from carillon.compose.messages import composer
from carillon.compose.messages import templates as file_templates
from carillon.config.settings import Settings
from carillon.domain.errors import ConfigurationError
from carillon.domain.notifications import Template
from carillon.domain.templates import Draft, too_long_part, unfit_name, unfit_parts, unfit_text
from carillon.intake.carried_fields import KINDS
from carillon.intake.template_files import JINJA_PARTS, LOCALES, PARTS, SHARED, SHARED_CHANNEL
from carillon.intake.templates import FileTemplates

_BESIDE = frozenset({"sample.json", "template.json", *(f"{channel}.json" for channel in KINDS)})
_DEPTH = 4
"""Of `<key>/<locale>/<channel>/text.jinja`."""
Files = dict[str, str]
"""The content of each file by its path in the folder."""
Shared = dict[tuple[str, str, str], Template]


def read(
    folder: Path,
    settings: Settings,
    beneath: Shared | None = None,
    faults: list[str] | None = None,
    tenant: str | None = None,
) -> tuple[FileTemplates, list[str]]:
    """The templates, and why the API would refuse some of them for that tenant.

    Raises ConfigurationError for the first that cannot be read, or says of each what is wrong in `faults`.
    """
    if not folder.is_dir():
        raise ConfigurationError(f"{folder} is not a folder")
    shared = {**_filed(settings), **(beneath or {})}
    found = FileTemplates.read(folder, composer=composer(settings), beneath=shared, faults=faults)
    unfit = found.unfit_alone(composer(settings))
    if unfit and faults is None:
        raise ConfigurationError(unfit[0])
    if faults is not None:
        # A message that needs it may have said the same.
        said = {fault.partition(": ")[2] for fault in faults}
        faults += [fault for fault in unfit if fault.partition(": ")[2] not in said]
    complaints: list[str] = []
    for (code, channel, locale), template in found.everything().items():
        complaints += [f"{code}/{locale}/{channel}: {why}" for why in _unfit(template, settings, tenant)]
    return found, complaints


def _filed(settings: Settings) -> Shared:
    """What templates may use of the folders that the settings name, as over the API."""
    try:
        filed = file_templates(settings, faults=[]).everything()
    except ConfigurationError:
        # On this machine they need not be there.
        return {}
    return {place: one for place, one in filed.items() if one.kind != "message"}


def _unfit(template: Template, settings: Settings, tenant: str | None) -> list[str]:
    """Why the API would refuse a template of a folder."""
    draft, known = Draft.of(template), categories(settings)
    found = [unfit_name(draft.template_key, draft.locale), (unfit_parts(draft) or ("", None))[1], too_long_part(draft)]
    found.append(unfit_text(draft))
    if draft.channel not in settings.channels:
        found.append(f"there is no channel {draft.channel}; there are {', '.join(sorted(settings.channels))}")
    if draft.category is not None and known.find(draft.category, tenant) is None:
        names = ", ".join(sorted(known.of(tenant))) or "none"
        found.append(f"there is no category {draft.category}; known are {names}")
    return [why for why in found if why is not None]


def untranslated(found: FileTemplates, settings: Settings) -> list[str]:
    """The translations that templates of the folder ask for and do not have."""
    made, ready = composer(settings), found.all()
    return [
        f"{code}/{locale}/{channel}: {key}"
        for (code, channel, locale), template in found.everything().items()
        if template.engine == "jinja" and (code, channel, locale) in ready
        for key in made.missing_translations(template, found.usable)
    ]


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
    if draft.category is not None and shared is None:
        found[f"{draft.template_key}/category"] = _line(draft.category)
    if draft.sample:
        found[f"{place}/sample.json"] = _json(draft.sample)
    if draft.fields:
        found[f"{place}/{draft.channel}.json"] = _json(draft.fields)
    if notes:
        found[f"{place}/template.json"] = _json(notes)
    return found


def write(root: Path, files: Mapping[str, str]) -> int:
    """Write the files that differ, and remove parts that a template no longer has; returns how many changed.

    Raises ConfigurationError for a file that cannot be written.
    """
    for name in files:
        # A key may be `..`, and nothing is written beside the folder.
        if not {".", ".."}.isdisjoint(name.split("/")):
            raise ConfigurationError(f"{name}: no folder can have the name of this template")
    try:
        return sum(_written(root / name, content) for name, content in files.items()) + _removed(root, files)
    except OSError as error:
        raise ConfigurationError(f"{error.filename}: the file cannot be written: {error.strerror}") from None


def copy(source: Path, root: Path) -> int:
    """Copy the files that are not there yet; returns how many. Raises ConfigurationError as `write` does."""
    try:
        found = {root / file.relative_to(source): file for file in sorted(source.rglob("*")) if file.is_file()}
        return sum(
            _written(there, file.read_text(encoding="utf-8")) for there, file in found.items() if not there.exists()
        )
    except OSError as error:
        raise ConfigurationError(f"{error.filename}: the file cannot be written: {error.strerror}") from None


def _written(file: Path, content: str) -> bool:
    try:
        if file.exists() and file.read_text(encoding="utf-8") == content:
            return False
    except UnicodeDecodeError:
        # No text of ours: it is written over like any other.
        pass
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content, encoding="utf-8")
    return True


def _removed(root: Path, files: Mapping[str, str]) -> int:
    changed = 0
    folders = {(root / name).parent for name in files}
    # Of a message: its key's folder holds the locales, and may name the category of all of them.
    keys = {root / parts[0] for name in files if len(parts := Path(name).parts) == _DEPTH}
    beside = [file for key in sorted(keys) if (file := key / "category").exists()]
    for file in (*beside, *(file for folder in sorted(folders) for file in sorted(folder.iterdir()) if _is_part(file))):
        if file.relative_to(root).as_posix() not in files:
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
