"""How many connections a process holds: never more than it may, few while idle, none for ever."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from carillon.domain.errors import ConfigurationError
from carillon.ledger.postgres.ledger import PostgresLedger
from carillon.ledger.postgres.pools import Connection, PoolRules
from tests.support import waiting
from tests.support.ledger_builders import enrolment, finish, want
from tests.support.ledger_postgres import connected, until

pytestmark = pytest.mark.slow

OURS = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'carillon-%'"
IDLE = OURS + " AND application_name NOT IN ('carillon-listen', 'carillon-notify')"


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here connections are counted: on a busy machine many callers wait long for few of them."""
    monkeypatch.setattr("carillon.ledger.postgres.pools._ACQUIRE_SECONDS", 40.0)


@asynccontextmanager
async def opened(dsn: str, **rules: Any) -> AsyncIterator[PostgresLedger]:
    ledger = await PostgresLedger.open(dsn, allow_unsafe=True, rules=PoolRules(**rules))
    try:
        await ledger.migrate()
        yield ledger
    finally:
        await ledger.aclose()


async def busy(ledger: PostgresLedger) -> None:
    """Everything a process does, all at once."""

    async def work() -> None:
        for _ in range(4):
            await ledger.enrol([enrolment()])
            ledger.signal.ring()
            claims = await ledger.claim([want(5)], 5, "w")
            await ledger.settle([finish(claim) for claim in claims])
            await ledger.counts()
            await ledger.signal.wait(0.001)

    await asyncio.gather(*(work() for _ in range(12)))


async def peak(dsn: str, ledger: PostgresLedger) -> int:
    """The most connections at any moment of such a time."""
    async with connected(dsn) as watcher:
        working = asyncio.create_task(busy(ledger))
        counts = [await _count(watcher)]
        while not working.done():
            counts.append(await _count(watcher))
        await working
        counts.append(await _count(watcher))
    return max(counts)


async def _count(watcher: "asyncpg.Connection[Any]") -> int:
    return int(await watcher.fetchval(OURS))


@pytest.mark.req("S1-23")
@pytest.mark.parametrize("most", [2, 3, 5, 6, 7, 8, 10])
async def test_a_process_never_holds_more_connections_than_it_may(ledger_dsn: str, most: int) -> None:
    async with opened(ledger_dsn, max_connections=most) as ledger:
        assert 1 <= await peak(ledger_dsn, ledger) <= most


@pytest.mark.req("S1-23")
async def test_without_a_limit_it_holds_more(ledger_dsn: str) -> None:
    async with opened(ledger_dsn) as ledger:
        assert 10 < await peak(ledger_dsn, ledger) <= 15


async def test_too_few_are_refused(ledger_dsn: str) -> None:
    with pytest.raises(ConfigurationError, match=r"ledger\.max_connections"):
        await PostgresLedger.open(ledger_dsn, allow_unsafe=True, rules=PoolRules(max_connections=1))


@pytest.mark.req("S1-23")
async def test_what_lies_idle_beyond_the_limit_is_given_back(ledger_dsn: str) -> None:
    async with opened(ledger_dsn, max_idle_connections=5) as ledger, connected(ledger_dsn) as watcher:
        # Two of them never lie idle: who listens and who rings.
        assert await peak(ledger_dsn, ledger) > 5 + 2
        await until(watcher, f"SELECT ({IDLE}) <= 5", answer=True)
        assert int(await watcher.fetchval(IDLE)) > 0, "and what may lie idle is kept"


async def _pid(connection: Connection) -> int:
    return int(await connection.fetchval("SELECT pg_backend_pid()"))


@pytest.mark.req("S1-23")
async def test_no_connection_lives_longer_than_it_may(ledger_dsn: str) -> None:
    async with opened(ledger_dsn, connection_lifetime_seconds=0.2) as ledger:
        pool = ledger._pools.claims  # noqa: SLF001 - which connection it was is not to be seen from outside
        first = await pool.run(_pid, repeatable=True)

        async def is_another() -> bool:
            return await pool.run(_pid, repeatable=True) != first

        await waiting.until(is_another, timeout=30, what="another connection")
    async with opened(ledger_dsn) as ledger:
        pool = ledger._pools.claims  # noqa: SLF001 - as above
        assert len({await pool.run(_pid, repeatable=True) for _ in range(20)}) == 1


@pytest.mark.req("S1-23")
async def test_an_operation_is_given_up_after_its_time(ledger_dsn: str) -> None:
    async with opened(ledger_dsn, operation_timeout_seconds=2.0) as ledger:

        async def sleep(connection: Connection) -> None:
            await connection.execute("SELECT pg_sleep(100)")

        with pytest.raises(Exception, match="TimeoutError"):
            await asyncio.wait_for(ledger._pools.reads.run(sleep, repeatable=False), 50)  # noqa: SLF001 - as above
