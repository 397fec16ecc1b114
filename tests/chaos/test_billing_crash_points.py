"""Billing processes that die at each of their own points, and a Redis that is away: nothing is lost or done twice."""

import http.client
from typing import Any

import pytest

from carillon.blueprints.billing.domain import transaction_of
from tests.support.billing_stand import QUEUES, Billing, event, stand_fixture
from tests.support.servers import Postgres, Redis

# A dead worker's locks end soon, so that the sweeper finds its messages.
LOCKS: Any = {
    f"CARILLON_QUEUE__{queue}__LOCK_TTL_SECONDS": "3"
    for queue in ("DEFAULT", "Q_SUB_TRIAL_PAYMENT", "Q_PAY_REFUND_INITIATION")
}
UPDATE, REFUND = "q:pay:subscription_update", "q:pay:refund_initiation"
GONE = (OSError, http.client.HTTPException)

billing: Any = stand_fixture(**LOCKS)


def die_paying(billing: Billing, point: str) -> None:
    """An order kills the payment service at the point, before the order is answered."""
    program = billing.start_payment(CARILLON_FAULTPOINTS=f"{point}=exit9")
    with pytest.raises(GONE):
        billing.pay("sub-1", "order-1", amount=4, trial=True)
    assert program.wait(60) == -9, f"{point} was not hit"


@pytest.mark.req("S3-54", "G-05")
def test_a_payment_that_was_committed_is_told_although_its_process_died(billing: Billing) -> None:
    die_paying(billing, "after_business_commit")
    assert billing.waiting(*QUEUES) == []
    (payment,) = billing.found("payments", subscription_id="sub-1")
    assert {row["queue"] for row in billing.found("queue_outbox")} == {UPDATE, REFUND}
    billing.start_payment()
    billing.subscription_stub.wait_for(1, lambda entry: payment["event_id"] in entry["body"], timeout=40)
    billing.until(lambda: bool(billing.found("refunds", transaction_id=payment["transaction_id"])), what="the refund")
    billing.until(lambda: billing.found("queue_outbox") == [], what="an empty outbox")
    again = billing.pay("sub-1", "order-1", amount=4, trial=True)
    assert (again.status, again.body["transaction_id"]) == (201, payment["transaction_id"])
    assert len(billing.found("payments")) == 1


def test_without_the_outbox_that_payment_is_told_to_nobody(billing: Billing) -> None:
    """Negative control: paid, and neither a queue nor a table knows that somebody must hear of it."""
    program = billing.start(
        *("--roles", "payment"),
        mutant="no_outbox",
        SUBSCRIPTION_SERVICE_URL=billing.subscription_stub.url,
        CARILLON_FAULTPOINTS="after_business_commit=exit9",
    )
    with pytest.raises(GONE):
        billing.pay("sub-1", "order-1", amount=4, trial=True)
    assert program.wait(60) == -9
    assert len(billing.found("payments", subscription_id="sub-1")) == 1
    assert (billing.waiting(*QUEUES), billing.found("queue_outbox"), billing.posts()) == ([], [], [])


@pytest.mark.req("S3-53", "S3-59")
def test_what_keeps_effects_single(billing: Billing) -> None:
    """Negative controls: without the receiver's memory an event counts twice, without the row's key a refund does."""
    billing.start(mutant="no_event_memory")
    subscription_id = billing.create()
    billing.until_status(subscription_id, "active")
    billing.until_idle()
    told = event("payment_by-hand_1", subscription_id)
    assert [billing.deliver(told).body["status"] for _ in range(2)] == ["processed", "processed"]
    (found,) = billing.found("subscriptions", subscription_id=subscription_id)
    assert (found["ends_at"] - found["started_at"]).days >= 90, "one was paid for, and one came by hand"
    billing.programs[-1].kill()
    billing.start(mutant="refund_per_attempt")
    for name in ("r1", "r2"):
        billing.push(REFUND, {"id": name, "action": "refund", "payload": {"transaction_id": "t1", "amount": 3}})
    billing.until(lambda: len(billing.found("refunds", transaction_id="t1")) == 2, what="the second refund")


@pytest.mark.timeout(300)
@pytest.mark.req("G-04", "G-05", "S3-54", "S3-53", "S3-59", "S3-90")
def test_lives_that_end_at_every_point_leave_each_subscription_paid_once(billing: Billing) -> None:
    """Both services in one process that dies again and again; callers repeat their requests under the same key."""
    points = ("after_business_commit=exit9@3", "after_charge=exit9@2", "after_refund=exit9@2")
    wanted = [f"customer-{number}" for number in range(12)]
    asked: list[str] = []
    for point in (*points, "after_outgoing_enqueued=exit9@4"):
        program = billing.start(CARILLON_FAULTPOINTS=point)
        asked += _subscribe(billing, wanted[len(asked) :])
        assert program.wait(60) == -9, f"{point} was not hit"
    billing.start()
    while len(asked) < len(wanted):
        asked += _subscribe(billing, wanted[len(asked) :])
    assert len(set(asked)) == len(wanted)
    for subscription_id in asked:
        billing.until_status(subscription_id, "trial")
    billing.until(lambda: billing.found("queue_outbox") == [], what="an empty outbox", timeout=40)
    billing.until_idle()
    payments = billing.found("payments")
    assert sorted(row["subscription_id"] for row in payments) == sorted(asked)
    for row in payments:
        # Also those whose first process died after the charge: the gateway was asked for one thing, twice.
        assert row["transaction_id"] == transaction_of(None, row["subscription_id"], row["idempotency_key"])
    assert sorted(row["transaction_id"] for row in billing.found("refunds")) == sorted(
        row["transaction_id"] for row in payments
    )
    days = {(row["ends_at"] - row["started_at"]).days for row in billing.found("subscriptions")}
    assert days == {14}, "each event was carried out once"


def _subscribe(billing: Billing, users: list[str]) -> list[str]:
    """Ids of those that were answered, in order, until the process dies or enough is asked for this life."""
    made: list[str] = []
    for user in users[:3]:
        body, headers = {"plan_id": "basic", "user_id": user, "trial": True}, {"Idempotency-Key": user}
        try:
            reply = billing.client().call("POST", "/v1/subscriptions", body, headers)
        except GONE:
            break
        made.append(reply.body["id"])
    return made


@pytest.mark.req("S3-54", "S3-52")
def test_payments_are_taken_while_redis_is_away_and_told_when_it_is_back(
    tmp_path_factory: pytest.TempPathFactory, postgres: Postgres
) -> None:
    dsn, folder = postgres.database(), tmp_path_factory.mktemp("billing")
    with Redis(appendonly=True) as server, Billing(folder, redis_server=server, url=dsn) as stand:
        program = stand.start_payment()
        server.stop()
        paid = stand.pay("sub-1", amount=2)
        assert (paid.status, paid.body["status"]) == (201, "success")
        assert [row["queue"] for row in stand.found("queue_outbox")] == [UPDATE]
        program.wait_for("trouble", lambda line: line["where"] == "outbox")
        server.start()
        stand.until(lambda: stand.found("queue_outbox") == [], what="an empty outbox", timeout=60)
        stand.until_idle()
        assert stand.logged("success", idempotency_key=paid.body["event_id"])["queue"] == UPDATE
    postgres.drop(dsn)
