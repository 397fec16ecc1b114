"""Settling: what each verdict does to a route, and what a late one is told."""

import msgspec
import pytest

from carillon.domain.claims import Claim, Settled, Want
from carillon.domain.groups import Turns
from carillon.domain.verdicts import Retry
from carillon.ledger.opening import Ledger
from tests.support.ledger_builders import (
    LANE,
    PROVIDER,
    bury,
    defer,
    enrolment,
    fail_over,
    finish,
    note,
    retry,
    route,
    settlement,
    want,
    without_note,
)
from tests.support.ledger_engines import LEASES, Engine, engine_fixture, ledger_fixture
from tests.support.ledger_properties import claim_one, lose_a_lease

engine = engine_fixture(LEASES)
ledger = ledger_fixture()


async def claimed(ledger: Ledger) -> Claim:
    await ledger.enrol([enrolment()])
    return await claim_one(ledger)


@pytest.mark.req("S1-113")
async def test_finish(engine: Engine, ledger: Ledger) -> None:
    claim = await claimed(ledger)
    assert await ledger.settle([finish(claim)]) == [Settled.APPLIED]
    row = await engine.only("routes")
    assert (row["status"], row["next_attempt_at"], row["claim_token"], row["lease_owner"]) == (
        "published",
        None,
        None,
        None,
    )
    assert row["published_at"] == row["updated_at"]
    assert (row["provider_message_id"], row["provider"]) == (f"m-{claim.token}", "mailer")
    attempt = await engine.only("attempts_told")
    assert (attempt["attempt_id"], attempt["attempt"], attempt["outcome"]) == (claim.token, 1, "sent")
    assert (attempt["verdict"], attempt["settled"], attempt["delay_ms"]) == ("finish", "applied", None)
    assert attempt["started_at"] == pytest.approx(row["updated_at"] - 12, abs=1)


async def test_retry(engine: Engine, ledger: Ledger) -> None:
    claim = await claimed(ledger)
    await ledger.settle([retry(claim, 60.0)])
    row = await engine.only("routes")
    assert (row["status"], row["attempt_count"], row["claim_token"]) == ("failed", 1, None)
    assert row["next_attempt_at"] == pytest.approx(row["updated_at"] + 60_000, abs=1)
    assert (row["last_error_classification"], row["last_error_message"]) == ("timeout", "timed out")
    assert row["last_error_at"] == row["updated_at"]
    assert (await engine.only("attempts_told"))["delay_ms"] == 60_000
    await engine.make_due()
    again = await claim_one(ledger)
    assert (again.attempt, again.abandoned) == (2, False)


async def test_defer_without_a_call_leaves_no_trace(engine: Engine, ledger: Ledger) -> None:
    claim = await claimed(ledger)
    assert await ledger.settle([defer(claim, 5.0)]) == [Settled.APPLIED]
    row = await engine.only("routes")
    assert (row["status"], row["attempt_count"], row["last_error_at"]) == ("pending", 0, None)
    assert row["next_attempt_at"] == pytest.approx(row["updated_at"] + 5_000, abs=1)
    assert not await engine.rows("attempts_told")


async def test_defer_after_a_call_notes_it_and_keeps_the_status(engine: Engine, ledger: Ledger) -> None:
    await ledger.settle([retry(await claimed(ledger), 0.0)])
    await engine.make_due()
    await ledger.settle([defer(await claim_one(ledger), called=True)])
    row = await engine.only("routes")
    assert (row["status"], row["attempt_count"], row["last_error_message"]) == ("failed", 1, "slow down")
    assert {attempt["verdict"] for attempt in await engine.rows("attempts_told")} == {"retry", "defer"}


async def test_fail_over_hands_the_route_to_the_next_provider(engine: Engine, ledger: Ledger) -> None:
    await ledger.settle([fail_over(await claimed(ledger), "second")])
    row = await engine.only("routes")
    assert (row["status"], row["provider"], row["provider_since"]) == ("failed", "second", 1)
    assert await ledger.claim([want()], 10, "w") == []
    (claim,) = await ledger.claim([want(provider="second")], 10, "w")
    assert (claim.attempt, claim.attempts_before) == (2, 1)


@pytest.mark.req("P-702")
async def test_a_settlement_may_give_the_route_another_group(ledger: Ledger) -> None:
    capped = Want(LANE, PROVIDER, 10, turns=Turns(cap=3))
    await ledger.enrol([enrolment(route("ann", group=5)), enrolment(route("bob", group=6))])
    ann, bob = sorted(await ledger.claim([want()], 10, "w"), key=lambda claim: claim.recipient_ref)
    await ledger.settle([msgspec.structs.replace(defer(ann, 0.0), group=-7), defer(bob, 0.0)])
    again = sorted(await ledger.claim([capped], 10, "w"), key=lambda claim: claim.recipient_ref)
    assert [(claim.group, claim.attempt) for claim in again] == [(-7, 1), (6, 1)], "and neither has spent an attempt"
    assert [await ledger.group_calls(group) for group in (-7, -8)] == [1, 0]


@pytest.mark.req("P-881")
async def test_a_settlement_may_take_the_route_to_another_provider_without_an_attempt(
    engine: Engine, ledger: Ledger
) -> None:
    await ledger.enrol([enrolment(route("ann", group=-5))])
    capped = Want(LANE, PROVIDER, 10, turns=Turns(cap=3))
    (ann,) = await ledger.claim([capped], 10, "w")
    await ledger.settle([retry(ann, 0.0)])
    await engine.make_due()
    (ann,) = await ledger.claim([capped], 10, "w")
    await ledger.settle([msgspec.structs.replace(defer(ann, 0.0), group=-7, provider="second")])
    assert await ledger.claim([want()], 10, "w") == []
    (claim,) = await ledger.claim([want(provider="second")], 10, "w")
    assert (claim.group, claim.provider) == (-7, "second")
    assert (claim.attempt, claim.attempts_before) == (2, 1), "the call before was the other provider's"


@pytest.mark.req("P-880")
async def test_a_claim_ahead_knows_how_many_go_before_it(ledger: Ledger) -> None:
    await ledger.enrol([enrolment(route(name, group=-7)) for name in "abcdef"])
    first, second = Want(LANE, PROVIDER, 9, Turns(cap=2)), Want(LANE, PROVIDER, 9, Turns(cap=2, ahead={7: 2}))
    claims = [*await ledger.claim([first], 9, "one"), *await ledger.claim([second], 9, "one")]
    assert [claim.ahead for claim in claims] == [False, False, True, True]

    async def before(claim: Claim) -> int | None:
        story = await ledger.story(claim.notification_id, None)
        assert story is not None
        found: int | None = story.routes[0]["group_calls"]
        return found

    assert [await before(claim) for claim in claims] == [None, 1, 2, 3], "the first is called, in any case"
    await ledger.settle([finish(claim) for claim in claims[:2]])
    assert [await before(claim) for claim in claims[2:]] == [None, 1], "they take over the places of calls that ended"


@pytest.mark.req("S1-110", "S1-113")
async def test_bury(engine: Engine, ledger: Ledger) -> None:
    claim = await claimed(ledger)
    await ledger.settle([bury(claim)])
    row = await engine.only("routes")
    assert (row["status"], row["next_attempt_at"], row["claim_token"]) == ("dead_letter", None, None)
    assert row["dead_lettered_at"] == row["updated_at"]
    letter = await engine.only("dead_letters")
    assert (letter["notification_id"], letter["route_id"]) == claim.key
    assert (letter["final_attempt_count"], letter["max_attempts"]) == (1, 3)
    assert (letter["failure_classification"], letter["failure_message"]) == ("recipient_gone", "no such mailbox")
    assert "redrive" in letter["recovery_hint"]
    assert not await engine.rows("suppressions")


async def test_every_call_is_noted_stale_ones_too(engine: Engine, ledger: Ledger) -> None:
    zombie, heir = await lose_a_lease(engine, ledger)
    await ledger.settle([retry(zombie)])
    await ledger.settle([finish(heir)])
    noted = {row["attempt_id"]: row["settled"] for row in await engine.rows("attempts_told")}
    assert noted == {zombie.token: "stale", heir.token: "applied"}


async def test_an_adopted_success_is_noted_as_such(engine: Engine, ledger: Ledger) -> None:
    zombie, heir = await lose_a_lease(engine, ledger)
    assert await ledger.settle([finish(heir), finish(zombie)]) == [Settled.APPLIED, Settled.STALE]
    noted = {row["attempt_id"]: row["settled"] for row in await engine.rows("attempts_told")}
    assert noted == {zombie.token: "stale", heir.token: "applied"}


async def test_two_settlements_of_one_route_in_one_batch(engine: Engine, ledger: Ledger) -> None:
    zombie, heir = await lose_a_lease(engine, ledger)
    await ledger.enrol([enrolment(route("bob"))])
    bob = await claim_one(ledger)
    assert await ledger.settle([retry(heir), finish(bob), finish(zombie)]) == [
        Settled.APPLIED,
        Settled.APPLIED,
        Settled.ADOPTED,
    ]
    assert {row["status"] for row in await engine.rows("routes")} == {"published"}
    assert len(await engine.rows("attempts_told")) == 3


async def test_a_settlement_of_what_is_gone_is_stale(engine: Engine, ledger: Ledger) -> None:
    claim = await claimed(ledger)
    await engine.execute("DELETE FROM records")
    assert await ledger.settle([finish(claim)]) == [Settled.STALE]
    assert not await engine.rows("attempts_told")


async def test_a_repeat_without_a_note_changes_nothing(engine: Engine, ledger: Ledger) -> None:
    claim = await claimed(ledger)
    assert await ledger.settle([defer(claim)]) == [Settled.APPLIED]
    before = await engine.only("routes")
    assert await ledger.settle([defer(claim)]) == [Settled.STALE]
    assert await ledger.settle([without_note(retry(claim))]) == [Settled.STALE]
    assert await engine.only("routes") == before


async def test_suppression_needs_an_applied_settlement(engine: Engine, ledger: Ledger) -> None:
    zombie, heir = await lose_a_lease(engine, ledger)
    await ledger.settle([bury(zombie, suppress=True)])
    assert not await engine.rows("suppressions")
    await ledger.settle([bury(heir, suppress=True)])
    row = await engine.only("suppressions")
    assert (row["channel"], row["address"], row["reason"]) == ("email", "ann@example.com", "recipient_gone")


async def test_one_address_may_die_many_times_and_come_back(engine: Engine, ledger: Ledger) -> None:
    await ledger.enrol([enrolment() for _ in range(3)])
    first, second, third = await ledger.claim([want()], 10, "w")
    assert await ledger.settle([bury(first, suppress=True), bury(second, suppress=True)]) == [Settled.APPLIED] * 2
    created = (await engine.only("suppressions"))["created_at"]
    await engine.execute("UPDATE suppressions SET expires_at = created_at")
    await ledger.enrol([enrolment()])
    (fresh,) = await ledger.claim([want()], 10, "w")
    assert not fresh.suppressed
    await ledger.settle([bury(third, suppress=True)])
    row = await engine.only("suppressions")
    assert row["expires_at"] == row["created_at"] + 90 * 86_400_000
    assert row["created_at"] >= created


@pytest.mark.parametrize("delay", [-5.0, float("inf"), float("nan"), 1e300])
async def test_no_delay_can_break_a_batch(engine: Engine, ledger: Ledger, delay: float) -> None:
    claim = await claimed(ledger)
    assert await ledger.settle([settlement(claim, Retry(delay))]) == [Settled.APPLIED]
    row = await engine.only("routes")
    assert row["next_attempt_at"] >= row["updated_at"]


async def test_no_vendor_text_can_break_a_batch(engine: Engine, ledger: Ledger) -> None:
    claim = await claimed(ledger)
    dirty = msgspec.structs.replace(
        retry(claim), note=note("unavailable", classification="a\x00", error="\ud800" + "x" * 10_000)
    )
    assert await ledger.settle([dirty]) == [Settled.APPLIED]
    assert len((await engine.only("routes"))["last_error_message"]) == 2000


async def test_a_ledger_may_keep_no_attempts(engine: Engine) -> None:
    async with engine.ledger(record_attempts=False) as ledger:
        claim = await claimed(ledger)
        assert await ledger.settle([finish(claim)]) == [Settled.APPLIED]
        row = await engine.only("routes")
        assert (row["status"], row["provider_message_id"]) == ("published", f"m-{claim.token}")
        assert await engine.rows("attempts_told") == []


async def test_what_is_accepted_together_is_accepted_in_order(engine: Engine) -> None:
    given = [enrolment() for _ in range(20)]
    async with engine.ledger() as ledger:
        await ledger.enrol(given)
    if engine.dialect == "postgres":
        ids = [each.notification.notification_id for each in given]
        found = await engine.execute("SELECT notification_id FROM records ORDER BY accepted_at")
        assert [row["notification_id"] for row in found] == ids
        due = (
            "SELECT count(*) AS n FROM routes JOIN records USING (notification_id) WHERE next_attempt_at = accepted_at"
        )
        assert await engine.execute(due) == [{"n": len(given)}]
