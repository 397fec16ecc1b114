"""Named SQL statements, read from the .sql files of each engine; billing brings its own."""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from types import MappingProxyType
from typing import NamedTuple

_NAME = re.compile(r"^-- name: *(\w+) *$", re.MULTILINE)
_PARAMETER = re.compile(
    r"""'(?:[^']|'')*'      # a text
      | "(?:[^"]|"")*"      # a quoted name
      | --[^\n]*            # a comment
      | ::                  # a cast
      | :(?P<name>[a-z_]\w*)
      | \?(?P<number>\d+)
    """,
    re.VERBOSE,
)


class Numbered(NamedTuple):
    """A statement with PostgreSQL's parameters $1, $2 and so on, and the name of each number."""

    text: str
    names: tuple[str, ...]


_CHOICE = re.compile(r"^ *-- if (\w+)\n(.*?)^ *-- else\n(.*?)^ *-- end\n", re.MULTILINE | re.DOTALL)


@cache
def load(dialect: str, parts: frozenset[str] | None = None) -> Mapping[str, str]:
    """Every statement of one dialect by name; comments stay, so that a server's log shows them too.

    Between `-- if PART`, `-- else` and `-- end`, the first lines are for ledgers that have the tables of this part.
    Without `parts`, the ledger has all of them.
    """
    found: dict[str, str] = {}
    for room in _rooms(dialect):
        for name in sorted(entry.name for entry in room.iterdir()):
            if name.endswith(".sql"):
                more = parse(_chosen(room.joinpath(name).read_text(encoding="utf-8"), parts))
                if found.keys() & more.keys():
                    raise ValueError(f"{name}: another file has a statement of the same name")
                found |= more
    return MappingProxyType(found)


def _chosen(text: str, parts: frozenset[str] | None) -> str:
    return _CHOICE.sub(lambda found: found[2] if parts is None or found[1] in parts else found[3], text)


def _rooms(dialect: str) -> Iterator[Traversable]:
    yield files("carillon.ledger").joinpath(dialect)
    for blueprint in files("carillon").joinpath("blueprints").iterdir():
        if (room := blueprint.joinpath(dialect)).is_dir():
            yield room


def parse(text: str) -> dict[str, str]:
    """Split at the `-- name:` lines; text before the first one is ignored."""
    parts = _NAME.split(text)[1:]
    names, bodies = parts[::2], parts[1::2]
    if len(set(names)) != len(names):
        raise ValueError("two statements have the same name")
    return {name: body.strip() for name, body in zip(names, bodies, strict=True)}


@cache
def fixed(text: str) -> str:
    """A statement for SQLite whose plan does not depend on the values given.

    SQLite plans a statement anew at each execution if a value that is compared with a column might decide whether a
    partial index can be used; that costs ten times the execution. It does not look behind a unary plus, which changes
    no value.
    """
    return _PARAMETER.sub(lambda match: f"+{match[0]}" if match["name"] or match["number"] else match[0], text)


@cache
def without(text: str, passage: str) -> str:
    """A statement without what stands between the comments `passage` and `end of passage`."""
    return re.sub(rf"^-- {passage}\n.*?^-- end of {passage}\n", "", text, flags=re.MULTILINE | re.DOTALL)


def no_table(name: str) -> str:
    """The sentence about a table that a ledger does not have, because its blueprint has no such part."""
    return f"this ledger has no table {name}: its blueprint has no such part; name the blueprint with --blueprint"


def numbered(text: str) -> Numbered:
    """Give each `:name` its number, in the order in which the names first appear."""
    places: dict[str, int] = {}

    def number(match: re.Match[str]) -> str:
        name = match["name"]
        return match[0] if name is None else f"${places.setdefault(name, len(places) + 1)}"

    return Numbered(_PARAMETER.sub(number, text), tuple(places))
