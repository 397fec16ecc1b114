"""Synchronous routes: claimed in the commit that enrols them, and never sent late."""

import asyncio
from typing import Any

import pytest

from carillon.domain.claims import Claim, Settled
from carillon.domain.events import Event
from carillon.domain.lanes import Lane
from carillon.domain.notifications import Accepted, Conflict, Duplicate
from carillon.ledger.opening import Ledger
from carillon.outbound.settle import Settler
from carillon.outbound.synchronous import SynchronousSweep
from tests.support.clocks import ManualClock
from tests.support.ledger_builders import PROVIDER, enrolment, finish, redrive, route, want
from tests.support.ledger_engines import Engine, engine_fixture, ledger_fixture
from tests.support.ledger_mutants import Mutants, clauses_needed

engine = engine_fixture()
ledger = ledger_fixture()

LANE, INSTEAD = 0, 1


def waited_for(**changes: Any) -> Any:
    return enrolment(route(lane=LANE, max_attempts=1), **changes)


async def held(ledger: Ledger, **changes: Any) -> Claim:
    (found,) = await ledger.enrol_claimed([waited_for(**changes)], "me", 60.0)
    (claim,) = found.claims
    return claim


def sweep(ledger: Ledger) -> SynchronousSweep:
    events: list[Event] = []
    return SynchronousSweep(
        ledger=ledger,
        backlog=ledger,
        settler=Settler(ledger, events.append),
        lane=Lane(rank=LANE, queue_name="", timeout_seconds=2.0),
        instead=Lane(rank=INSTEAD, queue_name="priority"),
        providers=[PROVIDER],
        clock=ManualClock(),
        observer=events.append,
        owner="sweeper",
    )


@pytest.mark.req("S2-25")
async def test_a_claimed_enrolment_is_stored_leased_and_with_one_attempt(engine: Engine, ledger: Ledger) -> None:
    claim = await held(ledger, idempotency_key="k")
    row = await engine.only("routes")
    assert (row["claim_token"], row["lease_owner"], row["attempt_count"]) == (claim.token, "me", 1)
    assert (claim.attempt, claim.max_attempts, claim.address, claim.intent_key) == (1, 1, "ann@example.com", "k")
    assert await ledger.claim([want(lane=LANE)], 10, "somebody") == []


async def test_its_claim_equals_one_made_later(engine: Engine, ledger: Ledger) -> None:
    claim = await held(ledger)
    await engine.expire_leases()
    (again,) = await ledger.claim([want(lane=LANE)], 10, "somebody")
    differing = {"token", "attempt", "age_seconds", "abandoned", "place", "lease"}
    for name in set(Claim.__struct_fields__) - differing:
        assert getattr(claim, name) == getattr(again, name), name


async def test_it_settles_like_any_other(engine: Engine, ledger: Ledger) -> None:
    claim = await held(ledger)
    assert await ledger.settle([finish(claim)]) == [Settled.APPLIED]
    assert (await engine.only("routes"))["status"] == "published"


@pytest.mark.req("S2-13")
async def test_of_rivals_with_one_key_one_gets_the_claim(ledger: Ledger) -> None:
    batches = [ledger.enrol_claimed([waited_for(idempotency_key="k")], "me", 60.0) for _ in range(10)]
    answers = [found for (found,) in await asyncio.gather(*batches)]
    assert sum(isinstance(answer.enrolled, Accepted) for answer in answers) == 1
    assert sum(isinstance(answer.enrolled, Duplicate) for answer in answers) == 9
    assert sum(len(answer.claims) for answer in answers) == 1
    (other,) = await ledger.enrol_claimed([waited_for(idempotency_key="k", request_fingerprint="else")], "me", 60.0)
    assert (type(other.enrolled), other.claims) == (Conflict, ())


async def test_a_batch_is_claimed_one_by_one(ledger: Ledger) -> None:
    batch = [waited_for(idempotency_key="a"), waited_for(), waited_for(idempotency_key="a")]
    first, second, third = await ledger.enrol_claimed(batch, "me", 60.0)
    assert [len(each.claims) for each in (first, second, third)] == [1, 1, 0]
    assert first.claims[0].notification_id == batch[0].notification.notification_id
    assert isinstance(third.enrolled, Duplicate)
    assert await ledger.enrol_claimed([], "me", 60.0) == []


async def test_a_route_to_a_suppressed_address_is_not_claimed(engine: Engine, ledger: Ledger) -> None:
    await ledger.suppress([])
    now = "1" if engine.dialect == "sqlite" else "now()"
    await engine.execute(
        f"INSERT INTO suppressions (channel, address, reason, created_at) VALUES ('email', 'ann@example.com', 'x', {now})"  # noqa: S608, E501
    )
    (found,) = await ledger.enrol_claimed([waited_for()], "me", 60.0)
    assert (type(found.enrolled), found.claims) == (Accepted, ())
    row = await engine.only("routes")
    assert (row["status"], row["ticket"]) == ("skipped", None)


async def test_a_scheduled_route_is_not_claimed(engine: Engine, ledger: Ledger) -> None:
    (found,) = await ledger.enrol_claimed([waited_for(scheduled_for_ms=4_000_000_000_000)], "me", 60.0)
    assert (type(found.enrolled), found.claims) == (Accepted, ())
    row = await engine.only("routes")
    assert (row["claim_token"], row["attempt_count"], row["next_attempt_at"]) == (None, 0, 4_000_000_000_000)
    assert await engine.rows("due") == []


async def test_a_repeat_claims_no_route_of_another_owner(engine: Engine, ledger: Ledger) -> None:
    given = waited_for()
    (first,) = await ledger.enrol_claimed([given], "me", 60.0)
    # As if the answer had been lost: what a process knows that it holds is not claimed again by anybody.
    ledger._leases._open.clear()  # noqa: SLF001 - what only a broken connection does
    (stranger,) = await ledger.enrol_claimed([given], "somebody", 6.0)
    assert (len(first.claims), stranger.claims) == (1, ())
    assert (await engine.only("routes"))["claim_token"] == first.claims[0].token


@pytest.mark.req("S2-25", "S2-26")
async def test_the_sweep_dead_letters_abandoned_deliveries_and_nothing_else(engine: Engine, ledger: Ledger) -> None:
    await held(ledger)
    assert await sweep(ledger).sweep() == 0
    await engine.expire_leases()
    assert await sweep(ledger).sweep() == 1
    row = await engine.only("routes")
    assert (row["status"], row["last_error_classification"]) == ("dead_letter", "DELIVERY_TIMEOUT")
    assert (await engine.only("attempts_told"))["classification"] == "abandoned"


@pytest.mark.req("S2-26")
async def test_a_late_success_is_noted_and_changes_nothing(engine: Engine, ledger: Ledger) -> None:
    claim = await held(ledger)
    await engine.expire_leases()
    await sweep(ledger).sweep()
    assert await ledger.settle([finish(claim)]) == [Settled.STALE]
    assert (await engine.only("routes"))["status"] == "dead_letter"
    assert "sent" in {row["outcome"] for row in await engine.rows("attempts_told")}


async def test_what_is_given_back_to_be_sent_again_goes_to_a_lane_with_workers(engine: Engine, ledger: Ledger) -> None:
    claim = await held(ledger)
    await engine.expire_leases()
    await sweep(ledger).sweep()
    assert await redrive(ledger, claim.key) == 1
    assert await sweep(ledger).sweep() == 0, "it was redriven, not abandoned"
    (row,) = await engine.rows("routes")
    assert (row["lane"], row["status"]) == (INSTEAD, "failed")
    (found,) = await ledger.claim([want(lane=INSTEAD)], 10, "worker")
    assert found.key == claim.key


MUTANTS: Mutants = {
    "hold without a lease": (
        test_a_claimed_enrolment_is_stored_leased_and_with_one_attempt,
        {"enrol": ("$42::float8 * interval '1 second'", "$42::float8 * interval '0 second'")},
        {"lease": (":now, :lease_until", ":now, :now")},
    ),
    "queueing what is held": (
        test_the_sweep_dead_letters_abandoned_deliveries_and_nothing_else,
        {
            "queue_unclaimed": (
                "NULL FROM routes r\n    WHERE r.lane = $1 AND r.next_attempt_at IS NOT NULL AND r.ticket IS NULL AND",
                "r.ticket FROM routes r\n    WHERE r.lane = $1 AND r.next_attempt_at IS NOT NULL AND",
            )
        },
        {
            "queue_unclaimed": (
                "(lease_owner IS NULL AND ticket IN (SELECT d.ticket FROM due d WHERE d.lane = ?1))",
                "TRUE",
            ),
            "waits_unclaimed": (" AND ticket IS NULL", ""),
        },
    ),
    "holding what was skipped": (
        test_a_route_to_a_suppressed_address_is_not_claimed,
        {"enrol": ("AND given.skipped_because IS NULL AND held_by.suppression_id IS NULL\n", "\n")},
        {
            "enrol_route": (
                "NOT skipped AND :scheduled_for_ms IS NULL THEN :ticket",
                ":scheduled_for_ms IS NULL THEN :ticket",
            )
        },
    ),
    "holding what is for later": (
        test_a_scheduled_route_is_not_claimed,
        {"enrol": ("given.scheduled_for_ms IS NULL\n                   AND ", "")},
        {"enrol_route": ("NOT skipped AND :scheduled_for_ms IS NULL THEN :ticket", "NOT skipped THEN :ticket")},
    ),
    "a repeat that takes anybody's": (
        test_a_repeat_claims_no_route_of_another_owner,
        {"claim_enrolled": ("l.owner = $2 AND ", "")},
        {"own_lease": ("owner = :owner AND ", "")},
    ),
}


test_each_clause_is_needed = clauses_needed(MUTANTS)
