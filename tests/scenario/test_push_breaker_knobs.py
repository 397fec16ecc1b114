"""The push worker's breakers with other settings than the blueprint's, from outside."""

import threading
import time
from typing import Any

import pytest

from tests.support.push_stand import DOWN, Push, message, stand_fixture
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


SLOWER = 0.2
BRIEF_SECONDS = 30 * SLOWER
"""The document's thirty on this stand's clock: short enough to wait for, long enough for what happens meanwhile."""
brief: Any = stand_fixture(scale=SLOWER, name="brief")


@pytest.mark.req("S0-62", "S0-71", "S0-45", "S0-55", "S0-66")
def test_a_state_set_by_hand_is_honoured_and_its_time_runs_from_first_sight(brief: Push) -> None:
    brief.set_breaker("open")
    sent = message(metadata={"campaign_id": "summer"})
    began = time.time()
    brief.publish(sent)
    assert brief.dead(sent)["failure_reason"] == "circuit breaker open: fcm"
    assert (brief.pushed(sent), brief.mark(sent)) == (0, "failed")
    row = brief.until_audited(sent, "failed")
    assert row["metadata"] == {"campaign_id": "summer", "failure_reason": "circuit breaker open: fcm"}
    assert began - 1 <= float(brief.breaker("opened_at") or 0) <= time.time()
    brief.until_empty()
    brief.until(
        lambda: time.time() >= float(brief.breaker("opened_at") or 0) + BRIEF_SECONDS, what="the breaker's time over"
    )
    assert brief.breaker() == "open"
    delivered(brief)
    assert brief.breaker() == "half_open"


@pytest.mark.req("S0-70", "S0-66")
def test_a_failed_probe_opens_it_again(brief: Push) -> None:
    brief.set_breaker("half_open")
    began = time.time()
    brief.fcm.answer(DOWN)
    sent = message()
    brief.publish(sent)
    assert brief.dead(sent)["failure_reason"] == "FCM HTTP 500 after 0 retries; circuit breaker open: fcm"
    assert (brief.pushed(sent), brief.breaker()) == (1, "open")
    opened = float(brief.breaker("opened_at") or 0)
    assert opened >= began - 0.1
    brief.until(lambda: time.time() > opened + BRIEF_SECONDS, what="the breaker's time over")
    delivered(brief)
    assert brief.breaker() == "half_open"
