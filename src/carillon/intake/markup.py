"""Where in HTML a value stands, and what it may be there: no value becomes code, whichever engine writes it.

- in the text, and in the quotes of most attributes: escaped, it may be anything; `links` looks at schemes;
- in an event handler (`onclick`), in `srcdoc`, in `<script>`, and in an attribute whose name is a value: never, because
  a browser undoes the escaping before it reads the code;
- behind `<`: nothing that a browser takes for the name of an element;
- in an attribute without quotes: no spaces, which would begin the next attribute;
- between attributes: a name;
- in `style`: nothing that a style sheet runs or loads.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple, TypeVar

Spot = Literal["free", "code", "element", "bare", "name", "style"]
"""What a value may be."""
Piece = TypeVar("Piece")

_OPENS = re.compile(r"<!--(?!\[if)|<(?P<element>/?[a-zA-Z][^\s/>]*+)|</?\Z")
_ELEMENT = re.compile(r"/?[a-zA-Z][^\s/>]*+")
_ATTRIBUTE = re.compile(r"(?P<name>[^\s=>/\"']*+)(?:\s*+=\s*+(?P<quote>[\"']?))?")
_BETWEEN = re.compile(r"[\s/]++")
_BARE_END = re.compile(r"[\s>]")
_VERBATIM = frozenset({"script", "style", "title", "textarea", "mj-style", "mj-title"})
_STYLES = frozenset({"style", "mj-style"})
_UNKNOWN = "?"
_MATTER = frozenset({"style", "srcdoc", "type"})
"""Attributes whose values are not like others, beside those that begin with `on`."""
_OTHER = "-"
_SPACED = re.compile(r"[\s`<>\"']")
_NAMED = re.compile(r"[\w-]*+", re.ASCII)
_RUNS = re.compile(
    r"[\\{}<>]|/\*|@import|expression\(|behaviou?r:|-moz-binding|(?:java|vb|live)script:|data:(?!image/(?:png|jpeg|jpg|gif|webp)[;,])"
)
_SKIPPED = re.compile(r"[\x00-\x20\x7f-\xa0\xad\u200b-\u200f\u2028-\u202f\ufeff]+")


class _Way(NamedTuple):
    """How far a reader of HTML has come; names that change nothing are left out, so that there are few ways."""

    where: Literal["text", "comment", "verbatim", "tag", "bare", "quoted", "element"] = "text"
    element: str = ""
    attribute: str = ""
    quote: str = ""

    def spot(self) -> Spot:
        match self.where:
            case "tag":
                return "name"
            case "element":
                return "element"
            case "bare" | "quoted":
                if self.attribute in {"on", "srcdoc", _UNKNOWN}:
                    return "code"
                return "bare" if self.where == "bare" else "style" if self.attribute == "style" else "free"
            case "verbatim":
                return "code" if self.element == "script" else "style" if self.element in _STYLES else "free"
            case _:
                return "free"


_START = frozenset({_Way()})
_ORDER: tuple[Spot, ...] = ("code", "element", "name", "bare", "style", "free")


def spots(pieces: Iterable[Piece], word: Callable[[Piece], str | None]) -> list[Spot]:
    """The spot of each piece; `word` is None for text, a statement's first word, or empty for a value.

    Conditions are followed both ways, so that a quote in one of them hides nothing in the other.
    """
    ways = _START
    branches: list[tuple[frozenset[_Way], frozenset[_Way]]] = []
    """How each condition began, and how its ways so far have ended."""
    found: list[Spot] = []
    for piece in pieces:
        said = word(piece)
        found.append(min((way.spot() for way in ways), key=_ORDER.index) if said is not None else "free")
        if said is None:
            ways = frozenset(_after(way, str(piece)) for way in ways)
        elif said == "":
            ways = frozenset(_behind_a_value(way) for way in ways)
        elif said in {"if", "for"}:
            branches.append((ways, ways))
        elif said in {"elif", "else"} and branches:
            begun, ended = branches[-1]
            # With an else, one of the ways is taken.
            branches[-1] = (begun, ended - begun | ways if said == "else" else ended | ways)
            ways = begun
        elif said in {"endif", "endfor"} and branches:
            ways |= branches.pop()[1]
    return found


def _behind_a_value(way: _Way) -> _Way:
    if way.where == "element":
        # It began none.
        return _Way()
    return way._replace(attribute=_UNKNOWN) if way.where == "tag" else way


def _after(way: _Way, text: str) -> _Way:
    at = 0
    while at < len(text):
        way, at = _STEPS[way.where](way, text, at)
    return way


def _in_text(_way: _Way, text: str, at: int) -> tuple[_Way, int]:
    found = _OPENS.search(text, at)
    if found is None:
        return _Way(), len(text)
    if found.group() == "<!--":
        return _Way("comment"), found.end()
    return (_Way("element") if found["element"] is None else _opened(found["element"])), found.end()


def _opened(element: str) -> _Way:
    return _Way("tag", element.lower() if element.lower() in _VERBATIM else "")


def _in_comment(way: _Way, text: str, at: int) -> tuple[_Way, int]:
    end = text.find("-->", at)
    return (way, len(text)) if end < 0 else (_Way(), end + 3)


def _in_verbatim(way: _Way, text: str, at: int) -> tuple[_Way, int]:
    end = text.lower().find(f"</{way.element.partition('+')[0]}", at)
    return (way, len(text)) if end < 0 else (_Way("tag"), end + 2)


def _in_element(_way: _Way, text: str, at: int) -> tuple[_Way, int]:
    found = _ELEMENT.match(text, at)
    return (_Way(), at) if found is None else (_opened(found.group()), found.end())


def _in_tag(way: _Way, text: str, at: int) -> tuple[_Way, int]:
    space = _BETWEEN.match(text, at)
    if space is not None:
        return way._replace(attribute=""), space.end()
    if text[at] == ">":
        named = way.element.partition("+")[0]
        return _Way("verbatim", way.element) if named in _VERBATIM else _Way(), at + 1
    found = _ATTRIBUTE.match(text, at)
    if found is None or found.end() == at:
        return way, at + 1
    # A name of several pieces, such as a value and a text, is one that nobody knows.
    pieced = way.attribute == _UNKNOWN or bool(way.attribute and found["name"])
    named = _UNKNOWN if pieced else _kept(found["name"].lower() or way.attribute)
    if found["quote"] is None:
        return way._replace(attribute=named), found.end()
    where: Literal["bare", "quoted"] = "quoted" if found["quote"] else "bare"
    return _Way(where, way.element, named, found["quote"]), found.end()


def _kept(name: str) -> str:
    return "on" if name.startswith("on") else name if name in _MATTER else _OTHER


def _in_value(way: _Way, text: str, at: int) -> tuple[_Way, int]:
    if way.where == "quoted":
        end = text.find(way.quote, at)
        past = end + 1
    else:
        found = _BARE_END.search(text, at)
        end = past = -1 if found is None else found.start()
    said = text[at : len(text) if end < 0 else end]
    if (way.element, way.attribute) == ("script", "type") and "json" in said:
        # Data for machines, which nobody runs.
        way = way._replace(element="script+json")
    return (way, len(text)) if end < 0 else (_Way("tag", way.element), past)


_STEPS: dict[str, Callable[[_Way, str, int], tuple[_Way, int]]] = {
    "text": _in_text,
    "comment": _in_comment,
    "verbatim": _in_verbatim,
    "element": _in_element,
    "tag": _in_tag,
    "bare": _in_value,
    "quoted": _in_value,
}


def unfit(spot: Spot, value: str) -> str | None:
    """Why a value may not stand there; None if it may."""
    match spot:
        case "code":
            return "a value is never a part of code: not in onclick and its like, srcdoc, or a script"
        case "element" if value[:1].isalpha() or value[:1] in {"/", "!", "?"}:
            return "a value behind < would be the name of an element: write &lt;"
        case "bare" if _SPACED.search(value):
            return 'a value with spaces or quotes needs quotes around it: title="{{ … }}"'
        case "name" if not _NAMED.fullmatch(value):
            return "between attributes a value is a name of letters, digits, _ and -"
        case "style" if _RUNS.search(_SKIPPED.sub("", value).lower()):
            return "a value in a style writes a colour, a size or a link, and nothing that runs or loads more"
        case _:
            return None


@lru_cache(maxsize=512)
def remembered_spots(pieces: Sequence[str | tuple[str, ...]]) -> tuple[Spot, ...]:
    """The spots of a template of the simple engine; its values are tuples."""
    return tuple(spots(pieces, lambda piece: None if isinstance(piece, str) else ""))
