"""Joins a template with its layout, its partials and the macros it imports into one source, before it is compiled."""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from carillon.domain.errors import BadTemplate, Place
from carillon.intake.jinja.scan import Piece, SourceToken, Tag, Where, scan

DEEPEST = 10
"""Layouts of layouts and partials in partials."""
MOST_PIECES = 20_000
_ENDED = frozenset({"for", "if", "set", "with", "macro", "call", "filter", "block"})
_GROUPS = frozenset({"if", "for", "with", "call", "filter"})
_BRANCHES = frozenset({"if", "elif", "else"})
_NAMING = frozenset({"include", "extends", "import", "from"})

Lookup = Callable[[str], str | None]
"""The source of a layout's or a partial's part, by its key."""


class Block(NamedTuple):
    """What a layout leaves to its children."""

    name: str
    inside: list["Node"]


Node = str | Tag | Block


def references(source: str) -> list[str]:
    """The keys of the layouts and partials that a source names; a computed name is none."""
    tags = [piece for piece in scan(Where("", ""), source) if isinstance(piece, Tag) and piece.word in _NAMING]
    return [key for key in (tag.argument() for tag in tags) if key is not None]


def compose(where: Where, source: str, lookup: Lookup, layout: str | None = None) -> list[Piece]:
    """One flat source without include, extends, import and block; raises BadTemplate with a place."""
    joining = _Joining(lookup, where.part)
    nodes = joining.read(where.template, source, 0)
    if layout is not None and not any(isinstance(node, Tag) and node.word == "extends" for node in nodes):
        above = lookup(layout)
        if above is None:
            raise BadTemplate(f"there is no layout {layout}", place=Place(where.template, 1, 1, where.part))
        blocks = any(isinstance(node, Block) for node in nodes)
        nodes = joining.under(layout, above, nodes if blocks else [Block("content", nodes)], 1)
    flat = list(islice(_flat(joining.resolved(nodes, 0)), MOST_PIECES + 1))
    if len(flat) > MOST_PIECES:
        raise _too_long(where)
    return flat


def _too_long(where: Where) -> BadTemplate:
    place = Place(where.template, 1, 1, where.part)
    return BadTemplate("the template with its layout and partials is too long", place=place)


class _Joining:
    """The joining of one template; counts what it joins."""

    def __init__(self, lookup: Lookup, part: str) -> None:
        self._lookup = lookup
        self._part = part
        self._pieces = 0

    def read(self, name: str, source: str, depth: int, asked: Place | None = None) -> list[Node]:
        """The nodes of one source, with its partials and macros in place; `asked` is the tag that names it."""
        where = Where(name, self._part)
        pieces = scan(where, source)
        _check_ends(pieces)
        self._pieces += len(pieces)
        if depth > DEEPEST:
            place = asked or Place(name, 1, 1, self._part)
            raise BadTemplate("layouts and partials include each other without end", place=place)
        if self._pieces > MOST_PIECES:
            raise _too_long(where)
        return self._with_partials(_tree(pieces), depth)

    def resolved(self, nodes: list[Node], depth: int) -> list[Node]:
        """The nodes inside the layout that they extend, if they do."""
        for node in nodes:
            if isinstance(node, Tag) and node.word == "extends":
                key, source = self._named(node)
                if source is None:
                    raise BadTemplate(f"there is no layout {key}", place=node.place)
                return self.under(key, source, [one for one in nodes if one is not node], depth + 1, node.place)
        return nodes

    def under(self, key: str, source: str, nodes: list[Node], depth: int, asked: Place | None = None) -> list[Node]:
        """The layout with the blocks of its child; statements beside the blocks go first."""
        above = self.resolved(self.read(key, source, depth, asked), depth)
        return [*_statements(nodes), *_filled(above, dict(_blocks(nodes)))]

    def _with_partials(self, nodes: list[Node], depth: int) -> list[Node]:
        out: list[Node] = []
        aliases: set[str] = set()
        for node in nodes:
            if isinstance(node, Block):
                out.append(Block(node.name, self._with_partials(node.inside, depth)))
            elif isinstance(node, Tag) and node.word == "include":
                out += self._included(node, depth)
            elif isinstance(node, Tag) and node.word in {"import", "from"}:
                out += self._imported(node, depth, aliases)
            else:
                out.append(node)
        return [_without_alias(node, aliases) for node in out] if aliases else out

    def _named(self, tag: Tag) -> tuple[str, str | None]:
        key = tag.argument()
        if key is None:
            raise BadTemplate(
                f'{tag.word} names a template as text, such as {{% {tag.word} "footer" %}}', place=tag.place
            )
        return key, self._lookup(key)

    def _included(self, tag: Tag, depth: int) -> list[Node]:
        key, source = self._named(tag)
        if source is None:
            if any(token.text == "missing" for token in tag.tokens):
                return []
            raise BadTemplate(f"there is no partial {key}", place=tag.place)
        # What a partial sets stays inside it.
        return [
            _statement("with", tag.place),
            *self.resolved(self.read(key, source, depth + 1, tag.place), depth + 1),
            _statement("endwith", tag.place),
        ]

    def _imported(self, tag: Tag, depth: int, aliases: set[str]) -> list[Node]:
        key, source = self._named(tag)
        if source is None:
            raise BadTemplate(f"there is no partial {key}", place=tag.place)
        words = [token.text for token in tag.tokens[2:]]
        if tag.word == "import":
            if len(words) != 2 or words[0] != "as":  # noqa: PLR2004 - as and the name
                raise BadTemplate('import is written {% import "key" as name %}', place=tag.place)
            aliases.add(words[1])
        elif "as" in words:
            raise BadTemplate("from imports macros under their own names", place=tag.place)
        return _statements(self.read(key, source, depth + 1, tag.place))


def _check_ends(pieces: Sequence[Piece]) -> None:
    """Refuse a statement without its end here, where its place is known; the engine sees only the joined source."""
    opened: list[Tag] = []
    for piece in pieces:
        if not isinstance(piece, Tag):
            continue
        word = piece.word
        if word in _ENDED and not (word == "set" and any(token.text == "=" for token in piece.tokens)):
            opened.append(piece)
        elif word.startswith("end") and word.removeprefix("end") in _ENDED:
            if not opened or word != f"end{opened[-1].word}":
                raise BadTemplate(f"{word} has no beginning", place=piece.place)
            opened.pop()
    if opened:
        said = f"{{% {opened[-1].word} %}} is not closed with {{% end{opened[-1].word} %}}"
        raise BadTemplate(said, place=opened[-1].place)


def _statement(word: str, place: Place) -> Tag:
    return Tag(f"{{% {word} %}}", (SourceToken("", word, "name"),), "do", place)


def _without_alias(node: Node, aliases: set[str]) -> Node:
    """`forms.button(…)` as `button(…)`: the macros of an import have been put in its place."""
    if isinstance(node, Block):
        return Block(node.name, [_without_alias(one, aliases) for one in node.inside])
    if isinstance(node, str) or not any(token.text in aliases for token in node.tokens):
        return node
    kept: list[SourceToken] = []
    tokens = list(node.tokens)
    while tokens:
        token = tokens.pop(0)
        alias = token.kind == "name" and token.text in aliases and not (kept and kept[-1].text == ".")
        if alias and tokens and tokens[0].text == ".":
            tokens.pop(0)
            continue
        kept.append(token)
    return node._replace(tokens=tuple(kept))


def _tree(pieces: Sequence[Piece]) -> list[Node]:
    """The pieces, with every block as one node."""
    stack: list[tuple[str, list[Node], Tag | None]] = [("", [], None)]
    for piece in pieces:
        if isinstance(piece, Tag) and piece.word == "block":
            if len(piece.tokens) < 2:  # noqa: PLR2004 - the word and its name
                raise BadTemplate("a block has a name", place=piece.place)
            stack.append((piece.tokens[1].text, [], piece))
        elif isinstance(piece, Tag) and piece.word == "endblock":
            name, inside, opened = stack.pop()
            if opened is None:
                raise BadTemplate("endblock has no block", place=piece.place)
            stack[-1][1].append(Block(name, inside))
        else:
            stack[-1][1].append(piece)
    opened = stack[-1][2]
    if opened is not None:
        raise BadTemplate("the block is not closed with {% endblock %}", place=opened.place)
    return stack[0][1]


def _blocks(nodes: Sequence[Node]) -> Iterator[tuple[str, list[Node]]]:
    for node in nodes:
        if isinstance(node, Block):
            yield node.name, node.inside
            yield from _blocks(node.inside)


def _statements(nodes: Sequence[Node]) -> list[Node]:
    """What a child says beside its blocks, without the text: macros with their text, and what it sets.

    What it sets under a condition stays under it; what a loop or a partial sets ends with them.
    """
    groups: list[list[Node]] = [[]]
    captured: list[str] = []
    into = groups[0]
    for node in nodes:
        word = _word(node)
        ended = word.removeprefix("end") if word.startswith("end") else ""
        if captured:
            into.append(node)
            if ended == captured[-1]:
                captured.pop()
            elif _keeps(node):
                captured.append(word)
        elif _keeps(node):
            captured.append(word)
            # A macro has no condition: who calls it has.
            into = groups[0] if word == "macro" else groups[-1]
            into.append(node)
        elif word in _GROUPS:
            groups.append([node])
        elif ended in _GROUPS:
            group = groups.pop()
            if ended == "if" and any(_word(one) not in _BRANCHES for one in group):
                groups[-1] += [*group, node]
        elif word == "set" or (word in _BRANCHES and len(groups) > 1):
            groups[-1].append(node)
    return groups[0]


def _keeps(node: Node) -> bool:
    return isinstance(node, Tag) and bool(node.keeps)


def _word(node: Node) -> str:
    return node.word if isinstance(node, Tag) else ""


def _filled(nodes: Sequence[Node], blocks: dict[str, list[Node]]) -> list[Node]:
    """A layout's nodes with the blocks that its child writes anew."""
    out: list[Node] = []
    for node in nodes:
        if not isinstance(node, Block):
            out.append(node)
            continue
        own = _filled(node.inside, blocks)
        out.append(Block(node.name, list(_above(blocks[node.name], own)) if node.name in blocks else own))
    return out


def _above(nodes: Sequence[Node], own: list[Node]) -> Iterator[Node]:
    """A child's block, with the layout's own content where it says super()."""
    for node in nodes:
        if isinstance(node, Block):
            yield Block(node.name, list(_above(node.inside, own)))
        elif isinstance(node, Tag) and [token.text for token in node.tokens] == ["super", "(", ")"]:
            yield from own
        else:
            yield node


def _flat(nodes: Sequence[Node]) -> Iterator[Piece]:
    for node in nodes:
        if isinstance(node, Block):
            yield from _flat(node.inside)
        else:
            yield node
