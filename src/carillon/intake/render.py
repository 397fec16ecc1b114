"""Renders messages: the simple engine replaces `{{name}}` by values and evaluates nothing; the other one is jinja."""

import html
import re
from bisect import bisect_right
from collections.abc import Mapping
from functools import lru_cache
from itertools import accumulate
from typing import Any, Literal

from carillon.domain.errors import BadIntent, BadTemplate, Place
from carillon.domain.intents import canonical
from carillon.domain.notifications import Message, Template
from carillon.domain.templates import RESERVED_BRAND
from carillon.intake.carried_fields import check_fields, has_tags, leaves, with_fields
from carillon.intake.jinja.budget import Budget, merged
from carillon.intake.jinja.engine import place_in, read_data, render, variables
from carillon.intake.jinja.formats import Person
from carillon.intake.links import scripted, unsafe_at, unsafe_link
from carillon.intake.markup import remembered_spots, unfit

MAX_RENDERED = 256 * 1024
_LONGEST_REMEMBERED = 4096
_NAME = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z0-9_]+)*$")
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


def check_parts(template: Template) -> None:
    """Raise BadTemplate with the part for a template of the simple engine that must not be stored."""
    check_fields(template)
    fields = dict(leaves(template.fields, template.channel))
    parts = {"subject": template.subject, "text": template.text, "html": template.html, **fields}
    for part, source in parts.items():
        try:
            check_template(source or "")
        except BadTemplate as error:
            raise BadTemplate(error.message, place=Place(template.code, 1, 1, part)) from None
    if "code" in remembered_spots(compile_template(template.html or "")):
        raise BadTemplate(unfit("code", "") or "", place=Place(template.code, 1, 1, "html"))


def is_plain(template: Template) -> bool:
    """Whether substitution alone renders the template, whatever its engine."""
    try:
        for source in (template.subject, template.text, template.html, *_fields(template)):
            check_template(source or "")
    except BadTemplate:
        return False
    return template.mjml is None and template.layout is None


def variables_of(text: str) -> set[str]:
    """The variable names of a template."""
    return set(names_in(text))


def names_in(text: str) -> list[str]:
    """The same names, in the order of their first use."""
    return list(dict.fromkeys(".".join(piece) for piece in compile_template(text) if isinstance(piece, tuple)))


def template_variables(template: Template) -> list[str]:
    """Every variable of a template once, in the order of their first use."""
    if template.engine == "jinja":
        made = template.composition
        parts = () if made is None else (made.subject, made.text, made.html, *made.fields.values())
        return list(dict.fromkeys(name for part in parts if part is not None for name in variables(part)))
    sources = (template.subject or "", template.text, template.html or "", *_fields(template))
    return list(dict.fromkeys(name for source in sources for name in names_in(source)))


def _fields(template: Template) -> list[str]:
    return [text for _, text in leaves(template.fields, "")]


def render_message(
    template: Template,
    data: Mapping[str, Any],
    on_missing: OnMissing = "error",
    person: Person | None = None,
    *,
    quick: bool = False,
) -> Message:
    """Render every part of a template; only the HTML part is escaped, and no value is rendered twice.

    With `quick` it raises TooHeavy after some milliseconds.
    """
    if template.engine == "jinja":
        message = _render_jinja(template, data, on_missing, person or Person(locale=template.locale), quick=quick)
    else:
        message = _render_simple(template, data, on_missing)
    subject = message.subject
    if subject is not None and not _HEADER_BREAKERS.isdisjoint(subject):
        raise BadIntent("TEMPLATE_RENDER_ERROR", "the subject must be one line of text", field="data")
    if len(subject or "") + len(message.text) + len(message.html or "") > MAX_RENDERED:
        raise BadIntent(
            "TEMPLATE_RENDER_ERROR", f"the rendered message exceeds {MAX_RENDERED} characters", field="data"
        )
    return message


def _render_jinja(
    template: Template, data: Mapping[str, Any], on_missing: OnMissing, person: Person, *, quick: bool
) -> Message:
    made = template.composition
    if made is None:
        said = template.fault or f"template {template.code} has not been made ready"
        raise BadIntent("TEMPLATE_RENDER_ERROR", said, field="templateKey", place=template.fault_at)
    named = data.get("brand")
    # A null is no value, here too.
    brand = made.brand if named is None else named
    if isinstance(brand, str):
        if brand not in made.brands:
            raise BadIntent("TEMPLATE_RENDER_ERROR", f"there is no brand {brand[:64]}", field="data")
        brand = merged(made.brands.get(RESERVED_BRAND, {}), made.brands[brand])
    parts = [part for part in (made.html, made.text, made.subject, *made.fields.values()) if part is not None]
    reads = frozenset().union(*(part.reads for part in parts))
    read = read_data(template.default_variables, {**data, "brand": brand}, reads)
    budget = Budget(person, made.messages, strict=on_missing == "error", quick=quick)
    rich = None if made.html is None else render(made.html, read, budget)
    # What the template itself says was looked at when it was saved.
    if rich is not None and made.html is not None and made.html.links and (unsafe := unsafe_link(rich)) is not None:
        said = f"a link would begin with {unsafe} but links begin with https:, mailto: or the like"
        place = place_in(made.html, read, budget, unsafe_at)
        raise BadIntent("TEMPLATE_RENDER_ERROR", said, field="data", place=place)
    message = Message(
        text=render(made.text, read, budget),
        subject=None if made.subject is None else render(made.subject, read, budget).strip(),
        html=rich,
    )
    if not template.fields:
        return message
    return with_fields(message, template, lambda text: render(made.fields[text], read, budget).strip())


def _render_simple(template: Template, data: Mapping[str, Any], on_missing: OnMissing) -> Message:
    sources = (data, template.default_variables) if template.default_variables else (data,)
    missing: set[str] = set()
    subject = None
    if template.subject is not None:
        subject = _render(template.subject, sources, missing, on_missing, escape=False)
    text = _render(template.text, sources, missing, on_missing, escape=False)
    rich = None if template.html is None else _render_html(template.html, sources, missing, on_missing)
    message = Message(text=text, subject=subject, html=rich)
    if template.fields:

        def fill(said: str) -> str:
            return _render(said, sources, missing, on_missing, escape=False)

        filled = {said: fill(said) for _, said in leaves(template.fields, "") if has_tags(said)}
        message = message if missing else with_fields(message, template, filled.__getitem__)
    if missing:
        raise BadIntent(
            "TEMPLATE_RENDER_ERROR", f"missing template variables: {', '.join(sorted(missing))}", field="data"
        )
    return message


def _render(text: str, sources: Sources, missing: set[str], on_missing: OnMissing, *, escape: bool) -> str:
    return "".join(_parts(compile_template(text), sources, missing, on_missing, escape=escape))


def _render_html(text: str, sources: Sources, missing: set[str], on_missing: OnMissing) -> str:
    pieces = compile_template(text)
    parts = _parts(pieces, sources, missing, on_missing, escape=True)
    rich = "".join(parts)
    _refuse_scripts(rich, pieces, parts)
    for part, spot in zip(parts, remembered_spots(pieces), strict=True):
        wrong = None if spot == "free" else unfit(spot, html.unescape(part))
        if wrong is not None:
            raise BadIntent("TEMPLATE_RENDER_ERROR", wrong, field="data")
    return rich


def _refuse_scripts(rich: str, pieces: tuple[Piece, ...], parts: list[str]) -> None:
    """Refuse a link whose scheme a variable wrote; what the template itself says is its author's business."""
    ends: list[int] = []
    for found in scripted(rich):
        ends = ends or list(accumulate(len(part) for part in parts))
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
