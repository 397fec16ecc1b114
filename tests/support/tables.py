"""The program's tables as plain rows, read past the program."""

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from typing import Any
from weakref import WeakKeyDictionary

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


_GONE = (OSError, asyncpg.InterfaceError, asyncpg.PostgresConnectionError, asyncpg.OperatorInterventionError)
_SECONDS = 40
_Asked = AsyncGenerator[list[Row], str]
_idle: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, list[_Asked]]] = WeakKeyDictionary()
"""Connections for the next question: tests that wait ask often, and a new one costs 15 ms of processor time."""


async def read(url: str, statement: str) -> list[Row]:
    if url.startswith("postgres"):
        return await _read_postgres(url, statement)
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"), timeout=40)) as file:
        file.row_factory = sqlite3.Row
        return [as_held(dict(row)) for row in file.execute(statement).fetchall()]


async def _read_postgres(url: str, statement: str) -> list[Row]:
    idle = _idle.setdefault(asyncio.get_running_loop(), {}).setdefault(url, [])
    while idle:
        asked = idle.pop()
        with suppress(*_GONE):
            # The server may have ended since the last question; then a new connection asks.
            rows = await asked.asend(statement)
            idle.append(asked)
            return rows
    asked = _questions(url)
    await anext(asked)
    rows = await asked.asend(statement)
    idle.append(asked)
    return rows


async def _questions(url: str) -> _Asked:
    """One connection; the loop closes it at its own end, as each generator that is still open."""
    # Nothing is kept of a statement: a migration may change what it finds.
    connection = await asyncpg.connect(url, timeout=_SECONDS, statement_cache_size=0)
    try:
        statement = yield []
        while True:
            statement = yield [as_held(dict(row)) for row in await connection.fetch(statement, timeout=_SECONDS)]
    finally:
        with suppress(*_GONE, TimeoutError):
            await connection.close(timeout=_SECONDS)


class Reader:
    """The same outside of event loops."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._runner: asyncio.Runner | None = None

    def read(self, statement: str) -> list[Row]:
        self._runner = self._runner or asyncio.Runner()
        return self._runner.run(read(self._url, statement))

    def close(self) -> None:
        if self._runner is not None:
            self._runner.close()


async def write(url: str, statement: str) -> None:
    """Through a connection of its own: a statement that may have been executed is never repeated."""
    if url.startswith("postgres"):
        connection = await asyncpg.connect(url, timeout=_SECONDS)
        try:
            await connection.execute(statement)
        finally:
            await connection.close()
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
