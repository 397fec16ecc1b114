"""What a payment makes of a subscription, and the names that must stay the same."""

import hashlib
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carillon.blueprints.billing.domain import (
    Change,
    PaymentEvent,
    Plan,
    Result,
    Subscription,
    change,
    event_id_of,
    money,
    number,
    plan_of,
    producer_key,
    transaction_of,
)
from carillon.blueprints.billing.domain import (
    SubscriptionStatus as Status,
)

PLANS = {
    "*": Plan(amount=5, period_days=30, trial_days=7),
    "trial": Plan(trial=True, trial_days=14, renewal_plan_id="basic"),
    "basic": Plan(amount=10, period_days=31),
    "pro": Plan(amount=20, period_days=365),
}


def subscription(status: Status, *, trial: bool = False, plan_id: str = "basic") -> Subscription:
    return Subscription(
        subscription_id="s",
        user_id="u",
        plan_id=plan_id,
        status=status,
        trial=trial,
        started_at=None,
        ends_at=None,
        created_at=0,
        updated_at=0,
    )


def event(status: Result, **metadata: object) -> PaymentEvent:
    return PaymentEvent(event_id="e", subscription_id="s", status=status, metadata=metadata or None)


@pytest.mark.req("S3-79")
@pytest.mark.parametrize(
    ("before", "result", "after"),
    [
        (
            subscription(Status.PENDING),
            "success",
            Change(status=Status.ACTIVE, plan_id="basic", trial=False, days=31),
        ),
        (
            subscription(Status.PENDING, trial=True, plan_id="trial"),
            "success",
            Change(status=Status.TRIAL, plan_id="trial", trial=True, days=14),
        ),
        (
            subscription(Status.TRIAL, trial=True, plan_id="trial"),
            "success",
            Change(status=Status.ACTIVE, plan_id="basic", trial=False, days=31),
        ),
        (
            subscription(Status.TRIAL, trial=True, plan_id="pro"),
            "success",
            Change(status=Status.ACTIVE, plan_id="pro", trial=False, days=365),
        ),
        (
            subscription(Status.PAST_DUE),
            "success",
            Change(status=Status.ACTIVE, plan_id="basic", trial=False, days=31),
        ),
        (
            subscription(Status.ACTIVE),
            "success",
            Change(status=Status.ACTIVE, plan_id="basic", trial=False, days=31),
        ),
        (
            subscription(Status.REVOKED),
            "success",
            Change(status=Status.ACTIVE, plan_id="basic", trial=False, days=31),
        ),
        (
            subscription(Status.ACTIVE),
            "failed",
            Change(status=Status.REVOKED, plan_id="basic", trial=False),
        ),
        (
            subscription(Status.TRIAL, trial=True),
            "failed",
            Change(status=Status.REVOKED, plan_id="basic", trial=True),
        ),
        (
            subscription(Status.PENDING),
            "failed",
            Change(status=Status.PENDING, plan_id="basic", trial=False),
        ),
        (
            subscription(Status.PAST_DUE),
            "failed",
            Change(status=Status.PAST_DUE, plan_id="basic", trial=False),
        ),
    ],
)
def test_the_effects_of_a_payment(before: Subscription, result: Result, after: Change) -> None:
    assert change(before, event(result), PLANS) == after


def test_a_paid_change_of_plan_is_part_of_the_effect() -> None:
    paid = change(subscription(Status.ACTIVE), event("success", new_plan_id="pro"), PLANS)
    assert (paid.plan_id, paid.days) == ("pro", 365)
    unpaid = change(subscription(Status.ACTIVE), event("failed", new_plan_id="pro"), PLANS)
    assert (unpaid.plan_id, unpaid.status) == ("basic", Status.REVOKED)


@given(
    status=st.sampled_from(Status),
    trial=st.booleans(),
    result=st.sampled_from(["success", "failed"]),
    plan_id=st.text(max_size=8),
)
def test_only_who_paid_gets_days_and_nobody_loses_the_plan(
    *, status: Status, trial: bool, result: Result, plan_id: str
) -> None:
    after = change(subscription(status, trial=trial, plan_id=plan_id or "x"), event(result), PLANS)
    assert (after.days is not None) == (result == "success")
    assert after.plan_id
    assert after.status in (Status.ACTIVE, Status.TRIAL) or result == "failed"


@pytest.mark.req("S3-51")
def test_the_id_of_an_event() -> None:
    assert event_id_of("tx-1", 1767225600.9) == "payment_tx-1_1767225600"


@pytest.mark.req("S3-62")
def test_a_producers_key_is_the_same_within_the_hour() -> None:
    hour = 1767225600.0
    expected = hashlib.sha256(f"sub-1:renewal:{int(hour // 3600)}".encode()).hexdigest()
    assert producer_key("sub-1", "renewal", hour) == producer_key("sub-1", "renewal", hour + 3599.9) == expected
    others = {producer_key("sub-1", "renewal", hour + 3600), producer_key("sub-2", "renewal", hour)}
    assert expected not in others | {producer_key("sub-1", "upgrade", hour)}


def test_an_order_makes_one_transaction_in_every_process() -> None:
    assert transaction_of(None, "s", "k") == transaction_of(None, "s", "k") != transaction_of(None, "s", "l")
    assert len({transaction_of(tenant, "s", "k") for tenant in (None, "acme", "globex")}) == 3


@pytest.mark.parametrize(
    ("written", "amount"),
    [
        (9.99, Decimal("9.99")),
        (10, Decimal(10)),
        (0, Decimal(0)),
        (0.0001, Decimal("0.0001")),
        ("29.90", Decimal("29.90")),
        *((no, None) for no in (0.00001, -1, 1e13, float("nan"), float("inf"), "much", "", "1e-999999999", "9" * 5000)),
    ],
)
def test_money_is_what_was_written(written: float | str, amount: Decimal | None) -> None:
    assert money(written) == amount


@given(st.integers(min_value=0, max_value=10**11))
def test_money_survives_json(cents: int) -> None:
    written = cents / 100
    amount = money(written)
    assert amount is not None
    assert number(amount) == written


def test_every_other_plan_is_the_star() -> None:
    assert plan_of(PLANS, "unheard-of") is PLANS["*"]
    assert plan_of({"basic": Plan()}, "unheard-of") is None
