"""The push worker's breakers with other settings than the document's, from outside."""

import threading
import time
from typing import Any

import pytest

from tests.support.push_stand import Push, message, stand_fixture
from tests.support.vendor import Reply


def delivered(push: Push) -> None:
    sent = message()
    push.publish(sent)
    push.until_mark(sent, "sent")


deferring: Any = stand_fixture(
    "[policy.retry.fcm]\non_open = 'defer'\n[policy.retry.'*/*']\non_open='defer'\n", name="deferring"
)


@pytest.mark.req("S0-71")
def test_deferred_messages_wait_in_the_queue_for_the_breaker(deferring: Push) -> None:
    delivered(deferring)
    deferring.set_breaker("open")
    sent = message()
    deferring.publish(sent)
    deferring.until(lambda: deferring.breaker("opened_at") is not None, what="the breaker seen")
    deferring.until_mark(sent, "sent")
    assert deferring.pushed(sent) == 1
    assert deferring.broker.ready("failed.queue") == 0


hurried: Any = stand_fixture("[push]\nhalf_open_overflow = 'dlq'\n", name="hurried")


@pytest.mark.req("S0-68")
def test_the_others_go_to_the_failed_queue(hurried: Push) -> None:
    hurried.set_breaker("half_open")
    gate = threading.Event()
    hurried.fcm.answer(Reply(gate=gate))
    messages = [message() for _ in range(4)]
    hurried.publish(*messages)
    reasons = [body["failure_reason"] for body in hurried.failed(3)]
    assert reasons == ["circuit breaker open: fcm"] * 3
    gate.set()
    hurried.until(lambda: [hurried.mark(sent) for sent in messages].count("sent") == 1, what="the probe sent")


bounded: Any = stand_fixture("[push]\nhalf_open_wait_seconds = 1\n", name="bounded")


@pytest.mark.req("S0-68")
def test_a_wait_has_an_end(bounded: Push) -> None:
    bounded.set_breaker("half_open")
    gate = threading.Event()
    bounded.fcm.answer(Reply(gate=gate))
    began = time.monotonic()
    bounded.publish(message(), message())
    (body,) = bounded.failed()
    assert body["failure_reason"] == "circuit breaker open: fcm"
    assert time.monotonic() - began >= 1.0
    gate.set()
