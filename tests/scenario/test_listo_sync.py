"""The listo blueprint's synchronous delivery from outside: two seconds, one call, nothing queued."""

import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support import twilio_stub
from tests.support.client import Reply
from tests.support.listo_stand import DEVICE, DOWN, HANGS, Listo, stand_fixture
from tests.support.vendor import Reply as VendorReply

listo = stand_fixture()

TIMED_OUT = "Synchronous delivery timed out after 2s. Notification NOT queued."
OPEN = "SELECT * FROM routes WHERE next_attempt_at IS NOT NULL"


def refused(reply: Reply, status: int, code: str) -> str:
    """The notification's id, after the answer was checked."""
    assert (reply.status, reply.body["error"]["code"]) == (status, code), reply
    return str(reply.body["error"]["notificationId"])


def until_within(ask: Callable[[], Reply], least: float, most: float) -> list[Reply]:
    """Answers up to the first that came in time: none comes too early, and a busy machine is not late for ever."""
    replies: list[Reply] = []
    for _ in range(4):
        began = time.monotonic()
        replies.append(ask())
        took = time.monotonic() - began
        assert took > least
        if took < most:
            return replies
    raise AssertionError(f"never within {most} s")


@pytest.mark.req("S2-07", "S2-133")
def test_scenario_one(listo: Listo) -> None:
    (reply,) = until_within(lambda: listo.send("driver_assigned", "push", priority="high", synchronous=True), 0.0, 2.0)[
        -1:
    ]
    assert reply.status == 200, reply
    assert reply.body.keys() == {"notificationId", "status", "deliveredAt", "providerMessageId"}
    assert reply.body["status"] == "delivered"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", reply.body["deliveredAt"])
    story = listo.story(reply.body["notificationId"])
    assert story["status"] == "delivered"
    assert story["providerMessageIds"] == [reply.body["providerMessageId"]]


@pytest.mark.alone
@pytest.mark.req("S2-08", "S2-24", "S2-25", "S2-26", "S2-134")
def test_scenario_two(listo: Listo) -> None:
    listo.send("driver_assigned", None, recipient=DEVICE)

    def hang() -> Reply:
        listo.fcm.answer(HANGS, path="/v1/")
        return listo.send("driver_assigned", None, recipient=DEVICE, synchronous=True)

    before = len(listo.calls("FCM"))
    replies = until_within(hang, 1.9, 2.2)
    reply = replies[-1]
    notification_id = refused(reply, 504, "DELIVERY_TIMEOUT")
    assert reply.body["error"]["message"] == TIMED_OUT
    story = listo.until(notification_id, "failed")
    assert story["lastError"] == f"DELIVERY_TIMEOUT: {TIMED_OUT}"
    assert story["attemptCount"] == 1
    assert len(listo.calls("FCM")) == before + len(replies)
    assert not listo.rows(OPEN)


@pytest.mark.req("S2-25")
def test_a_timeout_asks_no_secondary(listo: Listo) -> None:
    listo.twilio.answer(HANGS)
    notification_id = refused(listo.send("order_confirmed", "sms", synchronous=True), 504, "DELIVERY_TIMEOUT")
    listo.until(notification_id, "failed")
    assert (len(listo.calls("Twilio")), len(listo.calls("AWS_SNS"))) == (1, 0)
    assert not listo.rows(OPEN)


@pytest.mark.alone
@pytest.mark.req("S2-24")
def test_a_vendor_that_drips_is_cut_off_as_well(listo: Listo) -> None:
    def drip() -> Reply:
        listo.twilio.answer(VendorReply(201, body={"sid": "SM" + "0" * 32, "status": "queued"}, drip=0.2))
        return listo.send("order_confirmed", "sms", synchronous=True)

    for reply in until_within(drip, 0.0, 2.3):
        refused(reply, 504, "DELIVERY_TIMEOUT")


@pytest.mark.req("S2-09")
@pytest.mark.parametrize(
    "answer",
    [DOWN, VendorReply(429, {"Retry-After": "1"}, {"code": 20429, "message": "slow down"}), twilio_stub.error(21211)],
    ids=["down", "throttled", "refused"],
)
def test_a_failure_is_told_and_not_queued(listo: Listo, answer: VendorReply) -> None:
    listo.twilio.answer(answer)
    reply = listo.send("order_confirmed", "sms", synchronous=True)
    notification_id = refused(reply, 502, "DELIVERY_FAILED")
    story = listo.until(notification_id, "failed")
    assert story["lastError"] == f"DELIVERY_FAILED: {reply.body['error']['message']}"
    assert (len(listo.calls("Twilio")), len(listo.calls("AWS_SNS"))) == (1, 0)
    assert not listo.rows(OPEN)


@pytest.mark.req("S2-27")
def test_an_open_primary_is_passed_over_at_once(listo: Listo) -> None:
    listo.twilio.answer(*[DOWN] * 5)
    for _ in range(5):
        refused(listo.send("order_confirmed", "sms", synchronous=True), 502, "DELIVERY_FAILED")
    reply = listo.send("order_confirmed", "sms", synchronous=True)
    # After its two seconds the answer would be 504.
    assert reply.status == 200
    story = listo.story(reply.body["notificationId"])
    assert story["providerNames"] == ["Twilio", "AWS_SNS"]
    assert story["providerMessageIds"] == [None, reply.body["providerMessageId"]]
    assert (len(listo.calls("Twilio")), len(listo.calls("AWS_SNS"))) == (5, 1)


@pytest.mark.req("S2-28")
def test_the_inbox_is_never_synchronous(listo: Listo) -> None:
    reply = listo.send("order_confirmed", "inApp", userId="user-1", synchronous=True)
    assert (reply.status, reply.body["error"]["code"]) == (400, "SYNCHRONOUS_UNAVAILABLE")
    assert not listo.rows("SELECT * FROM records")


@pytest.mark.req("P-1340")
@pytest.mark.parametrize("end", [{"scheduledFor": "2096-01-01T09:00:00Z"}, {"timeZone": "recipient"}])
@pytest.mark.parametrize("path", ["send", "explain"])
def test_what_is_scheduled_is_never_synchronous(listo: Listo, path: str, end: dict[str, str]) -> None:
    body = {"templateKey": "order_confirmed", "channel": "push", "recipient": DEVICE, "synchronous": True}
    body |= {"scheduledFor": "2096-01-01T09:00:00", **end}
    reply = listo.client.call("POST", f"/api/v1/notifications/{path}", body)
    error = reply.body["error"]
    assert (reply.status, error["code"]) == (400, "VALIDATION_ERROR"), reply
    assert error["message"] == "a scheduled notification cannot be synchronous"
    assert not listo.rows("SELECT * FROM records"), "nobody is told that it failed while it waits to be sent"


@pytest.mark.req("S2-13", "S2-07")
def test_a_repeat_gets_the_same_answer_without_a_second_call(listo: Listo) -> None:
    headers = {"Idempotency-Key": "assign-1"}
    first = listo.send("driver_assigned", "push", synchronous=True, headers=headers)
    again = listo.send("driver_assigned", "push", synchronous=True, headers=headers)
    assert (again.status, again.body) == (200, first.body)
    assert again.headers["idempotent-replayed"] == "true"
    other = listo.send("driver_assigned", "push", synchronous=True, locale="es-MX", headers=headers)
    assert other.body["error"]["code"] == "IDEMPOTENCY_CONFLICT"
    listo.fcm.answer(DOWN, path="/v1/")
    failing = {"Idempotency-Key": "assign-2"}
    failed = listo.send("driver_assigned", "push", synchronous=True, headers=failing)
    repeated = listo.send("driver_assigned", "push", synchronous=True, headers=failing)
    for name in ("code", "message", "notificationId"):
        assert repeated.body["error"][name] == failed.body["error"][name]
    assert len(listo.calls("FCM")) == 2


@pytest.mark.req("S2-13")
def test_repeats_at_the_same_time_share_one_call(listo: Listo) -> None:
    gate = threading.Event()
    listo.twilio.answer(VendorReply(201, body={"sid": "SM" + "1" * 32, "status": "queued"}, gate=gate))
    headers = {"Idempotency-Key": "together"}
    with ThreadPoolExecutor(5) as callers:
        asked = [
            callers.submit(listo.send, "order_confirmed", "sms", synchronous=True, headers=headers) for _ in range(5)
        ]
        listo.twilio.wait_for(1)
        gate.set()
        replies = [each.result(timeout=40) for each in asked]
    assert {reply.status for reply in replies} == {200}
    assert len({str(reply.body) for reply in replies}) == 1
    assert len(listo.calls("Twilio")) == 1


def test_an_address_that_turned_out_dead_is_not_tried_again(listo: Listo) -> None:
    dead = "+15005550004"
    refused(listo.send("order_confirmed", "sms", recipient=dead, synchronous=True), 502, "DELIVERY_FAILED")
    reply = listo.send("order_confirmed", "sms", recipient=dead, synchronous=True)
    refused(reply, 502, "DELIVERY_FAILED")
    assert reply.body["error"]["message"] == "the address is suppressed"
    assert len(listo.calls("Twilio")) == 1


@pytest.mark.req("S2-29")
def test_callers_beyond_the_slots_are_asked_to_come_back(listo: Listo) -> None:
    listo.start(CARILLON_SYNCHRONOUS__SLOTS="1")
    listo.twilio.answer(HANGS)
    with ThreadPoolExecutor(1) as callers:
        waiting = callers.submit(listo.send, "order_confirmed", "sms", synchronous=True)
        listo.twilio.wait_for(1)
        reply = listo.send("order_confirmed", "sms", synchronous=True)
        assert (reply.status, reply.body["error"]["code"]) == (503, "UNAVAILABLE")
        assert int(reply.headers["retry-after"]) >= 1
        assert waiting.result(timeout=40).status == 504


@pytest.mark.req("S2-25", "S2-26")
def test_a_process_that_dies_meanwhile_leaves_a_failure_and_no_message(listo: Listo) -> None:
    other = listo.start()
    listo.twilio.answer(HANGS)
    listo.twilio.strike_after(other.pid, 1)
    with pytest.raises(OSError, match=r".*"):
        listo.send("order_confirmed", "sms", synchronous=True)
    listo.programs.remove(other)
    other.close()
    (row,) = listo.rows("SELECT notification_id FROM records")
    story = listo.until(row["notification_id"], "failed", timeout=40)
    assert story["lastError"] == f"DELIVERY_TIMEOUT: {TIMED_OUT}"
    assert (len(listo.calls("Twilio")), len(listo.calls("AWS_SNS"))) == (1, 0)
    assert not listo.rows(OPEN)


@pytest.mark.req("S2-123")
def test_a_caller_who_was_told_is_alert_enough(listo: Listo) -> None:
    listo.twilio.answer(DOWN)
    refused(listo.send("order_confirmed", "sms", synchronous=True), 502, "DELIVERY_FAILED")
    assert not listo.rows("SELECT * FROM outbox")
    assert not listo.programs[-1].events("NotificationFailed")
