"""Suppressions by hard bounces, complaints, unsubscribes and operators; and receipts that grow old."""

import pytest

from carillon.domain.events import Pruned
from carillon.domain.receipts import ReceiptKind, ReceiptRules
from carillon.domain.suppressions import Suppression, SuppressionTerms
from carillon.ledger.opening import Ledger
from carillon.upkeep.cleanup import Retention, RetentionRules
from tests.support.dispatches import LoopClock
from tests.support.ledger_builders import PROVIDER, enrolment, route
from tests.support.ledger_engines import Engine, engine_fixture, ledger_fixture
from tests.support.receipt_builders import (
    ALONE,
    RULES,
    SECOND,
    bounced,
    delivered,
    effect,
    failed,
    publish,
    receipt,
    resend,
)

engine = engine_fixture()
ledger = ledger_fixture()


async def suppressed(ledger: Ledger) -> list[tuple[str, str, str, str]]:
    rows, total = await ledger.suppressions({}, 100, 0)
    assert total == len(rows)
    return sorted((row["channel"], row["address"], row["tenant_id"], row["source"]) for row in rows)


ANN = ("email", "ann@example.com", "", "receipt")


@pytest.mark.req("S2-90")
async def test_the_second_hard_bounce_suppresses_an_address(engine: Engine, ledger: Ledger) -> None:
    await publish(ledger)
    assert await effect(ledger, bounced(address="Ann@Example.com")) == "failed_over"
    assert await suppressed(ledger) == []
    await resend(ledger, "s-1")
    assert await effect(ledger, bounced("s-1", provider=SECOND)) == "buried"
    assert await suppressed(ledger) == [ANN]
    assert (await engine.only("dead_letters"))["failure_message"] == "hard"
    await ledger.enrol([enrolment()])
    skipped = [row for row in await engine.rows("routes") if row["status"] == "skipped"]
    assert len(skipped) == 1


async def test_soft_bounces_suppress_no_address(ledger: Ledger) -> None:
    for number in range(3):
        await publish(ledger, f"m-{number}")
        assert await effect(ledger, bounced(f"m-{number}", recipient_gone=False)) == "failed_over"
    assert await suppressed(ledger) == []


async def test_how_many_bounces_and_for_how_long_are_settings(engine: Engine, ledger: Ledger) -> None:
    rules = ReceiptRules(chains=RULES.chains, bounces_before_silence=1, suppressions=SuppressionTerms(bounced=60.0))
    await publish(ledger)
    assert await effect(ledger, bounced(), rules=rules) == "buried"
    row = await engine.only("suppressions")
    assert row["expires_at"] == row["created_at"] + 60_000
    await engine.grow_old("suppressions", "expires_at", 61)
    assert await suppressed(ledger) == []
    await publish(ledger, "m-2")
    await ledger.prune(1e9, 1e9, 10)
    assert await engine.rows("suppressions") == []


async def test_a_dead_address_without_another_provider_is_suppressed_at_once(engine: Engine, ledger: Ledger) -> None:
    await publish(ledger)
    assert await effect(ledger, failed(recipient_gone=True), rules=ALONE) == "buried"
    assert await suppressed(ledger) == [ANN]
    assert (await engine.only("routes"))["last_error_message"] == "unknown handset"


async def test_a_dead_address_is_asked_of_the_next_provider_first(ledger: Ledger) -> None:
    await publish(ledger)
    assert await effect(ledger, failed(recipient_gone=True)) == "failed_over"
    assert await suppressed(ledger) == []


async def test_a_repeated_bounce_is_one_bounce(ledger: Ledger) -> None:
    await publish(ledger)
    await ledger.take_receipts([bounced(event_id="1"), bounced(event_id="1")], RULES)
    await ledger.take_receipts([bounced(event_id="1")], RULES)
    assert await suppressed(ledger) == []
    await ledger.take_receipts([bounced(event_id="2")], RULES)
    assert await suppressed(ledger) == [ANN]


@pytest.mark.req("S2-91")
async def test_a_complaint_ends_the_route_and_suppresses_the_address_for_its_tenant(
    engine: Engine, ledger: Ledger
) -> None:
    await publish(ledger, tenant_id="t1")
    assert await effect(ledger, delivered(), receipt(ReceiptKind.COMPLAINED)) == "buried"
    row = await engine.only("routes")
    assert (row["status"], row["receipt"], row["next_attempt_at"]) == ("dead_letter", "complained", None)
    assert (await engine.only("dead_letters"))["failure_classification"] == "complained"
    assert await suppressed(ledger) == [("email", "ann@example.com", "t1", "receipt")]
    assert await effect(ledger, receipt(ReceiptKind.OPENED)) == "noted"
    assert (await engine.only("routes"))["receipt"] == "complained"
    await ledger.enrol([enrolment(tenant_id="t1"), enrolment(tenant_id="t2")])
    statuses = {(each["status"]) for each in await engine.rows("routes")}
    assert statuses == {"dead_letter", "skipped", "pending"}


@pytest.mark.req("S2-92")
async def test_an_unsubscribe_switches_the_channel_off(engine: Engine, ledger: Ledger) -> None:
    await publish(ledger, tenant_id="t1", user_id="ann")
    assert await effect(ledger, receipt(ReceiptKind.UNSUBSCRIBED)) == "noted"
    (wished,) = await ledger.preferences([("t1", "ann")])
    assert wished is not None
    assert wished.channels == {"email": False}
    assert await suppressed(ledger) == [("email", "ann@example.com", "t1", "unsubscribe")]
    assert (await engine.only("routes"))["status"] == "published"


async def test_an_unsubscribe_leaves_other_wishes_alone(ledger: Ledger) -> None:
    await ledger.disable(None, "ann", "push")
    await publish(ledger, user_id="ann")
    await effect(ledger, receipt(ReceiptKind.UNSUBSCRIBED))
    (wished,) = await ledger.preferences([(None, "ann")])
    assert wished is not None
    assert wished.channels == {"email": False, "push": False}


async def test_a_suppression_only_grows(engine: Engine, ledger: Ledger) -> None:
    def wish(seconds: float | None, reason: str) -> Suppression:
        return Suppression("sms", "+1", "", reason, "operator", seconds)

    await ledger.suppress([wish(100.0, "a"), wish(50.0, "a")])
    await ledger.suppress([wish(200.0, "b")])
    await ledger.suppress([wish(10.0, "c")])
    assert (await engine.only("suppressions"))["reason"] == "b"
    await ledger.suppress([wish(None, "d")])
    await ledger.suppress([wish(500.0, "e")])
    row = await engine.only("suppressions")
    assert (row["reason"], row["expires_at"]) == ("d", None)


async def test_suppressions_are_listed_and_ended(ledger: Ledger) -> None:
    given = [Suppression("sms", f"+{number}", tenant, "r", "operator") for number in range(3) for tenant in ("", "t1")]
    await ledger.suppress(given)
    assert len(await suppressed(ledger)) == 6
    page, total = await ledger.suppressions({"tenant_id": "t1"}, 2, 2)
    assert (total, len(page)) == (3, 1)
    assert page[0].keys() >= {"channel", "address", "reason", "created_at", "expires_at", "tenant_id", "source"}
    assert await ledger.unsuppress("sms", "+1", "t1")
    assert not await ledger.unsuppress("sms", "+1", "t1")
    found, _ = await ledger.suppressions({"address": "+1"}, 10, 0)
    assert [row["tenant_id"] for row in found] == [""]
    with pytest.raises(ValueError, match="unknown filter"):
        await ledger.suppressions({"colour": "red"}, 1, 0)


async def test_old_receipts_are_removed_and_waiting_ones_kept(engine: Engine, ledger: Ledger) -> None:
    await publish(ledger)
    await ledger.take_receipts([delivered(), delivered("stranger")], RULES)
    await ledger.prune(1000.0, 1e9, 10)
    assert len(await engine.rows("receipts")) == 2
    await engine.grow_old("receipts", "received_at", 1001)
    await ledger.prune(1000.0, 1e9, 10)
    assert (await engine.only("receipts"))["provider_message_id"] == "stranger"
    await ledger.take_waiting_receipts(RULES, 10)
    await ledger.prune(1000.0, 1e9, 10)
    assert await engine.rows("receipts") == []


@pytest.mark.req("P-1205")
async def test_all_old_receipts_are_removed_however_many_a_message_has(engine: Engine, ledger: Ledger) -> None:
    await publish(ledger)
    for number in range(3):
        await ledger.take_receipts([delivered(event_id=f"{number}/{each}") for each in range(3)], RULES)
    assert len(await engine.rows("receipts")) == 9
    await engine.grow_old("receipts", "received_at", 1001)
    assert [await ledger.prune_beside(older, 2) for older in (1e9, 1000.0)] == [0, 2]
    rules = RetentionRules(record_seconds=1000.0, batch=2, pause_seconds=0.0)
    assert await Retention(ledger, lambda _: None, LoopClock(), rules).prune() == Pruned()
    assert await engine.rows("receipts") == []


async def test_a_route_without_an_address_suppresses_the_reported_one(engine: Engine, ledger: Ledger) -> None:
    await ledger.enrol([enrolment(route("ann"))])
    await engine.execute("UPDATE routes SET address = NULL")
    given = receipt(ReceiptKind.COMPLAINED, None, idempotency_key="nobody/x", address="a@example.com")
    assert await effect(ledger, given) == "waiting"
    row = await engine.only("routes")
    key = f"{row['notification_id']}/{row['route_id']}"
    known = receipt(ReceiptKind.COMPLAINED, None, idempotency_key=key, address="a@example.com", provider=PROVIDER)
    assert await effect(ledger, known) == "buried"
    assert await suppressed(ledger) == [("email", "a@example.com", "", "receipt")]
