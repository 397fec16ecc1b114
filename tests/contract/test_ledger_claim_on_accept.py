"""Routes claimed in the commit that enrols them: counted, fenced and lost like any claim."""

from collections.abc import Mapping

import msgspec
import pytest

from carillon.domain.claims import Claim, Settled
from carillon.domain.notifications import Accepted, Conflict, Duplicate, Enrolment, Status
from carillon.domain.synchronous import ClaimedEnrolment
from carillon.ledger.opening import Ledger
from tests.support.ledger_builders import bury, enrolment, finish, route, want
from tests.support.ledger_engines import Engine, engine_fixture, ledger_fixture
from tests.support.ledger_properties import claim_one

engine = engine_fixture()
ledger = ledger_fixture()


async def held(ledger: Ledger, given: Enrolment, owner: str = "here") -> ClaimedEnrolment:
    (found,) = await ledger.enrol_claimed([given], owner, 30.0)
    return found


async def test_a_route_claimed_on_accept_belongs_to_its_owner_at_once(engine: Engine, ledger: Ledger) -> None:
    found = await held(ledger, enrolment(metadata_json='{"a":1}', idempotency_key="k", trace_id="t"))
    (claim,) = found.claims
    row = await engine.only("routes")
    assert (row["status"], row["attempt_count"], row["lease_owner"]) == ("pending", 1, "here")
    assert (row["claim_token"], claim.attempt) == (claim.token, 1)
    assert row["next_attempt_at"] == pytest.approx(row["claimed_at"] + 30_000, abs=1)
    assert await ledger.claim([want()], 10, "other") == []
    assert await ledger.settle([finish(claim)]) == [Settled.APPLIED]
    assert (await engine.only("attempts_told"))["attempt"] == 1


async def test_it_equals_a_claim_made_later(engine: Engine, ledger: Ledger) -> None:
    found = await held(ledger, enrolment(metadata_json='{"a":1}', idempotency_key="k", request_id="r", user_id="u"))
    await engine.expire_leases()
    again = await claim_one(ledger)
    assert (again.attempt, again.abandoned) == (2, True)
    changed = {"token": 0, "attempt": 0, "age_seconds": 0.0, "abandoned": False, "place": None, "lease": 0}
    assert _without(found.claims[0], changed) == _without(again, changed)


def _without(claim: Claim, changed: Mapping[str, object]) -> Claim:
    return msgspec.structs.replace(claim, **changed)


async def test_its_lease_expires_like_any_other(engine: Engine, ledger: Ledger) -> None:
    found = await held(ledger, enrolment())
    await engine.expire_leases()
    heir = await claim_one(ledger)
    assert await ledger.settle([bury(found.claims[0])]) == [Settled.STALE]
    assert await ledger.settle([finish(heir)]) == [Settled.APPLIED]


async def test_a_route_that_is_not_due_is_not_claimed(engine: Engine, ledger: Ledger) -> None:
    skipped = route("bob", status=Status.SKIPPED, skipped_because="no address")
    found = await held(ledger, enrolment(route("ann"), skipped))
    assert [claim.route_id for claim in found.claims] == ["email:user:ann"]
    later = await held(ledger, enrolment(scheduled_for_ms=4_000_000_000_000))
    assert (type(later.enrolled), later.claims) == (Accepted, ())
    rows = {(row["notification_id"], row["route_id"]): row for row in await engine.rows("routes")}
    assert [row["attempt_count"] for row in rows.values() if row["claim_token"] is None] == [0, 0]


async def test_a_route_to_a_suppressed_address_is_skipped_and_not_claimed(engine: Engine, ledger: Ledger) -> None:
    await ledger.enrol([enrolment()])
    await ledger.settle([bury(await claim_one(ledger), suppress=True)])
    found = await held(ledger, enrolment())
    assert (type(found.enrolled), found.claims) == (Accepted, ())
    assert sorted(row["status"] for row in await engine.rows("routes")) == ["dead_letter", "skipped"]


async def test_a_key_that_was_used_before_brings_no_claim(engine: Engine, ledger: Ledger) -> None:
    first = await held(ledger, enrolment(idempotency_key="k"))
    same = await held(ledger, enrolment(idempotency_key="k"))
    other = await held(ledger, enrolment(idempotency_key="k", request_fingerprint="other"))
    assert [type(one.enrolled) for one in (first, same, other)] == [Accepted, Duplicate, Conflict]
    assert [len(one.claims) for one in (first, same, other)] == [1, 0, 0]
    assert len(await engine.rows("routes")) == 1


async def test_a_repeat_claims_its_own_routes_again_and_no_others(engine: Engine, ledger: Ledger) -> None:
    given = enrolment()
    (first,) = (await held(ledger, given)).claims
    lose_the_answer(ledger, first)
    assert (await held(ledger, given, owner="stranger")).claims == ()
    (second,) = (await held(ledger, given)).claims
    assert second.token > first.token
    assert (await engine.only("routes"))["attempt_count"] == 1
    assert await ledger.settle([bury(first)]) == [Settled.STALE]
    assert await ledger.settle([finish(second)]) == [Settled.APPLIED]


def lose_the_answer(ledger: Ledger, claim: Claim) -> None:
    """As if the connection had broken after the COMMIT: this process knows of no such claim."""
    del ledger._leases._open[claim.lease]  # noqa: SLF001 - what only a broken connection does


@pytest.mark.req("P-572")
async def test_a_repeat_does_not_claim_what_this_process_is_sending(ledger: Ledger) -> None:
    given = enrolment()
    (first,) = (await held(ledger, given)).claims
    again = await held(ledger, given)
    assert (type(again.enrolled), again.claims) == (Accepted, ())
    assert await ledger.settle([finish(first)]) == [Settled.APPLIED]


@pytest.mark.req("P-572")
async def test_a_repeat_does_not_claim_what_a_worker_of_this_process_has_claimed(ledger: Ledger) -> None:
    given = enrolment()
    await ledger.enrol([given])
    (claimed,) = await ledger.claim([want()], 1, "here")
    lose_the_answer(ledger, claimed)
    assert (await held(ledger, given)).claims == ()
    assert await ledger.settle([finish(claimed)]) == [Settled.APPLIED]


async def test_each_enrolment_of_a_batch_gets_its_own_claims(engine: Engine, ledger: Ledger) -> None:
    batch = [enrolment(route("ann"), route("bob")), enrolment(), enrolment(scheduled_for_ms=4_000_000_000_000)]
    found = await ledger.enrol_claimed(batch, "here", 30.0)
    assert [one.enrolled.notification_id for one in found] == [each.notification.notification_id for each in batch]
    assert [sorted(claim.route_id for claim in one.claims) for one in found] == [
        ["email:user:ann", "email:user:bob"],
        ["email:user:ann"],
        [],
    ]
    assert {claim.notification_id for claim in found[0].claims} == {batch[0].notification.notification_id}
    tokens = [claim.token for one in found for claim in one.claims]
    assert len(set(tokens)) == len(tokens) == len([row for row in await engine.rows("routes") if row["claim_token"]])
