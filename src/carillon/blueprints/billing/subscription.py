"""The subscription service: it keeps subscriptions and requests payments for them."""

import datetime as dt
import uuid
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import msgspec

from carillon.blueprints.billing.domain import (
    PAYMENT_INITIATION,
    PLAN_CHANGE,
    TRIAL_PAYMENT,
    LifeRules,
    Outgoing,
    Plan,
    Plans,
    Subscription,
    in_tenant,
    number,
    plan_of,
    producer_key,
    renewal_key,
    with_tenant,
)
from carillon.blueprints.billing.messages import (
    OutgoingRelay,
    QueueJob,
    amount_in,
    owner_of,
    tenant_in,
    text_in,
    whole_in,
)
from carillon.blueprints.billing.store import BillingStore
from carillon.blueprints.billing.webhooks import Post, Where
from carillon.domain.errors import CarillonError, LedgerUnavailable
from carillon.domain.events import PartStarted, Trouble
from carillon.domain.intents import canonical
from carillon.domain.jobs import Permanent
from carillon.domain.ports import Clock, Observer
from carillon.faultpoint import faultpoint

PAYMENT_PATH = "/v1/payments/internal/process"
_NAMES = uuid.UUID("2c0b6a0e-6f0d-4b8e-9d59-9b2f0c7b6f5e")
_CARRIED = ("old_plan_id", "new_plan_id")
BATCH = 100
"""Renewals of one commit."""
MOST_BATCHES = 1000
LONGEST_WAIT = 60.0
Person = tuple[str | None, str]
"""The tenant and the user: the same user id in two tenants is two people."""


class NotYet(CarillonError):
    """The other service failed, or a row is still missing; the queue's policy decides about the retry."""


class Neighbour(msgspec.Struct, frozen=True, kw_only=True):
    """The address and the token of the payment service."""

    post: Post
    where: Where
    token: str
    seconds: float


class Subscriptions:
    """The work of the subscription service."""

    def __init__(
        self,
        ledger: BillingStore,
        relay: OutgoingRelay,
        payments: Neighbour,
        plans: Plans,
        *,
        clock: Clock,
        ids: Callable[[], str],
    ) -> None:
        self.ledger = ledger
        self.plans = plans
        self._relay = relay
        self._payments = payments
        self._clock = clock
        self._ids = ids

    async def create(self, person: Person, plan_id: str, plan: Plan, *, trial: bool, key: str | None) -> Subscription:
        """Create a subscription, pending until it is paid; the request for payment is in the same commit."""
        tenant_id, user_id = person
        named = in_tenant(tenant_id, f"{user_id}/{key}")
        subscription_id = self._ids() if key is None else str(uuid.uuid5(_NAMES, named))
        on_trial = trial or plan.trial
        action, queue = ("trial", TRIAL_PAYMENT) if on_trial else ("initial", PAYMENT_INITIATION)
        payload = _price(_of(subscription_id, tenant_id), plan) | {"trial": on_trial}
        message = self._message(queue, action, subscription_id, payload)
        found, made = await self.ledger.add_subscription(
            subscription_id, user_id, plan_id, [message], trial=on_trial, tenant_id=tenant_id
        )
        faultpoint("after_business_commit")
        if made:
            await self._relay.bring([message])
        return found

    async def renew(self, subscription: Subscription, key: str | None) -> str:
        """Request payment for another period; returns the message's id."""
        return await self._enqueue(self.renewal(subscription, key))

    def renewal(self, subscription: Subscription, key: str | None) -> Outgoing:
        """The request for payment of another period."""
        plan = plan_of(self.plans, subscription.plan_id) or Plan()
        renewal = plan_of(self.plans, plan.renewal_plan_id or "") if subscription.trial else None
        payload = _price(_naming(subscription), renewal or plan) | {"renewal": True}
        return self._message(PAYMENT_INITIATION, "renewal", subscription.subscription_id, payload, key)

    async def ask_for_plan(
        self, subscription: Subscription, new_plan_id: str, *, charge: bool, key: str | None
    ) -> tuple[str, str]:
        """Request a change of plan, with a payment or without; returns the action and the message's id."""
        old, new = plan_of(self.plans, subscription.plan_id) or Plan(), plan_of(self.plans, new_plan_id) or Plan()
        action = "upgrade" if new.amount > old.amount else "downgrade"
        payload = _price(_naming(subscription), new) if charge else _naming(subscription)
        payload |= {"old_plan_id": subscription.plan_id, "new_plan_id": new_plan_id}
        queue = PAYMENT_INITIATION if charge else PLAN_CHANGE
        # Different changes within an hour have different keys.
        stable = key or producer_key(subscription.subscription_id, f"{action}:{new_plan_id}", self._clock.wall())
        message = self._message(queue, action, subscription.subscription_id, payload, stable)
        return action, await self._enqueue(message)

    async def process_payment_initiation(self, job: QueueJob) -> None:
        """`q:sub:payment_initiation`: first payments, renewals, upgrades and downgrades."""
        flagged = next((word for word in ("renewal", "trial") if job.payload.get(word) is True), None)
        await self._pay(job, flagged or job.action)

    async def process_trial_payment(self, job: QueueJob) -> None:
        """`q:sub:trial_payment`."""
        await self._pay(job, "trial")

    async def process_plan_change(self, job: QueueJob) -> None:
        """`q:sub:plan_change`: a change that is not paid for."""
        subscription_id = text_in(job.payload, "subscription_id")
        plan_id = text_in(job.payload, "new_plan_id")
        if plan_of(self.plans, plan_id) is None:
            raise Permanent(f"there is no plan {plan_id}; add [billing.plans.{plan_id}] and requeue")
        if not await self.ledger.change_plan(subscription_id, plan_id, tenant_in(job.payload)):
            raise NotYet(f"there is no subscription {subscription_id} yet")

    async def process_usage_sync(self, job: QueueJob) -> None:
        """`q:sub:usage_sync`: counted once, however often the message is run."""
        reset_at = job.payload.get("reset_at")
        await self.ledger.add_usage(
            job.id,
            text_in(job.payload, "user_id"),
            text_in(job.payload, "feature_name"),
            whole_in(job.payload, "delta"),
            None if reset_at is None else _unix_ms(reset_at),
            tenant_id=tenant_in(job.payload),
        )

    async def _pay(self, job: QueueJob, action: str) -> None:
        subscription_id = text_in(job.payload, "subscription_id")
        found = await self.ledger.subscription(subscription_id)
        order = self._order(job, _of(subscription_id, owner_of(job.payload, found)), found, action)
        payments = self._payments
        headers = {
            "Authorization": f"Bearer {payments.token}",
            "Content-Type": "application/json",
            # The same for every run of the message: however often we ask, one payment is made.
            "Idempotency-Key": job.idempotency_key or job.id,
        }
        url = f"{payments.where()}{PAYMENT_PATH}?subscription_id={quote(subscription_id, safe='')}"
        answer = await payments.post(url, headers, canonical(order).encode(), payments.seconds)
        if not answer.created:
            raise NotYet(f"the payment service did not process it: {answer.error}")

    def _order(self, job: QueueJob, named: dict[str, Any], found: Subscription | None, action: str) -> dict[str, Any]:
        amount = amount_in(job.payload, "amount")
        if amount is None:
            plan = None if found is None else plan_of(self.plans, found.plan_id)
            if plan is None:
                known = f"no plan of {named['subscription_id']} is known here"
                raise Permanent(f"the payload names no amount, and {known}")
            return _price(named, plan) | _said(job, action)
        currency = job.payload.get("currency")
        price = {"amount": number(amount), "currency": currency if isinstance(currency, str) else Plan().currency}
        return named | price | _said(job, action)

    def _message(
        self, queue: str, action: str, subscription_id: str, payload: dict[str, Any], key: str | None = None
    ) -> Outgoing:
        return Outgoing(
            queue=queue,
            message_id=self._ids(),
            action=action,
            payload=payload,
            correlation_id=subscription_id,
            idempotency_key=key or producer_key(subscription_id, action, self._clock.wall()),
        )

    async def _enqueue(self, message: Outgoing) -> str:
        await self.ledger.add_outgoing([message])
        faultpoint("after_business_commit")
        await self._relay.bring([message])
        return message.message_id


class SubscriptionLife:
    """Looks at an interval; several processes may look side by side, and each renewal is asked for once."""

    def __init__(self, subscriptions: Subscriptions, rules: LifeRules, clock: Clock, observer: Observer) -> None:
        self._subscriptions = subscriptions
        self._rules = rules
        self._clock = clock
        self._observe = observer

    async def run(self) -> None:
        """Look until cancelled."""
        for name in ("renew_subscriptions", "end_subscription_periods"):
            self._observe(PartStarted(part=name, detail=f"every {self._rules.every_seconds:g} s"))
        wait = self._rules.every_seconds
        while True:
            try:
                await self.renew()
                await self.end()
                wait = self._rules.every_seconds
            except LedgerUnavailable as error:
                wait = min(wait * 2, max(LONGEST_WAIT, self._rules.every_seconds))
                self._observe(Trouble(where="subscription_life", error=str(error), retry_in_seconds=wait))
            await self._clock.sleep(wait)

    async def renew(self) -> int:
        """Ask for the renewals that are due; returns how many."""
        found = 0
        for _ in range(MOST_BATCHES if self._rules.renewals else 0):
            asked = await self._subscriptions.ledger.ask_for_renewals(self._rules, BATCH, self._renewal)
            found += asked
            if asked < BATCH:
                break
        return found

    async def end(self) -> tuple[int, int]:
        """Subscriptions whose period is over become past due, those whose grace is over are cancelled."""
        return await self._subscriptions.ledger.end_periods(self._rules)

    def _renewal(self, subscription: Subscription) -> Outgoing:
        return self._subscriptions.renewal(subscription, renewal_key(subscription))


def _of(subscription_id: str, tenant_id: str | None) -> dict[str, Any]:
    return with_tenant({"subscription_id": subscription_id}, tenant_id)


def _naming(subscription: Subscription) -> dict[str, Any]:
    return _of(subscription.subscription_id, subscription.tenant_id)


def _price(named: dict[str, Any], plan: Plan) -> dict[str, Any]:
    return named | {"amount": plan.amount, "currency": plan.currency}


def _said(job: QueueJob, action: str) -> dict[str, Any]:
    carried = {name: job.payload[name] for name in _CARRIED if isinstance(job.payload.get(name), str | int)}
    return {"action": action, "trial": action == "trial", "renewal": action == "renewal"} | carried


def _unix_ms(said: object) -> float:
    try:
        moment = dt.datetime.fromisoformat(str(said))
    except ValueError:
        raise Permanent(f"reset_at: {str(said)[:40]!r} is not a time such as 2026-01-31T00:00:00Z") from None
    # Times without an offset were written by clocks set to UTC.
    return moment.replace(tzinfo=moment.tzinfo or dt.UTC).timestamp() * 1000
