"""Tables that are in a database before Carillon comes: adopted if a document names them, else refused in one line."""

import re
from collections.abc import Iterable, Iterator, Mapping
from importlib.resources import files
from typing import Any

import msgspec

from carillon.domain.errors import ConfigurationError

_ADOPTS = re.compile(r"^-- adopts: (\w+)$", re.MULTILINE)
_COPIES = re.compile(r"^-- copies: (\w+) as (\w+)$", re.MULTILINE)
_CREATED = re.compile(r'^CREATE (?:TABLE|VIEW|TYPE) "?(\w+)"?', re.MULTILINE)
_COLUMN = re.compile(r"^-- column: (\w+) (.+)$", re.MULTILINE)
_MADE = re.compile(r"^-- made: (\w+) (.+)$", re.MULTILINE)
"""A column that the database fills itself."""
_WIDENED = re.compile(r"^-- widened: (\w+) (.+)$", re.MULTILINE)
_NEEDED = re.compile(r"^-- needed: (\w+)$", re.MULTILINE)
_UNIQUE = re.compile(r"^-- unique: (.+)$", re.MULTILINE)
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

    @property
    def copies(self) -> tuple[str, str] | None:
        """A table that may be there and whose rows the chunk writes through a view, and its name from then on."""
        found = _COPIES.search(self.text)
        return None if found is None else (found[1], found[2])


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
    renamed: str | None = None
    """The name under which it stays, while a view has its rows."""
    repeated: tuple[tuple[str, str], ...] = ()
    """Columns that only one row may have, and the question for rows that are there twice."""


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
    if chunk.copies is not None and chunk.copies[0] in there:
        return _copying(dialect, chunk, *chunk.copies, there)
    return ChunkPlan([chunk.text] if is_sql(chunk.text) else [])


def is_sql(text: str) -> bool:
    """Whether there is more than comments."""
    return any(line.strip() and not line.startswith("--") for line in text.splitlines())


def repeated_rows(plan: ChunkPlan, columns: str, values: Iterable[object]) -> ConfigurationError:
    """What there is to say of rows that are there twice."""
    said = ", ".join(str(value) for value in values)
    return ConfigurationError(
        f"the table {plan.adopts} is there and cannot be adopted: several of its rows have the same {columns} ({said})"
    )


def _words(dialect: str, table: str) -> str:
    return (files("carillon.ledger") / "migrations" / dialect / "adopted" / f"{table}.sql").read_text(encoding="utf-8")


def _copying(dialect: str, chunk: Chunk, table: str, renamed: str, there: Existing) -> ChunkPlan:
    text, known = _words(dialect, table), {column.name: column for column in there[table]}
    for name, kinds in _COLUMN.findall(text):
        _check(table, known.get(name), kinds)
    absent = [name for name in _NEEDED.findall(text) if name not in known]
    if absent:
        raise ConfigurationError(f"the table {table} is there, and it has no column {absent[0]}")
    return ChunkPlan([chunk.text], table, renamed=renamed)


def _check(table: str, column: TableColumn | None, given: str) -> None:
    kinds = [kind.strip() for kind in given.split(",")]
    if column is not None and column.kind not in kinds:
        raise ConfigurationError(
            f"the table {table} is there, and its column {column.name} does not fit: it is "
            f"{column.kind or 'untyped'}, and must be {' or '.join(kinds)}"
        )


def _adoption(dialect: str, table: str, columns: list[TableColumn]) -> ChunkPlan:
    known = {column.name: column for column in columns}
    statements, added, ours, repeated = [], [], set(), []
    for statement in _split(_words(dialect, table)):
        unique = _UNIQUE.search(statement)
        if unique is not None:
            if all(name in known for name in unique[1].split(", ")):
                repeated.append((unique[1], statement))
            continue
        given, widened = _COLUMN.search(statement), _WIDENED.search(statement)
        column = given or _MADE.search(statement)
        if column is not None:
            name = column[1]
            _check(table, known.get(name), column[2])
            if given is not None:
                ours.add(name)
            if name not in known:
                statements.append(statement)
                added.append(name)
        elif widened is None or (widened[1] in known and known[widened[1]].kind == widened[2]):
            statements.append(statement)
    strange = [column.name for column in columns if column.must_be_given and column.name not in ours]
    if strange:
        raise ConfigurationError(
            f"the table {table} is there, and its column {strange[0]} does not fit: it is NOT NULL without a default, "
            "and Carillon does not fill it"
        )
    return ChunkPlan(statements, table, tuple(added), repeated=tuple(repeated))


def _split(text: str) -> Iterator[str]:
    for statement in re.split(r";\n(?=\n|\Z)", text):
        if statement.strip():
            yield statement.strip("\n") + ";"
