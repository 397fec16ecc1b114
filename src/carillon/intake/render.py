"""The template engine: it replaces `{{name}}` and `{{user.name}}` by values, and evaluates nothing."""

import html
import re
from bisect import bisect_right
from collections.abc import Mapping
from functools import lru_cache
from itertools import accumulate
from typing import Any, Literal

from carillon.domain.errors import BadIntent, BadTemplate
from carillon.domain.intents import canonical
from carillon.domain.notifications import Message, Template

MAX_RENDERED = 256 * 1024
_LONGEST_REMEMBERED = 4096
_NAME = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z0-9_]+)*$")
# Browsers and mail programs leave these out of a link before they read its scheme.
_SKIPPED = r"[\x00-\x20\x7f-\xa0\xad\u200b-\u200f\u2028-\u202f\ufeff]*+"
_SCHEMES = "|".join(_SKIPPED.join(scheme) for scheme in ("javascript", "vbscript", "livescript", "data"))
# A picture inside a link's text runs nothing.
_PICTURE = r"(?<=data:)image/(?:png|jpeg|jpg|gif|webp)[;,]"
_SCRIPTED = re.compile(
    rf"[=(]\s*+(?:[\"']|&quot;|&\#x27;)?(?P<url>{_SKIPPED}(?:{_SCHEMES}){_SKIPPED}:)(?!{_PICTURE})", re.IGNORECASE
)
"""Where the value of an attribute, or of `url(…)`, begins with a scheme that runs what follows."""
_LINK_NAME = re.compile(
    r"(?<![\w-])(?:href|src|srcset|action|formaction|background|poster|cite|data|codebase|classid|longdesc|usemap|profile"
    r"|manifest|dynsrc|lowsrc|ping|url)\s*\Z",
    re.IGNORECASE,
)
_LONGEST_NAME = 64
_HEADER_BREAKERS = frozenset("\r\n\x00\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029")

OnMissing = Literal["error", "empty", "keep"]
Piece = str | tuple[str, ...]
Sources = tuple[Mapping[str, Any], ...]
"""The mappings in which a value is looked up, in this order."""


def compile_template(text: str) -> tuple[Piece, ...]:
    """Split a template into literal text and dotted names; refuses any other syntax."""
    # What anybody may send is not remembered without limit: so many texts of this length are 16 MiB.
    return _remembered(text) if len(text) <= _LONGEST_REMEMBERED else _compile(text)


def _compile(text: str) -> tuple[Piece, ...]:
    for mark in ("{%", "{#"):
        if mark in text:
            raise BadTemplate(f"templates are logic-free: {mark!r} is not allowed")
    pieces: list[Piece] = []
    at = 0
    # Not a regular expression: one that looks for the end from every opening takes quadratic time on `{{{{{{…`.
    while (opened := text.find("{{", at)) >= 0 and (closed := text.find("}}", opened + 2)) >= 0:
        name = text[opened + 2 : closed].strip()
        if not _NAME.match(name):
            raise BadTemplate(f"{{{{{name[:64]}}}}} is not a variable name")
        pieces.extend((text[at:opened], tuple(name.split("."))))
        at = closed + 2
    pieces.append(text[at:])
    return tuple(piece for piece in pieces if piece)


_remembered = lru_cache(maxsize=4096)(_compile)


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
    rich = None if template.html is None else _render_html(template.html, sources, missing, on_missing)
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
    return "".join(_parts(compile_template(text), sources, missing, on_missing, escape=escape))


def _render_html(text: str, sources: Sources, missing: set[str], on_missing: OnMissing) -> str:
    pieces = compile_template(text)
    parts = _parts(pieces, sources, missing, on_missing, escape=True)
    rich = "".join(parts)
    if _SCRIPTED.search(rich) is not None:
        _refuse_scripts(rich, pieces, parts)
    return rich


def _refuse_scripts(rich: str, pieces: tuple[Piece, ...], parts: list[str]) -> None:
    """Refuse a link whose scheme a variable wrote; what the template itself says is its author's business."""
    ends = list(accumulate(len(part) for part in parts))
    for found in _SCRIPTED.finditer(rich):
        if _LINK_NAME.search(rich[max(0, found.start() - _LONGEST_NAME) : found.start()]) is None:
            continue
        written = range(bisect_right(ends, found.start("url")), bisect_right(ends, found.end() - 1) + 1)
        names = [".".join(piece) for at in written if isinstance(piece := pieces[at], tuple)]
        if names:
            said = (
                f"{', '.join(names)} would make a link that runs a script: links begin with https:, mailto: or the like"
            )
            raise BadIntent("TEMPLATE_RENDER_ERROR", said, field="data")


def _parts(
    pieces: tuple[Piece, ...], sources: Sources, missing: set[str], on_missing: OnMissing, *, escape: bool
) -> list[str]:
    out: list[str] = []
    size = 0
    for piece in pieces:
        part = piece if isinstance(piece, str) else _value(piece, sources, missing, on_missing, escape=escape)
        size += len(part)
        if size > MAX_RENDERED:
            # Stop while rendering: a long value in many placeholders must not be built first and refused later.
            raise BadIntent(
                "TEMPLATE_RENDER_ERROR", f"the rendered message exceeds {MAX_RENDERED} characters", field="data"
            )
        out.append(part)
    return out


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
