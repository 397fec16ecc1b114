"""SQLite as the engine of every store: transactions in its threads, and the conversion of values."""

import json
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from carillon.domain.store import NOTHING, Ask, PoolName, Row, Steps, T, Values
from carillon.ledger.sealing import Codec
from carillon.ledger.sqlite.file import SqliteFile

_SYNCHRONOUS_FULL = 2


class SqliteEngine:
    """Satisfies Engine."""

    def __init__(self, file: SqliteFile, sql: Mapping[str, str], codec: Codec) -> None:
        self._file = file
        self._sql = sql
        self._codec = codec

    async def rows(
        self,
        statement: str,
        values: Values = NOTHING,
        *,
        each: Sequence[Values] | None = None,
        pool: PoolName = "reads",  # noqa: ARG002 - one connection reads
    ) -> list[Row]:
        ask = Ask(statement, values, each)
        return await self._file.read(lambda connection, now: self.ask(connection, now, ask))

    async def one(self, statement: str, values: Values = NOTHING, *, pool: PoolName = "reads") -> Row | None:
        found = await self.rows(statement, values, pool=pool)
        return found[0] if found else None

    async def write(
        self,
        statement: str,
        values: Values = NOTHING,
        *,
        repeatable: bool,  # noqa: ARG002 - a file has no connection that breaks
        each: Sequence[Values] | None = None,
        pool: PoolName = "reads",  # noqa: ARG002 - one connection writes
        look: str | None = None,
    ) -> list[Row]:
        ask = Ask(statement, values, each)
        if look is None:
            return await self._file.write(lambda connection, now: self.ask(connection, now, ask))
        first = Ask(look, values)
        found = await self._file.write_if(
            lambda connection, now: any(self.ask(connection, now, first)[0].values()),
            lambda connection, now: self.ask(connection, now, ask),
        )
        return found or []

    async def snapshot(self, steps: Callable[[], Steps[T]]) -> T:
        return await self._file.read(lambda connection, now: self.drive(connection, now, steps()))

    async def change(
        self,
        steps: Callable[[], Steps[T]],
        *,
        repeatable: bool,  # noqa: ARG002 - a file has no connection that breaks
        pool: PoolName = "reads",  # noqa: ARG002 - one connection writes
    ) -> T:
        return await self._file.write(lambda connection, now: self.drive(connection, now, steps()))

    def ask(self, connection: sqlite3.Connection, now: int, ask: Ask) -> list[Row]:
        """Run one statement in a transaction that is open already."""
        text = self._sql[ask.statement]
        if ask.each is None:
            return [self._codec.row(dict(row)) for row in connection.execute(text, self._bound(ask.values, now))]
        rows: list[Row] = []
        for each in ask.each:
            found = connection.execute(text, self._bound({**ask.values, **each}, now))
            rows += [self._codec.row(dict(row)) for row in found]
        return rows

    async def check(self) -> dict[str, Any]:
        def work(connection: sqlite3.Connection, now: int) -> tuple[int, str, int]:
            (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
            (synchronous,) = connection.execute("PRAGMA synchronous").fetchone()
            return now, mode, synchronous

        began, wall = time.monotonic(), time.time()
        now, mode, synchronous = await self._file.read(work)
        took = time.monotonic() - began
        return {
            "engine": "sqlite",
            "version": sqlite3.sqlite_version,
            "durable": synchronous >= _SYNCHRONOUS_FULL,
            "settings": {"journal_mode": mode, "synchronous": str(synchronous)},
            "clock_skew_seconds": now / 1000 - (wall + took / 2),
            "response_time_ms": took * 1000,
            "oldest_transaction_seconds": 0.0,
        }

    def _bound(self, values: Values, now: int) -> dict[str, Any]:
        return {"now": now, **{name: _told(value) for name, value in self._codec.bind(values).items()}}

    def drive(self, connection: sqlite3.Connection, now: int, steps: Steps[T]) -> T:
        """Run steps in a transaction that is open already."""
        try:
            ask = next(steps)
            while True:
                ask = steps.send(self.ask(connection, now, ask))
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            steps.close()


def _told(value: Any) -> Any:  # noqa: ANN401 - whatever a column holds
    match value:
        case list() | tuple():
            return json.dumps(value)
        case Decimal():
            return str(value)
        case _:
            return value
