"""Subscriptions, payments, refunds: their values, and how the result of a payment changes a subscription."""

import hashlib
import uuid
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from typing import Any, Literal

import msgspec

from carillon.domain.errors import ConfigurationError

PAYMENT_INITIATION = "q:sub:payment_initiation"
TRIAL_PAYMENT = "q:sub:trial_payment"
PLAN_CHANGE = "q:sub:plan_change"
USAGE_SYNC = "q:sub:usage_sync"
SUBSCRIPTION_UPDATE = "q:pay:subscription_update"
REFUND_INITIATION = "q:pay:refund_initiation"

EVERY_OTHER = "*"
DECIMALS = 4
TRIAL_REFUND = "trial_refund"
_HOUR = 3600
_MOST = 10**12
_FINEST = Decimal(1).scaleb(-DECIMALS)
_NAMES = uuid.UUID("5a3f9d52-7f0c-4d8e-8f38-0a6f2a1f7c11")

_MOST_DAYS = 3660
_SHORTEST, _DAY = 0.001, 86_400.0

Result = Literal["success", "failed"]


class SubscriptionStatus(StrEnum):
    """The states of a subscription."""

    PENDING = "pending"
    TRIAL = "trial"
    ACTIVE = "active"
    PAST_DUE = "past_due"
    REVOKED = "revoked"
    CANCELLED = "cancelled"


class Plan(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The price and the period of a subscription."""

    amount: float = 9.99
    currency: str = "USD"
    period_days: float = 30.0
    trial: bool = False
    """True for a plan that is itself a trial."""
    trial_days: float = 14.0
    renewal_plan_id: str | None = None
    """The plan that follows a trial; none is the same plan, paid."""


class LifeRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """When a subscription is renewed, and how long it outlives its end without a payment."""

    renewals: bool = True
    renew_before_days: float = 1.0
    """How long before the end of a period the next one is asked for."""
    retry_days: float = 1.0
    """How long after a failed renewal it is asked for again."""
    grace_days: float = 7.0
    """How long a subscription is `past_due` after its end before it is cancelled; 0 revokes it at the first failure."""
    every_seconds: float = 60.0
    """How often the subscription service looks for renewals and ends that are due."""

    def checked(self) -> "LifeRules":
        """These rules if they are valid; raises ConfigurationError with the reason."""
        days = (self.renew_before_days, self.grace_days)
        if not all(0 <= one <= _MOST_DAYS for one in days) or not 0 < self.retry_days <= _MOST_DAYS:
            raise ConfigurationError(f"billing.life: days must be between 0 and {_MOST_DAYS}, retry_days more than 0")
        if not _SHORTEST <= self.every_seconds <= _DAY:
            raise ConfigurationError("billing.life.every_seconds: is not between 0.001 s and a day")
        return self


class Subscription(msgspec.Struct, frozen=True, kw_only=True):
    """Times are Unix milliseconds."""

    subscription_id: str
    user_id: str
    plan_id: str
    status: SubscriptionStatus
    trial: bool
    started_at: float | None
    ends_at: float | None
    created_at: float
    updated_at: float
    tenant_id: str | None = None
    cancel_at_end: bool = False
    """It is not renewed, and cancelled when its period ends."""
    failed_renewals: int = 0
    """Renewals of the present period that were declined."""


USUAL_LIFE = LifeRules()


class Payment(msgspec.Struct, frozen=True, kw_only=True):
    """One charge by the gateway, and its result."""

    transaction_id: str
    subscription_id: str
    status: Result
    amount: Decimal
    currency: str
    action: str
    event_id: str
    idempotency_key: str | None = None
    gateway_reference: str | None = None
    message: str | None = None
    created_at: float = 0.0
    tenant_id: str | None = None


class Refund(msgspec.Struct, frozen=True, kw_only=True):
    """Money that went back; once for each transaction."""

    refund_id: str
    transaction_id: str
    amount: Decimal
    reason: str
    status: str
    gateway_reference: str | None = None
    created_at: float = 0.0
    tenant_id: str | None = None


class Outgoing(msgspec.Struct, frozen=True, kw_only=True):
    """A message for a queue, written in the commit that made it true and removed once the queue has it."""

    queue: str
    message_id: str
    action: str
    payload: dict[str, Any]
    correlation_id: str | None = None
    idempotency_key: str | None = None


class PaymentEvent(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a payment for the subscription service; further fields are stored and not read."""

    event_id: str
    subscription_id: str
    status: Result
    action: str | None = None
    metadata: dict[str, Any] | None = None
    tenant_id: str | None = None
    """The subscription's; a payment service that knows no tenants names none."""

    @property
    def new_plan_id(self) -> str | None:
        """The plan that was paid for, where it is another one."""
        found = (self.metadata or {}).get("new_plan_id")
        return str(found) if isinstance(found, str | int) and found != "" else None


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """The change of a subscription; `days` of service are added."""

    status: SubscriptionStatus
    plan_id: str
    trial: bool
    days: float | None = None
    declined: bool = False
    """A renewal of the present period was declined."""


class EventRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row of `payment_webhook_requests`."""

    event_id: str
    processed: bool
    processed_at: float | None
    error_message: str | None
    retry_count: int
    created_at: float
    updated_at: float
    tenant_id: str | None = None
    user_id: str | None = None
    """Whose subscription it is about; None while that is not known here."""


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """How often one person used one feature since the last reset."""

    user_id: str
    feature_name: str
    usage_count: int
    reset_at: float | None


class UnknownSubscription(msgspec.Struct, frozen=True):
    """An event names a subscription that is not here, or not here yet."""

    subscription_id: str


Taken = Literal["processed", "duplicate"] | UnknownSubscription
Plans = Mapping[str, Plan]


def plan_of(plans: Plans, plan_id: str) -> Plan | None:
    """The plan of that name, else the one for every other name, else none."""
    return plans.get(plan_id) or plans.get(EVERY_OTHER)


def change(subscription: Subscription, event: PaymentEvent, plans: Plans, life: LifeRules = USUAL_LIFE) -> Change:
    """How the result of a payment changes a subscription."""
    if event.status == "failed":
        return _unpaid(subscription, event, life)
    plan_id = event.new_plan_id or subscription.plan_id
    if subscription.status is SubscriptionStatus.PENDING and subscription.trial:
        return Change(
            status=SubscriptionStatus.TRIAL, plan_id=plan_id, trial=True, days=_plan(plans, plan_id).trial_days
        )
    if subscription.status is SubscriptionStatus.TRIAL:
        plan_id = event.new_plan_id or _plan(plans, plan_id).renewal_plan_id or plan_id
    # A payment restores service, also after it was revoked.
    days = _plan(plans, plan_id).period_days
    return Change(status=SubscriptionStatus.ACTIVE, plan_id=plan_id, trial=False, days=days)


def _unpaid(subscription: Subscription, event: PaymentEvent, life: LifeRules) -> Change:
    served = subscription.status in (SubscriptionStatus.ACTIVE, SubscriptionStatus.TRIAL)
    renewal = event.action == "renewal"
    status = SubscriptionStatus.REVOKED if served else subscription.status
    if served and renewal and life.grace_days > 0:
        status = SubscriptionStatus.PAST_DUE
    return Change(status=status, plan_id=subscription.plan_id, trial=subscription.trial, declined=renewal)


def renewal_key(subscription: Subscription) -> str:
    """The same for one period and one try: asking twice before there is an answer charges once."""
    return f"renewal:{subscription.subscription_id}:{subscription.ends_at:.0f}:{subscription.failed_renewals}"


def _plan(plans: Plans, plan_id: str) -> Plan:
    # The settings no longer hold the plan: serve a paying subscriber for the default period.
    return plan_of(plans, plan_id) or Plan()


def money(value: float | str) -> Decimal | None:
    """An amount as it was written; None if it is not an amount or has too many decimals."""
    try:
        amount = Decimal(str(value))
        rounded = amount.quantize(_FINEST)
    except InvalidOperation:
        return None
    return amount if amount == rounded and 0 <= amount <= _MOST else None


def number(amount: Decimal) -> float:
    """The amount as JSON carries it."""
    return int(amount) if amount == amount.to_integral_value() else float(amount)


def producer_key(subscription_id: str, action: str, wall: float) -> str:
    """The key of one action on one subscription within one hour: repeated requests get the same key."""
    return hashlib.sha256(f"{subscription_id}:{action}:{int(wall // _HOUR)}".encode()).hexdigest()


def in_tenant(tenant_id: str | None, name: str) -> str:
    """A name that two tenants may use for two things, told apart; neither a tenant nor a name holds the separator."""
    return name if tenant_id is None else f"{tenant_id}\x1f{name}"


def with_tenant(payload: dict[str, Any], tenant_id: str | None) -> dict[str, Any]:
    """A payload that says whose it is; one without a tenant has the fields that it always had."""
    return payload if tenant_id is None else {**payload, "tenant_id": tenant_id}


def transaction_of(tenant_id: str | None, subscription_id: str, key: str) -> str:
    """The same order makes the same transaction, also when a process dies before it records the first one."""
    return str(uuid.uuid5(_NAMES, in_tenant(tenant_id, f"{subscription_id}/{key}")))


def event_id_of(transaction_id: str, wall: float) -> str:
    return f"payment_{transaction_id}_{int(wall)}"
