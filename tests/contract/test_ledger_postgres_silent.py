"""A PostgreSQL that is frozen: once the ledger is cut off nobody waits for it, on a connection or in the queue."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from carillon.domain.errors import LedgerUnavailable
from carillon.ledger.postgres.ledger import PostgresLedger
from carillon.ledger.postgres.pools import Connection, PoolRules
from tests.support.servers import Postgres

QUESTIONS = 12
PATIENCE = 40.0


@pytest.fixture
def own_postgres() -> Iterator[Postgres]:
    with Postgres() as server:
        yield server


@pytest.fixture
async def ledger(own_postgres: Postgres) -> AsyncIterator[PostgresLedger]:
    rules = PoolRules(operation_timeout_seconds=300.0)
    opened = await PostgresLedger.open(own_postgres.dsn(), allow_unsafe=True, rules=rules)
    yield opened
    await opened.aclose()


async def ask(connection: Connection) -> object:
    return await connection.fetchval("SELECT 1")


async def asked(ledger: PostgresLedger) -> list["asyncio.Task[object]"]:
    """More questions than the pool has connections, all under way."""
    pool = ledger._pools.reads  # noqa: SLF001 - what is under test
    tasks = [asyncio.create_task(pool.run(ask, repeatable=True)) for _ in range(QUESTIONS)]
    await asyncio.sleep(0)
    return tasks


@pytest.mark.req("G-06")
async def test_waiting_callers_get_the_error_at_once(own_postgres: Postgres, ledger: PostgresLedger) -> None:
    assert [await each for each in await asked(ledger)] == [1] * QUESTIONS
    own_postgres.pause()
    try:
        waiting = await asked(ledger)
        # The control: a server that is merely frozen tells nobody anything.
        done, _ = await asyncio.wait(waiting, timeout=0.2)
        assert not done
        ledger.cut_off()
        answers = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), PATIENCE)
        assert {type(answer) for answer in answers} == {LedgerUnavailable}
        await asyncio.wait_for(ledger.aclose(), PATIENCE)
    finally:
        own_postgres.resume()


async def test_nothing_is_asked_any_more(ledger: PostgresLedger) -> None:
    ledger.cut_off()
    ledger.cut_off()
    with pytest.raises(LedgerUnavailable, match="ends without waiting for it"):
        await ledger.check()
