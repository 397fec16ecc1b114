"""Connections that break, servers that vanish, commits whose answer never comes."""

import asyncio
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import pytest

from carillon.domain.claims import Settled
from carillon.domain.errors import LedgerUnavailable
from carillon.domain.notifications import Accepted
from carillon.ledger.opening import Ledger
from carillon.ledger.postgres.ledger import PostgresLedger
from tests.support.ledger_builders import enrolment, finish, redrive, want
from tests.support.ledger_engines import PostgresEngine
from tests.support.ledger_postgres import connected, until, until_waiting
from tests.support.ledger_properties import claim_one
from tests.support.proxy import FaultProxy


@pytest.fixture
def engine(ledger_dsn: str) -> PostgresEngine:
    return PostgresEngine(ledger_dsn)


@pytest.fixture
async def proxy(engine: PostgresEngine) -> AsyncIterator[FaultProxy]:
    parts = urlsplit(engine.dsn)
    async with FaultProxy(str(parts.hostname), int(parts.port or 0)) as proxy:
        yield proxy


@pytest.fixture
async def ledger(engine: PostgresEngine, proxy: FaultProxy) -> AsyncIterator[Ledger]:
    """A ledger that reaches its database only through the proxy."""
    dsn = urlsplit(engine.dsn)._replace(netloc=f"postgres@{proxy.address}").geturl()
    ledger = await PostgresLedger.open(dsn, allow_unsafe=True)
    await ledger.migrate()
    yield ledger
    proxy.heal()
    await ledger.aclose()


@pytest.mark.req("G-05")
async def test_a_commit_whose_answer_was_lost_is_repeated_without_harm(
    engine: PostgresEngine, proxy: FaultProxy, ledger: Ledger
) -> None:
    await ledger.enrol([enrolment()])
    given = enrolment(idempotency_key="k")
    proxy.cut(0)
    with pytest.raises(LedgerUnavailable):
        await ledger.enrol([given])
    # The server had it all the same.
    assert len(await engine.rows("records")) == 2
    proxy.heal()
    assert await ledger.enrol([given]) == [Accepted(given.notification.notification_id)]
    assert len(await engine.rows("records")) == len(await engine.rows("routes")) == 2


async def test_a_settlement_whose_answer_was_lost_is_repeated_without_harm(
    engine: PostgresEngine, proxy: FaultProxy, ledger: Ledger
) -> None:
    # The same statement once before, so that what is cut off is the answer to its execution.
    await ledger.enrol([enrolment()])
    await ledger.settle([finish(await claim_one(ledger))])
    await ledger.enrol([enrolment()])
    claim = await claim_one(ledger)
    proxy.cut(0)
    with pytest.raises(LedgerUnavailable):
        await ledger.settle([finish(claim)])
    assert [row["status"] for row in await engine.rows("routes")] == ["published"] * 2
    proxy.heal()
    assert await ledger.settle([finish(claim)]) == [Settled.APPLIED]
    assert len(await engine.rows("attempts_told")) == 2


async def test_a_connection_that_breaks_under_a_statement_is_replaced(
    engine: PostgresEngine, proxy: FaultProxy, ledger: Ledger
) -> None:
    given = enrolment(idempotency_key="k")
    async with connected(engine.dsn) as blocker:
        async with blocker.transaction():
            await blocker.execute("LOCK TABLE records IN EXCLUSIVE MODE")
            enrolling = asyncio.create_task(ledger.enrol([given]))
            await until_waiting(engine.dsn, 1)
            proxy.reset()
            await until_waiting(engine.dsn, 2)
        assert await enrolling == [Accepted(given.notification.notification_id)]
    assert len(await engine.rows("records")) == 1


async def test_an_unreachable_server_is_unavailability_and_heals(proxy: FaultProxy, ledger: Ledger) -> None:
    await ledger.enrol([enrolment()])
    proxy.refuse()
    for call in (
        ledger.enrol([enrolment()]),
        ledger.claim([want()], 10, "w"),
        ledger.counts(),
        ledger.check(),
        redrive(ledger, ("a", "b")),
        ledger.prune(1, 1, 1),
        ledger.migrate(),
    ):
        with pytest.raises(LedgerUnavailable):
            await call
    proxy.heal()
    assert len(await ledger.claim([want()], 10, "w")) == 1


async def test_killed_backends_are_replaced(engine: PostgresEngine, ledger: Ledger) -> None:
    await ledger.enrol([enrolment()])
    await engine.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND application_name LIKE 'carillon-%'"
    )
    claim = await claim_one(ledger)
    assert await ledger.settle([finish(claim)]) == [Settled.APPLIED]


async def test_a_server_that_turned_read_only_is_left(engine: PostgresEngine, ledger: Ledger) -> None:
    await ledger.enrol([enrolment()])
    database = engine.dsn.rpartition("/")[2]
    await engine.execute(f"ALTER DATABASE {database} SET default_transaction_read_only = on")
    await engine.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND application_name LIKE 'carillon-%'"
    )
    with pytest.raises(LedgerUnavailable):
        await ledger.enrol([enrolment()])
    async with connected(engine.dsn, default_transaction_read_only="off") as repair:
        await repair.execute(f"ALTER DATABASE {database} RESET default_transaction_read_only")
    assert len(await ledger.enrol([enrolment()])) == 1


async def test_reads_do_not_starve_settlements(engine: PostgresEngine, ledger: Ledger) -> None:
    await ledger.enrol([enrolment()])
    claim = await claim_one(ledger)
    async with connected(engine.dsn) as blocker:
        async with blocker.transaction():
            await blocker.execute("LOCK TABLE dead_letters IN ACCESS EXCLUSIVE MODE")
            reads = [asyncio.create_task(ledger.dead_letters({}, 10, 0)) for _ in range(4)]
            await until_waiting(engine.dsn, 4)
            assert await ledger.extend([claim]) == []
        await asyncio.gather(*reads)


async def test_a_ring_reaches_other_processes(engine: PostgresEngine, ledger: Ledger) -> None:
    async with engine.ledger() as other, connected(engine.dsn) as watcher:
        waiting = asyncio.create_task(other.signal.wait(60))
        await until(watcher, LISTENING, 1)
        # The first wake-up is its own, for what rang before it listened.
        await waiting
        waiting = asyncio.create_task(other.signal.wait(60))
        for _ in range(100):
            ledger.signal.ring()
        async with asyncio.timeout(30):
            await waiting


async def test_many_rings_become_few_notifications(engine: PostgresEngine, ledger: Ledger) -> None:
    heard: asyncio.Queue[object] = asyncio.Queue()
    async with connected(engine.dsn) as watcher:
        await watcher.add_listener("carillon", lambda *_: heard.put_nowait(None))
        for _ in range(1000):
            ledger.signal.ring()
        async with asyncio.timeout(30):
            await heard.get()
        ledger.signal.ring()
        async with asyncio.timeout(30):
            await heard.get()
        assert heard.qsize() <= 1
        await watcher.reset()


async def test_a_ring_wakes_its_own_process_once(ledger: Ledger) -> None:
    ledger.signal.ring()
    await ledger.signal.wait(60)
    await ledger.signal.wait(0)


async def test_a_lost_listener_listens_again_and_looks_once(engine: PostgresEngine, ledger: Ledger) -> None:
    async with connected(engine.dsn) as watcher:
        waiting = asyncio.create_task(ledger.signal.wait(60))
        await until(watcher, LISTENING, 1)
        await waiting
        waiting = asyncio.create_task(ledger.signal.wait(60))
        await watcher.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND application_name = 'carillon-listen'"
        )
        async with asyncio.timeout(30):
            await waiting
        await until(watcher, LISTENING, 1)


LISTENING = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
    "AND application_name = 'carillon-listen' AND query LIKE 'LISTEN%'"
)
