"""Rewrites tags so that whatever makes long values or much work asks the render's budget first.

The engine counts its steps, but one step may repeat a text a million times or sort a long list. The operators `+`, `~`
and `*`, literals of lists and dictionaries, `in`, comparisons and the engine's own filters are therefore written as
calls of functions that count.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from carillon.domain.errors import BadTemplate, NoSuchFunction
from carillon.intake.jinja.budget import METHODS
from carillon.intake.jinja.scan import Piece, SourceToken, Tag
from carillon.intake.markup import Spot, unfit

CHUNK = 256
"""A literal is cut into so long pieces, so that a step of the engine writes no more than one."""
_NO_CUT = "{"
COUNTED = frozenset({"join", "replace", "indent", "sum", "batch", "slice", "tojson", "sort", "list"})
"""Filters of our own in place of the engine's."""
FORMATS = frozenset({"money", "number", "date", "time", "datetime", "relative", "phone"})
_LIGHT = frozenset({"default", "d", "safe"})
_OWN = frozenset({"truncate", "_read"})
"""Filters of our own that make nothing longer."""
_NATIVE = frozenset(
    (
        *(
            "abs",
            "bool",
            "capitalize",
            "count",
            "dictsort",
            "e",
            "escape",
            "filesizeformat",
            "first",
            "float",
            "groupby",
        ),
        *("int", "items", "last", "length", "lower", "map", "max", "min", "reject", "rejectattr", "reverse", "round"),
        *("select", "selectattr", "split", "string", "striptags", "title", "trim", "unique", "upper"),
        "urlencode",
    )
)
FILTERS = COUNTED | FORMATS | _OWN | _LIGHT | _NATIVE
FUNCTIONS = frozenset({"t", "range", "super", "caller", "loop"})
STATEMENTS = frozenset(
    (
        *("for", "else", "endfor", "if", "elif", "endif", "set", "endset", "with", "endwith", "macro", "endmacro"),
        *("call", "endcall", "filter", "endfilter", "block", "endblock", "break", "continue"),
    )
)
_LEVELS = {"+": ("add", 3), "-": ("sub", 3), "~": ("cat", 2), "*": ("mul", 1), "/": ("div", 1), "//": ("floor", 1)}
_LEVELS["%"] = ("mod", 1)
_GROWS = frozenset("+~*")
_WORDS = frozenset(["and", "or", "not", "in", "is", "if", "else", "recursive"])
_COMPARES = frozenset({"==", "!=", "<", ">", "<=", ">="})
_CUTS = _COMPARES | {",", ":", "=", "!"}
_CONSTANTS = frozenset({"none", "None", "true", "True", "false", "False"})
_CLOSING = {"(": ")", "[": "]", "{": "}"}
_CAPTURES = frozenset({"macro", "call", "filter"})
_BY_NAME = frozenset({"map", "select", "reject", "selectattr", "rejectattr", "groupby", "unique", "min", "max"})
"""Filters of the engine that take the name of a field."""
_ITERATING = _BY_NAME | {"dictsort", "items", "reverse"}
"""Filters of the engine that take a text letter by letter, and a list element by element."""
_ORDERING = frozenset({"dictsort", "groupby", "max", "min", "unique"})
"""Those of them that compare the elements with each other."""
_WORDING = frozenset(
    {"capitalize", "e", "escape", "lower", "string", "striptags", "title", "trim", "upper", "urlencode"}
)
"""Filters of the engine that take whatever they get as text."""
_PAIRS = frozenset({"items", "dictsort"})
_WHOLE = re.compile(r"<[a-zA-Z/!](?:[^<>\"']|\"[^\"]*+\"|'[^']*+')*+>")
_OPENED = re.compile(r"<[a-zA-Z/!]")


class Guarded(NamedTuple):
    """A tag as the engine gets it."""

    text: str
    grows: bool
    """It can make a value that is longer than what it was given."""
    reads: frozenset[str] = frozenset()
    """`methods`: it may name one, or a computed field; `items`: it names a field `items`; `pairs`: it needs pairs."""


def guard(tag: Tag, macros: frozenset[str], spot: Spot = "free") -> Guarded:
    """The tag with counted operations; raises BadTemplate for what templates may not use."""
    if spot == "code" and (tag.kind == "say" or tag.word == "call"):
        raise BadTemplate(unfit(spot, "") or "", place=tag.place)
    if tag.kind == "raw":
        return Guarded(tag.text, grows=False)
    if tag.kind == "do" and tag.word not in STATEMENTS:
        raise BadTemplate(f"there is no statement {tag.word[:40]!r} here", place=tag.place)
    rewriting = _Rewriting(tag, macros)
    begin = tag.text[: 3 if tag.text[2] in "-+" else 2]
    end = tag.text[-3 if tag.text[-3] in "-+" else -2 :]
    inside = rewriting.whole()
    if spot != "free" and tag.kind == "say":
        inside = f"({inside}{_otherwise(tag)})|_{spot}"
    captures = _captures(tag)
    return Guarded(f"{begin} {inside} {end}", rewriting.grows or captures, frozenset(rewriting.reads))


def _otherwise(tag: Tag) -> str:
    """`a if b` has no value where `b` is false, and a filter must not take that for a missing one."""
    words = [token.text for token in tag.tokens if token.kind == "name"]
    return " else ''" if "if" in words and "else" not in words else ""


def can_link(pieces: Sequence[Piece]) -> bool:
    """Whether a value can be a part of a link: it stands inside an element's tag, or HTML is taken as it is."""
    for piece in pieces:
        if isinstance(piece, str):
            # By piece: which pieces stand side by side is for conditions to say.
            if _OPENED.search(_WHOLE.sub("", piece)):
                return True
        elif _captures(piece) or any(token.text == "safe" for token in piece.tokens):
            return True
    return False


def _captures(tag: Tag) -> bool:
    return tag.word in _CAPTURES or (tag.word == "set" and not any(token.text == "=" for token in tag.tokens))


def chunks(text: str) -> str:
    """Literal text in pieces, with an empty comment between them."""
    if len(text) <= CHUNK:
        return text
    out: list[str] = []
    at = 0
    while at < len(text):
        end = at + CHUNK
        # Never behind a brace: with the comment's own it would open a tag.
        while end < len(text) and text[end - 1] == _NO_CUT:
            end += 1
        out.append(text[at:end])
        at = end
    return "{##}".join(out)


def macros_in(pieces: Sequence[Piece]) -> frozenset[str]:
    """The names of the macros that a source defines."""
    tags = [piece for piece in pieces if isinstance(piece, Tag) and piece.word == "macro"]
    return frozenset(tag.tokens[1].text for tag in tags if len(tag.tokens) > 1)


class _Rewriting:
    """One tag on its way; `grows` is set on the way."""

    def __init__(self, tag: Tag, macros: frozenset[str]) -> None:
        self._tag = tag
        self._tokens = tag.tokens
        self._macros = macros
        self._at = 0
        self._testing = False
        self._tested = -1
        """Where the name of the last test ended."""
        self._commas = 0
        self.grows = False
        self.reads: set[str] = set()

    def whole(self) -> str:
        if self._tag.kind == "say":
            return self._until("")
        self._at = 1
        word = self._tag.word
        if word in {"macro", "block", "call"}:
            return f"{word} {self._heading()}"
        first: list[SourceToken] = []
        if word == "filter":
            first = [self._filter_name()]
        return f"{word} {self._until('', first=first)}"

    def _refuse(self, message: str) -> BadTemplate:
        return BadTemplate(message, place=self._tag.place)

    def _peek(self) -> str:
        return self._tokens[self._at].text if self._at < len(self._tokens) else ""

    def _heading(self) -> str:
        """A macro's or block's own name is no call of it."""
        out = ""
        if self._tag.word != "call":
            out = self._peek()
            self._at += 1
            if out.startswith("_") or out in FUNCTIONS:
                raise self._refuse(f"{out[:40]!r} is taken: choose another name")
        if self._peek() == "(":
            self._at += 1
            out += f"({self._until(')')})"
            self._at += 1
        return f"{out} {self._until('')}"

    def _filter_name(self) -> SourceToken:
        name = self._peek()
        if name not in FILTERS:
            raise self._refuse(f"there is no filter {name[:40]!r}")
        self._at += 1
        return SourceToken("", name, "operand")

    def _until(
        self, closing: str, *, first: list[SourceToken] | None = None, colon: str = ":", arguments: str = ""
    ) -> str:
        """Rewrite up to the closing bracket, which stays; counts the commas. `arguments` is the function for each."""
        out: list[str] = []
        segment = first or []
        counted = arguments
        commas = 0
        while self._at < len(self._tokens):
            token = self._tokens[self._at]
            if token.text == closing and token.kind == "mark":
                break
            word = token.kind == "name" and token.text in _WORDS and not _is_attribute(segment)
            if word or (token.kind == "mark" and token.text in _CUTS):
                commas += token.text == ","
                said = colon if token.text == ":" else token.text
                # What stands before `=` is the name of an argument.
                before = "" if token.text == "=" else counted
                out += [self._value(segment, counted=before), token.space, said, " " if word else ""]
                segment = []
                counted = arguments if token.text in {",", "="} else self._counts(token.text)
                self._testing = token.text == "is" or (token.text == "not" and self._testing)
                self._at += 1
            else:
                segment.append(self._operand(segment))
        else:
            if closing:
                raise self._refuse(f"{closing!r} is missing")
        self._commas = commas
        return "".join((*out, self._value(segment, counted=counted)))

    def _counts(self, word: str) -> str:
        """The function that counts the value behind a word."""
        if word == "in" and self._tag.word == "for":
            return "_w"
        return "_c" if word == "in" or word in _COMPARES else ""

    def _operand(self, before: list[SourceToken]) -> SourceToken:
        """The next token, or a whole bracket as one token."""
        token = self._tokens[self._at]
        self._at += 1
        if token.kind == "mark":
            if token.text in {")", "]", "}"}:
                raise self._refuse(f"{token.text!r} has no opening bracket")
            return self._bracket(token, before) if token.text in _CLOSING else token
        named = METHODS.intersection(token.text[1:-1].split(".")) if token.kind == "string" else ()
        if named:
            self.reads |= {"methods", "items"} if "items" in named else {"methods"}
        if token.kind == "name":
            self._check_name(token, before)
            if self._testing:
                self._tested = self._at
            self._testing = False
            if before and before[-1].text == "|" and token.text in _NATIVE:
                # The engine's filters do not count their own work: the value is weighed on its way in.
                return SourceToken("", f"{_weigher(token.text)}|{token.text}", "operand")
        return SourceToken(token.space, token.text, "operand")

    def _check_name(self, token: SourceToken, before: list[SourceToken]) -> None:
        last = before[-1].text if before else ""
        called = self._peek() == "("
        if last == "|":
            if token.text not in FILTERS:
                raise self._refuse(f"there is no filter {token.text[:40]!r}")
            self.grows = self.grows or token.text in COUNTED
            self._note_filter(token.text)
            if token.text == "map" and called:
                self._check_map()
        elif self._testing and token.text == "mapping":
            self.reads.add("pairs")
        elif last == "." and token.text in METHODS:
            self.reads |= {"methods", "items"} if token.text == "items" else {"methods"}
        elif token.text.startswith("_"):
            raise self._refuse(f"a name does not begin with '_': {token.text[:40]!r}")
        elif called and last != "." and not self._testing and token.text not in FUNCTIONS | self._macros:
            raise NoSuchFunction(f"there is no function {token.text[:40]!r}", place=self._tag.place)

    def _note_filter(self, name: str) -> None:
        if name in _BY_NAME:
            self.reads.add("methods")
        if name in _PAIRS:
            self.reads.add("pairs")

    def _check_map(self) -> None:
        inner = self._tokens[self._at + 1] if self._at + 1 < len(self._tokens) else SourceToken("", "", "mark")
        named = inner.kind == "string" and inner.text[1:-1] in _NATIVE | _LIGHT | _OWN | FORMATS
        if not named and inner.text != "attribute":
            raise self._refuse("map takes attribute=… or the name of a filter as text")

    def _bracket(self, token: SourceToken, before: list[SourceToken]) -> SourceToken:
        closing = _CLOSING[token.text]
        # Behind a value a bracket is a call or a place in a list; elsewhere it is a list, a dictionary or a group.
        behind = bool(before) and before[-1].kind == "operand"
        literal = token.text == "{" or (token.text == "[" and not behind)
        begin = self._at
        # The engine's own filters and tests take a missing argument for one that is not given.
        engines = behind and (before[-1].text.startswith(("_w|", "_i|", "_o|", "_t|")) or self._tested == begin - 1)
        inside = self._until(closing, colon="," if token.text == "{" else ":", arguments="_c" if engines else "")
        if behind and token.text == "[" and any(one.kind == "name" for one in self._tokens[begin : self._at]):
            self.reads.add("methods")
        self._at += 1
        if not behind and not literal and self._commas:
            literal = True
        if not literal:
            return SourceToken(token.space, f"{token.text}{inside}{closing}", "operand")
        if behind:
            raise self._refuse(f"{token.text!r} is not understood here")
        self.grows = self.grows or bool(inside.strip())
        return SourceToken(token.space, f"{'_dict' if token.text == '{' else '_list'}({inside})", "operand")

    def _value(self, segment: list[SourceToken], *, counted: str) -> str:
        """One operand with its operators; the parentheses keep the order in which the operators bind."""
        if not segment:
            return ""
        operators = {at for at in range(len(segment)) if _is_binary(segment, at)}
        for at, token in enumerate(segment):
            if token.kind == "mark" and token.text in _GROWS and at not in operators:
                raise self._refuse(f"{token.text!r} has nothing on its left")
        if len(segment) - 1 in operators:
            raise self._refuse(f"{segment[-1].text!r} has nothing on its right")
        text = "".join(token.space + token.text for token in segment)
        if any(segment[at].text in _GROWS for at in operators):
            self.grows = True
            written = [
                _written(token) if at in operators else token.space + token.text for at, token in enumerate(segment)
            ]
            text = f"((({''.join(written)})))"
        plain = len(segment) == 1 and (segment[0].text[:1] in "\"'0123456789" or segment[0].text in _CONSTANTS)
        return f" ({text})|{counted}" if counted and not plain else text


def _weigher(name: str) -> str:
    """What counts the work of a filter of the engine, by the value that it gets."""
    if name in _ORDERING:
        return "_o"
    if name in _ITERATING:
        return "_i"
    return "_t" if name in _WORDING else "_w"


def _written(operator: SourceToken) -> str:
    name, level = _LEVELS[operator.text]
    return f"{')' * level}|_{name}{'(' * level}"


def _is_binary(segment: list[SourceToken], at: int) -> bool:
    token = segment[at]
    return token.kind == "mark" and token.text in _LEVELS and at > 0 and segment[at - 1].kind == "operand"


def _is_attribute(segment: list[SourceToken]) -> bool:
    """`order.in` names a field, not an operator."""
    return bool(segment) and segment[-1].text == "."
