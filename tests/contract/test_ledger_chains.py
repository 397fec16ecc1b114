"""Chains in the ledger: who waits for whom, what a receipt skips, what a dead letter lets go, and who wins a race."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from carillon.domain.admin import WaitingChange
from carillon.domain.chains import chained
from carillon.domain.claims import Claim, Settled
from carillon.domain.decide import barred
from carillon.domain.notifications import Enrolment, Route
from carillon.domain.receipts import Effect, Receipt, ReceiptKind, ReceiptRules
from carillon.domain.suppressions import Suppression
from carillon.domain.timing import LATEST_MS, Timing
from carillon.domain.verdicts import Skip
from carillon.ledger.opening import Ledger
from carillon.web.problems import rfc3339_ms
from tests.support.ledger_builders import bury, enrolment, finish, redrive, retry, route, want
from tests.support.ledger_engines import Engine, engine_fixture, ledger_fixture

engine = engine_fixture()
ledger = ledger_fixture()

CHANNELS = ("inApp", "push", "email")
RULES = ReceiptRules(chains={channel: (channel,) for channel in CHANNELS})
NOW = 1_800_000_000.0


def chain(*people: str, until: str = "read", after: float = 600.0, **changes: Any) -> Enrolment:
    routes = [
        route(
            name,
            route_id=f"{channel}:user:{name}",
            channel=channel,
            provider=channel,
            address=f"{channel}-{name}",
        )
        for channel in CHANNELS
        for name in people or ("ann",)
    ]
    each = enrolment(*routes, **changes)
    timing = Timing(until=until, after_seconds=after)
    return replace(each, routes=chained(each.routes, timing, NOW + 4e9, lambda *_: None))


async def states(engine: Engine) -> dict[str, tuple[str, str | None]]:
    return {row["route_id"]: (row["status"], row["last_error_classification"]) for row in await engine.rows("routes")}


async def claim(ledger: Ledger, channel: str) -> Claim:
    (found,) = await ledger.claim([want(provider=channel)], 10, "w")
    return found


def told(claim: Claim, kind: ReceiptKind = ReceiptKind.OPENED) -> Receipt:
    return Receipt(provider=claim.provider, kind=kind, idempotency_key=claim.idempotency_key)


async def sent(ledger: Ledger, channel: str) -> Claim:
    held = await claim(ledger, channel)
    assert await ledger.settle([finish(held)]) == [Settled.APPLIED]
    return held


@pytest.mark.req("P-320")
async def test_later_channels_are_rows_that_are_due_later(engine: Engine, ledger: Ledger) -> None:
    await ledger.enrol([chain()])
    rows = {row["channel"]: row for row in await engine.rows("routes")}
    assert [(rows[name]["step"], rows[name]["goal"]) for name in CHANNELS] == [(0, "read"), (1, "read"), (2, "read")]
    assert rows["email"]["next_attempt_at"] - rows["push"]["next_attempt_at"] == 600_000
    assert await ledger.claim([want(provider="push"), want(provider="email")], 10, "w") == []
    assert (await claim(ledger, "inApp")).goal == "read"


@pytest.mark.req("P-320")
async def test_a_receipt_skips_what_waits_behind_it(engine: Engine, ledger: Ledger) -> None:
    await ledger.enrol([chain("ann", "bob")])
    held = {one.recipient_ref: one for one in await ledger.claim([want(provider="inApp")], 10, "w")}
    await ledger.settle([finish(one) for one in held.values()])
    (taken,) = await ledger.take_receipts([told(held["user:ann"])], RULES)
    assert [gone.channel for gone in sorted(taken.reached, key=lambda one: one.channel)] == ["email", "push"]
    found = await states(engine)
    assert found["push:user:ann"] == found["email:user:ann"] == ("skipped", "reached")
    assert found["push:user:bob"][0] == found["email:user:bob"][0] == "pending"
    (again,) = await ledger.take_receipts([told(held["user:ann"])], RULES)
    assert (again.effect, again.reached) == (Effect.REPEATED, ())


@pytest.mark.req("P-320")
@pytest.mark.parametrize(
    ("until", "kind", "ends"),
    [
        ("delivered", ReceiptKind.DELIVERED, "skipped"),
        ("delivered", ReceiptKind.CLICKED, "skipped"),
        ("read", ReceiptKind.DELIVERED, "pending"),
        ("read", ReceiptKind.OPENED, "skipped"),
        ("acknowledged", ReceiptKind.OPENED, "pending"),
        ("acknowledged", ReceiptKind.CLICKED, "skipped"),
        ("delivered", ReceiptKind.SENT, "pending"),
    ],
)
async def test_each_goal_asks_for_its_report(
    engine: Engine, ledger: Ledger, until: str, kind: ReceiptKind, ends: str
) -> None:
    await ledger.enrol([chain(until=until)])
    await ledger.take_receipts([told(await sent(ledger, "inApp"), kind)], RULES)
    assert (await states(engine))["push:user:ann"][0] == ends


@pytest.mark.req("P-320")
async def test_a_receipt_while_the_next_is_in_a_call_stops_its_retry(engine: Engine, ledger: Ledger) -> None:
    await ledger.enrol([chain()])
    first = await sent(ledger, "inApp")
    await ledger.hasten(5e9)
    late = await claim(ledger, "push")
    assert barred(late) is None
    await ledger.take_receipts([told(first)], RULES)
    assert (await states(engine))["push:user:ann"][0] == "pending"
    await ledger.settle([retry(late, 0.0)])
    again = barred(await claim(ledger, "push"))
    assert isinstance(again, Skip)
    assert (again.gate, again.reason) == ("reached", "another channel reached its goal: read on inApp")


@pytest.mark.req("P-320")
async def test_a_claim_finds_the_goal_without_the_skip(engine: Engine, ledger: Ledger) -> None:
    """As after a crash, or beside a receipt that found the row locked: the claim derives it again."""
    await ledger.enrol([chain()])
    first = await sent(ledger, "inApp")
    await ledger.hasten(5e9)
    await engine.execute("UPDATE routes SET opened_at = published_at WHERE route_id = 'inApp:user:ann'")
    assert first.goal == "read"
    verdict = barred(await claim(ledger, "email"))
    assert isinstance(verdict, Skip)
    assert verdict.gate == "reached"


@pytest.mark.req("P-320")
async def test_a_later_channel_that_reaches_the_goal_ends_the_earlier_one(engine: Engine, ledger: Ledger) -> None:
    await ledger.enrol([chain()])
    await ledger.settle([retry(await claim(ledger, "inApp"), 3600.0)])
    await ledger.hasten(5e9 - 3600)
    await ledger.take_receipts([told(await sent(ledger, "push"))], RULES)
    assert (await states(engine))["inApp:user:ann"] == ("skipped", "reached")


@pytest.mark.req("P-321")
async def test_a_dead_letter_lets_the_next_go_at_once(engine: Engine, ledger: Ledger) -> None:
    await ledger.enrol([chain("ann", "bob")])
    held = {one.recipient_ref: one for one in await ledger.claim([want(provider="inApp")], 10, "w")}
    await ledger.settle([bury(held["user:ann"]), finish(held["user:bob"])])
    (released,) = await ledger.claim([want(provider="push"), want(provider="email")], 10, "w")
    assert (released.recipient_ref, released.channel) == ("user:ann", "push")
    rows = {row["route_id"]: row for row in await engine.rows("routes")}
    ahead = rows["email:user:bob"]["next_attempt_at"] - rows["email:user:ann"]["next_attempt_at"]
    assert ahead > 1e9, "what waits behind it moved up"
    await ledger.settle([bury(released)])
    assert (await claim(ledger, "email")).recipient_ref == "user:ann"


@pytest.mark.req("P-321")
async def test_a_bounce_after_the_send_lets_the_next_go(ledger: Ledger) -> None:
    await ledger.enrol([chain()])
    first = await sent(ledger, "inApp")
    gone = replace(told(first, ReceiptKind.COMPLAINED), reason="spam")
    (taken,) = await ledger.take_receipts([gone], RULES)
    assert taken.effect == Effect.BURIED
    assert (await claim(ledger, "push")).attempt == 1


@pytest.mark.req("P-321")
async def test_a_sent_one_lets_nothing_go_before_its_time(ledger: Ledger) -> None:
    await ledger.enrol([chain()])
    await sent(ledger, "inApp")
    assert await ledger.claim([want(provider="push"), want(provider="email")], 10, "w") == []


@pytest.mark.req("P-321")
async def test_a_suppressed_channel_leaves_its_time_to_the_next(engine: Engine, ledger: Ledger) -> None:
    await ledger.suppress([Suppression("inApp", "inApp-ann", "", "manual", "operator", None)])
    await ledger.enrol([chain()])
    assert (await claim(ledger, "push")).recipient_ref == "user:ann"
    rows = {row["channel"]: row for row in await engine.rows("routes")}
    assert (rows["inApp"]["status"], rows["inApp"]["step"], rows["push"]["step"]) == ("skipped", None, 0)
    assert await ledger.claim([want(provider="email")], 10, "w") == []


@pytest.mark.req("P-320")
async def test_a_redriven_channel_is_not_sent_once_the_goal_is_reached(ledger: Ledger) -> None:
    await ledger.enrol([chain()])
    first = await claim(ledger, "inApp")
    await ledger.settle([bury(first)])
    await ledger.take_receipts([told(await sent(ledger, "push"))], RULES)
    assert await redrive(ledger, first.key) == 1
    verdict = barred(await claim(ledger, "inApp"))
    assert isinstance(verdict, Skip)
    assert verdict.gate == "reached"


@pytest.mark.req("P-320")
async def test_cancelling_stops_the_whole_chain(engine: Engine, ledger: Ledger) -> None:
    each = chain()
    await ledger.enrol([each])
    done = await ledger.cancel_waiting({"notification_id": each.notification.notification_id})
    assert done.done == len(CHANNELS)
    assert set((await states(engine)).values()) == {("skipped", "cancelled")}


@pytest.mark.req("P-320")
async def test_another_time_keeps_the_distances(engine: Engine, ledger: Ledger) -> None:
    each = chain()
    await ledger.enrol([each])
    when = round((NOW + 9e9) * 1000)
    await ledger.change_waiting(
        {"notification_id": each.notification.notification_id}, WaitingChange(scheduled_for_ms=when)
    )
    rows = {row["channel"]: row["next_attempt_at"] for row in await engine.rows("routes")}
    assert rows["inApp"] == when
    assert rows["email"] - rows["push"] == 600_000


EXPIRY = round((NOW + 4e9 + 900) * 1000)
"""Between the second channel and the third."""


async def times(engine: Engine) -> dict[str, int]:
    return {row["channel"]: row["next_attempt_at"] for row in await engine.rows("routes")}


@pytest.mark.req("P-1050", "P-320")
@pytest.mark.parametrize("hastened", [0.0, 500.0])
async def test_a_later_expiry_gives_a_channel_its_time_back(engine: Engine, ledger: Ledger, hastened: float) -> None:
    each = chain(expires_at_ms=EXPIRY)
    mine = {"notification_id": each.notification.notification_id}
    await ledger.enrol([each])
    cut = await times(engine)
    assert (cut["email"], cut["push"]) == (EXPIRY, EXPIRY - 300_000)
    await ledger.hasten(hastened)
    for later in (EXPIRY - 800_000, EXPIRY + 9_000_000):
        await ledger.change_waiting(mine, WaitingChange(expires_at_ms=later))
    found = await times(engine)
    assert found["email"] - found["push"] == 600_000
    assert found["push"] == cut["push"] - hastened * 1000


@pytest.mark.req("P-1050", "P-320")
async def test_another_time_keeps_the_distances_that_an_expiry_had_cut(engine: Engine, ledger: Ledger) -> None:
    each = chain(expires_at_ms=EXPIRY)
    await ledger.enrol([each])
    when = round((NOW + 9e9) * 1000)
    await ledger.change_waiting(
        {"notification_id": each.notification.notification_id},
        WaitingChange(scheduled_for_ms=when, expires_at_ms=when + 5_000_000_000_000),
    )
    found = await times(engine)
    assert (found["inApp"], found["email"] - found["push"]) == (when, 600_000)


@pytest.mark.req("P-1207")
async def test_another_time_at_the_end_of_the_last_year_can_be_shown_and_moved_back(
    engine: Engine, ledger: Ledger
) -> None:
    each = chain()
    mine = {"notification_id": each.notification.notification_id}
    await ledger.enrol([each])
    await ledger.change_waiting(mine, WaitingChange(scheduled_for_ms=LATEST_MS))
    found = await times(engine)
    assert (found["push"], found["email"]) == (LATEST_MS - 600_000, LATEST_MS)
    story = await ledger.story(mine["notification_id"], None)
    assert story is not None
    assert max(rfc3339_ms(row["next_attempt_at"]) for row in story.routes).startswith("9999-12-31T23:59:59")
    when = round((NOW + 9e9) * 1000)
    await ledger.change_waiting(mine, WaitingChange(scheduled_for_ms=when))
    found = await times(engine)
    assert (found["inApp"], found["email"] - found["push"]) == (when, 600_000)


@pytest.mark.req("P-1050", "P-321")
async def test_channels_that_move_up_keep_the_distances_that_an_expiry_had_cut(engine: Engine, ledger: Ledger) -> None:
    await ledger.enrol([chain(expires_at_ms=EXPIRY)])
    await ledger.settle([bury(await claim(ledger, "inApp"))])
    found = await times(engine)
    assert found["email"] - found["push"] == 600_000, "nothing of it is cut any more"


@pytest.mark.req("P-1050", "P-321")
async def test_quiet_hours_hold_nothing_beyond_its_expiry(engine: Engine, ledger: Ledger) -> None:
    each = chain(expires_at_ms=EXPIRY)
    held = [replace(one, not_before_ms=EXPIRY + 1 if one.step else None) for one in each.routes]
    await ledger.enrol([replace(each, routes=tuple(held))])
    await ledger.settle([bury(await claim(ledger, "inApp"))])
    found = await times(engine)
    assert found["push"] == found["email"] == EXPIRY


@pytest.mark.req("P-320")
async def test_receipts_about_both_ends_of_many_chains_at_once(ledger: Ledger, engine: Engine) -> None:
    """Two batches that lock each other's routes never wait in a circle, and every chain ends."""
    batch = [chain(after=0.001) for _ in range(20)]
    batch = [replace(each, routes=tuple(replace(r, due_ms=1) if r.step else r for r in each.routes)) for each in batch]
    await ledger.enrol(batch)
    wants = [want(provider=channel) for channel in CHANNELS]
    held = await ledger.claim(wants, 100, "w")
    await ledger.settle([finish(one) if one.channel != "email" else retry(one) for one in held])
    first = [told(one) for one in held if one.channel == "inApp"]
    second = [told(one) for one in reversed(held) if one.channel == "push"]
    await asyncio.gather(ledger.take_receipts(first, RULES), ledger.take_receipts(second, RULES))
    found = [row for row in await engine.rows("routes") if row["channel"] == "email"]
    assert {(row["status"], row["last_error_classification"]) for row in found} == {("skipped", "reached")}
    assert len(found) == len(batch)


@pytest.mark.req("P-320")
def test_a_chain_of_one_person_is_their_own() -> None:
    found: dict[str, list[Route]] = {}
    for one in chain("ann", "bob").routes:
        found.setdefault(one.recipient_ref, []).append(one)
    assert [[one.step for one in theirs] for theirs in found.values()] == [[0, 1, 2], [0, 1, 2]]
