"""Reads a jinja source into literal text and tags, and a tag into tokens, with the place of each."""

import re
from bisect import bisect_right
from typing import NamedTuple, Self

from carillon.domain.errors import BadTemplate, Place

MOST_TAGS = 5000
MOST_TOKENS = 800
"""Of one tag: the engine compiles a longer sum with one call inside another until its stack ends."""
DEEPEST = 40
"""Brackets inside brackets."""

_OPENS = re.compile(r"\{\{|\{%|\{#")
_TOKEN = re.compile(
    r"(?P<string>\"(?:[^\"\\]|\\.)*+\"|'(?:[^'\\]|\\.)*+')"
    r"|(?P<number>\d[\d_]*+(?:\.\d[\d_]*+)?(?:[eE][+-]?\d++)?)"
    r"|(?P<name>[^\W\d]\w*+)"
    r"|(?P<mark>\*\*|//|==|!=|<=|>=|[-+*/%~|.,:()\[\]{}<>=!])",
    re.DOTALL,
)
_RAW = re.compile(r"\{%[-+]?\s*raw\s*[-+]?%\}")
_END_RAW = re.compile(r"\{%[-+]?\s*endraw\s*[-+]?%\}")


class Where(NamedTuple):
    """Which part of which template a source is."""

    template: str
    part: str


class SourceToken(NamedTuple):
    """A string, number, name or mark, with the space before it."""

    space: str
    text: str
    kind: str


class Tag(NamedTuple):
    """`{{ … }}`, `{% … %}` or a raw block, and where its template says it."""

    text: str
    tokens: tuple[SourceToken, ...]
    kind: str
    """`say`, `do` or `raw`."""
    place: Place

    @property
    def word(self) -> str:
        """The statement's first word; empty for what is no statement."""
        return self.tokens[0].text if self.kind == "do" and self.tokens else ""

    @property
    def keeps(self) -> str:
        """`macro` or `set`, if the text up to its end belongs to it; else empty."""
        word = self.word
        whole = word == "macro" or (word == "set" and all(token.text != "=" for token in self.tokens))
        return word if whole else ""

    def argument(self) -> str | None:
        """The key that an include, an extends or an import names as text; None if it is computed."""
        if len(self.tokens) < 2 or self.tokens[1].kind != "string":  # noqa: PLR2004 - the word and its argument
            return None
        return self.tokens[1].text[1:-1]


class Literal(str):
    """Text between tags, and where its template says it."""

    __slots__ = ("place",)
    place: Place

    def __new__(cls, text: str, place: Place) -> Self:
        made = super().__new__(cls, text)
        made.place = place
        return made


Piece = str | Tag


class _Lines:
    """Where a character stands, as line and column from 1."""

    def __init__(self, where: "Where", source: str) -> None:
        self._where = where
        self._starts = [0, *(found.end() for found in re.finditer("\n", source))]

    def place(self, at: int) -> Place:
        line = bisect_right(self._starts, at)
        return Place(self._where.template, line, at - self._starts[line - 1] + 1, self._where.part)


def scan(where: Where, source: str) -> list[Piece]:
    """The pieces of a source; `where` is what errors call it. Raises BadTemplate with a place."""
    lines = _Lines(where, source)
    pieces: list[Piece] = []
    at, tags = 0, 0
    while (opened := _OPENS.search(source, at)) is not None:
        if opened.start() > at:
            pieces.append(Literal(source[at : opened.start()], lines.place(at)))
        at = opened.start()
        if opened.group() == "{#":
            end = source.find("#}", at + 2)
            if end < 0:
                raise BadTemplate("the comment is not closed: it ends with #}", place=lines.place(at))
            # The marks that cut white space are all that a comment leaves.
            pieces.append(_tag(source, at, end + 2, (), "raw", lines))
            at = end + 2
            continue
        tag = _raw(source, at, lines) or _read(source, at, opened.group(), lines)
        tags += 1
        if tags > MOST_TAGS:
            raise BadTemplate(f"a template has at most {MOST_TAGS} tags", place=tag.place)
        pieces.append(tag)
        at += len(tag.text)
    if at < len(source):
        pieces.append(Literal(source[at:], lines.place(at)))
    return pieces


def _tag(source: str, at: int, end: int, tokens: tuple[SourceToken, ...], kind: str, lines: _Lines) -> Tag:  # noqa: PLR0917 - one place
    return Tag(source[at:end], tokens, kind, lines.place(at))


def _raw(source: str, at: int, lines: _Lines) -> Tag | None:
    begin = _RAW.match(source, at)
    if begin is None:
        return None
    end = _END_RAW.search(source, begin.end())
    if end is None:
        raise BadTemplate("the raw block is not closed: it ends with {% endraw %}", place=lines.place(at))
    return _tag(source, at, end.end(), (), "raw", lines)


def _read(source: str, at: int, opening: str, lines: _Lines) -> Tag:
    closing = "}}" if opening == "{{" else "%}"
    tokens: list[SourceToken] = []
    depth = 0
    here = at + 2
    if source[here : here + 1] in {"-", "+"}:
        here += 1
    while True:
        began = here
        while source[here : here + 1].isspace():
            here += 1
        space = source[began:here]
        ends = 3 if source[here : here + 1] in {"-", "+"} and source.startswith(closing, here + 1) else 2
        if depth <= 0 and source.startswith(closing, here + ends - 2):
            return _tag(source, at, here + ends, tuple(tokens), "say" if opening == "{{" else "do", lines)
        found = _TOKEN.match(source, here)
        if found is None:
            if here >= len(source):
                raise BadTemplate(f"{source[at : at + 32]!r} is not closed with {closing}", place=lines.place(at))
            raise BadTemplate(f"{source[here : here + 16]!r} is not understood here", place=lines.place(here))
        tokens.append(SourceToken(space, found.group(), found.lastgroup or "mark"))
        depth += (found.group() in {"(", "[", "{"}) - (found.group() in {")", "]", "}"})
        if len(tokens) > MOST_TOKENS or depth > DEEPEST:
            raise BadTemplate("the tag is too long: split it with {% set %}", place=lines.place(at))
        here = found.end()
