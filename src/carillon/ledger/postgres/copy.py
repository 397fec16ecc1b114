"""A ledger in PostgreSQL as one end of a copy."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

import asyncpg

from carillon.domain.errors import ConfigurationError, LedgerUnavailable
from carillon.ledger.copy_values import Column, Kind, Row, Table, for_postgres, neutral
from carillon.ledger.migrate import migrate_postgres
from carillon.ledger.postgres.pools import UNAVAILABLE, Address

PAGE = 2000
_KINDS: dict[str, Kind] = {
    "text": "text",
    "smallint": "number",
    "integer": "number",
    "bigint": "number",
    "double precision": "real",
    "timestamp with time zone": "time",
    "boolean": "flag",
    "jsonb": "json",
    "numeric": "amount",
}
_NEIGHBOUR_SECONDS = 10.0
"""The session of a process that has just ended may stay visible for a moment."""


class PostgresEnd:
    """One connection; reads use one snapshot, and each page is written in a transaction."""

    def __init__(self, connection: "asyncpg.Connection[asyncpg.Record]", sql: Mapping[str, str]) -> None:
        self._connection = connection
        self._sql = sql

    @classmethod
    async def prepared(cls, url: str, sql: Mapping[str, str]) -> "PostgresEnd":
        """Open and migrate, without a ledger object, which would need the seal keys."""
        end = await cls.open(url, sql)
        await end.migrate(Address.parse(url).search_path)
        return end

    @classmethod
    async def open(cls, url: str, sql: Mapping[str, str]) -> "PostgresEnd":
        address = Address.parse(url)
        # No timeout while idle: the other end may need long to write a page.
        patient = address.settings("copy", {"idle_in_transaction_session_timeout": "0"})
        try:
            connection = await asyncpg.connect(address.dsn, timeout=10.0, server_settings=patient)
        except (*UNAVAILABLE, asyncpg.PostgresError) as error:
            raise LedgerUnavailable(f"PostgreSQL: {error}") from None
        return cls(connection, sql)

    async def aclose(self) -> None:
        await self._connection.close()

    async def migrate(self, schemas: tuple[str, ...]) -> None:
        await migrate_postgres(self._connection, self._sql, schemas)

    async def used_by(self) -> str | None:
        """The names of other sessions on this database; None if there are none."""
        until = time.monotonic() + _NEIGHBOUR_SECONDS
        while names := await self._connection.fetchval(self._sql["copy_neighbours"]):
            if time.monotonic() > until:
                return f"sessions {', '.join(names)} are open in the database"
            await asyncio.sleep(0.2)
        return None

    async def versions(self) -> list[int]:
        try:
            return sorted(row["version"] for row in await self._connection.fetch(self._sql["migrations_applied"]))
        except asyncpg.UndefinedTableError:
            return []

    async def tables(self) -> dict[str, Table]:
        """All tables of the schema, also those of other programs."""
        keys = {row["table_name"]: tuple(row["key"]) for row in await self._connection.fetch(self._sql["copy_keys"])}
        columns: dict[str, list[Column]] = {}
        for row in await self._connection.fetch(self._sql["copy_columns"]):
            if row["table_name"] in keys:
                kind = _KINDS.get(row["data_type"])
                columns.setdefault(row["table_name"], []).append(Column(row["column_name"], kind or "text"))
        return {name: Table(name=name, columns=tuple(columns[name]), key=keys[name]) for name in columns}

    async def count(self, table: Table) -> int:
        return int(await self._connection.fetchval(await self._composed("copy_count", table.name)))

    async def last(self, table: Table) -> Row | None:
        row = await self._connection.fetchrow(await self._composed("copy_last", table.name, list(table.key)))
        return None if row is None else neutral(table.kinds(table.key), tuple(row))

    async def read(self, table: Table, after: Row | None) -> AsyncIterator[list[Row]]:
        statement = await self._composed("copy_reading", table.name, table.names, list(table.key), after is not None)
        begin = () if after is None else for_postgres(table.kinds(table.key), after)
        kinds = table.kinds(table.names)
        async with self._connection.transaction(isolation="repeatable_read", readonly=True):
            cursor = await self._connection.cursor(statement, *begin)
            while rows := await cursor.fetch(PAGE):
                yield [neutral(kinds, tuple(row)) for row in rows]

    async def write(self, table: Table, rows: list[Row]) -> None:
        kinds = table.kinds(table.names)
        try:
            await self._connection.copy_records_to_table(
                table.name, columns=table.names, records=[for_postgres(kinds, row) for row in rows]
            )
        except asyncpg.DataError as error:
            raise ConfigurationError(f"{table.name}: PostgreSQL refuses a value of SQLite: {error}") from error

    async def marks(self) -> dict[str, int]:
        found = await self._connection.fetch(self._sql["copy_marks"])
        return {row["name"]: row["last"] for row in found if row["last"] is not None}

    async def mark(self, name: str, last: int) -> None:
        await self._connection.execute(self._sql["copy_mark"], name, last)

    async def _composed(self, name: str, *about: Any) -> str:  # noqa: ANN401 - parameters
        return str(await self._connection.fetchval(self._sql[name], *about))
