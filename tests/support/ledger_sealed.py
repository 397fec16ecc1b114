"""Ledgers that seal, watched: what tests hand to them must not be readable in the tables."""

import json
import sqlite3
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

import msgspec

from carillon.ledger.opening import Ledger
from carillon.ledger.sealing import Codec, Seals
from tests.support.ledger_engines import Engine, Rows, SqliteEngine, WarmPostgresEngine

SEALS = Seals([bytes(range(32))])
_CODEC = Codec(SEALS)
_PERSONAL = frozenset({"address", "payload_json", "metadata_json", "message_json", "contacts", "raw_fields"})
_SHORTEST = 6
_TABLES = {
    # A table without a page has no row.
    "postgres": "SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace"
    " AND (relkind = 'r' AND pg_relation_size(oid) > 0 OR relkind = 'p')",
    "sqlite": "SELECT name FROM sqlite_master WHERE type = 'table'",
}


class Canaries:
    """Addresses, names and texts, known by the fields that they were handed over in."""

    def __init__(self) -> None:
        self.texts: set[str] = set()

    def note(self, value: Any, *, personal: bool = False) -> None:
        match value:
            case msgspec.Struct():
                for name in value.__struct_fields__:
                    self.note(getattr(value, name), personal=personal or name in _PERSONAL)
            case Mapping():
                for inner in value.values():
                    self.note(inner, personal=personal)
            case list() | tuple():
                for inner in value:
                    self.note(inner, personal=personal)
            case str() if personal and len(value) >= _SHORTEST:
                self.texts.add(value)
                self._inside(value)

    def _inside(self, text: str) -> None:
        try:
            found = json.loads(text)
        except ValueError:
            return
        if isinstance(found, dict | list):
            self.note(found, personal=True)


class _Watched:
    """A ledger that remembers what it was given."""

    def __init__(self, ledger: Ledger, canaries: Canaries) -> None:
        vars(self).update(_ledger=ledger, _canaries=canaries)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._ledger, name, value)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._ledger, name)
        if not callable(found):
            return found

        def call(*given: Any, **named: Any) -> Any:
            self._canaries.note([*given, *named.values()])
            if name in {"unsuppress", "suppression_in_force"}:
                self._canaries.note(given[1], personal=True)
            return found(*given, **named)

        return call


class _Sealed(Engine):
    """Opens what tests read at the side entrance, and nothing that `raw` reads."""

    canaries: Canaries

    async def open(self, **options: Any) -> Ledger:
        watched: Any = _Watched(await super().open(**{"seals": SEALS, **options}), self.canaries)
        return cast("Ledger", watched)

    async def execute(self, statement: str) -> Rows:
        return [_CODEC.row(row) for row in await super().execute(statement)]

    async def prepare(self, ledger: Ledger) -> None:
        # Even where all tables are there, the ledger writes down which keys it has.
        await ledger._know_keys()  # noqa: SLF001 - what `migrate` does besides the tables

    async def raw(self) -> dict[str, str]:
        """Every table of the database as text."""
        raise NotImplementedError

    async def leaks(self) -> list[str]:
        """Which canary can be read in which table."""
        raw = await self.raw()
        return [f"{text!r} in {name}" for name, told in raw.items() for text in self.canaries.texts if text in told]


class SealedPostgresEngine(_Sealed, WarmPostgresEngine):
    """PostgreSQL under seals; `read` answers with what psql prints."""

    def __init__(self, dsn: str, read: Callable[[str], str]) -> None:
        WarmPostgresEngine.__init__(self, dsn)
        self.canaries = Canaries()
        self._read = read

    async def raw(self) -> dict[str, str]:
        tables = self._read(_TABLES["postgres"]).splitlines()
        return {name: self._read(f"SELECT * FROM {name}") for name in tables}  # noqa: S608


class SealedSqliteEngine(_Sealed, SqliteEngine):
    """SQLite under seals."""

    def __init__(self, path: Any) -> None:
        SqliteEngine.__init__(self, path, prepared=True)
        self.canaries = Canaries()

    async def raw(self) -> dict[str, str]:
        connection = sqlite3.connect(self.path, timeout=40.0)
        try:
            tables = [name for (name,) in connection.execute(_TABLES["sqlite"])]
            return {name: str(connection.execute(f"SELECT * FROM {name}").fetchall()) for name in tables}  # noqa: S608
        finally:
            connection.close()


SealedEngine = SealedPostgresEngine | SealedSqliteEngine


@asynccontextmanager
async def no_leaks(engine: SealedEngine) -> AsyncIterator[Canaries]:
    """What is done inside leaves nothing readable behind."""
    yield engine.canaries
    leaks = await engine.leaks()
    assert not leaks, leaks
