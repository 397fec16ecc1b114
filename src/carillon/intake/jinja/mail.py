"""HTML of mails: style sheets become attributes, and HTML becomes text; tags wait as stand-ins meanwhile."""

import re
from bisect import bisect_right
from collections.abc import Sequence
from html import unescape
from html.entities import html5
from html.parser import HTMLParser
from typing import NamedTuple

import css_inline

from carillon.domain.errors import BadTemplate, Place
from carillon.intake.jinja.scan import Piece, SourceToken, Tag

_HOLDER = re.compile(r"<!--cj(\d+)j-->|cj(\d+)j(?:=\"\")?")
_OPENED = re.compile(r"<[a-zA-Z/!][^<>]*+\Z")
_STYLE = re.compile(r"<style\b", re.IGNORECASE)
_CONDITIONS = frozenset({"if", "elif", "else", "endif"})
_SETTING = _CONDITIONS | {"set"}
_ENDING = re.compile(r"<!--|-->|</(?P<name>html|body)\b", re.IGNORECASE)
_VERBATIM = ("style", "title", "textarea")
_TABLE = re.compile(r"(<(?:mj-)?table\b[^<>]*+>)((?>(?:\s|<!--cj\d+j-->)*))(?=<tr\b)", re.IGNORECASE)
_ELEMENT = re.compile(r"<(?P<ends>/?)(?P<name>[a-zA-Z!][a-zA-Z0-9]*+)(?P<said>[^<>]*+)>")
_SAID = re.compile(
    r"(?<![\w-])(?P<name>href|alt)\s*+=\s*+(?:\"(?P<double>[^\"]*+)\"|'(?P<single>[^']*+)'|(?P<bare>[^\s\"'>]*+))",
    re.IGNORECASE,
)
_REFERENCE = re.compile(r"&(?P<name>#[0-9]++|#[xX][0-9a-fA-F]++|[a-zA-Z][a-zA-Z0-9]*+)(?P<behind>[;=]?)")
_SPACES = re.compile(r"[ \t\r\n]+")
_MANY = re.compile(r"\n{3,}")
_PARAGRAPHS = frozenset(["p", "h1", "h2", "h3", "h4", "h5", "h6", "table", "ul", "ol"])
_LINE_ENDS = frozenset(["div", "tr", "li", "section", "article", "header", "footer", "blockquote", "hr"])
_SILENT = frozenset(["head", "style", "script", "title"])


class HeldSource(NamedTuple):
    """A source for a parser of HTML, with a stand-in for each tag."""

    source: str
    tags: list[Tag]
    starts: list[int]
    """Where each piece begins."""
    places: list[Place | None]
    """Where its template says each piece."""

    def place(self, at: int) -> Place | None:
        """The template, line and column of a character."""
        piece = bisect_right(self.starts, at) - 1
        place = self.places[piece] if piece >= 0 else None
        end = self.starts[piece + 1] if piece + 1 < len(self.starts) else len(self.source)
        whole = self.source[self.starts[piece] : end] if place is not None else ""
        if place is None or _HOLDER.fullmatch(whole):
            return place
        before = whole[: at - self.starts[piece]]
        lines = before.count("\n")
        column = len(before) - before.rfind("\n") if lines else place.column + len(before)
        return place._replace(line=place.line + lines, column=column)

    def said(self, begin: int, end: int) -> str:
        """A stretch of the source as people wrote it."""
        pieces = released(self.source[begin:end], self.tags)
        return "".join(piece if isinstance(piece, str) else piece.text for piece in pieces)


def held(pieces: Sequence[Piece], *, strict: bool = True) -> HeldSource:
    """The source with a stand-in for each tag that survives a parser of HTML where the tag stands.

    A parser orders attributes anew: with `strict`, a statement between them is refused.
    """
    out: list[str] = []
    tags: list[Tag] = []
    starts: list[int] = []
    before, length = "", 0
    for piece in pieces:
        if isinstance(piece, str):
            # A stand-in in the text itself would be taken for a tag.
            text = _HOLDER.sub("", piece)
        else:
            opened = _OPENED.search(before)
            if strict and opened is not None and piece.kind == "do" and not _quoted(opened.group()):
                said = 'write a condition inside the value of an attribute: class="{% if … %}…{% endif %}"'
                raise BadTemplate(said, place=piece.place)
            # In a table only rows, cells and comments stay where they are.
            plain = opened is not None or piece.kind == "say" or _is_verbatim(before)
            text = f"cj{len(tags)}j" if plain else f"<!--cj{len(tags)}j-->"
            tags.append(piece)
        out.append(text)
        starts.append(length)
        length += len(text)
        before = (before + text)[-4000:]
    return HeldSource("".join(out), tags, starts, [getattr(piece, "place", None) for piece in pieces])


def _quoted(opened: str) -> bool:
    """Whether the end of an opened tag is inside the value of an attribute."""
    return opened.count('"') % 2 == 1 or opened.count("'") % 2 == 1


def _is_verbatim(before: str) -> bool:
    lower = before.lower()
    return any(lower.rfind(f"<{name}") > lower.rfind(f"</{name}") for name in _VERBATIM)


def with_bodies(source: str) -> str:
    """Tables with the body that a parser of HTML would begin behind the first tag, where a loop would repeat it."""
    out: list[str] = []
    at = 0
    for found in _TABLE.finditer(source):
        name = "mj-table" if found.group(1).lower().startswith("<mj-") else "table"
        end = source.lower().find(f"</{name}", found.end())
        if end < 0 or source.lower().find("<table", found.end(), end) >= 0 or found.start() < at:
            continue
        out += [source[at : found.end(1)], "<tbody>", source[found.end(1) : end], "</tbody>"]
        at = end
    return "".join((*out, source[at:]))


def released(text: str, tags: Sequence[Tag]) -> list[Piece]:
    """The pieces again, with the tags where their stand-ins are now."""
    out: list[Piece] = []
    at = 0
    for found in _HOLDER.finditer(text):
        number = int(found.group(1) or found.group(2))
        if number >= len(tags):
            continue
        if found.start() > at:
            out.append(text[at : found.start()])
        out.append(tags[number])
        at = found.end()
    if at < len(text):
        out.append(text[at:])
    return out


def apart(pieces: Sequence[Piece]) -> tuple[list[Piece], list[Piece]]:
    """What is said before the document and its macros, and the document without them.

    A parser would take the text of a macro, or of what is set before the document, for a part of the document.
    """
    begins = _begins(pieces)
    macros: list[Piece] = []
    rest: list[Piece] = []
    inside: list[str] = []
    for piece in pieces[begins:]:
        keeps = piece.keeps if isinstance(piece, Tag) else ""
        if keeps and (keeps == "macro" or inside):
            inside.append(keeps)
        (macros if inside else rest).append(piece)
        if inside and isinstance(piece, Tag) and piece.word == f"end{inside[-1]}":
            inside.pop()
    return [*macros, *pieces[:begins]], rest


def _begins(pieces: Sequence[Piece]) -> int:
    """At which piece the document begins; a condition that ends in the document belongs to it."""
    inside: list[str] = []
    conditions = begins = 0
    for at, piece in enumerate(pieces):
        keeps, word = (piece.keeps, piece.word) if isinstance(piece, Tag) else ("", "")
        if keeps:
            inside.append(keeps)
        elif not inside:
            if not _says_nothing(piece):
                break
            conditions += (word == "if") - (word == "endif")
        elif word == f"end{inside[-1]}":
            inside.pop()
        if not inside and not conditions:
            begins = at + 1
    return begins


def _says_nothing(piece: Piece) -> bool:
    """Whether nothing is written where the piece stands."""
    if not isinstance(piece, Tag):
        return not piece.strip()
    return piece.text.startswith("{#") or (piece.kind == "do" and piece.word in _SETTING)


def with_inlined_styles(pieces: list[Piece], place: Place) -> list[Piece]:
    """The rules of `<style>` as attributes of the elements they meet; media queries stay."""
    if not any(isinstance(piece, str) and _STYLE.search(piece) for piece in pieces):
        return pieces
    macros, rest = apart(pieces)
    shown = held(rest)
    _check_ends(shown, place)
    inliner = css_inline.CSSInliner(keep_at_rules=True, load_remote_stylesheets=False)
    try:
        made = inliner.inline(with_bodies(shown.source))
        inside = held(macros)
        kept = inliner.inline_fragment(inside.source, _styles(shown.source)) if macros else ""
    except (css_inline.InlineError, ValueError) as error:
        sheet = _STYLE.search(shown.source)
        there = None if sheet is None else shown.place(sheet.start())
        raise BadTemplate(f"the styles cannot be inlined: {error}", place=there or place) from None
    return [*released(kept, inside.tags), *released(made, shown.tags)]


def _check_ends(shown: HeldSource, place: Place) -> None:
    """Refuse a second document under a condition: a parser moves what it says into the first one."""
    ended: dict[str, int] = {}
    hidden = False
    for found in _ENDING.finditer(shown.source):
        name = (found["name"] or "").lower()
        if not name:
            hidden = found.group() == "<!--"
        elif not hidden:
            between = released(shown.source[ended.get(name, found.start()) : found.start()], shown.tags)
            if any(isinstance(piece, Tag) and piece.word in _CONDITIONS for piece in between):
                said = f"</{name}> is there twice: a mail with styles is one document: write conditions in its <body>"
                raise BadTemplate(said, place=shown.place(found.start()) or place)
            ended[name] = found.end()


def _styles(source: str) -> str:
    """The rules of every style sheet in a document."""
    found: list[str] = []
    lower, at = source.lower(), 0
    while (begin := lower.find("<style", at)) >= 0 and (opened := lower.find(">", begin)) >= 0:
        end = lower.find("</style", opened)
        at = len(source) if end < 0 else end
        found.append(source[opened + 1 : at])
    return "\n".join(found)


def as_text(pieces: Sequence[Piece]) -> list[Piece]:
    """A text with the same tags: paragraphs, rows and links of the HTML, without its markup."""
    texts = _texts(pieces)
    shown = held([_without_markup(piece, texts) if isinstance(piece, Tag) else piece for piece in pieces], strict=False)
    reader = _TextReader()
    reader.feed(_with_plain_ampersands(shown.source))
    reader.close()
    return released(reader.text(), shown.tags)


def _texts(pieces: Sequence[Piece]) -> frozenset[str]:
    """The names of macros and of what is set up to its end: here they write text, with values that are no HTML."""
    kept, others = {"caller"}, set[str]()
    for tag in (piece for piece in pieces if isinstance(piece, Tag) and piece.word in {"macro", "set", "for", "with"}):
        names = [token.text for token in tag.tokens[1:]]
        if tag.keeps:
            kept.update(names[:1])
        # A value may have the same name elsewhere.
        others.update(names[1:] if tag.keeps else names)
    return frozenset(kept - others)


def _without_markup(tag: Tag, texts: frozenset[str]) -> Tag:
    """The tag with the filter that writes trusted HTML as text, in place of the one that writes it as it is."""
    tokens = list(tag.tokens)
    for at, token in enumerate(tag.tokens):
        if token.text == "safe" and at > 0 and tokens[at - 1].text == "|" and not _is_text(tokens[: at - 1], texts):
            tokens[at] = token._replace(text="_read")
    return tag._replace(tokens=tuple(tokens))


def _is_text(before: Sequence[SourceToken], texts: frozenset[str]) -> bool:
    """Whether the tokens end with one of the names, or with its call."""
    at = len(before) - 1
    depth = 0
    while at >= 0 and (depth or before[at].text == ")"):
        depth += (before[at].text == ")") - (before[at].text == "(")
        at -= 1
        if not depth:
            break
    return at >= 0 and before[at].text in texts and (at == 0 or before[at - 1].text not in {".", "|"})


def read_markup(markup: str) -> str:
    """Trusted HTML as people would read it; the time grows with its length alone, which a parser does not promise."""
    first, *more = markup.split("<!--")
    shown = _with_plain_ampersands("".join((first, *(piece.partition("-->")[2] for piece in more))))
    reader, at = _TextReader(), 0
    for found in _ELEMENT.finditer(shown):
        reader.handle_data(unescape(shown[at : found.start()]))
        at = found.end()
        if found["ends"]:
            reader.handle_endtag(found["name"].lower())
        else:
            said = [
                (one["name"].lower(), one["double"] or one["single"] or one["bare"])
                for one in _SAID.finditer(found["said"])
            ]
            reader.handle_starttag(found["name"].lower(), [(name, unescape(value or "")) for name, value in said])
    reader.handle_data(unescape(shown[at:]))
    return reader.written()


def _with_plain_ampersands(markup: str) -> str:
    """The markup with `&amp;` where a browser reads an ampersand in a link: `?a=1&copy=2` says nothing of a ©."""

    def written(found: re.Match[str]) -> str:
        name, behind = found["name"], found["behind"]
        known = name.startswith("#") or (behind != "=" and f"{name}{behind}" in html5)
        return found.group() if known else f"&amp;{name}{behind}"

    return _REFERENCE.sub(written, markup)


def tidied(text: str) -> str:
    """The text without spaces around its lines and without a second empty line."""
    lines = "\n".join(line.strip(" \t") for line in text.split("\n"))
    return _MANY.sub("\n\n", lines).strip()


class _TextReader(HTMLParser):
    """Writes what a person would read."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._out: list[str] = []
        self._silent = 0
        self._links: list[tuple[str, int]] = []

    def written(self) -> str:
        return "".join(self._out)

    def text(self) -> str:
        return tidied(self.written())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        said = dict(attrs)
        self._silent += tag in _SILENT
        if tag == "a":
            # A link in a link is none.
            self._links = [(said.get("href") or "", len(self._out))]
        elif tag == "img":
            self._say(said.get("alt") or "")
        elif tag == "li":
            self._say("\n- ")
        elif tag == "hr":
            self._say("\n---\n")
        elif tag == "br" or tag in _LINE_ENDS or tag in _PARAGRAPHS:
            self._say("\n")

    def handle_endtag(self, tag: str) -> None:
        if tag in _SILENT:
            self._silent = max(0, self._silent - 1)
        elif tag == "a" and self._links:
            address, at = self._links.pop()
            said = "".join(self._out[at:]).strip()
            if address and address != said:
                self._say(f" ({address})" if said else address)
        elif tag in {"td", "th"}:
            self._say(" ")
        elif tag in _PARAGRAPHS:
            self._say("\n\n")
        elif tag in _LINE_ENDS:
            self._say("\n")

    def handle_data(self, data: str) -> None:
        self._say(_SPACES.sub(" ", data))

    def handle_comment(self, data: str) -> None:
        if _HOLDER.fullmatch(f"<!--{data}-->"):
            # Also where nobody reads: a condition that begins in the head may end in the body.
            self._out.append(f"<!--{data}-->")

    def _say(self, text: str) -> None:
        if not self._silent:
            self._out.append(text)
