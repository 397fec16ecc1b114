"""Conditions of statements that no story needs, each in the case that it is there for."""

import asyncio
import json
from collections import Counter
from typing import Any

import pytest

from carillon.domain.claims import Claim, Reset, Want
from carillon.domain.groups import GroupRule, Turns
from carillon.domain.notifications import Enrolment, Status
from carillon.domain.suppressions import Suppression
from carillon.ledger.opening import Ledger
from tests.support.ledger_builders import LANE, PROVIDER, defer, enrolment, fail_over, retry, route, want
from tests.support.ledger_engines import Engine, PostgresEngine, engine_fixture, ledger_fixture
from tests.support.ledger_postgres import connected, until_waiting

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
    await ledger.enrol([enrolment(route("another", group=-9))])
    assert len(await ledger.claim([Want(LANE, PROVIDER, 10, Turns(1))], 10, "w")) == 1
    past = {"postgres": "now() - interval '1 h'", "sqlite": "1"}[engine.dialect]
    await engine.execute(f"UPDATE routes SET next_attempt_at = {past} WHERE claim_token IS NOT NULL")  # noqa: S608
    assert await ledger.reset_expired(10) == Reset(), "a claim takes it over, and resets are for live routes"


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


async def fill(ledger: Ledger, groups: dict[int, int], lane: int = LANE, provider: str = PROVIDER) -> None:
    """So many routes of each group."""
    for group, many in groups.items():
        names = [f"{lane}-{provider}-{group}-{number}" for number in range(many)]
        await ledger.enrol([enrolment(route(name, group=group, lane=lane, provider=provider)) for name in names])


async def taken(ledger: Ledger, most: int, turns: Turns = Turns()) -> dict[int, int]:  # noqa: B008 - frozen
    """How many of each group a claim gets."""
    found = await ledger.claim([Want(LANE, PROVIDER, most, turns)], most, "w")
    return dict(Counter(claim.group for claim in found))


@pytest.mark.req("P-1005")
async def test_groups_of_other_lanes_and_providers_use_up_no_turn(ledger: Ledger) -> None:
    crowd = dict.fromkeys(range(1, 61), 1)
    await fill(ledger, crowd, lane=1)
    await fill(ledger, crowd, provider="other")
    await fill(ledger, {10: 3, 50: 3})
    assert await taken(ledger, 2) == {10: 1, 50: 1}
    assert [await taken(ledger, 1) for _ in range(4)] == [{10: 1}, {50: 1}] * 2
    await fill(ledger, {20: 3, 40: 3})
    assert [await taken(ledger, 2) for _ in range(3)] == [{20: 1, 40: 1}] * 3


@pytest.mark.req("P-1005")
async def test_a_group_that_somebody_moved_into_the_future_uses_up_no_turn(engine: Engine, ledger: Ledger) -> None:
    await fill(ledger, dict.fromkeys(range(1, 11), 1))
    ahead = {"postgres": "due_at + interval '1 h'", "sqlite": "due_at + 3600000"}[engine.dialect]
    await engine.execute(f"UPDATE due SET due_at = {ahead}")  # noqa: S608
    await fill(ledger, {50: 1})
    assert await taken(ledger, 3) == {50: 1}


@pytest.mark.req("P-1005")
async def test_a_rule_for_a_group_at_one_provider_is_none_at_another(ledger: Ledger) -> None:
    await fill(ledger, {7: 20, 8: 20})
    wants = [Want(LANE, PROVIDER, 10, Turns()), Want(LANE, "other", 10, Turns(None, {7: GroupRule(weight=9)}))]
    assert Counter(claim.group for claim in await ledger.claim(wants, 20, "w")) == {7: 5, 8: 5}


@pytest.mark.req("P-1005")
async def test_what_a_group_leaves_goes_to_those_that_have_more(ledger: Ledger) -> None:
    await fill(ledger, {1: 20, 2: 1})
    assert await taken(ledger, 10) == {1: 9, 2: 1}
    await fill(ledger, {-3: 20, 4: 1})
    assert await taken(ledger, 15, Turns(5)) == {1: 9, -3: 5, 4: 1}


@pytest.mark.req("P-1005")
async def test_what_goes_to_those_that_have_more_is_due_here(engine: Engine, ledger: Ledger) -> None:
    """The same group waits in another lane, for another provider, and for a time that somebody has set."""
    await fill(ledger, {1: 9}, lane=1)
    await fill(ledger, {1: 9}, provider="other")
    await fill(ledger, {1: 9, 2: 1})
    ahead = {"postgres": "due_at + interval '1 h'", "sqlite": "due_at + 3600000"}[engine.dialect]
    last = f"SELECT max(ticket) FROM due WHERE lane = {LANE} AND provider = '{PROVIDER}' AND grp = 1"  # noqa: S608
    await engine.execute(f"UPDATE due SET due_at = {ahead} WHERE ticket = ({last})")  # noqa: S608
    assert await taken(ledger, 14) == {1: 8, 2: 1}


@pytest.mark.req("P-1005")
async def test_a_ticket_stands_in_one_lease_or_in_its_queue(engine: Engine, ledger: Ledger) -> None:
    """A group with a cap waits in two lanes, and others are claimed with it."""
    await fill(ledger, {-7: 3, 1: 2})
    await fill(ledger, {-7: 3}, lane=1)
    found = await ledger.claim([Want(lane, PROVIDER, 50, Turns(4)) for lane in (1, LANE)], 50, "w")
    leases = [json.loads(str(row["tickets"])) for row in await engine.rows("leases")]
    waiting = [row["ticket"] for row in await engine.rows("due")]
    assert sorted(ticket for each in leases for ticket in each) == sorted(claim.token for claim in found)
    assert sorted(Counter([*waiting, *(ticket for each in leases for ticket in each)]).values()) == [1] * 8


@pytest.mark.req("P-1007")
async def test_a_route_tells_why_it_is_skipped_and_an_open_one_nothing(engine: Engine, ledger: Ledger) -> None:
    await ledger.suppress([Suppression("email", f"{name}@example.com", "", "x", "operator", 60.0) for name in "gb"])
    gate: dict[str, Any] = {"status": Status.SKIPPED, "skipped_because": "left", "skipped_by": "category"}
    await ledger.enrol([enrolment(route("open"), route("g"), route("b", **gate), route("s", **gate))])
    await ledger.enrol_claimed([enrolment(route("held"))], "w", 30.0)
    (known,) = {row["suppression_id"] for row in await engine.rows("suppressions") if row["address"] == "g@example.com"}
    found = {}
    for row in await engine.execute("SELECT * FROM routes"):
        told = row["status"], row["last_error_classification"], row["last_error_message"]
        times = (row["last_error_at"], row["skipped_at"], row["suppressed_until"])
        stopped = (row["suppression_id"], row["suppression_kind"])
        found[row["recipient_ref"]] = (*told, *(time is not None for time in times), *stopped)
    nothing, by_gate = (
        (None, None, False, False, False, None, None),
        ("category", "left", True, True, False, None, None),
    )
    gone = ("suppressed", "the address is suppressed", True, True, True, known, "manual")
    assert found == {
        "user:open": ("pending", *nothing),
        "user:held": ("pending", *nothing),
        "user:g": ("skipped", *gone),
        "user:b": ("skipped", *by_gate),
        "user:s": ("skipped", *by_gate),
    }


def forget(ledger: Ledger) -> None:
    """As if all answers had been lost: this process knows of no claim."""
    ledger._leases._open.clear()  # noqa: SLF001 - what only a broken connection does


@pytest.mark.req("P-1006")
async def test_a_repeat_after_a_lost_answer_takes_no_retry(engine: Engine, ledger: Ledger) -> None:
    """One waits in its queue again, one a worker of the same process has claimed since."""
    given = enrolment(route("ann"), route("bob"))
    (first,) = await ledger.enrol_claimed([given], "me", 30.0)
    await ledger.settle([retry(claim) for claim in first.claims])
    await engine.make_due()
    (held,) = await ledger.claim([want(1)], 1, "me")
    forget(ledger)
    (again,) = await ledger.enrol_claimed([given], "me", 30.0)
    assert again.claims == ()
    assert await ledger.extend([held]) == []
    assert len(await ledger.claim([want()], 10, "w")) == 1


@pytest.mark.req("P-1006")
async def test_a_repeat_after_a_lost_answer_takes_nothing_that_was_taken_over(engine: Engine, ledger: Ledger) -> None:
    given = enrolment()
    await ledger.enrol_claimed([given], "me", 30.0)
    await engine.expire_leases()
    (heir,) = await ledger.claim([want()], 10, "me")
    forget(ledger)
    (again,) = await ledger.enrol_claimed([given], "me", 30.0)
    assert (heir.attempt, again.claims) == (2, ())


@pytest.mark.req("P-1006")
async def test_a_repeat_takes_its_own_first_claim_of_a_live_route_and_nothing_else(
    engine: Engine, ledger: Ledger
) -> None:
    live = [enrolment(route(name, channel="sse", provider="sse"), tenant_id=name) for name in ("ann", "bob")]
    given, other = live
    for each in live:
        await ledger.enrol_claimed([each], "me", 30.0)
    assert await ledger.reset_expired(10) == Reset(), "they are held"
    stored = await engine.execute("SELECT * FROM routes")
    assert {row["attempt_count"] for row in stored} == {1}
    before = {row["notification_id"]: row["claim_token"] for row in stored}
    assert [each.claims for each in await ledger.enrol_claimed([given], "somebody", 30.0)] == [()]
    (again,) = await ledger.enrol_claimed([given], "me", 30.0)
    after = {row["notification_id"]: row["claim_token"] for row in await engine.rows("routes")}
    assert [claim.token for claim in again.claims] == [after[given.notification.notification_id]]
    assert after[other.notification.notification_id] == before[other.notification.notification_id]
    await ledger.settle([retry(again.claims[0])])
    await engine.make_due()
    assert len(await ledger.claim([want(provider="sse")], 10, "me")) == 2
    (late,) = await ledger.enrol_claimed([given], "me", 30.0)
    assert late.claims == ()


@pytest.mark.req("P-1001")
async def test_what_is_claimed_on_accept_stands_in_its_own_lease_alone(engine: Engine, ledger: Ledger) -> None:
    """Groups with a cap, some of them full, nobody's group, and live routes, which need no lease."""
    live = {"channel": "sse", "provider": "sse"}
    groups = (-7, -7, -7, -8, 1, 1)
    held: list[Claim] = []
    for turn in range(2):
        batch = [enrolment(route(f"{turn}-{at}", group=group)) for at, group in enumerate(groups)]
        lives = [enrolment(route(f"{turn}-live{group}", group=group, **live)) for group in (3, -8)]
        held += await first_claims(ledger, 2, *batch, *lives)
        leases = {row["lease_id"]: json.loads(str(row["tickets"])) for row in await engine.rows("leases")}
        waiting = [row["ticket"] for row in await engine.rows("due")]
        under = {claim.token: claim.lease for claim in held if claim.channel != "sse"}
        assert {ticket: lease for lease, tickets in leases.items() for ticket in tickets} == under
        assert sum(len(tickets) for tickets in leases.values()) == len(under)
        assert not set(waiting) & under.keys()
        # Its lease says until when it is held, and its row since when it is due.
        mails = "SELECT next_attempt_at, budget_since, attempt_count FROM routes WHERE channel <> 'sse'"
        assert {row["attempt_count"] for row in await engine.execute(mails)} == {0}
        assert all(row["next_attempt_at"] == row["budget_since"] for row in await engine.execute(mails))
    assert Counter(claim.group for claim in held if claim.channel != "sse") == {-7: 2, -8: 1, 1: 4}


@pytest.mark.req("P-1006")
async def test_what_a_repeat_took_again_has_one_place(ledger: Ledger) -> None:
    given = enrolment(route("a", group=-7))
    assert len(await first_claims(ledger, 2, given)) == 1
    forget(ledger)
    assert len(await first_claims(ledger, 2, given)) == 1
    assert len(await first_claims(ledger, 2, enrolment(route("b", group=-7)))) == 1
    assert await first_claims(ledger, 2, enrolment(route("c", group=-7))) == []


@pytest.mark.req("P-1006")
async def test_a_repeat_beside_a_cancellation_takes_nothing(ledger_dsn: str) -> None:
    """Somebody ends the route, and has not committed yet, when the repeat comes."""
    engine = PostgresEngine(ledger_dsn)
    async with engine.ledger() as ledger, connected(engine.dsn) as hand:
        given = enrolment()
        await ledger.enrol_claimed([given], "me", 30.0)
        forget(ledger)
        async with hand.transaction():
            await hand.execute("UPDATE routes SET status = 'skipped', next_attempt_at = NULL")
            late = asyncio.create_task(ledger.enrol_claimed([given], "me", 30.0))
            await until_waiting(engine.dsn, 1)
        assert [each.claims for each in await late] == [()]
        (row,) = await engine.execute("SELECT * FROM routes")
        assert (row["status"], row["ticket"]) == ("skipped", None)


@pytest.mark.req("P-1003")
@pytest.mark.parametrize("claim", ["ticket = 77", "claim_token = 77"])
async def test_what_is_claimed_at_this_moment_is_not_given_back(ledger_dsn: str, claim: str) -> None:
    """A worker takes the route, and has not committed yet, when nobody waits for it any more."""
    engine = PostgresEngine(ledger_dsn)
    async with engine.ledger() as ledger, connected(engine.dsn) as worker:
        await ledger.enrol([enrolment(route(lane=0), scheduled_for_ms=LATER)])
        async with worker.transaction():
            await worker.execute(f"UPDATE routes SET {claim}")  # noqa: S608
            late = asyncio.create_task(ledger.queue_unclaimed(0, 1))
            await until_waiting(engine.dsn, 1)
        assert await late == 0
        (row,) = await engine.execute("SELECT * FROM routes")
        assert (row["lane"], row["ticket"] or row["claim_token"]) == (0, 77)


@pytest.mark.req("P-1003")
async def test_a_live_lease_that_is_taken_over_at_this_moment_is_not_renewed(ledger_dsn: str) -> None:
    engine = PostgresEngine(ledger_dsn)
    async with engine.ledger() as ledger, connected(engine.dsn) as heir:
        await ledger.enrol([enrolment(route(channel="sse", provider="sse"))])
        (held,) = await ledger.claim([want(provider="sse")], 1, "w")
        async with heir.transaction():
            await heir.execute("UPDATE routes SET claim_token = claim_token + 1000, lease_owner = 'heir'")
            before = await heir.fetchval("SELECT next_attempt_at FROM routes")
            late = asyncio.create_task(ledger.extend([held]))
            await until_waiting(engine.dsn, 1)
        assert await late == [held]
        assert await heir.fetchval("SELECT next_attempt_at FROM routes") == before
