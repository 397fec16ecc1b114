"""MJML becomes HTML when a template is made ready; what cannot be read is refused where its template says it."""

import re
from collections.abc import Sequence
from typing import NamedTuple

import mrml

from carillon.domain.errors import BadTemplate, Place
from carillon.intake.jinja.mail import HeldSource, apart, held, released, with_bodies
from carillon.intake.jinja.scan import Piece

LONGEST_MADE = 400_000
"""Characters of HTML that MJML may become."""
_POSITION = re.compile(r"^(?P<said>.*?)(?: in root template)? at position (?P<begin>\d+):(?P<end>\d+)")
_NAME = r"[A-Za-z_][\w.:-]*+"
_BEGUN = re.compile(rf"<{_NAME}(?>(?:\s++{_NAME}(?:\s*+=\s*+(?:\"[^\"<]*+\"|'[^'<]*+')|(?!\s*+=)))*)\s*+")
_MARKUP = re.compile(
    rf"<!--.*?-->|<!\[CDATA\[.*?\]\]>|<\?.*?\?>|<![A-Za-z][^>]*+>|</(?P<ends>{_NAME})\s*+>"
    rf"|{_BEGUN.pattern.replace(_NAME, f'(?P<begins>{_NAME})', 1)}(?P<alone>/?)>",
    re.DOTALL,
)
_VOID = frozenset(
    ["area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr"]
)
"""Elements of HTML that nobody closes."""
_SHOWN = re.compile(r"[^\n>]{1,40}+>?")


class MjmlFault(NamedTuple):
    """What is wrong at a character of a source."""

    at: int
    said: str


def from_mjml(pieces: Sequence[Piece], place: Place) -> list[Piece]:
    """The HTML of an MJML source; raises BadTemplate with the place in the template, its layout or its partial."""
    macros, rest = apart(pieces)
    shown = held(rest)
    try:
        made = _html(with_bodies(shown.source))
    except OSError as error:
        fault = _fault(str(error), shown)
        there = shown.place(fault.at) or place
        raise BadTemplate(f"the MJML cannot be read: {fault.said}", place=there) from None
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise BadTemplate("the MJML cannot be read", place=place) from None
    if len(made) > LONGEST_MADE:
        raise BadTemplate(f"the MJML becomes more than {LONGEST_MADE} characters of HTML", place=place)
    return [*macros, *released(made, shown.tags)]


def _html(source: str) -> str:
    options = mrml.ParserOptions(include_loader=mrml.noop_loader())
    return mrml.to_html(source, options, mrml.RenderOptions(disable_comments=False, fonts={})).content


def _fault(error: str, shown: HeldSource) -> MjmlFault:
    """Where the parser stopped; if it does not say, where the source is no XML."""
    try:
        # Its positions are those of a source with the bodies of tables: here is the one that people wrote.
        _html(shown.source)
    except OSError as again:
        error = str(again)
    found = _POSITION.match(error)
    # It does not compare the names of elements: an end too many is told where there are no more beginnings.
    own = _unfit(shown) if found is None or found["said"] == "unexpected token" else None
    if found is None or own is not None:
        return own or MjmlFault(0, "it begins with <mjml>, and text stands inside of elements")
    # It counts bytes.
    begin, end = (len(shown.source.encode()[: int(found[name])].decode(errors="ignore")) for name in ("begin", "end"))
    begin += len(shown.source[begin:end]) - len(shown.source[begin:end].lstrip())
    what = shown.said(begin, end).strip()
    if what == "mj-include":
        return MjmlFault(begin - 1, 'mj-include is not there: write {% include "key" %}')
    return MjmlFault(begin - (shown.source[begin - 1 : begin] == "<"), f"{found['said']} {what[:40]!r}")


def _unfit(shown: HeldSource) -> MjmlFault | None:
    """The first character at which a source is no XML, or the element that nobody closes."""
    opened: list[tuple[str, int]] = []
    at = shown.source.find("<")
    while at >= 0:
        found = _MARKUP.match(shown.source, at)
        if found is None:
            begun = _BEGUN.match(shown.source, at)
            there = at if begun is None else min(begun.end(), len(shown.source) - 1)
            what = _SHOWN.match(shown.source, there)
            said = shown.said(there, there if what is None else what.end())
            return MjmlFault(
                there, f"{said!r} is not understood: MJML is XML, with quotes around values and &lt; for <"
            )
        name = found["ends"]
        if name is not None and (not opened or opened[-1][0] != name):
            if any(one == name for one, _ in opened):
                break
            return MjmlFault(at, f"</{name}> has no beginning")
        if name is not None:
            opened.pop()
        elif found["begins"] is not None and not found["alone"] and found["begins"].lower() not in _VOID:
            opened.append((found["begins"], at))
        at = shown.source.find("<", found.end())
    return MjmlFault(opened[-1][1], f"<{opened[-1][0]}> is not closed") if opened else None
