"""The webhook receiver: what it believes, what it makes of it, and what it remembers."""

import asyncio
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import pytest

from tests.support import tables
from tests.support.billing_stand import QUEUES, WEBHOOK, Billing, event, signature, stand_fixture

TOLERANCE = 300

shared: Any = stand_fixture(scope="module", name="shared")


@pytest.fixture
def billing(shared: Billing) -> Iterator[Billing]:
    if not shared.programs:
        # The payment service never answers 201, so that nothing but the webhooks of these tests changes anything.
        shared.start_subscription()
    yield shared
    for queue in QUEUES:
        shared.redis.delete(queue, f"{queue}:delayed", f"{queue}:failed")


def name() -> str:
    return f"payment_{uuid4()}_1767225600"


def in_state(billing: Billing, status: str, plan_id: str) -> str:
    """A subscription put into a state past the program."""
    subscription_id = billing.create(plan_id=plan_id)
    statement = f"UPDATE subscriptions SET status = '{status}' WHERE subscription_id = '{subscription_id}'"  # noqa: S608
    asyncio.run(tables.read(billing.url, statement))
    return subscription_id


@pytest.mark.req("S3-67", "S3-68", "S3-74", "S3-75", "S3-102")
@pytest.mark.parametrize("form", ["prefixed", "bare", "upper"])
def test_a_right_signature_is_believed_and_carried_out_before_the_answer(billing: Billing, form: str) -> None:
    subscription_id, event_id = billing.create(), name()
    body = json.dumps(event(event_id, subscription_id)).encode()
    now = str(int(time.time()))
    right = signature(body, now)
    sent = {"prefixed": right, "bare": right.removeprefix("sha256="), "upper": right.removeprefix("sha256=").upper()}
    reply = billing.deliver(body, timestamp=now, signature=sent[form])
    assert billing.subscription(subscription_id)["status"] == "active"
    assert (reply.status, reply.body["success"], reply.body["status"]) == (200, True, "processed")
    assert (reply.body["event_id"], bool(reply.body["message"])) == (event_id, True)


@pytest.mark.req("S3-71", "S3-72", "S3-102")
@pytest.mark.parametrize(
    ("late", "status"),
    [
        (TOLERANCE - 60, 200),
        (TOLERANCE + 1, 400),
        (10 * TOLERANCE, 400),
        (-(TOLERANCE - 1), 200),
        (-(TOLERANCE + 60), 400),
        (-10 * TOLERANCE, 400),
    ],
)
def test_the_time_of_a_webhook_may_be_off_by_the_tolerance(billing: Billing, late: int, status: int) -> None:
    """Time passes between the signing and the look at it, so the near bounds are given some room here."""
    reply = billing.deliver(event(name(), billing.create()), late=late)
    assert reply.status == status, reply.body


@pytest.mark.req("S3-71", "S3-73", "S3-102")
@pytest.mark.parametrize(
    ("given", "status"),
    [
        ({"timestamp": None}, 400),
        ({"signature": None}, 400),
        ({"timestamp": None, "signature": None}, 400),
        ({"timestamp": ""}, 400),
        ({"timestamp": "soon"}, 400),
        ({"timestamp": "1767225600.5"}, 400),
        ({"timestamp": "-1"}, 400),
        ({"timestamp": "9" * 30}, 400),
        ({"signature": f"sha256={'0' * 64}"}, 401),
        ({"signature": "sha256=abc"}, 401),
        ({"signature": "sha1=0000"}, 401),
        ({"signature": "nonsense"}, 401),
        ({"signature": f"sha256={'g' * 64}"}, 401),
    ],
)
def test_what_is_not_believed(billing: Billing, given: dict[str, Any], status: int) -> None:
    subscription_id, event_id = billing.create(), name()
    reply = billing.deliver(event(event_id, subscription_id), **given)
    assert reply.status == status, reply.body
    assert billing.subscription(subscription_id)["status"] == "pending"
    assert billing.client().get(f"/v1/webhooks/status/{event_id}").status == 404, "nothing of it was kept"


@pytest.mark.req("S3-68", "S3-102")
def test_a_signature_under_another_secret_or_over_other_bytes_is_refused(billing: Billing) -> None:
    body = json.dumps(event(name(), billing.create())).encode()
    now = str(int(time.time()))
    assert billing.deliver(body, timestamp=now, signature=signature(body, now, "another")).status == 401
    # The same content in other bytes is another body.
    respelt = json.dumps(json.loads(body), indent=1).encode()
    assert billing.deliver(respelt, timestamp=now, signature=signature(body, now)).status == 401
    assert billing.deliver(body, timestamp=str(int(now) - 1), signature=signature(body, now)).status == 401
    assert billing.deliver(body, timestamp=now, signature=signature(body, now)).status == 200


@pytest.mark.req("S3-71")
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"text"',
        b"\xff\xfe",
        b'{"status":"success","subscription_id":"s"}',
        b'{"event_id":"e","status":"success"}',
        b'{"event_id":"e","subscription_id":"s"}',
        b'{"event_id":"e","subscription_id":"s","status":"perhaps"}',
        b'{"event_id":"","subscription_id":"s","status":"success"}',
        b'{"event_id":7,"subscription_id":"s","status":"success"}',
        b'{"event_id":"e\\u0000","subscription_id":"s","status":"success"}',
        b'{"event_id":"e","event_id":"f","subscription_id":"s","status":"success"}',
    ],
)
def test_signed_nonsense_is_400(billing: Billing, body: bytes) -> None:
    reply = billing.deliver(body)
    assert (reply.status, reply.body["error"]["code"]) == (400, "VALIDATION_ERROR")


def test_a_body_too_large_is_refused_before_it_is_read(billing: Billing) -> None:
    reply = billing.client().call("POST", WEBHOOK, b" " * (256 * 1024 + 1))
    assert reply.status == 413


@pytest.mark.req("S3-53", "S3-75")
def test_a_repeat_is_a_duplicate_and_does_nothing(billing: Billing) -> None:
    subscription_id, told = billing.create(), event(name(), billing.create())
    told["subscription_id"] = subscription_id
    assert billing.deliver(told).body["status"] == "processed"
    once = billing.subscription(subscription_id)
    repeat = billing.deliver(told)
    assert (repeat.status, repeat.body["success"], repeat.body["status"]) == (200, True, "duplicate")
    assert repeat.body["event_id"] == told["event_id"]
    # The id is what counts: another word under it changes nothing either.
    assert billing.deliver({**told, "status": "failed"}).body["status"] == "duplicate"
    assert billing.subscription(subscription_id) == once


@pytest.mark.req("S3-53", "S3-75")
def test_deliveries_of_one_moment_are_carried_out_once(billing: Billing) -> None:
    subscription_id = billing.create()
    told = event(name(), subscription_id)
    with ThreadPoolExecutor(8) as pool:
        replies = [each.result() for each in [pool.submit(billing.deliver, told) for _ in range(8)]]
    assert sorted(reply.body["status"] for reply in replies) == ["duplicate"] * 7 + ["processed"]
    found = billing.found("subscriptions", subscription_id=subscription_id)[0]
    assert 29 < (found["ends_at"] - found["started_at"]).days + 1 < 32


@pytest.mark.req("S3-76", "S3-77")
def test_what_cannot_be_carried_out_is_500_remembered_and_succeeds_later(billing: Billing) -> None:
    event_id, missing = name(), f"not-here-{uuid4()}"
    path = f"/v1/webhooks/status/{event_id}"
    for count in (1, 2):
        reply = billing.deliver(event(event_id, missing))
        assert (reply.status, reply.body["error"]["code"]) == (500, "INTERNAL_ERROR")
        status = billing.client().get(path).body
        assert (status["processed"], status["processed_at"], status["retry_count"]) == (False, None, count)
        assert missing in status["error_message"]
    row = f"UPDATE subscriptions SET subscription_id = '{missing}' WHERE subscription_id = '{billing.create()}'"  # noqa: S608
    asyncio.run(tables.read(billing.url, row))
    assert billing.deliver(event(event_id, missing)).body["status"] == "processed"
    status = billing.client().get(path).body
    assert set(status) == {"event_id", "processed", "processed_at", "retry_count", "error_message", "created_at"}
    assert (status["processed"], status["retry_count"], status["error_message"]) == (True, 2, None)
    assert status["processed_at"] >= status["created_at"]
    assert billing.client().get("/v1/webhooks/status/unheard-of").status == 404


@pytest.mark.req("S3-78")
def test_the_table_is_the_documents(billing: Billing) -> None:
    columns = billing.rows(
        "SELECT column_name, data_type FROM information_schema.columns WHERE table_name = 'payment_webhook_requests'"
    )
    assert {row["column_name"]: row["data_type"] for row in columns} == {
        "id": "integer",
        "event_id": "text",
        "payload": "jsonb",
        "processed": "boolean",
        "processed_at": "timestamp with time zone",
        "error_message": "text",
        "retry_count": "integer",
        "created_at": "timestamp with time zone",
        "updated_at": "timestamp with time zone",
        # Beside the document's columns.
        "tenant_id": "text",
    }
    event_id = name()
    billing.deliver(event(event_id, billing.create(), amount=1.5, metadata={"deep": [1, None]}))
    (row,) = billing.found("payment_webhook_requests", event_id=event_id)
    assert json.loads(row["payload"])["metadata"] == {"deep": [1, None]}
    again = "INSERT INTO payment_webhook_requests (event_id, payload) VALUES ('{}', '{{}}')".format(event_id)  # noqa: S608, UP032
    with pytest.raises(Exception, match="payment_webhook_requests_event_id_key"):
        asyncio.run(tables.read(billing.url, again))
    asyncio.run(tables.read(billing.url, "UPDATE payment_webhook_requests SET retry_count = retry_count + 1"))
    (touched,) = billing.found("payment_webhook_requests", event_id=event_id)
    assert touched["updated_at"] > row["updated_at"]
    assert touched["created_at"] == row["created_at"]


@pytest.mark.req("S3-79")
@pytest.mark.parametrize(
    ("before", "plan", "result", "after"),
    [
        ("pending", "basic", "success", ("active", "basic")),
        ("pending", "trial", "success", ("trial", "trial")),
        ("trial", "trial", "success", ("active", "basic")),
        ("active", "basic", "success", ("active", "basic")),
        ("past_due", "basic", "success", ("active", "basic")),
        ("active", "basic", "failed", ("revoked", "basic")),
        ("trial", "trial", "failed", ("revoked", "trial")),
        ("pending", "basic", "failed", ("pending", "basic")),
    ],
)
def test_the_effects(billing: Billing, before: str, plan: str, result: str, after: tuple[str, str]) -> None:
    subscription_id = in_state(billing, before, plan)
    assert billing.deliver(event(name(), subscription_id, result)).status == 200
    found = billing.subscription(subscription_id)
    assert (found["status"], found["plan_id"]) == after
    assert (found["ends_at"] is not None) == (result == "success")


@pytest.mark.req("S3-79")
def test_a_second_payment_extends_what_was_paid_for(billing: Billing) -> None:
    subscription_id = billing.create()
    billing.deliver(event(name(), subscription_id))
    (first,) = billing.found("subscriptions", subscription_id=subscription_id)
    billing.deliver(event(name(), subscription_id))
    (second,) = billing.found("subscriptions", subscription_id=subscription_id)
    assert (second["ends_at"] - first["ends_at"]).days == 30
    assert second["started_at"] == first["started_at"]


@pytest.mark.req("S3-74")
def test_no_queue_stands_between_a_webhook_and_its_effect(billing: Billing) -> None:
    billing.deliver(event(name(), billing.create()))
    known = {f"{queue}{part}" for queue in QUEUES for part in ("", ":processing", ":delayed", ":failed")}
    assert set(map(str, billing.redis.keys("q:*"))) <= known | {"q:log:jobs"}
