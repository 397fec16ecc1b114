"""Races on real row locks: a statement that waited for a lock checks its conditions again."""

import asyncio
import random

import pytest

from carillon.domain.claims import Settled
from carillon.ledger.opening import Ledger
from tests.support.ledger_builders import bury, enrolment, finish, redrive, retry, route, want
from tests.support.ledger_engines import PostgresEngine, ledger_fixture
from tests.support.ledger_postgres import connected, until_waiting
from tests.support.ledger_properties import claim_one

ledger = ledger_fixture("function")

TAKE_OVER = (
    "WITH ended AS (DELETE FROM leases RETURNING lease_id) "
    "UPDATE routes SET claim_token = 1000000, next_attempt_at = now() + interval '1 hour', "
    "ticket = CASE WHEN (SELECT count(*) FROM ended) = 0 THEN ticket END"
)


@pytest.fixture
def engine(ledger_dsn: str) -> PostgresEngine:
    return PostgresEngine(ledger_dsn)


@pytest.mark.parametrize(
    ("build", "answer"), [(retry, Settled.STALE), (bury, Settled.STALE), (finish, Settled.ADOPTED)]
)
async def test_a_settlement_that_waited_for_a_take_over(
    engine: PostgresEngine, ledger: Ledger, build: object, answer: Settled
) -> None:
    assert callable(build)
    await ledger.enrol([enrolment()])
    zombie = await claim_one(ledger)
    async with connected(engine.dsn) as heir:
        async with heir.transaction():
            await heir.execute(TAKE_OVER)
            late = asyncio.create_task(ledger.settle([build(zombie)]))
            await until_waiting(engine.dsn, 1)
        assert await late == [answer]
    row = await engine.only("routes")
    assert (row["status"], row["claim_token"]) == (
        ("published", None) if answer is Settled.ADOPTED else ("pending", 1000000)
    )


async def test_a_renewal_that_waited_for_a_take_over(engine: PostgresEngine, ledger: Ledger) -> None:
    await ledger.enrol([enrolment()])
    zombie = await claim_one(ledger)
    async with connected(engine.dsn) as heir:
        async with heir.transaction():
            await heir.execute(TAKE_OVER)
            late = asyncio.create_task(ledger.extend([zombie]))
            await until_waiting(engine.dsn, 1)
        assert await late == [zombie]


async def test_a_cancellation_that_waited_for_a_claim(engine: PostgresEngine, ledger: Ledger) -> None:
    given = enrolment()
    await ledger.enrol([given])
    async with connected(engine.dsn) as worker:
        async with worker.transaction():
            await worker.execute(TAKE_OVER)
            late = asyncio.create_task(ledger.cancel(given.notification.notification_id))
            await until_waiting(engine.dsn, 1)
        assert await late == 0


async def test_claimers_do_not_wait_for_locked_rows(engine: PostgresEngine, ledger: Ledger) -> None:
    await ledger.enrol([enrolment(route("ann")), enrolment(route("bob"))])
    async with connected(engine.dsn) as other, other.transaction():
        await other.execute(
            "SELECT FROM due d JOIN routes r ON r.ticket = d.ticket WHERE r.route_id = 'email:user:ann' FOR UPDATE OF d"
        )
        claims = await ledger.claim([want()], 10, "w")
        assert [claim.recipient_ref for claim in claims] == ["user:bob"]


async def test_a_loser_that_waited_is_told_the_winner(engine: PostgresEngine, ledger: Ledger) -> None:
    first, second = enrolment(idempotency_key="k"), enrolment(idempotency_key="k")
    async with connected(engine.dsn) as winner:
        async with winner.transaction():
            await winner.execute("LOCK TABLE attempts IN ACCESS EXCLUSIVE MODE")
            await winner.execute(
                "INSERT INTO records (notification_id, notification_type, producer, audience_kind, payload_json, "
                "request_fingerprint, accepted_at, updated_at, origin, priority, is_bulk, idempotency_key) "
                "VALUES ($1, 't', 'shop', 'user', '{}', 'same', now(), now(), 'system', 2, FALSE, 'k')",
                first.notification.notification_id,
            )
            late = asyncio.create_task(ledger.enrol([second]))
            await until_waiting(engine.dsn, 1)
        (answer,) = await late
    assert answer.notification_id == first.notification.notification_id
    assert not await engine.rows("routes")


async def test_retention_and_redriving_never_lose_a_redriven_route(engine: PostgresEngine, ledger: Ledger) -> None:
    for _ in range(20):
        await ledger.enrol([enrolment() for _ in range(10)])
        claims = await ledger.claim([want()], 100, "w")
        await ledger.settle([bury(claim) for claim in claims])
        await engine.grow_old("records", "accepted_at", 7200)
        redriven, *_ = await asyncio.gather(
            redrive(ledger, *(claim.key for claim in claims)), ledger.prune(3600, 3600, 5), ledger.prune(3600, 3600, 5)
        )
        again = await ledger.claim([want()], 100, "w")
        assert len(again) == redriven
        await ledger.settle([finish(claim) for claim in again])


async def test_overlapping_settlements_do_not_deadlock(engine: PostgresEngine, ledger: Ledger) -> None:
    await ledger.enrol([enrolment(route(f"r{n}")) for n in range(200)])
    claims = await ledger.claim([want(200)], 200, "w")
    dice = random.Random(7)
    batches = [[finish(claim) for claim in dice.sample(claims, 100)] for _ in range(20)]
    async with engine.ledger() as other:
        await asyncio.gather(*(mine.settle(batch) for mine, batch in zip([ledger, other] * 10, batches, strict=True)))
    assert (await ledger.counts())["routes"]["published"] == 200
    assert len(await engine.rows("attempts_told")) == 200
