"""The route of a receipt, receipts that come before their message is known, and two callbacks at once."""

import asyncio

import pytest

from carillon.domain.receipts import Receipt, ReceiptKind
from carillon.ledger.opening import Ledger
from tests.support.ledger_builders import PROVIDER, enrolment, route, want
from tests.support.ledger_engines import Engine, engine_fixture, ledger_fixture
from tests.support.ledger_properties import claim_one
from tests.support.receipt_builders import (
    RULES,
    SECOND,
    delivered,
    effect,
    failed,
    publish,
    receipt,
    resend,
    sent_as,
)

engine = engine_fixture()
ledger = ledger_fixture()


@pytest.mark.req("S2-79")
async def test_by_the_vendors_id_and_only_that_vendors(engine: Engine, ledger: Ledger) -> None:
    claim = await publish(ledger)
    assert await effect(ledger, delivered(provider=SECOND)) == "waiting"
    (taken,) = await ledger.take_receipts([delivered()], RULES)
    assert (taken.notification_id, taken.route_id) == claim.key
    rows = {row["provider"]: row for row in await engine.rows("receipts")}
    assert (rows[PROVIDER]["notification_id"], rows[PROVIDER]["route_id"]) == claim.key
    assert rows[PROVIDER]["address"] == "ann@example.com"
    assert (rows[SECOND]["notification_id"], rows[SECOND]["effect"]) == (None, "waiting")


async def test_by_our_own_key(engine: Engine, ledger: Ledger) -> None:
    claim = await publish(ledger)
    assert await effect(ledger, failed(idempotency_key=claim.idempotency_key)) == "failed_over"
    assert (await engine.only("routes"))["provider"] == SECOND


async def test_our_key_with_another_message_is_not_the_present_one(engine: Engine, ledger: Ledger) -> None:
    claim = await publish(ledger, "m-2")
    assert await effect(ledger, failed("m-1", idempotency_key=claim.idempotency_key)) == "ignored"
    assert (await engine.only("routes"))["status"] == "published"


@pytest.mark.req("S2-93")
@pytest.mark.parametrize("message", [None, "a-name-nobody-knows"])
async def test_by_the_notification_alone(engine: Engine, ledger: Ledger, message: str | None) -> None:
    given = enrolment(route("ann"), route("bob"), route("eve", provider=SECOND))
    await ledger.enrol([given])
    for claim in await ledger.claim([want()], 2, "worker"):
        await ledger.settle([sent_as(claim, f"m-{claim.route_id}")])
    key = f"{given.notification.notification_id}/"
    told = failed(message, idempotency_key=key, address="BOB@example.com")
    assert await effect(ledger, told) == "failed_over"
    providers = {row["recipient_ref"]: row["provider"] for row in await engine.rows("routes")}
    assert providers == {"user:ann": PROVIDER, "user:bob": SECOND, "user:eve": SECOND}


@pytest.mark.req("S2-93")
async def test_the_notification_alone_still_tells_a_superseded_provider(engine: Engine, ledger: Ledger) -> None:
    claim = await publish(ledger)
    await effect(ledger, failed())
    await resend(ledger, "s-1")
    late = failed("unknown", idempotency_key=f"{claim.notification_id}/", event_id="late")
    assert await effect(ledger, late) == "ignored"
    assert (await engine.only("routes"))["status"] == "published"


@pytest.mark.parametrize("by_key", [True, False])
async def test_a_vendor_faster_than_our_settlement(engine: Engine, ledger: Ledger, *, by_key: bool) -> None:
    await ledger.enrol([enrolment()])
    claim = await claim_one(ledger)
    early = failed("m-1", idempotency_key=claim.idempotency_key if by_key else None)
    assert await effect(ledger, early) == "waiting"
    assert await ledger.take_waiting_receipts(RULES, 100) == []
    assert (await engine.only("routes"))["claim_token"] == claim.token
    await ledger.settle([sent_as(claim, "m-1")])
    (taken,) = await ledger.take_waiting_receipts(RULES, 100)
    assert (taken.effect, taken.notification_id) == ("failed_over", claim.notification_id)
    assert taken.receipt.reason == "unknown handset"
    assert (await engine.only("routes"))["provider"] == SECOND
    assert (await engine.only("receipts"))["effect"] == "failed_over"
    assert await ledger.take_waiting_receipts(RULES, 100) == []


async def test_a_key_that_comes_before_its_notification(ledger: Ledger) -> None:
    given = enrolment()
    key = f"{given.notification.notification_id}/{given.routes[0].route_id}"
    assert await effect(ledger, delivered("m-1", idempotency_key=key)) == "waiting"
    await ledger.enrol([given])
    (taken,) = await ledger.take_waiting_receipts(RULES, 100)
    assert taken.effect == "noted"


@pytest.mark.req("S2-79")
async def test_who_waits_in_vain_is_let_go(engine: Engine, ledger: Ledger) -> None:
    assert await effect(ledger, delivered("stranger")) == "waiting"
    await engine.grow_old("receipts", "received_at", 599)
    assert await ledger.take_waiting_receipts(RULES, 100) == []
    await engine.grow_old("receipts", "received_at", 2)
    (taken,) = await ledger.take_waiting_receipts(RULES, 100)
    assert (taken.effect, taken.notification_id) == ("ignored", None)
    assert await effect(ledger, delivered("stranger")) == "repeated"


async def test_strangers_do_not_stand_in_the_way(engine: Engine, ledger: Ledger) -> None:
    await ledger.take_receipts([delivered(f"stranger-{number}") for number in range(50)], RULES)
    await ledger.enrol([enrolment()])
    claim = await claim_one(ledger)
    await effect(ledger, delivered("m-1"))
    await ledger.settle([sent_as(claim, "m-1")])
    (taken,) = await ledger.take_waiting_receipts(RULES, 1)
    assert taken.receipt.provider_message_id == "m-1"
    assert (await engine.only("routes"))["receipt"] == "delivered"


async def test_reports_without_an_id_are_told_apart_by_what_they_say(ledger: Ledger) -> None:
    await publish(ledger)
    assert await effect(ledger, receipt(ReceiptKind.SENT)) == "noted"
    assert await effect(ledger, receipt(ReceiptKind.SENT)) == "repeated"
    assert await effect(ledger, delivered()) == "noted"
    assert await effect(ledger, failed(classification="other")) == "ignored"
    assert await effect(ledger, failed(classification="other", reason="again")) == "repeated"


@pytest.mark.req("S2-80")
async def test_many_callbacks_at_once_fail_over_once(engine: Engine, ledger: Ledger) -> None:
    await publish(ledger)
    same = [failed(event_id="1") for _ in range(8)]
    other = [failed(event_id=f"o-{number}") for number in range(8)]
    answers = await asyncio.gather(*(ledger.take_receipts([each], RULES) for each in (*same, *other)))
    effects = [str(answer[0].effect) for answer in answers]
    assert effects.count("failed_over") == 1
    assert set(effects) == {"failed_over", "repeated", "ignored"}
    assert (await engine.only("routes"))["attempt_count"] == 1


async def test_callbacks_and_settlements_cross(engine: Engine, ledger: Ledger) -> None:
    """Whichever is first: every message that failed went on to the second provider."""
    await ledger.enrol([enrolment(route(f"u{number}")) for number in range(40)])
    claims = await ledger.claim([want()], 40, "worker")
    told: list[Receipt] = [
        failed(f"m-{claim.token}", idempotency_key=claim.idempotency_key if claim.token % 2 else None)
        for claim in claims
    ]
    crossing = [ledger.take_receipts([each], RULES) for each in told]
    settling = [ledger.settle([sent_as(claim, f"m-{claim.token}")]) for claim in claims]
    await asyncio.gather(*(work for pair in zip(crossing, settling, strict=True) for work in pair))
    await ledger.take_waiting_receipts(RULES, 100)
    rows = await engine.rows("routes")
    assert {(row["status"], row["provider"]) for row in rows} == {("failed", SECOND)}
