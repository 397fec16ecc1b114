"""Conditions of statements that no story needs, each in the case that it is there for."""

import pytest

from carillon.domain.claims import Claim, Want
from carillon.domain.groups import Turns
from carillon.domain.notifications import Enrolment, Status
from carillon.ledger.opening import Ledger
from tests.support.ledger_builders import LANE, PROVIDER, defer, enrolment, fail_over, retry, route, want
from tests.support.ledger_engines import Engine, engine_fixture, ledger_fixture

engine = engine_fixture()
ledger = ledger_fixture()

LATER = 4_000_000_000_000
CLAIMED_IN_ITS_ROW = {
    "postgres": (
        "UPDATE routes SET claim_token = ticket, ticket = NULL, lease_owner = 'older', attempt_count = 1,"
        " next_attempt_at = now() + interval '1 h' WHERE grp = -8"
    ),
    "sqlite": (
        "UPDATE routes SET claim_token = ticket, ticket = NULL, lease_owner = 'older', attempt_count = 1,"
        " next_attempt_at = next_attempt_at + 3600000 WHERE grp = -8"
    ),
}


async def first_claims(ledger: Ledger, cap: int, *batch: Enrolment) -> list[Claim]:
    """What is claimed in the commit that accepts these, where the groups -7 and -8 have so many places."""
    found = await ledger.enrol_claimed(batch, "w", 30.0, {-7: cap, -8: cap})
    return [claim for each in found for claim in each.claims]


@pytest.mark.req("P-1001")
async def test_a_claim_that_an_older_process_holds_in_its_row_takes_a_place_of_its_own_group(
    engine: Engine, ledger: Ledger
) -> None:
    await ledger.enrol([enrolment(route("old", group=-8))])
    await engine.execute("DELETE FROM due")
    await engine.execute(CLAIMED_IN_ITS_ROW[engine.dialect])
    assert await first_claims(ledger, 1, enrolment(route("more", group=-8))) == []
    assert len(await first_claims(ledger, 1, enrolment(route("neighbour", group=-7)))) == 1
    assert await ledger.claim([Want(LANE, PROVIDER, 10, Turns(1))], 10, "w") == []


@pytest.mark.req("P-1001")
async def test_a_route_that_is_not_sent_now_takes_no_place(ledger: Ledger) -> None:
    skipped = route("a", group=-7, status=Status.SKIPPED, skipped_because="nobody reads it", skipped_by="preferences")
    late, now = enrolment(route("b", group=-7), scheduled_for_ms=LATER), route("c", group=-7)
    (claim,) = await first_claims(ledger, 1, enrolment(skipped), late, enrolment(now))
    assert claim.route_id == now.route_id


@pytest.mark.req("P-1001")
async def test_a_repeat_takes_no_place(ledger: Ledger) -> None:
    """What was accepted before is not claimed here: the place is the next one's."""
    first = enrolment(route("a", group=-7), idempotency_key="k", notification_id="n-1")
    await ledger.enrol([first])
    again = enrolment(route("a", group=-7), idempotency_key="k", notification_id="n-2")
    (claim,) = await first_claims(ledger, 1, again, enrolment(route("b", group=-7)))
    assert claim.recipient_ref == "user:b"


@pytest.mark.req("P-1002")
async def test_a_deferral_leaves_the_attempts_of_its_provider_as_they_are(engine: Engine, ledger: Ledger) -> None:
    """Only one that changes the provider begins to count anew."""
    await ledger.enrol([enrolment()])
    seen = []
    for settlement in (retry, retry, defer, defer, fail_over, retry, defer, retry):
        (claim,) = await ledger.claim([want(), want(provider="second")], 10, "w")
        seen.append((claim.attempt, claim.attempts_before))
        await ledger.settle([settlement(claim)])
        await engine.make_due()
    assert seen == [(1, 0), (2, 0), (3, 0), (3, 0), (3, 0), (4, 3), (5, 3), (5, 3)]
