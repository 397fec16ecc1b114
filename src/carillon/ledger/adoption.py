"""Tables that are in a database before Carillon comes: adopted if a document names them, else refused in one line."""

import re
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any

import msgspec

from carillon.domain.errors import ConfigurationError

_ADOPTS = re.compile(r"^-- adopts: (\w+)$", re.MULTILINE)
_CREATED = re.compile(r'^CREATE (?:TABLE|VIEW|TYPE) "?(\w+)"?', re.MULTILINE)
_COLUMN = re.compile(r"^-- column: (\w+) (.+)$", re.MULTILINE)
_MADE = re.compile(r"^-- made: (\w+) (.+)$", re.MULTILINE)
"""A column that the database fills itself."""
_WIDENED = re.compile(r"^-- widened: (\w+) (.+)$", re.MULTILINE)
_LENGTH = re.compile(r"\s*\(.*\)")


class Chunk(msgspec.Struct, frozen=True):
    """Statements of one part in one migration."""

    part: str
    text: str

    @property
    def adopts(self) -> str | None:
        """The table that may be there already, as a document describes it; the chunk is about this table alone."""
        found = _ADOPTS.search(self.text)
        return None if found is None else found[1]


class TableColumn(msgspec.Struct, frozen=True):
    """One column of a table that is there."""

    name: str
    kind: str
    """The type, without a length."""
    must_be_given: bool
    """NOT NULL, and the database has no value of its own for it."""


Existing = dict[str, list[TableColumn]]


class ChunkPlan(msgspec.Struct, frozen=True):
    """What is run of a chunk."""

    statements: list[str]
    adopts: str | None = None
    """The table that is there and stays."""
    added: tuple[str, ...] = ()
    """The columns that it gets."""


def table_of(row: Mapping[str, Any]) -> TableColumn:
    """A row of `table_columns`."""
    return TableColumn(row["column_name"], _LENGTH.sub("", row["data_type"]).lower(), bool(row["must_be_given"]))


def planned(dialect: str, chunk: Chunk, there: Existing) -> ChunkPlan:
    """How a chunk is run over the tables that are there; ConfigurationError says in one line what does not fit."""
    table = chunk.adopts
    if table is not None and table in there:
        return _adoption(dialect, table, there[table])
    taken = [name for name in _CREATED.findall(chunk.text) if name in there]
    if taken:
        raise ConfigurationError(
            f"the database already has a table {taken[0]} that is not Carillon's: rename it, or give Carillon "
            "a database or a schema of its own (postgresql://…?search_path=carillon)"
        )
    return ChunkPlan([chunk.text] if is_sql(chunk.text) else [])


def is_sql(text: str) -> bool:
    """Whether there is more than comments."""
    return any(line.strip() and not line.startswith("--") for line in text.splitlines())


def _adoption(dialect: str, table: str, columns: list[TableColumn]) -> ChunkPlan:
    text = (files("carillon.ledger") / "migrations" / dialect / "adopted" / f"{table}.sql").read_text(encoding="utf-8")
    known = {column.name: column for column in columns}
    statements, added, ours = [], [], set()
    for statement in _split(text):
        given, widened = _COLUMN.search(statement), _WIDENED.search(statement)
        column = given or _MADE.search(statement)
        if column is not None:
            name, kinds = column[1], [kind.strip() for kind in column[2].split(",")]
            if given is not None:
                ours.add(name)
            if name not in known:
                statements.append(statement)
                added.append(name)
            elif known[name].kind not in kinds:
                raise ConfigurationError(
                    f"the table {table} is there, and its column {name} does not fit: it is "
                    f"{known[name].kind or 'untyped'}, and must be {' or '.join(kinds)}"
                )
        elif widened is None or (widened[1] in known and known[widened[1]].kind == widened[2]):
            statements.append(statement)
    strange = [column.name for column in columns if column.must_be_given and column.name not in ours]
    if strange:
        raise ConfigurationError(
            f"the table {table} is there, and its column {strange[0]} does not fit: it is NOT NULL without a default, "
            "and Carillon does not fill it"
        )
    return ChunkPlan(statements, table, tuple(added))


def _split(text: str) -> Iterator[str]:
    for statement in re.split(r";\n(?=\n|\Z)", text):
        if statement.strip():
            yield statement.strip("\n") + ";"
