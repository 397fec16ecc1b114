"""The subscription service alone: what it asks for, through which queue, and what its handlers do."""

import json
import time
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from carillon.blueprints.billing.domain import producer_key
from tests.support.billing_stand import PROCESS, TOKEN, Billing, stand_fixture
from tests.support.vendor import Entry, Reply

INITIATION, TRIAL = "q:sub:payment_initiation", "q:sub:trial_payment"
PLAN, USAGE = "q:sub:plan_change", "q:sub:usage_sync"
PAID = Reply(201, body={"status": "success"})
DOWN = Reply(503, body={"error": "down"})

shared: Any = stand_fixture(scope="module", name="shared")


@pytest.fixture
def billing(shared: Billing) -> Iterator[Billing]:
    shared.payment_stub.default = PAID
    if not shared.programs:
        shared.start_subscription()
    yield shared
    shared.payment_stub.default = PAID
    shared.payment_stub.forget()
    shared.until_idle()


def orders(billing: Billing, subscription_id: str, number: int = 1) -> list[Entry]:
    return billing.payment_stub.wait_for(number, lambda entry: f"={subscription_id}" in entry["path"])


def queued(billing: Billing, queue: str, subscription_id: str) -> Any:
    """The one message of a subscription in a queue, wherever it is."""

    def found() -> list[Any]:
        return [each for each in billing.waiting(queue) if each.get("correlation_id") == subscription_id]

    billing.until(lambda: bool(found()), what=f"a message of {subscription_id} in {queue}")
    return found()[0]


@pytest.mark.req("S3-61", "S3-62", "S3-08", "S3-64")
@pytest.mark.parametrize(("trial", "queue", "action"), [(True, TRIAL, "trial"), (False, INITIATION, "initial")])
def test_a_new_subscription_asks_for_its_money_in_an_envelope(
    billing: Billing, *, trial: bool, queue: str, action: str
) -> None:
    billing.payment_stub.default = DOWN
    subscription_id = billing.create(trial=trial)
    message = queued(billing, queue, subscription_id)
    assert message["action"] == action
    assert message["payload"] == {
        "subscription_id": subscription_id,
        "amount": 9.99,
        "currency": "USD",
        "trial": trial,
    }
    now = time.time()
    assert message["idempotency_key"] in {producer_key(subscription_id, action, now - ago) for ago in (0, 60)}
    billing.until(
        lambda: any(int(each.get("attempts", 0)) >= 1 for each in billing.waiting(queue)), what="a failed attempt"
    )
    assert billing.subscription(subscription_id)["status"] == "pending"


@pytest.mark.req("S3-61")
def test_a_renewal_and_changes_of_plan_ask_for_theirs(billing: Billing) -> None:
    subscription_id = billing.create(plan_id="basic")
    orders(billing, subscription_id)
    billing.until_idle()
    billing.payment_stub.default = DOWN
    client, path = billing.client(), f"/v1/subscriptions/{subscription_id}"
    expected: dict[str, tuple[Any, dict[str, Any]]] = {
        "renewal": (client.call("POST", f"{path}/renew"), {"amount": 9.99, "renewal": True}),
        "upgrade": (
            client.call("POST", f"{path}/plan", {"plan_id": "pro"}),
            {"amount": 29.99, "old_plan_id": "basic", "new_plan_id": "pro"},
        ),
        "downgrade": (
            client.call("POST", f"{path}/plan", {"plan_id": "trial"}),
            {"amount": 1, "old_plan_id": "basic", "new_plan_id": "trial"},
        ),
    }
    for action, (reply, payload) in expected.items():
        assert (reply.status, reply.body["action"]) == (202, action)
        # The answer comes when the queue has the message, which stays there while nobody pays.
        (message,) = [each for each in billing.waiting(INITIATION) if each["id"] == reply.body["message_id"]]
        common = {"subscription_id": subscription_id, "currency": "USD"}
        assert (message["action"], message["payload"]) == (action, common | payload)


@pytest.mark.req("S3-63", "S3-64", "S3-65")
@pytest.mark.parametrize(
    ("queue", "action", "more"),
    [
        (INITIATION, "initial", {}),
        (INITIATION, "renewal", {"renewal": True}),
        (INITIATION, "upgrade", {"old_plan_id": "basic", "new_plan_id": "pro"}),
        (TRIAL, "trial", {"trial": True}),
    ],
)
def test_a_payment_is_asked_of_the_payment_service(
    billing: Billing, queue: str, action: str, more: dict[str, Any]
) -> None:
    subscription_id, message_id = f"sub-{uuid4()}", str(uuid4())
    payload = {"subscription_id": subscription_id, "amount": 12.5, "currency": "EUR", **more}
    billing.push(queue, {"id": message_id, "action": action, "payload": payload})
    (order,) = orders(billing, subscription_id)
    assert (order["method"], order["path"]) == ("POST", f"{PROCESS}?subscription_id={subscription_id}")
    assert order["headers"]["authorization"] == f"Bearer {TOKEN}"
    assert order["headers"]["idempotency-key"] == message_id
    flags = {"trial": action == "trial", "renewal": action == "renewal"}
    assert json.loads(order["body"]) == {**payload, **flags, "action": action}
    assert billing.logged("success", message_id=message_id)["service"] == "subscription"


@pytest.mark.req("S3-63", "S3-64")
@pytest.mark.parametrize("answer", [Reply(200), Reply(202), Reply(500), Reply(401), Reply(reset=True)])
def test_only_201_is_success_and_every_attempt_is_the_same_order(billing: Billing, answer: Reply) -> None:
    billing.payment_stub.answer(answer, answer)
    subscription_id, key = f"sub-{uuid4()}", f"key-{uuid4()}"
    message = {
        "action": "renewal",
        "idempotency_key": key,
        "payload": {"subscription_id": subscription_id, "amount": 1},
    }
    billing.push(INITIATION, message)
    found = orders(billing, subscription_id, 3)
    billing.until_idle()
    assert len(orders(billing, subscription_id)) == 3
    assert {entry["headers"]["idempotency-key"] for entry in found} == {key}
    assert len({entry["body"] for entry in found}) == 1
    assert billing.logged("success", idempotency_key=key)["attempts"] == 2


@pytest.mark.req("S3-63", "S3-11")
def test_raw_dicts_are_paid_too(billing: Billing) -> None:
    subscription_id = f"sub-{uuid4()}"
    billing.push(INITIATION, {"subscription_id": subscription_id, "amount": 5, "currency": "USD", "renewal": True})
    (order,) = orders(billing, subscription_id)
    assert json.loads(order["body"])["action"] == "renewal"


def test_an_amount_that_is_not_named_is_the_plans(billing: Billing) -> None:
    subscription_id = billing.create(plan_id="pro")
    orders(billing, subscription_id)
    billing.push(INITIATION, {"action": "renewal", "payload": {"subscription_id": subscription_id}})
    (_, order) = orders(billing, subscription_id, 2)
    assert json.loads(order["body"])["amount"] == 29.99


@pytest.mark.req("S3-63")
def test_a_change_of_plan_without_a_payment(billing: Billing) -> None:
    subscription_id = billing.create(plan_id="basic")
    orders(billing, subscription_id)
    billing.push(PLAN, {"action": "upgrade", "payload": {"subscription_id": subscription_id, "new_plan_id": "pro"}})
    billing.until(lambda: billing.subscription(subscription_id)["plan_id"] == "pro", what="the plan")
    reply = billing.client().call(
        "POST", f"/v1/subscriptions/{subscription_id}/plan", {"plan_id": "gold", "charge": False}
    )
    assert (reply.status, reply.body["action"]) == (202, "downgrade")
    billing.until(lambda: billing.subscription(subscription_id)["plan_id"] == "gold", what="the next plan")
    assert len(orders(billing, subscription_id)) == 1, "nothing more was paid"


@pytest.mark.req("S3-64")
def test_a_change_for_a_subscription_that_comes_later_is_tried_again(billing: Billing) -> None:
    name = str(uuid4())
    billing.push(PLAN, {"id": name, "action": "upgrade", "payload": {"subscription_id": name, "new_plan_id": "pro"}})
    (entry, _) = billing.told(name, 2)[-2:]
    assert (entry["status"], f"no subscription {name}" in entry["info"]["error"]) == ("retry", True)
    billing.until(lambda: billing.redis.llen(f"{PLAN}:failed") == 1, what="the end of its budget")
    billing.redis.delete(f"{PLAN}:failed")


@pytest.mark.req("S3-66")
def test_usage_is_counted_once_for_each_message(billing: Billing) -> None:
    user, later = f"user-{uuid4()}", "2999-01-01T00:00:00Z"
    deltas = [{"user_id": user, "feature_name": "api_calls", "delta": 3, "reset_at": later}] * 2
    for number, payload in enumerate(deltas):
        message = {"id": f"{user}-{number}", "action": "usage_sync", "payload": payload}
        billing.push(USAGE, message)
        billing.push(USAGE, message)
    billing.push(USAGE, {"user_id": user, "feature_name": "storage", "delta": -1, "reset_at": None})
    billing.until_idle()
    usage = billing.client().get(f"/v1/usage?user_id={user}").body["usage"]
    assert usage == [
        {"feature_name": "api_calls", "usage_count": 6, "reset_at": "2999-01-01T00:00:00.000Z"},
        {"feature_name": "storage", "usage_count": -1, "reset_at": None},
    ]
    assert billing.client().get("/v1/usage?user_id=nobody").body == {"user_id": "nobody", "usage": []}


@pytest.mark.req("S3-13")
def test_an_object_is_an_envelope_by_its_payload_and_action_together(billing: Billing) -> None:
    """The handler counts for `inner` if the message is an envelope, for `outer` if it is the order itself."""
    inner, outer = f"inner-{uuid4()}", f"outer-{uuid4()}"

    def of(user: str, delta: int) -> dict[str, Any]:
        return {"user_id": user, "feature_name": "api", "delta": delta}

    billing.push(USAGE, {"action": "usage_sync", "payload": of(inner, 1), **of(outer, 1)})
    billing.push(USAGE, {"payload": of(inner, 10), **of(outer, 10)})
    billing.push(USAGE, {"action": "usage_sync", **of(outer, 100)})
    billing.push(USAGE, {"action": "usage_sync", "payload": [of(inner, 1000)], **of(outer, 1000)})
    billing.push(USAGE, of(outer, 10_000))
    billing.until_idle()
    counted = {user: billing.client().get(f"/v1/usage?user_id={user}").body["usage"] for user in (inner, outer)}
    assert [each["usage_count"] for each in counted[inner]] == [1]
    assert [each["usage_count"] for each in counted[outer]] == [11_110]
    # An inner payload alone is no order.
    billing.push(USAGE, {"id": inner, "payload": of(inner, 1)})
    billing.until(lambda: billing.redis.llen(f"{USAGE}:failed") == 1, what="the failed message")
    assert billing.told(inner, 2)[0]["status"] == "failed"
    billing.redis.delete(f"{USAGE}:failed")


@pytest.mark.parametrize(
    ("queue", "payload"),
    [
        (USAGE, {"user_id": "u", "feature_name": "f", "delta": "many"}),
        (USAGE, {"user_id": "u", "feature_name": "f", "delta": 1, "reset_at": "soon"}),
        (USAGE, {"feature_name": "f", "delta": 1}),
        (PLAN, {"subscription_id": "s"}),
        (INITIATION, {"amount": 1}),
        (INITIATION, {"subscription_id": "nobody"}),
        (TRIAL, {"subscription_id": "s", "amount": -1}),
    ],
)
def test_what_can_never_be_done_fails_at_once(billing: Billing, queue: str, payload: dict[str, Any]) -> None:
    name = str(uuid4())
    billing.push(queue, {"id": name, "action": "x", "payload": payload})
    billing.until(lambda: billing.redis.llen(f"{queue}:failed") == 1, what="the failed message")
    billing.redis.delete(f"{queue}:failed")
    (entry, first) = billing.told(name, 2)
    assert (entry["status"], entry["info"]["error"].startswith("Permanent: ")) == ("failed", True)
    assert first["status"] == "start"


@pytest.mark.req("S3-01", "S3-07")
def test_the_subscription_service_takes_its_own_queues_and_no_others(billing: Billing) -> None:
    theirs = ("q:pay:subscription_update", "q:pay:refund_initiation")
    for queue in theirs:
        billing.push(queue, {"id": f"of-{queue}"})
    for number, queue in enumerate((INITIATION, TRIAL)):
        billing.push(queue, {"subscription_id": f"own-{number}", "amount": 1})
        orders(billing, f"own-{number}")
    try:
        assert [billing.redis.llen(queue) for queue in theirs] == [1, 1]
    finally:
        billing.redis.delete(*theirs)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"plan_id": "basic"},
        {"plan_id": "", "user_id": "ada"},
        {"plan_id": "basic", "user_id": "ada", "trial": "yes"},
        {"plan_id": "basic", "user_id": "ada", "more": 1},
        {"plan_id": "basic", "user_id": "a\x00da"},
        [],
    ],
)
def test_bad_subscriptions_are_refused(billing: Billing, body: Any) -> None:
    before = billing.rows("SELECT count(*) AS n FROM subscriptions")
    reply = billing.client().call("POST", "/v1/subscriptions", body)
    assert (reply.status, reply.body["error"]["code"]) == (400, "VALIDATION_ERROR")
    assert billing.rows("SELECT count(*) AS n FROM subscriptions") == before


def test_numbers_are_ids_too_and_what_is_not_there_is_404(billing: Billing) -> None:
    reply = billing.client().call("POST", "/v1/subscriptions", {"plan_id": 2, "user_id": 7})
    assert (reply.status, reply.body["plan_id"], reply.body["user_id"]) == (201, "2", "7")
    assert reply.headers["location"] == f"/v1/subscriptions/{reply.body['id']}"
    orders(billing, reply.body["id"])
    for method, path in (("GET", "/nobody"), ("POST", "/nobody/renew"), ("GET", "/a%00b")):
        assert billing.client().call(method, f"/v1/subscriptions{path}").status == 404


def test_a_repeated_creation_is_the_same_subscription(billing: Billing) -> None:
    body, headers = {"plan_id": "basic", "user_id": "bob"}, {"Idempotency-Key": "mine"}
    first, again = (billing.client().call("POST", "/v1/subscriptions", body, headers) for _ in range(2))
    assert first.body["id"] == again.body["id"]
    billing.until_idle()
    assert len(orders(billing, first.body["id"])) == 1
