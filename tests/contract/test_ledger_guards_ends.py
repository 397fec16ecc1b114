"""Conditions of what ends a claim, each in the case that it is there for; the others are in test_ledger_guards.py."""

from collections.abc import Callable

import pytest

from carillon.domain.claims import Claim, Reset, Settled, Settlement, Want
from carillon.domain.groups import Turns
from carillon.ledger.opening import Ledger
from tests.support.ledger_builders import (
    LANE,
    PROVIDER,
    bury,
    defer,
    enrolment,
    fail_over,
    finish,
    redrive,
    retry,
    route,
    want,
)
from tests.support.ledger_engines import Engine, engine_fixture, ledger_fixture

engine = engine_fixture()
ledger = ledger_fixture()

LIVE = want(provider="sse")
PAST = {"postgres": "now() - interval '1 h'", "sqlite": "1"}


async def live(ledger: Ledger, most: int) -> Claim:
    """A claim of a live route that may be tried so often."""
    await ledger.enrol([enrolment(route(channel="sse", provider="sse", max_attempts=most))])
    (claim,) = await ledger.claim([LIVE], 1, "w")
    return claim


async def run_out(engine: Engine) -> None:
    """The leases of live routes end."""
    past = PAST[engine.dialect]
    await engine.execute(f"UPDATE routes SET next_attempt_at = {past} WHERE claim_token IS NOT NULL")  # noqa: S608


async def stored(engine: Engine) -> dict[str, object]:
    (row,) = await engine.execute("SELECT * FROM routes")
    return row


@pytest.mark.req("P-1008")
async def test_a_live_lease_that_ran_out_says_when_it_died_only_where_it_has(engine: Engine, ledger: Ledger) -> None:
    await live(ledger, 2)
    await run_out(engine)
    assert await ledger.reset_expired(10) == Reset(1, 0)
    row = await stored(engine)
    assert (row["status"], row["dead_lettered_at"]) == ("failed", None)
    await ledger.claim([LIVE], 1, "w")
    await run_out(engine)
    assert await ledger.reset_expired(10) == Reset(1, 1)
    row = await stored(engine)
    assert (row["status"], row["dead_lettered_at"] is not None, row["next_attempt_at"]) == ("dead_letter", True, None)


@pytest.mark.req("P-1008")
async def test_a_live_route_may_die_a_second_time(engine: Engine, ledger: Ledger) -> None:
    claim = await live(ledger, 1)
    await run_out(engine)
    assert await ledger.reset_expired(10) == Reset(1, 1)
    assert await redrive(ledger, claim.key) == 1
    await engine.make_due()
    while (await stored(engine))["status"] != "dead_letter":
        assert await ledger.claim([LIVE], 1, "w")
        await run_out(engine)
        assert (await ledger.reset_expired(10)).count == 1
    assert len(await engine.rows("dead_letters")) == 1


@pytest.mark.req("P-1008")
@pytest.mark.parametrize("end", [finish, retry], ids=lambda end: str(end.__name__))
async def test_an_attempt_of_a_live_route_counts_once(
    engine: Engine, ledger: Ledger, end: Callable[[Claim], Settlement]
) -> None:
    assert await ledger.settle([end(await live(ledger, 3))]) == [Settled.APPLIED]
    assert (await stored(engine))["attempt_count"] == 1


@pytest.mark.req("P-1008")
@pytest.mark.parametrize("end", [finish, retry], ids=lambda end: str(end.__name__))
async def test_a_settlement_frees_one_place_and_the_lease_keeps_the_others(
    engine: Engine, ledger: Ledger, end: Callable[[Claim], Settlement]
) -> None:
    await ledger.enrol([enrolment(route(f"{n}", group=-3)) for n in range(4)])
    capped = Want(LANE, PROVIDER, 50, Turns(2))
    ended, other = await ledger.claim([capped], 50, "w")
    assert await ledger.settle([end(ended)]) == [Settled.APPLIED]
    (lease,) = await engine.rows("leases")
    assert str(lease["tickets"]) == f"[{other.token}]"
    assert len(await ledger.claim([capped], 50, "w")) == 1
    assert await ledger.extend([other]) == []
    assert await ledger.settle([finish(other)]) == [Settled.APPLIED]


@pytest.mark.req("P-1008")
async def test_a_late_success_counts_no_attempt_of_one_that_only_waits(engine: Engine, ledger: Ledger) -> None:
    """Somebody holds something else meanwhile."""
    await ledger.enrol([enrolment()])
    (late,) = await ledger.claim([want()], 1, "late")
    await engine.expire_leases()
    await ledger.enrol([enrolment(route(provider="other"))])
    (other,) = await ledger.claim([want(provider="other"), want(lane=1)], 10, "w")
    assert await ledger.claim([want(lane=1)], 10, "w") == [], "it puts back what ran out"
    assert await ledger.settle([finish(late)]) == [Settled.ADOPTED]
    counts = {row["notification_id"]: row["attempt_count"] for row in await engine.execute("SELECT * FROM routes")}
    assert counts == {late.notification_id: 1, other.notification_id: 0}
    assert await engine.rows("due") == [], "nobody waits for it any more"


@pytest.mark.req("P-1008")
async def test_a_second_word_on_an_attempt_changes_nothing(engine: Engine, ledger: Ledger) -> None:
    await ledger.enrol([enrolment()])
    (claim,) = await ledger.claim([want()], 1, "w")
    assert await ledger.settle([retry(claim)]) == [Settled.APPLIED]
    assert await engine.rows("leases") == [], "nothing is left of it"
    before = await stored(engine)
    assert await ledger.settle([bury(claim)]) == [Settled.STALE]
    assert await ledger.settle([retry(claim)]) == [Settled.APPLIED], "the repeat of one whose answer was lost"
    assert await stored(engine) == before
    assert len(await engine.rows("attempts_told")) == 1


@pytest.mark.req("P-1008")
async def test_a_settlement_says_since_when_it_was_claimed_of_its_own_claim(engine: Engine, ledger: Ledger) -> None:
    await ledger.enrol([enrolment()])
    (late,) = await ledger.claim([want()], 1, "late")
    assert (await stored(engine))["claimed_at"] is None, "its lease says so"
    await engine.expire_leases()
    (heir,) = await ledger.claim([want()], 1, "heir")
    lapsed = (await stored(engine))["claimed_at"]
    assert await ledger.settle([finish(late)]) == [Settled.ADOPTED]
    assert (await stored(engine))["claimed_at"] == lapsed, heir
    await engine.empty()
    await ledger.enrol([enrolment()])
    (claim,) = await ledger.claim([want()], 1, "w")
    await ledger.settle([retry(claim)])
    assert (await stored(engine))["claimed_at"] is not None


@pytest.mark.req("P-1002")
async def test_a_live_route_gets_the_attempt_of_a_deferral_back(engine: Engine, ledger: Ledger) -> None:
    """Its claim has counted the attempt; one under a lease has not."""
    claim = await live(ledger, 3)
    assert await ledger.settle([defer(claim)]) == [Settled.APPLIED]
    assert (await stored(engine))["attempt_count"] == 0
    await engine.make_due()
    (again,) = await ledger.claim([LIVE], 1, "w")
    await ledger.settle([fail_over(again, "other")])
    row = await stored(engine)
    assert (row["attempt_count"], row["provider_since"], row["provider"]) == (1, 1, "other")


@pytest.mark.req("P-1008")
async def test_what_was_redriven_may_die_a_second_time(engine: Engine, ledger: Ledger) -> None:
    await ledger.enrol([enrolment()])
    for _ in range(2):
        await engine.make_due()
        (claim,) = await ledger.claim([want()], 1, "w")
        assert await ledger.settle([bury(claim)]) == [Settled.APPLIED]
        assert len(await engine.rows("dead_letters")) == 1
        await redrive(ledger, claim.key)


@pytest.mark.req("P-1008")
async def test_a_letter_that_a_hand_has_left_fails_no_second_death(engine: Engine, ledger: Ledger) -> None:
    """A redrive takes the letter away; who opens a route by hand may forget it."""
    opened = f"UPDATE routes SET status = 'failed', attempt_count = 0, next_attempt_at = {PAST[engine.dialect]}"  # noqa: S608
    await ledger.enrol([enrolment(route("ann"), route("bob", channel="sse", provider="sse", max_attempts=1))])
    for _ in range(2):
        mail, stream = sorted(await ledger.claim([want(), LIVE], 2, "w"), key=lambda claim: claim.channel)
        assert await ledger.settle([bury(mail)]) == [Settled.APPLIED], stream
        await run_out(engine)
        assert await ledger.reset_expired(10) == Reset(1, 1)
        assert len(await engine.rows("dead_letters")) == 2
        await engine.execute(opened)


@pytest.mark.req("P-1008")
@pytest.mark.parametrize(("alert_from", "alerts"), [(LANE, 1), (LANE + 1, 0)])
async def test_a_live_route_that_dies_of_its_leases_alerts_in_its_lanes(
    engine: Engine, alert_from: int, alerts: int
) -> None:
    async with engine.ledger(alerts=True, alert_from=alert_from) as ledger:
        await live(ledger, 1)
        await run_out(engine)
        assert await ledger.reset_expired(10) == Reset(1, 1)
        assert len(await engine.rows("outbox")) == alerts
