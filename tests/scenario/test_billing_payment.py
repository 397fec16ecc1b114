"""The payment service alone: what it charges, writes down, queues, tells and pays back."""

import json
import re
import time
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from tests.support.billing_stand import PROCESS, TOKEN, WEBHOOK, Billing, signature, stand_fixture
from tests.support.vendor import Entry, Reply

DOWN = Reply(503, body={"error": "down"})
UPDATE, REFUND = "q:pay:subscription_update", "q:pay:refund_initiation"

shared: Any = stand_fixture("[gateway]\ndeclined_amounts = [13.13]\n", scope="module", name="shared")


@pytest.fixture
def billing(shared: Billing) -> Iterator[Billing]:
    if not shared.programs:
        shared.start_payment()
    yield shared
    shared.subscription_stub.default = Reply()
    shared.subscription_stub.forget()
    shared.until_idle()


def queued(billing: Billing, queue: str, correlation_id: str) -> Any:
    """The one message of a subscription in a queue, wherever it is."""

    def found() -> list[Any]:
        return [each for each in billing.waiting(queue) if each.get("correlation_id") == correlation_id]

    billing.until(lambda: bool(found()), what=f"a message of {correlation_id} in {queue}")
    return found()[0]


@pytest.mark.req("S3-50", "S3-51", "S3-08", "S3-52")
def test_a_result_is_queued_in_an_envelope_and_the_payment_stands_although_nobody_listens(billing: Billing) -> None:
    billing.subscription_stub.default = DOWN
    before = int(time.time())
    reply = billing.pay("sub-1", amount=9.99, currency="EUR", renewal=True)
    assert (reply.status, reply.body["status"], reply.body["amount"]) == (201, "success", 9.99)
    message = queued(billing, UPDATE, "sub-1")
    event_id = message["payload"]["event_id"]
    found = re.fullmatch(r"payment_(.+)_(\d+)", event_id)
    assert found is not None
    assert found[1] == reply.body["transaction_id"]
    assert before <= int(found[2]) <= time.time()
    assert (message["action"], message["idempotency_key"]) == ("renewal", event_id)
    assert set(message) == {
        *("id", "action", "correlation_id", "idempotency_key", "created_at", "attempts", "max_attempts", "payload"),
    }
    payload = message["payload"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", payload.pop("occurred_at"))
    assert payload == {
        "event_id": event_id,
        "transaction_id": reply.body["transaction_id"],
        "subscription_id": "sub-1",
        "status": "success",
        "amount": 9.99,
        "currency": "EUR",
        "metadata": {"trial": False, "renewal": True},
        "action": "renewal",
    }


@pytest.mark.req("S3-50")
@pytest.mark.parametrize(
    ("flags", "action"), [({}, "initial"), ({"trial": True}, "trial"), ({"renewal": True}, "renewal")]
)
def test_the_action_of_a_result(billing: Billing, flags: dict[str, Any], action: str) -> None:
    reply = billing.pay(f"sub-{action}", amount="10.00", **flags)
    assert (reply.body["action"], reply.body["amount"]) == (action, 10)
    (post, *_) = billing.subscription_stub.wait_for(1, lambda entry: reply.body["event_id"] in entry["body"])
    assert json.loads(post["body"])["action"] == action


@pytest.mark.req("S3-52")
def test_the_failure_of_the_immediate_call_is_logged_and_changes_nothing(billing: Billing) -> None:
    billing.subscription_stub.default = DOWN
    mark = billing.programs[-1].mark()
    assert billing.pay("sub-2", amount=1).status == 201
    line = billing.programs[-1].wait_for("trouble", lambda line: line["where"] == "immediate_webhook", since=mark)
    assert "HTTP 503" in line["error"]
    assert queued(billing, UPDATE, "sub-2")


@pytest.mark.req("S3-52", "S3-53", "S3-67", "S3-68", "S3-69", "S3-70")
def test_an_event_is_told_at_once_and_again_from_the_queue_signed_over_the_bytes_sent(billing: Billing) -> None:
    reply = billing.pay("sub-ü", amount=9.99)
    posts = billing.subscription_stub.wait_for(2, lambda entry: reply.body["event_id"] in entry["body"])
    assert len({post["body"] for post in posts}) == 1, "the same bytes both times"
    for post in posts:
        body, headers = post["body"].encode(), post["headers"]
        assert (post["method"], post["path"]) == ("POST", WEBHOOK)
        assert headers["content-type"] == "application/json"
        assert headers["x-webhook-signature"] == signature(body, headers["x-webhook-timestamp"])
        assert abs(int(headers["x-webhook-timestamp"]) - time.time()) < 60
        assert (headers["x-webhook-event-id"], headers["user-agent"]) == (reply.body["event_id"], "Carillon")
        compact = json.dumps(json.loads(body), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        assert post["body"] == compact


@pytest.mark.req("S3-55", "S3-59", "S3-101")
def test_a_trial_is_paid_back_once(billing: Billing) -> None:
    paid = billing.pay("sub-trial", amount=4.5, trial=True).body
    path = f"/v1/refunds?transaction_id={paid['transaction_id']}"
    billing.until(lambda: bool(billing.client().get(path).body["refunds"]), what="the refund")
    (refund,) = billing.client().get(path).body["refunds"]
    assert (refund["amount"], refund["reason"], refund["status"]) == (4.5, "trial_refund", "refunded")
    logged = billing.logged("success", idempotency_key=f"refund:{paid['transaction_id']}")
    assert (logged["queue"], logged["action"], logged["correlation_id"]) == (REFUND, "refund", "sub-trial")


@pytest.mark.req("S3-55")
@pytest.mark.parametrize("body", [{"amount": 13.13, "trial": True}, {"amount": 5}])
def test_nothing_is_paid_back_that_was_declined_or_is_no_trial(billing: Billing, body: dict[str, Any]) -> None:
    paid = billing.pay("sub-none", **body).body
    billing.subscription_stub.wait_for(2, lambda entry: paid["event_id"] in entry["body"])
    billing.until_idle()
    assert billing.client().get(f"/v1/refunds?transaction_id={paid['transaction_id']}").body == {"refunds": []}


@pytest.mark.req("S3-50")
def test_a_declined_payment_is_processed_and_told_as_failed(billing: Billing) -> None:
    reply = billing.pay("sub-declined", amount=13.13)
    assert (reply.status, reply.body["status"]) == (201, "failed")
    (post, *_) = billing.subscription_stub.wait_for(1, lambda entry: reply.body["event_id"] in entry["body"])
    assert json.loads(post["body"])["status"] == "failed"


@pytest.mark.req("S3-56", "S3-57", "S3-60")
@pytest.mark.parametrize(
    "answer", [Reply(500), Reply(404), Reply(401), Reply(302, {"Location": "/"}), Reply(reset=True)]
)
def test_whatever_is_not_2xx_is_tried_again_one_call_for_each_run(billing: Billing, answer: Reply) -> None:
    event_id, answers = f"payment_{uuid4()}_1", [answer, answer]

    def answered(entry: Entry) -> Reply:
        # Only this message: an earlier payment's immediate call may still be on its way.
        return answers.pop() if event_id in entry["body"] and answers else Reply()

    billing.subscription_stub.default = answered
    billing.push(UPDATE, {"id": event_id, "action": "initial", "payload": {"event_id": event_id, "n": 1}})
    billing.subscription_stub.wait_for(3, lambda entry: event_id in entry["body"])
    billing.until_idle()
    posts = billing.posts(event_id)
    assert [post["status"] for post in posts] == [answer.status if not answer.reset else 0] * 2 + [200]
    told = [entry["status"] for entry in billing.told(event_id, 6)]
    assert told == ["success", "start", "retry", "start", "retry", "start"], "newest first"
    row = billing.logged("success", message_id=event_id)
    assert (row["attempts"], row["service"]) == (2, "payment")


@pytest.mark.req("S3-56")
@pytest.mark.parametrize("status", [200, 201, 204])
def test_every_2xx_is_success(billing: Billing, status: int) -> None:
    billing.subscription_stub.answer(Reply(status, body=b""))
    event_id = f"payment_{uuid4()}_1"
    billing.push(UPDATE, {"event_id": event_id, "raw": True})
    billing.subscription_stub.wait_for(1, lambda entry: event_id in entry["body"])
    billing.until_idle()
    assert len(billing.posts(event_id)) == 1


@pytest.mark.req("S3-59", "S3-90")
def test_a_refund_is_made_once_also_of_a_transaction_nobody_knows(billing: Billing) -> None:
    transaction_id = f"unknown-{uuid4()}"
    for number in range(3):
        payload = {"transaction_id": transaction_id, "amount": 7, "reason": "trial_refund"}
        billing.push(REFUND, {"id": f"{transaction_id}-{number}", "action": "refund", "payload": payload})
    billing.push(REFUND, {"transaction_id": transaction_id, "amount": 7})
    billing.until_idle()
    (refund,) = billing.client().get(f"/v1/refunds?transaction_id={transaction_id}").body["refunds"]
    assert (refund["amount"], refund["reason"]) == (7, "trial_refund")


@pytest.mark.parametrize(
    "payload", [{}, {"transaction_id": ""}, {"transaction_id": 1, "amount": "x"}, {"transaction_id": "unheard-of"}]
)
def test_a_refund_that_can_never_be_made_fails_at_once_with_the_reason(
    billing: Billing, payload: dict[str, Any]
) -> None:
    name = str(uuid4())
    billing.push(REFUND, {"id": name, "action": "refund", "payload": payload})
    billing.until(lambda: billing.redis.llen(f"{REFUND}:failed") == 1, what="the failed message")
    failed = json.loads(str(billing.redis.rpop(f"{REFUND}:failed")))
    assert failed == {"id": name, "action": "refund", "payload": payload}
    (entry, *_) = billing.told(name, 2)
    assert (entry["status"], entry["info"]["error"].startswith("Permanent: ")) == ("failed", True)


@pytest.mark.req("S3-63")
def test_the_same_order_is_charged_once_and_answered_the_same(billing: Billing) -> None:
    first = billing.pay("sub-again", "order-1", amount=3)
    again = billing.pay("sub-again", "order-1", amount=3)
    assert (first.status, again.status) == (201, 201)
    assert first.body == again.body
    assert ("idempotent-replayed" in first.headers, again.headers["idempotent-replayed"]) == (False, "true")
    for conflicting in ({"amount": 4}, {"amount": 3, "currency": "EUR"}, {"amount": 3, "renewal": True}):
        refused = billing.pay("sub-again", "order-1", **conflicting)
        assert (refused.status, refused.body["error"]["code"]) == (409, "IDEMPOTENCY_CONFLICT")
    other = billing.pay("sub-again", "order-2", amount=3)
    assert other.body["transaction_id"] != first.body["transaction_id"]
    assert len(billing.found("payments", subscription_id="sub-again")) == 2
    assert billing.client().get(f"/v1/payments/{first.body['transaction_id']}").body == first.body
    assert billing.client().get("/v1/payments/nobody").status == 404


@pytest.mark.req("S3-63")
@pytest.mark.parametrize(
    ("authorization", "reason"),
    [
        (None, "missing"),
        ("Bearer wrong", "forged"),
        (f"Basic {TOKEN}", "malformed"),
        ("Bearer ", "forged"),
        (TOKEN, "malformed"),
        (f"Bearer {TOKEN}x", "forged"),
    ],
)
def test_only_services_ask_for_money(billing: Billing, authorization: str | None, reason: str) -> None:
    headers = {} if authorization is None else {"Authorization": authorization}
    mark = billing.programs[-1].mark()
    reply = billing.client().call("POST", f"{PROCESS}?subscription_id=sub-x", {"amount": 1}, headers)
    assert (reply.status, reply.body["error"]["code"]) == (401, "UNAUTHORIZED")
    line = billing.programs[-1].wait_for("token_refused", since=mark)
    assert (line["reason"], line["path"]) == (reason, PROCESS)
    assert billing.found("payments", subscription_id="sub-x") == []


@pytest.mark.parametrize(
    ("query", "body"),
    [
        ("", b'{"amount":1}'),
        ("?subscription_id=", b'{"amount":1}'),
        ("?subscription_id=a%00b", b'{"amount":1}'),
        ("?subscription_id=a", b'{"amount":-1}'),
        ("?subscription_id=a", b'{"amount":0.00001}'),
        ("?subscription_id=a", b'{"amount":1e300}'),
        ("?subscription_id=a", b'{"amount":"much"}'),
        ("?subscription_id=a", b'{"amount":NaN}'),
        ("?subscription_id=a", b'{"currency":""}'),
        ("?subscription_id=a", b"[1]"),
        ("?subscription_id=a", b"{"),
        ("?subscription_id=a", b"\xff"),
    ],
)
def test_bad_orders_are_refused_and_charge_nothing(billing: Billing, query: str, body: bytes) -> None:
    before = billing.rows("SELECT count(*) AS n FROM payments")
    reply = billing.client().call("POST", f"{PROCESS}{query}", body, {"Authorization": f"Bearer {TOKEN}"})
    assert reply.status == 400, reply.body
    assert reply.body["error"]["code"] == "VALIDATION_ERROR"
    assert billing.rows("SELECT count(*) AS n FROM payments") == before


def test_cards_are_neither_kept_nor_told(billing: Billing) -> None:
    reply = billing.pay("sub-card", amount=2, card_number="4111111111111111", card_cvv="737")
    billing.subscription_stub.wait_for(2, lambda entry: reply.body["event_id"] in entry["body"])
    everything = json.dumps([billing.posts(reply.body["event_id"]), billing.programs[-1].lines])
    assert reply.status == 201
    assert "4111111111111111" not in everything


@pytest.mark.req("S3-01", "S3-07")
def test_the_payment_service_takes_its_own_queues_and_no_others(billing: Billing) -> None:
    theirs = [f"q:sub:{name}" for name in ("payment_initiation", "trial_payment", "plan_change", "usage_sync")]
    for queue in theirs:
        billing.push(queue, {"id": f"of-{queue}", "subscription_id": "s"})
    # A message of its own, pushed after them and finished, shows that it had the time to take them.
    event_id = f"payment_{uuid4()}_1"
    billing.push(UPDATE, {"event_id": event_id})
    billing.subscription_stub.wait_for(1, lambda entry: event_id in entry["body"])
    try:
        assert [billing.redis.llen(queue) for queue in theirs] == [1, 1, 1, 1]
    finally:
        billing.redis.delete(*theirs)
