"""The template engine: it replaces `{{name}}` and `{{user.name}}` by values, and evaluates nothing."""

import html
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal

from carillon.domain.errors import BadIntent, BadTemplate
from carillon.domain.intents import canonical
from carillon.domain.notifications import Message, Template

MAX_RENDERED = 256 * 1024
_TAG = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
_NAME = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z0-9_]+)*$")
_HEADER_BREAKERS = frozenset("\r\n\x00\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029")

OnMissing = Literal["error", "empty", "keep"]
Piece = str | tuple[str, ...]
Sources = tuple[Mapping[str, Any], ...]
"""The mappings in which a value is looked up, in this order."""


@lru_cache(maxsize=4096)
def compile_template(text: str) -> tuple[Piece, ...]:
    """Split a template into literal text and dotted names; refuses any other syntax."""
    for mark in ("{%", "{#"):
        if mark in text:
            raise BadTemplate(f"templates are logic-free: {mark!r} is not allowed")
    pieces: list[Piece] = []
    at = 0
    for tag in _TAG.finditer(text):
        name = tag.group(1).strip()
        if not _NAME.match(name):
            raise BadTemplate(f"{{{{{name[:64]}}}}} is not a variable name")
        pieces.extend((text[at : tag.start()], tuple(name.split("."))))
        at = tag.end()
    pieces.append(text[at:])
    return tuple(piece for piece in pieces if piece)


def check_template(text: str) -> None:
    """Raise BadTemplate for a text that must not be stored, such as one with an unclosed placeholder."""
    for piece in compile_template(text):
        at = piece.find("{{") if isinstance(piece, str) else -1
        if at >= 0:
            raise BadTemplate(f"{piece[at : at + 32]!r} is not closed: a variable is written {{{{name}}}}")


def variables_of(text: str) -> set[str]:
    """The variable names of a template."""
    return set(names_in(text))


def names_in(text: str) -> list[str]:
    """The same names, in the order of their first use."""
    return list(dict.fromkeys(".".join(piece) for piece in compile_template(text) if isinstance(piece, tuple)))


def render_message(template: Template, data: Mapping[str, Any], on_missing: OnMissing = "error") -> Message:
    """Render every part of a template; only the HTML part is escaped, and no value is rendered twice."""
    sources = (data, template.default_variables) if template.default_variables else (data,)
    missing: set[str] = set()
    subject = None
    if template.subject is not None:
        subject = _render(template.subject, sources, missing, on_missing, escape=False)
    text = _render(template.text, sources, missing, on_missing, escape=False)
    rich = None if template.html is None else _render(template.html, sources, missing, on_missing, escape=True)
    if missing:
        raise BadIntent(
            "TEMPLATE_RENDER_ERROR", f"missing template variables: {', '.join(sorted(missing))}", field="data"
        )
    if subject is not None and not _HEADER_BREAKERS.isdisjoint(subject):
        raise BadIntent("TEMPLATE_RENDER_ERROR", "the subject must be one line of text", field="data")
    if len(subject or "") + len(text) + len(rich or "") > MAX_RENDERED:
        raise BadIntent(
            "TEMPLATE_RENDER_ERROR", f"the rendered message exceeds {MAX_RENDERED} characters", field="data"
        )
    return Message(text=text, subject=subject, html=rich)


def _render(text: str, sources: Sources, missing: set[str], on_missing: OnMissing, *, escape: bool) -> str:
    out: list[str] = []
    size = 0
    for piece in compile_template(text):
        part = piece if isinstance(piece, str) else _value(piece, sources, missing, on_missing, escape=escape)
        size += len(part)
        if size > MAX_RENDERED:
            # Stop while rendering: a long value in many placeholders must not be built first and refused later.
            raise BadIntent(
                "TEMPLATE_RENDER_ERROR", f"the rendered message exceeds {MAX_RENDERED} characters", field="data"
            )
        out.append(part)
    return "".join(out)


def _value(path: tuple[str, ...], sources: Sources, missing: set[str], on_missing: OnMissing, *, escape: bool) -> str:
    found: Any = None
    for source in sources:
        found = source
        for name in path:
            # Nearly every value is a plain dictionary, and isinstance with the abstract class costs ten times as much.
            found = found.get(name) if type(found) is dict or isinstance(found, Mapping) else None
        if found is not None:
            break
    if found is None:
        if on_missing == "error":
            missing.add(".".join(path))
        return "{{" + ".".join(path) + "}}" if on_missing == "keep" else ""
    text = found if isinstance(found, str) else canonical(found)
    return html.escape(text) if escape else text
