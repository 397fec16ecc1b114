"""PostgreSQL as the engine of every store: pools, transactions, and the conversion of values."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from carillon.domain.store import NOTHING, Ask, PoolName, Row, Steps, T, Values
from carillon.ledger.postgres.pools import Connection, Pool, Pools
from carillon.ledger.sealing import Codec
from carillon.ledger.statements import Numbered, numbered

_DURABILITY = ("fsync", "full_page_writes", "synchronous_commit", "synchronous_standby_names")


class PostgresEngine:
    """Satisfies Engine."""

    def __init__(self, pools: Pools, sql: Mapping[str, str], codec: Codec) -> None:
        self._pools = pools
        self._sql = sql
        self._codec = codec
        self._numbered: dict[str, Numbered] = {}

    async def rows(
        self,
        statement: str,
        values: Values = NOTHING,
        *,
        each: Sequence[Values] | None = None,
        pool: PoolName = "reads",
    ) -> list[Row]:
        return await self.write(statement, values, repeatable=True, each=each, pool=pool)

    async def one(self, statement: str, values: Values = NOTHING, *, pool: PoolName = "reads") -> Row | None:
        found = await self.rows(statement, values, pool=pool)
        return found[0] if found else None

    async def write(
        self,
        statement: str,
        values: Values = NOTHING,
        *,
        repeatable: bool,
        each: Sequence[Values] | None = None,
        pool: PoolName = "reads",
        look: str | None = None,  # noqa: ARG002 - a statement that finds nothing costs no commit here
    ) -> list[Row]:
        ask = Ask(statement, values, each)
        return await self._pool(pool).run(lambda connection: self.ask(connection, ask), repeatable=repeatable)

    async def snapshot(self, steps: Callable[[], Steps[T]]) -> T:
        async def work(connection: Connection) -> T:
            async with connection.transaction(isolation="repeatable_read", readonly=True):
                return await self.drive(connection, steps())

        return await self._pools.reads.run(work, repeatable=True)

    async def change(self, steps: Callable[[], Steps[T]], *, repeatable: bool, pool: PoolName = "reads") -> T:
        async def work(connection: Connection) -> T:
            async with connection.transaction():
                return await self.drive(connection, steps())

        return await self._pool(pool).run(work, repeatable=repeatable)

    async def ask(self, connection: Connection, ask: Ask) -> list[Row]:
        """Run one statement on a connection that is in use already."""
        if ask.each is not None and not ask.each:
            return []
        statement = self._statement(ask.statement)
        found = await connection.fetch(statement.text, *self._arguments(statement.names, ask))
        return [self._codec.row(plain(row.items())) for row in found]

    async def check(self) -> dict[str, Any]:
        began, wall = time.monotonic(), time.time()
        (row,) = await self.rows("check")
        took = time.monotonic() - began
        settings = {name: row[name] for name in _DURABILITY}
        return {
            "engine": "postgresql",
            "version": row["version"],
            "durable": not unsafe_settings(settings),
            "settings": settings,
            "clock_skew_seconds": row["clock"] - (wall + took / 2),
            "response_time_ms": took * 1000,
            "oldest_transaction_seconds": row["oldest_transaction_seconds"],
        }

    async def drive(self, connection: Connection, steps: Steps[T]) -> T:
        """Run steps in a transaction that is open already."""
        try:
            ask = next(steps)
            while True:
                ask = steps.send(await self.ask(connection, ask))
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            steps.close()

    def _arguments(self, names: tuple[str, ...], ask: Ask) -> list[Any]:
        values = self._codec.bind(ask.values)
        if ask.each is None:
            return [values[name] for name in names]
        each = [self._codec.bind(row) for row in ask.each]
        return [[row[name] for row in each] if name in each[0] else values[name] for name in names]

    def _pool(self, name: PoolName) -> Pool:
        match name:
            case "intake":
                return self._pools.intake
            case "claims":
                return self._pools.claims
            case "settlements":
                return self._pools.settlements
            case "reads":
                return self._pools.reads

    def _statement(self, name: str) -> Numbered:
        found = self._numbered.get(name)
        if found is None:
            found = self._numbered[name] = numbered(self._sql[name])
        return found


def plain(row: Iterable[tuple[str, Any]]) -> Row:
    """A row as a dictionary, times as Unix milliseconds."""
    return {name: round(value.timestamp() * 1000) if isinstance(value, datetime) else value for name, value in row}


def unsafe_settings(settings: Mapping[str, str]) -> list[str]:
    """The settings under which a commit that was answered can still be lost."""
    return [name for name in _DURABILITY[:3] if settings[name] == "off"]
