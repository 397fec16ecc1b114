"""Races on real row locks: a statement that waited for a lock checks its conditions again."""

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest

from carillon.domain.admin import AdminAction, WaitingChange
from carillon.domain.claims import Settled
from carillon.domain.consent import Categories
from carillon.domain.lanes import Lane, Lanes
from carillon.domain.notifications import Collapse, Status
from carillon.ledger.opening import Ledger
from carillon.upkeep.redriving import redrive_skipped, skipped_action, skipped_plan
from tests.support.ledger_builders import bury, enrolment, finish, redrive, retry, route, want
from tests.support.ledger_engines import PostgresEngine, ledger_fixture
from tests.support.ledger_postgres import connected, until_waiting
from tests.support.ledger_properties import claim_one

ledger = ledger_fixture("function")

TICKETS = "UPDATE routes SET ticket = nextval('claim_tokens') WHERE ticket IS NULL AND next_attempt_at IS NOT NULL"
"""The time of what was scheduled has come: a claim gives it a ticket."""
FAR_MS = 4_000_000_000_000
STOP = AdminAction(actor="ops", action="stop_redrive")
Work = Callable[[], Awaitable[object]]
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


async def cancelled(ledger: Ledger) -> Work:
    made = enrolment(scheduled_for_ms=FAR_MS)
    await ledger.enrol([made])
    return lambda: ledger.cancel(made.notification.notification_id)


async def changed(ledger: Ledger) -> Work:
    await ledger.enrol([enrolment(scheduled_for_ms=FAR_MS, user_id="u")])
    return lambda: ledger.change_waiting({"user_id": "u"}, WaitingChange(scheduled_for_ms=FAR_MS - 1))


async def replaced(ledger: Ledger) -> Work:
    key = Collapse("score", "user:ann")
    await ledger.enrol([enrolment(scheduled_for_ms=FAR_MS, collapse=key)])
    return lambda: ledger.enrol([enrolment(collapse=key)])


async def stopped(ledger: Ledger) -> Work:
    await ledger.enrol([enrolment()])
    claim = await claim_one(ledger)
    await ledger.settle([bury(claim)])
    assert await redrive(ledger, claim.key) == 1
    (action,), _ = await ledger.actions({}, 1, 0)
    return lambda: ledger.stop_redrive(action["action_id"], STOP)


async def unskipped(ledger: Ledger) -> Work:
    await ledger.enrol([enrolment(route(status=Status.SKIPPED, skipped_because="so", skipped_by="category"))])
    plan = skipped_plan(Lanes({"standard": Lane(rank=2, queue_name="standard")}), Categories())
    action = skipped_action(actor="ops", reason="now", filters={}, rate=None)
    done = await redrive_skipped(ledger, {}, plan, action)
    assert done.action_id is not None
    number = done.action_id
    return lambda: ledger.stop_redrive(number, STOP)


@pytest.mark.req("P-1214")
@pytest.mark.parametrize("waiting", [cancelled, changed, replaced, stopped, unskipped])
async def test_what_takes_back_a_route_that_a_claim_takes_at_this_moment(
    engine: PostgresEngine, ledger: Ledger, waiting: Callable[[Ledger], Awaitable[Work]]
) -> None:
    """PostgreSQL looks at the row again, and runs no deletion of the same statement for that: it raised an error."""
    work = await waiting(ledger)
    async with connected(engine.dsn) as heir:
        async with heir.transaction():
            await heir.execute(TICKETS)
            late = asyncio.ensure_future(work())
            await until_waiting(engine.dsn, 1)
        found = await late
    rows = await engine.rows("routes")
    assert rows[0]["status"] in ("pending", "failed"), "the claim has it"
    assert not isinstance(found, int) or found == 0
