"""Subscriptions, payments, refunds, events and usage: written down alike by both engines, once each."""

import asyncio
import json
from decimal import Decimal
from typing import Any

import asyncpg
import msgspec
import pytest

from carillon.blueprints.billing.domain import (
    Outgoing,
    Payment,
    PaymentEvent,
    Plan,
    Refund,
    Result,
    UnknownSubscription,
)
from carillon.blueprints.billing.store import BillingStore
from carillon.ledger.opening import Ledger
from tests.support.ledger_engines import Engine, PostgresEngine, engine_fixture, ledger_fixture
from tests.support.waiting import a_moment_later, until

engine = engine_fixture()
ledger = ledger_fixture()


@pytest.fixture
def store(ledger: Ledger) -> BillingStore:
    return BillingStore(ledger.engine)


PLANS = {"*": Plan(period_days=30, trial_days=7)}
DAY = 86_400_000


def outgoing(name: str = "m1", **more: Any) -> Outgoing:
    return Outgoing(queue="q:pay:subscription_update", message_id=name, action="initial", payload={"n": [1]}, **more)


def payment(transaction_id: str = "t1", **more: Any) -> Payment:
    given: dict[str, Any] = {"amount": Decimal("9.99"), "idempotency_key": "k1", "subscription_id": "s1"}
    return Payment(
        transaction_id=transaction_id,
        status="success",
        currency="USD",
        action="initial",
        event_id=f"payment_{transaction_id}_1",
        **(given | more),
    )


def event(status: Result = "success", event_id: str = "e1", subscription_id: str = "s1") -> PaymentEvent:
    return PaymentEvent(event_id=event_id, subscription_id=subscription_id, status=status)


async def subscribed(store: BillingStore, subscription_id: str = "s1") -> None:
    await store.add_subscription(subscription_id, "u1", "basic", [], trial=False)


async def take(store: BillingStore, given: PaymentEvent) -> Any:
    return await store.take_payment_event(given, json.dumps({"event_id": given.event_id}), PLANS)


async def overdue(engine: Engine) -> None:
    await engine.execute("UPDATE queue_outbox SET next_attempt_at = created_at")


@pytest.mark.req("S3-54")
async def test_a_payment_and_its_messages_are_one_commit(store: BillingStore, engine: Engine) -> None:
    made = await store.add_payment(payment(), [outgoing("m1", correlation_id="s1"), outgoing("m2")])
    assert made is not None
    assert (made.amount, made.created_at > 0) == (Decimal("9.99"), True)
    assert await store.payment_by_key(None, "s1", "k1") == await store.payment("t1") == made
    assert await store.due_outgoing(10, 60) == [], "leased at once: the process that committed it brings it first"
    await overdue(engine)
    assert await store.due_outgoing(10, 60) == [outgoing("m1", correlation_id="s1"), outgoing("m2")]
    assert await store.due_outgoing(10, 60) == []
    await overdue(engine)
    await store.drop_outgoing(["m1"])
    assert [each.message_id for each in await store.due_outgoing(10, 60)] == ["m2"]


@pytest.mark.req("S3-54")
async def test_a_payment_that_cannot_be_written_leaves_no_message(store: BillingStore, engine: Engine) -> None:
    await engine.execute("DROP TABLE queue_outbox")
    with pytest.raises(Exception, match="queue_outbox"):
        await store.add_payment(payment(), [outgoing()])
    assert await store.payment("t1") is None


async def test_one_order_is_one_payment_however_many_ask(store: BillingStore, engine: Engine) -> None:
    asked = [store.add_payment(payment(), [outgoing(f"m{number}")]) for number in range(8)]
    made = [each for each in await asyncio.gather(*asked) if each is not None]
    await overdue(engine)
    assert (len(made), len(await store.due_outgoing(100, 60))) == (1, 1)
    assert await store.add_payment(payment("t2"), []) is None, "the same key under another transaction"
    assert await store.add_payment(payment("t3", idempotency_key=None), []) is not None
    assert await store.add_payment(payment("t4", idempotency_key=None), []) is not None
    assert await store.add_payment(payment("t5", subscription_id="s2"), []) is not None


async def test_a_message_is_brought_by_one_taker(store: BillingStore, engine: Engine) -> None:
    await store.add_outgoing([outgoing(f"m{number:02}") for number in range(40)])
    await store.add_outgoing([outgoing("m00")])
    await overdue(engine)
    taken = await asyncio.gather(*(store.due_outgoing(10, 60) for _ in range(6)))
    names = [each.message_id for batch in taken for each in batch]
    assert sorted(names) == [f"m{number:02}" for number in range(40)]


@pytest.mark.req("S3-59", "S3-90")
async def test_a_transaction_is_refunded_once(store: BillingStore) -> None:
    def refund(name: str) -> Refund:
        return Refund(
            refund_id=name, transaction_id="t1", amount=Decimal("9.99"), reason="trial_refund", status="refunded"
        )

    done = await asyncio.gather(*(store.add_refund(refund(f"r{number}")) for number in range(6)))
    assert sorted(done) == [False] * 5 + [True]
    (kept,) = await store.refunds("t1")
    assert (kept.transaction_id, kept.amount, kept.reason) == ("t1", Decimal("9.99"), "trial_refund")
    assert await store.refunds("t2") == []


async def test_a_repeated_creation_is_the_same_subscription(store: BillingStore, engine: Engine) -> None:
    first, made = await store.add_subscription("s1", "u1", "basic", [outgoing("m1")], trial=True)
    again, made_again = await store.add_subscription("s1", "u1", "basic", [outgoing("m2")], trial=True)
    assert first == again == await store.subscription("s1")
    assert (made, made_again) == (True, False)
    assert (first.status, first.trial, first.ends_at) == ("pending", True, None)
    await overdue(engine)
    assert [each.message_id for each in await store.due_outgoing(10, 60)] == ["m1"]


@pytest.mark.req("S3-53", "S3-75")
async def test_an_event_is_carried_out_once_however_often_it_comes(store: BillingStore) -> None:
    await subscribed(store)
    taken = await asyncio.gather(*(take(store, event()) for _ in range(8)))
    assert sorted(taken) == ["duplicate"] * 7 + ["processed"]
    found = await store.subscription("s1")
    assert found is not None
    assert found.ends_at is not None
    assert found.started_at is not None
    assert abs(found.ends_at - found.started_at - 30 * DAY) < 1000, "one period, not eight"


@pytest.mark.req("S3-79")
async def test_two_events_are_two_periods_whatever_their_order(store: BillingStore) -> None:
    await subscribed(store)
    await asyncio.gather(*(take(store, event(event_id=f"e{number}")) for number in range(4)))
    found = await store.subscription("s1")
    assert found is not None
    assert found.ends_at is not None
    assert found.started_at is not None
    assert abs(found.ends_at - found.started_at - 120 * DAY) < 2000
    await take(store, event("failed", "e9"))
    revoked = await store.subscription("s1")
    assert revoked is not None
    assert (revoked.status, revoked.ends_at) == ("revoked", found.ends_at)


@pytest.mark.req("S3-76")
async def test_what_could_not_be_carried_out_is_remembered_and_may_come_again(store: BillingStore) -> None:
    for _ in range(2):
        assert await take(store, event()) == UnknownSubscription("s1")
        await store.fail_payment_event(event(), '{"event_id":"e1"}', "there is no subscription s1 here")
    row = await store.payment_event("e1")
    assert row is not None
    assert (row.processed, row.retry_count, row.processed_at) == (False, 2, None)
    assert row.error_message == "there is no subscription s1 here"
    await subscribed(store)
    assert await take(store, event()) == "processed"
    await store.fail_payment_event(event(), "{}", "too late")
    row = await store.payment_event("e1")
    assert row is not None
    assert (row.processed, row.retry_count, row.error_message) == (True, 2, None)
    assert row.processed_at is not None


@pytest.mark.req("S3-78")
async def test_updated_at_is_the_triggers_own(store: BillingStore, engine: Engine) -> None:
    await take(store, event())
    (before,) = await engine.execute("SELECT * FROM payment_webhook_requests")
    assert isinstance(before["id"], int)
    await a_moment_later()
    await engine.execute("UPDATE payment_webhook_requests SET retry_count = 7")
    (after,) = await engine.execute("SELECT * FROM payment_webhook_requests")
    assert after["updated_at"] > before["updated_at"]
    assert after["created_at"] == before["created_at"]


async def test_a_plan_is_changed_only_where_there_is_a_subscription(store: BillingStore) -> None:
    await subscribed(store)
    assert await store.change_plan("s1", "pro")
    assert not await store.change_plan("s2", "pro")
    found = await store.subscription("s1")
    assert found is not None
    assert (found.plan_id, found.status) == ("pro", "pending")


@pytest.mark.req("S3-66")
async def test_usage_is_counted_once_for_each_message_and_begins_anew(store: BillingStore, engine: Engine) -> None:
    later = 4_000_000_000_000.0
    await asyncio.gather(*(store.add_usage("m1", "u1", "api_calls", 3, later) for _ in range(5)))
    await store.add_usage("m2", "u1", "api_calls", 4, None)
    await store.add_usage("m3", "u1", "storage", -1, None)
    first, second = await store.usage_of(None, "u1")
    assert (first.feature_name, first.usage_count, first.reset_at) == ("api_calls", 7, later)
    assert (second.feature_name, second.usage_count, second.reset_at) == ("storage", -1, None)
    await engine.execute("UPDATE usage_counters SET reset_at = updated_at WHERE feature_name = 'api_calls'")
    await a_moment_later()
    await store.add_usage("m4", "u1", "api_calls", 2, None)
    (fresh, _) = await store.usage_of(None, "u1")
    assert (fresh.usage_count, fresh.reset_at) == (2, None)


@pytest.mark.req("S3-79")
async def test_two_events_of_one_moment_follow_each_other(store: BillingStore) -> None:
    await store.add_subscription("s1", "u1", "basic", [], trial=True)
    await asyncio.gather(*(take(store, event(event_id=f"e{number}")) for number in range(2)))
    found = await store.subscription("s1")
    assert found is not None
    assert found.status == "active", "the first began the trial, the second ended it"


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
async def test_the_rows_lock_is_what_lets_them_follow(engine: PostgresEngine) -> None:
    """Negative control: both decide by what they read before either has committed."""
    apart = "SELECT s.*, pg_advisory_lock_shared(42) FROM subscriptions s WHERE"
    changes = {"lock_subscription": ("SELECT * FROM subscriptions WHERE", apart)}
    statements = engine.statements(changes)
    statements["lock_subscription"] = statements["lock_subscription"].replace(" FOR UPDATE", "")
    gate = await asyncpg.connect(engine.dsn)
    await gate.execute("SELECT pg_advisory_lock(42)")
    waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    try:
        async with engine.ledger(statements=statements) as ledger:
            store = BillingStore(ledger.engine)
            await store.add_subscription("s1", "u1", "basic", [], trial=True)
            both = [asyncio.create_task(take(store, event(event_id=f"e{number}"))) for number in range(2)]

            async def met() -> bool:
                return bool(await gate.fetchval(waiting) == len(both))

            await until(met, timeout=20, what="both at the gate")
            await gate.execute("SELECT pg_advisory_unlock(42)")
            assert await asyncio.gather(*both) == ["processed", "processed"]
            found = await store.subscription("s1")
            assert found is not None
            assert found.status == "trial"
    finally:
        await gate.close()


async def test_the_same_names_in_two_tenants_are_two_people(store: BillingStore) -> None:
    for number, tenant in enumerate((None, "acme", "globex")):
        await store.add_usage(f"m{number}", "u1", "export", number + 1, None, tenant_id=tenant)
        made = payment(f"t{number}", tenant_id=tenant)
        assert await store.add_payment(made, []) is not None, "the same subscription and key"
        found = await store.payment_by_key(tenant, "s1", "k1")
        assert found is not None
        assert (found.transaction_id, found.tenant_id) == (f"t{number}", tenant)
    counted = [(await store.usage_of(tenant, "u1"))[0].usage_count for tenant in (None, "acme", "globex")]
    assert counted == [1, 2, 3]
    assert await store.usage_of("initech", "u1") == []


async def test_a_subscription_changes_for_its_own_tenant_only(store: BillingStore) -> None:
    await store.add_subscription("s1", "u1", "basic", [], trial=False, tenant_id="acme")
    assert not await store.change_plan("s1", "pro", "globex")
    foreign = PaymentEvent(event_id="e1", subscription_id="s1", status="success", tenant_id="globex")
    assert await take(store, foreign) == UnknownSubscription("s1")
    found = await store.subscription("s1")
    assert found is not None
    assert (found.tenant_id, found.plan_id, found.status) == ("acme", "basic", "pending")
    # A message that names no tenant was on its way before billing knew tenants.
    assert await store.change_plan("s1", "pro")
    assert await take(store, event(event_id="e2")) == "processed"
    assert await store.change_plan("s1", "gold", "acme")
    kept = await store.payment_event("e2")
    assert kept is not None
    assert kept.tenant_id == "acme"


async def test_an_event_is_about_the_person_of_the_subscription_in_its_tenant(store: BillingStore) -> None:
    await store.add_subscription("s1", "u1", "basic", [], trial=False, tenant_id="acme")
    for tenant, user in (("acme", "u1"), ("globex", None)):
        told = PaymentEvent(event_id=f"e-{tenant}", subscription_id="s1", status="success", tenant_id=tenant)
        await store.take_payment_event(told, json.dumps({"subscription_id": "s1"}), PLANS)
        found = await store.payment_event(f"e-{tenant}")
        assert found is not None
        assert (found.tenant_id, found.user_id) == (tenant, user)


async def test_refunds_are_listed_for_a_tenant_or_for_all(store: BillingStore) -> None:
    refund = Refund(refund_id="r1", transaction_id="t1", amount=Decimal(1), reason="x", status="refunded")
    await store.add_refund(msgspec.structs.replace(refund, tenant_id="acme"))
    seen = [len(await store.refunds("t1", tenant)) for tenant in (None, "acme", "globex", "")]
    assert seen == [1, 1, 0, 0]


async def _as_today(store: BillingStore, user_id: str, number: int) -> None:
    """What a person has without a tenant."""
    await store.add_subscription(f"s{number}", user_id, "basic", [], trial=False)
    await store.add_payment(payment(f"t{number}", subscription_id=f"s{number}"), [])
    refund = Refund(
        refund_id=f"r{number}", transaction_id=f"t{number}", amount=Decimal(1), reason="x", status="refunded"
    )
    await store.add_refund(refund)
    told = event(event_id=f"e{number}", subscription_id=f"s{number}")
    await store.take_payment_event(told, json.dumps({"subscription_id": f"s{number}"}), PLANS)
    await store.add_usage(f"m{number}", user_id, "export", 2, None)


async def test_rows_without_a_tenant_are_assigned_by_user_or_all_at_once(store: BillingStore) -> None:
    await _as_today(store, "ada", 1)
    await _as_today(store, "bob", 2)
    await store.add_usage("m3", "ada", "export", 5, None, tenant_id="acme")
    assert set((await store.assign("acme", ["ada"])).values()) == {1}
    assert set((await store.assign("acme", ["ada"])).values()) == {0}, "again is nothing more"
    mine, event_of_mine, paid = (
        await store.subscription("s1"),
        await store.payment_event("e1"),
        await store.payment("t1"),
    )
    assert mine is not None
    assert event_of_mine is not None
    assert paid is not None
    assert {mine.tenant_id, event_of_mine.tenant_id, paid.tenant_id} == {"acme"}
    assert event_of_mine.user_id == "ada"
    assert len(await store.refunds("t1", "acme")) == 1
    assert [each.usage_count for each in await store.usage_of("acme", "ada")] == [7]
    assert await store.usage_of(None, "ada") == []
    others = await store.subscription("s2")
    assert others is not None
    assert others.tenant_id is None
    assert set((await store.assign("globex", None)).values()) == {1}
    assert [each.usage_count for each in await store.usage_of("globex", "bob")] == [2]
    assert len(await store.refunds("t2", "globex")) == 1
