"""Expired leases: reset once, counted once, and a dead letter if no attempt is left."""

import asyncio

import pytest

from carillon.domain.claims import Reset, Settled
from carillon.domain.events import Event, LeasesReset, Trouble
from carillon.ledger.opening import Ledger
from carillon.ledger.postgres.ledger import PostgresLedger
from carillon.upkeep.cleanup import LeaseCleanup
from tests.support.clocks import ManualClock
from tests.support.ledger_builders import bury, enrolment, finish, redrive, retry, want
from tests.support.ledger_engines import (
    Engine,
    PostgresEngine,
    engine_fixture,
    ledger_fixture,
)
from tests.support.ledger_mutants import Mutants, clauses_needed
from tests.support.ledger_postgres import connected
from tests.support.stream_builders import claimed, told
from tests.support.waiting import a_moment_later, until

engine = engine_fixture()
ledger = ledger_fixture()


class YieldingClock(ManualClock):
    """Lets others run while it pretends to wait."""

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds)
        await asyncio.sleep(0.001)


@pytest.mark.req("S4-37")
async def test_an_expired_lease_is_taken_back(engine: Engine, ledger: Ledger) -> None:
    await claimed(ledger, told("ann"))
    assert await ledger.reset_expired(10) == Reset(), "it has not run out"
    await engine.expire_leases()
    assert await ledger.reset_expired(10) == Reset(1, 0)
    row = await engine.only("routes")
    assert (row["claim_token"], row["lease_owner"], row["status"]) == (None, None, "failed")
    assert (row["last_error_message"], row["last_error_classification"]) == ("Lease expired", "lease_expired")
    assert row["attempt_count"] == 1


@pytest.mark.req("S4-40", "S4-41")
async def test_one_expiry_costs_one_attempt_for_claim_and_reset_alike(engine: Engine, ledger: Ledger) -> None:
    await claimed(ledger, told("ann"))
    await engine.expire_leases()
    async with engine.ledger() as other:
        found = await asyncio.gather(*(each.reset_expired(10) for each in (ledger, other) * 5))
    assert sum(reset.count for reset in found) == 1
    (again,) = await claimed(ledger)
    assert again.attempt == 2
    await engine.expire_leases()
    (third,) = await claimed(ledger)
    assert third.attempt == 3, "claimed before it was reset: the same cost"
    assert await ledger.reset_expired(10) == Reset()


@pytest.mark.req("S4-38", "S4-66", "S4-20")
async def test_without_an_attempt_left_it_is_given_up(engine: Engine, ledger: Ledger) -> None:
    await ledger.enrol([told("ann")])
    for spent in range(1, 4):
        (claim,) = await claimed(ledger)
        assert claim.attempt == spent
        await engine.expire_leases()
        assert await ledger.reset_expired(10) == Reset(1, 1 if spent == 3 else 0)
    row = await engine.only("routes")
    assert (row["status"], row["next_attempt_at"], row["attempt_count"]) == ("dead_letter", None, 3)
    letter = await engine.only("dead_letters")
    assert (letter["failure_message"], letter["final_attempt_count"]) == ("Lease expired", 3)
    assert await claimed(ledger) == []
    assert await redrive(ledger, claim.key) == 1, "an operator can give it a new budget"


async def test_it_is_claimed_again_before_whatever_came_later(engine: Engine, ledger: Ledger) -> None:
    first = await claimed(ledger, told("ann"), told("ann"))
    await engine.expire_leases()
    await ledger.enrol([told("ann")])
    await a_moment_later()
    await ledger.reset_expired(10)
    again = await claimed(ledger)
    assert [claim.notification_id for claim in again[:2]] == [claim.notification_id for claim in first]
    assert len(again) == 3


@pytest.mark.req("S4-31", "S4-32")
async def test_a_worker_that_lost_its_lease_changes_nothing_except_by_success(engine: Engine, ledger: Ledger) -> None:
    ann, bob = await claimed(ledger, told("ann"), told("bob"))
    await engine.expire_leases()
    await ledger.reset_expired(10)
    assert await ledger.settle([retry(ann), bury(bob)]) == [Settled.STALE, Settled.STALE]
    assert {row["status"] for row in await engine.rows("routes")} == {"failed"}
    assert await ledger.settle([finish(ann)]) == [Settled.ADOPTED], "that message did go out"
    assert await ledger.extend([bob]) == [bob]


async def test_a_limit_bounds_each_round(engine: Engine, ledger: Ledger) -> None:
    await claimed(ledger, *(told("ann") for _ in range(5)))
    await engine.expire_leases()
    assert await ledger.reset_expired(2) == Reset(2, 0)
    assert await ledger.reset_expired(10) == Reset(3, 0)


async def test_leases_of_other_channels_are_left_to_their_workers(engine: Engine, ledger: Ledger) -> None:
    await ledger.enrol([enrolment()])
    await ledger.claim([want()], 10, "worker")
    await engine.expire_leases()
    assert await ledger.reset_expired(10) == Reset()


async def test_burials_are_told_to_whom_they_concern(engine: Engine) -> None:
    async with engine.ledger(alerts=True) as ledger:
        await ledger.enrol([told("ann")])
        for _ in range(3):
            await claimed(ledger)
            await engine.expire_leases()
            await ledger.reset_expired(10)
        alert = await engine.only("outbox")
        assert (alert["failure_message"], alert["final_attempt_count"]) == ("Lease expired", 3)


@pytest.mark.req("S4-37")
async def test_the_loop_says_how_many_it_took_back(engine: Engine, ledger: Ledger) -> None:
    events: list[Event] = []
    loop = LeaseCleanup(ledger, ledger.signal, events.append, ManualClock(), 10.0)
    await claimed(ledger, told("ann"), told("bob"))
    assert await loop.reset() == Reset()
    assert events == [], "nothing to say"
    await engine.expire_leases()
    assert await loop.reset() == Reset(2, 0)
    assert events == [LeasesReset(count=2, failed=0)]


@pytest.mark.req("S4-39")
async def test_the_loop_survives_a_ledger_that_is_away(ledger_dsn: str) -> None:
    events: list[Event] = []
    ledger = await PostgresLedger.open(ledger_dsn, allow_unsafe=True)
    await ledger.aclose()
    loop = LeaseCleanup(ledger, ledger.signal, events.append, YieldingClock(), 10.0)
    running = asyncio.create_task(loop.run())

    async def told_twice() -> bool:
        return len(events) > 1

    await until(told_twice, timeout=30, what="two failures")
    running.cancel()
    trouble = events[0]
    assert isinstance(trouble, Trouble)
    assert trouble.where == "lease reset"


async def test_a_row_in_somebodys_hands_is_not_waited_for(ledger_dsn: str) -> None:
    engine = PostgresEngine(ledger_dsn)
    async with engine.ledger() as ledger:
        await claimed(ledger, told("ann"), told("bob"))
        await engine.expire_leases()
        async with connected(engine.dsn) as other, other.transaction(), asyncio.timeout(30):
            await other.execute("SELECT FROM routes WHERE recipient_ref = 'user:ann' FOR UPDATE")
            assert await ledger.reset_expired(10) == Reset(1, 0)


MUTANTS: Mutants = {
    "resetting what still runs": (
        test_an_expired_lease_is_taken_back,
        {"reset_expired": ("AND r.next_attempt_at <= (SELECT now FROM clock)", "")},
        {"expired_leases": (" AND next_attempt_at <= :now", "")},
    ),
    "counting at the reset as well": (
        test_an_expired_lease_is_taken_back,
        {"reset_expired": ("claim_token = NULL,", "claim_token = NULL, attempt_count = r.attempt_count + 1,")},
        {"reset_expired": ("claim_token = NULL,", "claim_token = NULL, attempt_count = attempt_count + 1,")},
    ),
    "stuck at the last attempt": (
        test_without_an_attempt_left_it_is_given_up,
        {"reset_expired": ("r.attempt_count >= r.max_attempts", "r.attempt_count > r.max_attempts")},
        {"expired_leases": ("attempt_count >= max_attempts", "attempt_count > max_attempts")},
    ),
    "to the end of the queue": (
        test_it_is_claimed_again_before_whatever_came_later,
        {"reset_expired": ("ELSE least(r.budget_since, r.next_attempt_at) END", "ELSE clock.now END")},
        {"reset_expired": ("ELSE min(budget_since, next_attempt_at) END", "ELSE :now END")},
    ),
    "keeping the token": (
        test_a_worker_that_lost_its_lease_changes_nothing_except_by_success,
        {"reset_expired": ("claim_token = NULL,", "")},
        {"reset_expired": ("claim_token = NULL, ", "")},
    ),
}


test_each_clause_is_needed = clauses_needed(MUTANTS)
