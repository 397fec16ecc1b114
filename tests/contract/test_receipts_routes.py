"""What receipts do to routes, in whatever order and however often they come."""

import itertools
from typing import Any

import pytest

from carillon.domain.receipts import ReceiptKind, ReceiptRules
from carillon.ledger.opening import Ledger
from tests.support.ledger_builders import PROVIDER, bury, enrolment, retry, route, want
from tests.support.ledger_engines import Engine, engine_fixture, ledger_fixture
from tests.support.ledger_properties import claim_one
from tests.support.receipt_builders import (
    ALONE,
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


@pytest.mark.req("S2-76", "S2-88", "S2-97")
async def test_progress_is_ranked_and_never_goes_back(engine: Engine, ledger: Ledger) -> None:
    words = ("queued", "sent", "delivered", "opened", "clicked")
    for order in itertools.permutations(words, 3):
        await engine.empty()
        await publish(ledger)
        for word in order:
            await effect(ledger, receipt(ReceiptKind(word)))
        row = await engine.only("routes")
        assert row["receipt"] == max(order, key=words.index), order
        assert row["status"] == "published"
        assert (row["delivered_at"] is not None) == bool({"delivered", "opened", "clicked"} & set(order))
        assert (row["opened_at"] is not None) == bool({"opened", "clicked"} & set(order))
        assert (row["clicked_at"] is not None) == ("clicked" in order)


async def test_the_first_delivery_is_the_time_of_delivery(engine: Engine, ledger: Ledger) -> None:
    await publish(ledger)
    await effect(ledger, delivered(event_id="1"))
    await engine.grow_old("routes", "delivered_at", 60)
    before = await engine.only("routes")
    await effect(ledger, delivered(event_id="2"), receipt(ReceiptKind.OPENED))
    after = await engine.only("routes")
    assert after["delivered_at"] == before["delivered_at"]
    assert after["opened_at"] > after["delivered_at"]


@pytest.mark.req("S2-77", "S2-78", "S2-90")
async def test_a_failed_message_goes_to_the_next_provider_at_once(engine: Engine, ledger: Ledger) -> None:
    claim = await publish(ledger)
    assert await effect(ledger, failed()) == "failed_over"
    row = await engine.only("routes")
    assert (row["status"], row["provider"], row["provider_since"]) == ("failed", SECOND, 1)
    assert row["next_attempt_at"] == row["updated_at"] == row["last_error_at"]
    assert (row["last_error_classification"], row["last_error_message"]) == ("30005", "unknown handset")
    assert row["published_at"] is None
    again = await resend(ledger, "s-1")
    assert (again.key, again.attempt, again.abandoned) == (claim.key, 2, False)
    row = await engine.only("routes")
    assert (row["status"], row["provider"], row["provider_message_id"]) == ("published", SECOND, "s-1")
    noted = sorted(await engine.rows("attempts_told"), key=lambda attempt: int(attempt["attempt_id"]))
    assert [attempt["provider_message_id"] for attempt in noted] == ["m-1", "s-1"]


async def test_the_next_provider_gets_an_attempt_beyond_the_budget(engine: Engine, ledger: Ledger) -> None:
    await publish(ledger, route={"max_attempts": 1})
    assert await effect(ledger, failed()) == "failed_over"
    row = await engine.only("routes")
    assert (row["attempt_count"], row["max_attempts"]) == (1, 2)
    assert (await resend(ledger, "s-1")).attempt == 2


async def test_a_route_of_a_lane_nobody_claims_from_changes_lanes(engine: Engine, ledger: Ledger) -> None:
    await publish(ledger)
    await engine.execute("UPDATE routes SET lane = 0")
    rules = ReceiptRules(chains=RULES.chains, lanes={0: 1})
    assert await effect(ledger, failed(), rules=rules) == "failed_over"
    assert (await engine.only("routes"))["lane"] == 1


@pytest.mark.req("S2-80")
async def test_one_failed_message_fails_over_once(engine: Engine, ledger: Ledger) -> None:
    await publish(ledger)
    assert await effect(ledger, failed(event_id="1")) == "failed_over"
    assert await effect(ledger, failed(event_id="1")) == "repeated"
    assert await effect(ledger, failed(event_id="2")) == "ignored"
    await resend(ledger, "s-1")
    before = await engine.only("routes")
    assert await effect(ledger, failed(event_id="3"), failed(event_id="1")) == "repeated"
    assert await engine.only("routes") == before


@pytest.mark.req("S2-80")
async def test_delivered_never_falls_back(engine: Engine, ledger: Ledger) -> None:
    await publish(ledger)
    await effect(ledger, delivered())
    before = await engine.only("routes")
    assert await effect(ledger, failed()) == "ignored"
    assert await effect(ledger, receipt(ReceiptKind.SENT)) == "noted"
    assert await engine.only("routes") == before


async def test_a_late_delivery_of_the_first_message_is_kept(engine: Engine, ledger: Ledger) -> None:
    await publish(ledger)
    await effect(ledger, failed())
    await resend(ledger, "s-1")
    assert await effect(ledger, delivered("m-1")) == "noted"
    row = await engine.only("routes")
    assert (row["status"], row["provider"], row["receipt"]) == ("published", SECOND, "delivered")


@pytest.mark.req("S2-98")
async def test_without_another_provider_the_same_one_tries_until_the_budget_is_used(
    engine: Engine, ledger: Ledger
) -> None:
    await publish(ledger, "p-1")
    for number in (2, 3):
        assert await effect(ledger, failed(f"p-{number - 1}"), rules=ALONE) == "retried"
        row = await engine.only("routes")
        assert (row["status"], row["provider"], row["attempt_count"]) == ("failed", PROVIDER, number - 1)
        await resend(ledger, f"p-{number}", PROVIDER)
    assert await effect(ledger, failed("p-3"), rules=ALONE) == "buried"
    row = await engine.only("routes")
    text = "Retry exhausted after 3 attempts. Last error: unknown handset"
    assert (row["status"], row["next_attempt_at"], row["last_error_message"]) == ("dead_letter", None, text)
    assert row["dead_lettered_at"] == row["updated_at"]
    letter = await engine.only("dead_letters")
    assert (letter["final_attempt_count"], letter["failure_classification"]) == (3, "30005")
    assert letter["failure_message"] == text
    assert await engine.rows("outbox") == []
    assert await effect(ledger, failed("p-3", event_id="late"), rules=ALONE) == "ignored"


async def test_the_alert_of_a_dead_letter_is_in_the_same_commit(engine: Engine, ledger: Ledger) -> None:
    ledger._alert_from = 0  # noqa: SLF001 - how a ledger is opened with alerts is another room's business
    claim = await publish(ledger, route={"max_attempts": 1})
    await effect(ledger, failed(), rules=ALONE)
    told = await engine.only("outbox")
    assert (told["topic"], told["notification_id"], told["route_id"]) == ("NotificationFailed", *claim.key)
    text = "Retry exhausted after 1 attempts. Last error: unknown handset"
    assert (told["final_attempt_count"], told["failure_message"]) == (1, text)


async def test_a_delivery_ends_what_waits(engine: Engine, ledger: Ledger) -> None:
    await ledger.enrol([enrolment()])
    claim = await claim_one(ledger)
    await ledger.settle([retry(claim, 300.0)])
    key = claim.idempotency_key
    assert await effect(ledger, failed("lost", idempotency_key=key)) == "noted"
    assert await effect(ledger, delivered("lost", idempotency_key=key)) == "noted"
    row = await engine.only("routes")
    assert (row["status"], row["next_attempt_at"], row["provider_message_id"]) == ("published", None, "lost")
    assert row["published_at"] == row["delivered_at"]


@pytest.mark.req("S2-80")
async def test_a_delivery_of_the_first_message_stops_the_second(engine: Engine, ledger: Ledger) -> None:
    await publish(ledger)
    await effect(ledger, failed())
    (held,) = await ledger.claim([want(provider=SECOND)], 1, "worker")
    assert await effect(ledger, delivered("m-1")) == "noted"
    assert await ledger.extend([held]) == [held]
    row = await engine.only("routes")
    assert (row["status"], row["provider"], row["claim_token"]) == ("published", PROVIDER, None)


async def test_what_is_over_stays_over(engine: Engine, ledger: Ledger) -> None:
    await ledger.enrol([enrolment()])
    claim = await claim_one(ledger)
    await ledger.settle([bury(claim)])
    key = claim.idempotency_key
    assert await effect(ledger, failed(None, idempotency_key=key)) == "ignored"
    assert await effect(ledger, delivered(None, idempotency_key=key)) == "noted"
    row = await engine.only("routes")
    assert row["status"] == "dead_letter"
    assert row["delivered_at"] is not None


async def test_a_provider_that_left_the_settings_hands_over_to_the_first(engine: Engine, ledger: Ledger) -> None:
    await publish(ledger)
    assert await effect(ledger, failed(), rules=ReceiptRules(chains={"email": ("new",)})) == "failed_over"
    assert (await engine.only("routes"))["provider"] == "new"


async def test_a_batch_is_taken_in_order_and_each_report_on_its_own(engine: Engine, ledger: Ledger) -> None:
    first = await publish(ledger, "m-1")
    await ledger.enrol([enrolment(route("bob"))])
    (bob,) = await ledger.claim([want()], 1, "worker")
    await ledger.settle([sent_as(bob, "m-2")])
    given = [receipt(ReceiptKind.SENT), failed(), failed(), delivered("m-2"), delivered("stranger")]
    taken = await ledger.take_receipts(given, RULES)
    assert [each.effect for each in taken] == ["noted", "failed_over", "repeated", "noted", "waiting"]
    assert [each.receipt for each in taken] == given
    assert taken[1].notification_id == first.notification_id
    routes = {row["route_id"]: row for row in await engine.rows("routes")}
    assert (routes[first.route_id]["provider"], routes[bob.route_id]["receipt"]) == (SECOND, "delivered")
    assert await ledger.take_receipts([], RULES) == []


@pytest.mark.parametrize("wrong", [{"reason": "a\x00b"}, {"reason": "\ud800"}, {"event_id": "x" * 5000}])
async def test_no_text_of_a_vendor_costs_a_batch(engine: Engine, ledger: Ledger, wrong: dict[str, Any]) -> None:
    await publish(ledger)
    assert await effect(ledger, failed(**wrong)) == "failed_over"
    assert len((await engine.only("receipts"))["receipt_key"]) < 400
