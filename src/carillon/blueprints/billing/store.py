"""The tables of the payment and the subscription service, and committed messages on their way to a queue."""

import json
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import msgspec

from carillon.blueprints.billing.domain import (
    USUAL_LIFE,
    EventRow,
    LifeRules,
    Outgoing,
    Payment,
    PaymentEvent,
    Plans,
    Refund,
    Subscription,
    Taken,
    UnknownSubscription,
    Usage,
    change,
)
from carillon.domain.store import Ask, Engine, Row, Steps, Values

OUTGOING_LEASE_SECONDS = 5.0
"""How long the process that committed a message has to bring it to its queue before others do."""

ASSIGNED = ("subscriptions", "payments", "refunds", "payment_webhook_requests", "usage_deltas", "usage_counters")
"""The tables with a tenant; each statement goes by what the ones before it have assigned."""


class OutgoingStore:
    """Messages that were committed with the change they report, and may not have reached their queue yet."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def add_outgoing(self, messages: Sequence[Outgoing]) -> None:
        ask = _add_outgoing(messages)
        await self._engine.write(ask.statement, ask.values, each=ask.each, repeatable=True, pool="intake")

    async def due_outgoing(self, limit: int, lease_seconds: float) -> list[Outgoing]:
        """Claim messages that no process brings to its queue now, oldest first; after the lease they are due again."""
        values = {"limit": limit, "lease_seconds": lease_seconds}
        # Not repeated when the connection breaks: messages claimed by a lost answer are due again after their lease.
        rows = await self._engine.write(
            "due_outgoing", values, repeatable=False, pool="claims", look="any_outgoing_due"
        )
        rows.sort(key=lambda row: (row["created_at"], row["message_id"]))
        return [msgspec.convert({**row, "payload": json.loads(row["payload_json"])}, Outgoing) for row in rows]

    async def drop_outgoing(self, message_ids: Sequence[str]) -> None:
        """Delete messages that have reached their queue."""
        ids = sorted(message_ids)
        await self._engine.write("drop_outgoing", {"message_ids": ids}, repeatable=True, pool="settlements")


class PaymentStore(OutgoingStore):
    """Payments and refunds."""

    async def payment_by_key(self, tenant_id: str | None, subscription_id: str, idempotency_key: str) -> Payment | None:
        key = {
            "tenant_id": _stored(tenant_id),
            "subscription_id": subscription_id,
            "idempotency_key": idempotency_key,
        }
        return await self._payment("payment_by_key", key)

    async def payment(self, transaction_id: str) -> Payment | None:
        return await self._payment("payment", {"transaction_id": transaction_id})

    async def add_payment(self, payment: Payment, messages: Sequence[Outgoing]) -> Payment | None:
        """The payment and its messages in one commit; None when this transaction is written down already."""

        def steps() -> Steps[Payment | None]:
            made = yield Ask("add_payment", _values(payment))
            if not made:
                return None
            yield _add_outgoing(messages)
            return _read_payment(made[0])

        # Not repeated: after a lost answer, our own commit would look like a payment of another process.
        return await self._engine.change(steps, repeatable=False, pool="intake")

    async def add_refund(self, refund: Refund) -> bool:
        """False when this transaction was refunded already."""
        values = _values(refund)
        return bool(await self._engine.write("add_refund", values, repeatable=True, pool="intake"))

    async def refunds(self, transaction_id: str, tenant_id: str | None = None) -> list[Refund]:
        """Those of a tenant; None is every tenant, "" is none."""
        rows = await self._engine.rows("refunds", {"transaction_id": transaction_id, "tenant_id": tenant_id})
        return [msgspec.convert({**_read(row), "amount": Decimal(row["amount"])}, Refund) for row in rows]

    async def _payment(self, statement: str, key: Values) -> Payment | None:
        row = await self._engine.one(statement, key)
        return None if row is None else _read_payment(row)


class BillingStore(PaymentStore):
    """All tables of billing: payments, refunds, subscriptions, payment events and usage."""

    async def add_subscription(
        self,
        subscription_id: str,
        user_id: str,
        plan_id: str,
        messages: Sequence[Outgoing],
        *,
        trial: bool,
        tenant_id: str | None = None,
    ) -> tuple[Subscription, bool]:
        """The subscription, and whether it was made now; only then are its messages written down."""
        values = {"subscription_id": subscription_id, "user_id": user_id, "plan_id": plan_id, "trial": trial}
        values["tenant_id"] = _stored(tenant_id)

        def steps() -> Steps[tuple[Subscription, bool]]:
            made = yield Ask("add_subscription", values)
            if made:
                yield _add_outgoing(messages)
            found = made or (yield Ask("subscription", values))
            return _read_subscription(found[0]), bool(made)

        # Not repeated: after a lost answer, our own commit would look like one of another process.
        return await self._engine.change(steps, repeatable=False, pool="intake")

    async def subscription(self, subscription_id: str) -> Subscription | None:
        row = await self._engine.one("subscription", {"subscription_id": subscription_id})
        return None if row is None else _read_subscription(row)

    async def change_plan(self, subscription_id: str, plan_id: str, tenant_id: str | None = None) -> bool:
        """False when there is no such subscription, or none of the tenant that is named."""
        values = {"subscription_id": subscription_id, "plan_id": plan_id, "tenant_id": tenant_id}
        return bool(await self._engine.write("change_plan", values, repeatable=True, pool="intake"))

    async def cancel(self, subscription_id: str, *, at_end: bool) -> Subscription:
        """Cancel at the end of the period, or at once."""
        values = {"subscription_id": subscription_id, "at_end": at_end}
        (row,) = await self._engine.write("cancel_subscription", values, repeatable=True, pool="intake")
        return _read_subscription(row)

    async def ask_for_renewals(self, life: LifeRules, limit: int, message: Callable[[Subscription], Outgoing]) -> int:
        """Write down the renewals that are due, and that they were asked for, in one commit; returns how many."""
        values = {
            "renew_before_days": life.renew_before_days,
            "retry_days": life.retry_days,
            "grace_days": life.grace_days,
            "limit": limit,
        }

        def steps() -> Steps[list[Outgoing]]:
            rows = yield Ask("due_renewals", values)
            messages = [message(_read_subscription(row)) for row in rows]
            if messages:
                yield _add_outgoing(messages, 0.0)
            return messages

        # Not repeated: what a lost answer wrote down is asked for again later, under the same key.
        return len(await self._engine.change(steps, repeatable=False, pool="intake"))

    async def end_periods(self, life: LifeRules) -> tuple[int, int]:
        """Subscriptions whose period is over: how many became past due, and how many were cancelled."""
        values = {"grace_days": life.grace_days}

        def steps() -> Steps[tuple[int, int]]:
            late = yield Ask("mark_past_due", values)
            over = yield Ask("end_subscriptions", values)
            return len(late), len(over)

        return await self._engine.change(steps, repeatable=True, pool="intake")

    async def take_payment_event(
        self, event: PaymentEvent, payload: str, plans: Plans, life: LifeRules = USUAL_LIFE
    ) -> Taken:
        """Remember the event and carry it out in one commit; what was carried out before is not done again."""
        key = {"subscription_id": event.subscription_id}

        def steps() -> Steps[Taken]:
            values = {"event_id": event.event_id, "payload": payload, "tenant_id": _stored(event.tenant_id)}
            (entered,) = yield Ask("enter_payment_event", values)
            if entered["processed"]:
                return "duplicate"
            found = yield Ask("lock_subscription", key)
            if not found or event.tenant_id not in {None, found[0]["tenant_id"]}:
                return UnknownSubscription(event.subscription_id)
            made = change(_read_subscription(found[0]), event, plans, life)
            yield Ask("change_subscription", {**key, **msgspec.structs.asdict(made)})
            yield Ask("finish_payment_event", {"event_id": event.event_id, "tenant_id": found[0]["tenant_id"]})
            return "processed"

        # Repeating is harmless: the row says whether the first time was carried out.
        return await self._engine.change(steps, repeatable=True, pool="intake")

    async def fail_payment_event(self, event: PaymentEvent, payload: str, error: str) -> None:
        """The event could not be carried out: it is remembered with the reason, and may come again."""
        values = {"event_id": event.event_id, "payload": payload, "error": error}
        values["tenant_id"] = _stored(event.tenant_id)
        await self._engine.write("fail_payment_event", values, repeatable=False, pool="intake")

    async def payment_event(self, event_id: str) -> EventRow | None:
        row = await self._engine.one("payment_event", {"event_id": event_id})
        return None if row is None else msgspec.convert({**_read(row), "processed": bool(row["processed"])}, EventRow)

    async def add_usage(
        self,
        message_id: str,
        user_id: str,
        feature_name: str,
        delta: int,
        reset_at: float | None,
        *,
        tenant_id: str | None = None,
    ) -> None:
        """Count a message once."""
        counter = {"user_id": user_id, "feature_name": feature_name, "delta": delta, "tenant_id": _stored(tenant_id)}

        def steps() -> Steps[None]:
            if (yield Ask("enter_usage", {**counter, "message_id": message_id})):
                yield Ask("add_usage", {**counter, "reset_at": reset_at})

        await self._engine.change(steps, repeatable=True, pool="intake")

    async def usage_of(self, tenant_id: str | None, user_id: str) -> list[Usage]:
        rows = await self._engine.rows("usage_of", {"tenant_id": _stored(tenant_id), "user_id": user_id})
        return [msgspec.convert(row, Usage) for row in rows]

    async def assign(self, tenant_id: str, user_ids: Sequence[str] | None) -> dict[str, int]:
        """Give a tenant what has none: of these users, or all of it; how many rows of each table."""
        values = {"tenant_id": tenant_id, "everybody": user_ids is None, "user_ids": sorted(user_ids or ())}

        def steps() -> Steps[dict[str, int]]:
            found: dict[str, int] = {}
            for table in ASSIGNED:
                found[table] = len((yield Ask(f"assign_{table}", values)))
            yield Ask("drop_assigned_usage_counters", values)
            return found

        # Repeating is harmless: what was assigned has a tenant.
        return await self._engine.change(steps, repeatable=True, pool="intake")


def _add_outgoing(messages: Sequence[Outgoing], lease_seconds: float = OUTGOING_LEASE_SECONDS) -> Ask:
    each = [
        {
            "message_id": message.message_id,
            "queue": message.queue,
            "action": message.action,
            "correlation_id": message.correlation_id,
            "idempotency_key": message.idempotency_key,
            "body": json.dumps(message.payload, ensure_ascii=False, separators=(",", ":")),
        }
        for message in messages
    ]
    return Ask("add_outgoing", {"lease_seconds": lease_seconds}, each)


def _stored(tenant_id: str | None) -> str:
    return tenant_id or ""


def _values(thing: Payment | Refund) -> dict[str, Any]:
    return {**msgspec.structs.asdict(thing), "tenant_id": _stored(thing.tenant_id)}


def _read(row: Row) -> Row:
    return {**row, "tenant_id": row["tenant_id"] or None}


def _read_payment(row: Row) -> Payment:
    return msgspec.convert({**_read(row), "amount": Decimal(row["amount"])}, Payment)


def _read_subscription(row: Row) -> Subscription:
    truths = {name: bool(row[name]) for name in ("trial", "cancel_at_end")}
    return msgspec.convert({**_read(row), **truths}, Subscription)
