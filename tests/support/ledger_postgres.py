"""A second pair of hands on a PostgreSQL ledger's database: to hold locks, to watch waits, to read plans."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

import asyncpg

from carillon.ledger.turns import LOWEST
from tests.support.tables import WAITING

_RIPE = 10


@asynccontextmanager
async def connected(dsn: str, **settings: str) -> "AsyncIterator[asyncpg.Connection[Any]]":
    connection = await asyncpg.connect(dsn, server_settings=settings)
    try:
        yield connection
    finally:
        await connection.close()


_INDEXES = """
SELECT indexrelid::regclass::text AS name, pg_get_indexdef(indexrelid) AS text FROM pg_index
WHERE indrelid = ANY ($1::regclass[])
  AND NOT EXISTS (SELECT FROM pg_constraint WHERE conindid = indexrelid AND contype <> 'f')
"""


async def fill(connection: "asyncpg.Connection[Any]", rows: str, *tables: str) -> None:
    """Write many rows into tables that meanwhile have no index but their keys: creating one anew costs less."""
    indexes = await connection.fetch(_INDEXES, list(tables))
    await connection.execute("DROP INDEX " + ", ".join(index["name"] for index in indexes))
    await connection.execute(rows)
    for index in indexes:
        await connection.execute(index["text"])
    await connection.execute("ANALYZE " + ", ".join(tables))


async def until(connection: "asyncpg.Connection[Any]", question: str, answer: object) -> None:
    """Wait until the database answers so."""
    async with asyncio.timeout(40):
        while await connection.fetchval(question) != answer:  # noqa: ASYNC110 - another process sets no Event here
            await asyncio.sleep(0.01)


async def until_waiting(dsn: str, backends: int) -> None:
    """Wait until so many backends wait for a lock."""
    async with connected(dsn) as watcher:
        await until(watcher, WAITING, backends)


def claim_values(lanes: list[int], provider: str, limit: int, total: int) -> tuple[object, ...]:
    """The arguments of the statement that claims: no caps, no special groups, little is ripe and does not wait."""
    asked = (lanes, [provider] * len(lanes), [limit] * len(lanes), [LOWEST] * len(lanes), [None] * len(lanes))
    return (*asked, total, "w", *([] for _ in range(6)), "{}", _RIPE, 30.0, False)


def floor_values(lane: int, provider: str, group: int, due_at: datetime, ticket: int) -> tuple[object, ...]:
    """The arguments of a claim that begins behind a floor, after those of `claim_values`."""
    return ([lane], [provider], [group], [due_at], [ticket], 30.0)


async def plan_of(connection: "asyncpg.Connection[Any]", statement: str, *arguments: object) -> str:
    """The plan as text; the statement is not executed for good."""
    transaction = connection.transaction()
    await transaction.start()
    try:
        rows = await connection.fetch("EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) " + statement, *arguments)
    finally:
        await transaction.rollback()
    return "\n".join(row[0] for row in rows)
