"""The program's tables as plain rows, read past the program."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from typing import Any

import asyncpg

from carillon.ledger.rows import as_held

Row = dict[str, Any]

OPEN = "SELECT count(*) AS n FROM routes WHERE status IN ('pending', 'failed')"
HELD = "SELECT notification_id, route_id, held_by AS lease_owner FROM routes_held"
CLAIMED = "SELECT count(*) AS n FROM routes_held"
STATUSES = "SELECT status, count(*) AS n FROM routes GROUP BY status"
ROUTES = (
    "SELECT r.*, h.claim_token AS held_token, h.held_by, h.held_since, h.held_until, h.held_attempt FROM routes r "
    "LEFT JOIN routes_held h ON h.notification_id = r.notification_id AND h.route_id = r.route_id"
)
"""With what the lease of each route says, which `read` shows in the columns of the route."""
ATTEMPTS = "SELECT * FROM attempts_told ORDER BY attempt_id"
DEAD = "SELECT * FROM dead_letters"
SETTLED_TWICE = (
    "SELECT notification_id, route_id, count(*) AS n FROM attempts_told "
    "WHERE settled <> 'stale' AND verdict IN ('finish', 'bury') GROUP BY notification_id, route_id HAVING count(*) > 1"
)
OVERDRAWN = "SELECT notification_id, route_id, attempt_count FROM routes WHERE attempt_count > max_attempts + 1"

WAITING = "SELECT count(*) AS n FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


async def read(url: str, statement: str) -> list[Row]:
    if url.startswith("postgres"):
        connection = await asyncpg.connect(url, timeout=40)
        try:
            return [as_held(dict(row)) for row in await connection.fetch(statement)]
        finally:
            await connection.close()
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"), timeout=40)) as file:
        file.row_factory = sqlite3.Row
        return [as_held(dict(row)) for row in file.execute(statement).fetchall()]


class Kept:
    """`read` over one connection that stays: a new one costs PostgreSQL 24 ms, and who waits for a row asks often."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: asyncpg.Connection[asyncpg.Record] | None = None
        self._turn = asyncio.Lock()

    async def read(self, statement: str) -> list[Row]:
        if not self._url.startswith("postgres"):
            return await read(self._url, statement)
        async with self._turn:
            if self._connection is None or self._connection.is_closed():
                # Nothing is kept of a statement: a migration may change what it finds.
                self._connection = await asyncpg.connect(self._url, timeout=40, statement_cache_size=0)
            kept = self._connection
            try:
                return [as_held(dict(row)) for row in await kept.fetch(statement)]
            except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
                if not kept.is_closed():
                    raise
        # The server ended the connection since the last question, and may answer on a new one.
        return await read(self._url, statement)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.terminate()


class Reader:
    """The same outside of event loops."""

    def __init__(self, url: str) -> None:
        self._kept = Kept(url)
        self._runner: asyncio.Runner | None = None

    def read(self, statement: str) -> list[Row]:
        self._runner = self._runner or asyncio.Runner()
        return self._runner.run(self._kept.read(statement))

    def close(self) -> None:
        if self._runner is not None:
            self._runner.run(self._close())
            self._runner.close()

    async def _close(self) -> None:
        self._kept.close()


async def write(url: str, statement: str) -> None:
    if url.startswith("postgres"):
        await read(url, statement)
        return
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"), timeout=40)) as file, file:
        file.execute(statement)


async def number(url: str, statement: str) -> int:
    return int((await read(url, statement))[0]["n"])


@asynccontextmanager
async def locked(dsn: str, table: str) -> AsyncIterator[None]:
    """Nobody writes this table of PostgreSQL meanwhile: who wants to is seen `WAITING`."""
    connection = await asyncpg.connect(dsn, timeout=40)
    try:
        async with connection.transaction():
            await connection.execute(f"LOCK TABLE {table} IN SHARE MODE")
            yield
    finally:
        await connection.close()
