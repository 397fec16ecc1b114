"""The two billing services across two processes: trial, renewal, refund, and a receiver that is away for a while."""

import json
from typing import Any

import pytest

from tests.support.billing_stand import Billing, stand_fixture, two_ports
from tests.support.process import Program

billing: Any = stand_fixture(
    "[gateway]\ndeclined_amounts = [13.13]\n[billing.plans.unlucky]\namount = 13.13\n", scope="module"
)


class Pair:
    """Both processes, each told where the other is."""

    def __init__(self, stand: Billing) -> None:
        self.stand = stand
        self.ports = two_ports()
        self.payment = self.start_payment()
        self.subscription = self.start_subscription()

    def start_payment(self) -> Program:
        own, other = self.ports
        return self.stand.start_payment(f"http://127.0.0.1:{other}", CARILLON_HTTP__PORT=str(own))

    def start_subscription(self) -> Program:
        other, own = self.ports
        return self.stand.start_subscription(f"http://127.0.0.1:{other}", CARILLON_HTTP__PORT=str(own))

    def subscribed(self, status: str, *, trial: bool = False, plan_id: str = "basic") -> str:
        """A new subscription that has got so far."""
        subscription_id = self.stand.create(trial=trial, plan_id=plan_id, program=self.subscription)
        self.stand.until_status(subscription_id, status, self.subscription)
        self.stand.until_idle()
        return subscription_id

    def payments(self, subscription_id: str) -> list[dict[str, Any]]:
        found = self.stand.found("payments", subscription_id=subscription_id)
        return sorted(found, key=lambda row: str(row["created_at"]))


@pytest.fixture(scope="module")
def pair(billing: Billing) -> Pair:
    return Pair(billing)


@pytest.mark.req("S3-99", "S3-61", "S3-63", "S3-55", "S3-101", "S3-79")
def test_a_trial_is_paid_reported_and_paid_back(pair: Pair) -> None:
    stand = pair.stand
    subscription_id = pair.subscribed("trial", trial=True, plan_id="trial")
    (payment,) = pair.payments(subscription_id)
    assert (payment["status"], payment["action"]) == ("success", "trial")
    refunds = stand.client(pair.payment).get(f"/v1/refunds?transaction_id={payment['transaction_id']}").body["refunds"]
    assert [(each["amount"], each["reason"]) for each in refunds] == [(1, "trial_refund")]
    (event,) = stand.found("payment_webhook_requests", event_id=payment["event_id"])
    assert (event["processed"], event["retry_count"]) == (True, 0)
    told = json.loads(event["payload"])
    assert (told["transaction_id"], told["action"]) == (payment["transaction_id"], "trial")


@pytest.mark.req("S3-53", "S3-99")
def test_immediate_and_queued_delivery_are_one_effect(pair: Pair) -> None:
    subscription_id = pair.subscribed("active")
    (payment,) = pair.payments(subscription_id)
    status = pair.stand.client(pair.subscription).get(f"/v1/webhooks/status/{payment['event_id']}").body
    assert (status["processed"], status["retry_count"]) == (True, 0)
    row = pair.stand.logged("success", idempotency_key=payment["event_id"])
    assert (row["queue"], row["attempts"]) == ("q:pay:subscription_update", 0)
    (found,) = pair.stand.found("subscriptions", subscription_id=subscription_id)
    assert (found["ends_at"] - found["started_at"]).days == 30, "one period, although it was told twice"


@pytest.mark.req("S3-100", "S3-79")
def test_a_renewal_through_the_queue_extends_and_ends_the_trial(pair: Pair) -> None:
    stand = pair.stand
    subscription_id = pair.subscribed("trial", trial=True, plan_id="trial")
    before = stand.found("subscriptions", subscription_id=subscription_id)[0]
    payload = {"subscription_id": subscription_id, "amount": 9.99, "currency": "USD", "renewal": True}
    stand.push("q:sub:payment_initiation", {"action": "renewal", "payload": payload})
    found = stand.until_status(subscription_id, "active", pair.subscription)
    assert (found["plan_id"], found["trial"]) == ("basic", False)
    after = stand.found("subscriptions", subscription_id=subscription_id)[0]
    assert (after["ends_at"] - before["ends_at"]).days == 30
    assert [row["action"] for row in pair.payments(subscription_id)] == ["trial", "renewal"]


@pytest.mark.req("S3-100")
def test_a_renewal_over_http_and_an_upgrade(pair: Pair) -> None:
    stand, client = pair.stand, pair.stand.client(pair.subscription)
    subscription_id = pair.subscribed("active")
    path = f"/v1/subscriptions/{subscription_id}"
    # The same request within the hour is one payment, from whichever process.
    for _ in range(2):
        assert client.call("POST", f"{path}/renew").status == 202
    client.call("POST", f"{path}/plan", {"plan_id": "pro"})
    stand.until(lambda: stand.subscription(subscription_id, pair.subscription)["plan_id"] == "pro", what="the plan")
    stand.until_idle()
    actions = [row["action"] for row in pair.payments(subscription_id)]
    assert sorted(actions) == ["initial", "renewal", "upgrade"]


@pytest.mark.req("S3-79", "X3-4")
def test_a_renewal_that_is_declined_is_past_due_and_an_upgrade_revokes(pair: Pair) -> None:
    stand, client = pair.stand, pair.stand.client(pair.subscription)
    renewed, upgraded = pair.subscribed("active"), pair.subscribed("active")
    payload = {"subscription_id": renewed, "amount": 13.13, "currency": "USD", "renewal": True}
    stand.push("q:sub:payment_initiation", {"action": "renewal", "payload": payload})
    stand.until_status(renewed, "past_due", pair.subscription)
    # The grace is for renewals alone.
    assert client.call("POST", f"/v1/subscriptions/{upgraded}/plan", {"plan_id": "unlucky"}).status == 202
    stand.until_status(upgraded, "revoked", pair.subscription)
    never = stand.create(plan_id="unlucky", program=pair.subscription)
    stand.until_idle()
    assert stand.subscription(never, pair.subscription)["status"] == "pending"


@pytest.mark.req("S3-52", "S3-54", "S3-76")
def test_a_subscription_service_that_is_away_for_a_while_hears_everything(pair: Pair) -> None:
    stand = pair.stand
    ids = [pair.subscribed("active") for _ in range(3)]
    ends = {each: stand.found("subscriptions", subscription_id=each)[0]["ends_at"] for each in ids}
    pair.subscription.terminate()
    assert pair.subscription.wait() == 0
    for subscription_id in ids:
        paid = stand.pay(subscription_id, program=pair.payment, amount=9.99, renewal=True)
        assert (paid.status, paid.body["status"]) == (201, "success"), "payments do not wait for anybody"
    stand.until(
        lambda: any(int(each["attempts"]) >= 1 for each in stand.waiting("q:pay:subscription_update")),
        what="a delivery that failed",
    )
    pair.subscription = pair.start_subscription()
    stand.until_idle()
    for subscription_id in ids:
        after = stand.found("subscriptions", subscription_id=subscription_id)[0]["ends_at"]
        assert (after - ends[subscription_id]).days == 30
    assert stand.redis.llen("q:pay:subscription_update:failed") == 0


@pytest.mark.req("S3-07", "S3-64")
def test_without_the_payment_service_its_queue_grows_and_nobody_else_takes_it(pair: Pair) -> None:
    stand = pair.stand
    stand.until_idle()
    pair.payment.terminate()
    assert pair.payment.wait() == 0
    subscription_id = stand.create(program=pair.subscription)
    for number in range(3):
        stand.push("q:pay:subscription_update", {"id": f"waits-{number}", "event_id": f"waits-{number}"})
    stand.until(
        lambda: any(int(each["attempts"]) >= 1 for each in stand.waiting("q:sub:payment_initiation")),
        what="an order that found nobody",
    )
    assert stand.redis.llen("q:pay:subscription_update") == 3
    stand.redis.delete("q:pay:subscription_update")
    pair.payment = pair.start_payment()
    stand.until_status(subscription_id, "active", pair.subscription)
    stand.until_idle()
