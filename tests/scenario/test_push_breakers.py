"""The push worker's breakers in Redis, from outside."""

import threading
import time
from typing import Any

import pytest

from tests.support.push_stand import DOWN, FAST, Push, message, shared_fixtures
from tests.support.vendor import Reply

OPEN_SECONDS = 60
"""No breaker's time is over while a test here still looks, however busy the machine is."""
LASTING = f"open_seconds = {OPEN_SECONDS / FAST}\n"
shared_push, push = shared_fixtures(
    f"[policy.breaker.fcm]\n{LASTING}[policy.breaker.template_service]\n{LASTING}",
)


def dead_lettered(push: Push, sent: dict[str, Any], reason: str) -> None:
    push.publish(sent)
    assert push.dead(sent)["failure_reason"] == reason


def failing(push: Push, calls: int) -> dict[str, Any]:
    """A message whose first calls fail."""
    push.fcm.answer(*[DOWN] * calls)
    sent = message()
    push.publish(sent)
    return sent


def delivered(push: Push) -> None:
    sent = message()
    push.publish(sent)
    push.until_mark(sent, "sent")


@pytest.mark.req("S0-59", "S0-60", "S0-63")
def test_five_failures_in_a_row_open_the_breaker_and_a_success_starts_over(push: Push) -> None:
    push.dead(failing(push, 4))
    assert (push.breaker(), push.breaker("failures")) in ((None, "4"), ("closed", "4"))
    delivered(push)
    push.until(lambda: push.breaker("failures") == "0", what="a fresh count")
    push.dead(failing(push, 4))
    assert push.breaker() in (None, "closed")
    push.dead(failing(push, 4))
    assert (push.breaker(), push.breaker("failures")) == ("open", "5")
    assert set(push.redis.keys("circuit:*:fcm:state")) == {"circuit:push_worker:fcm:state"}


@pytest.mark.req("S0-65", "S0-45")
def test_opening_ends_the_retries_at_once(push: Push) -> None:
    push.fcm.answer(*[DOWN] * 20)
    first, second, third = message(), message(), message()
    dead_lettered(push, first, "FCM HTTP 500 after 3 retries")
    began = time.monotonic()
    dead_lettered(push, second, "FCM HTTP 500 after 0 retries; circuit breaker open: fcm")
    dead_lettered(push, third, "circuit breaker open: fcm")
    assert [push.pushed(sent) for sent in (first, second, third)] == [4, 1, 0]
    assert time.monotonic() - began < OPEN_SECONDS


@pytest.mark.req("S0-67", "S0-68", "S0-69")
def test_half_open_lets_one_call_through_and_the_others_wait_for_it(push: Push) -> None:
    push.set_breaker("half_open")
    gate = threading.Event()
    push.fcm.answer(*[Reply(gate=gate)] * 20)
    before, messages = len(push.posts()), [message() for _ in range(10)]
    push.publish(*messages)
    push.fcm.wait_for(before + 1)
    ran = push.scripts_run()
    push.until(lambda: push.scripts_run() > ran + 60, what="the others to have asked again and again")
    assert len(push.posts()) == before + 1
    gate.set()
    for sent in messages:
        push.until_mark(sent, "sent")
    assert push.broker.ready("failed.queue") == 0
    assert (push.breaker(), push.breaker("failures")) == ("closed", "0")


@pytest.mark.req("S0-69")
def test_two_successes_close_it(push: Push) -> None:
    push.set_breaker("half_open")
    delivered(push)
    assert push.breaker() == "half_open"
    delivered(push)
    push.until(lambda: push.breaker() == "closed", what="a closed breaker")
    assert push.breaker("failures") == "0"


@pytest.mark.req("S0-64")
def test_refusals_count_for_nothing_and_patience_counts(push: Push) -> None:
    push.fcm.answer(*[Reply(404)] * 5)
    for _ in range(5):
        sent = message()
        dead_lettered(push, sent, "FCM rejected: HTTP 404")
    assert push.breaker() in (None, "closed")
    push.fcm.answer(*[Reply(429)] * 4)
    push.dead(publish(push))
    assert push.breaker("failures") == "4"


def publish(push: Push) -> dict[str, Any]:
    sent = message()
    push.publish(sent)
    return sent


@pytest.mark.req("S0-26", "S0-59")
def test_the_template_service_has_a_breaker_of_its_own(push: Push) -> None:
    push.template_service.answer(*[Reply(500)] * 20)
    before = len(push.template_service.gets)
    dead_lettered(push, message(), "Template Service HTTP 500 after 3 retries")
    opened = "Template Service HTTP 500 after 0 retries; circuit breaker open: template_service"
    dead_lettered(push, message(), opened)
    assert len(push.template_service.gets) == before + 5
    assert (push.breaker(name="template_service"), push.breaker("failures", "template_service")) == ("open", "5")
    sent = message()
    dead_lettered(push, sent, "circuit breaker open: template_service")
    assert (len(push.template_service.gets), push.pushed(sent)) == (before + 5, 0)
    assert push.breaker() in (None, "closed")


@pytest.mark.req("S0-61", "S0-72")
def test_two_workers_count_as_one_and_see_the_same(push: Push) -> None:
    second = push.start()
    push.fcm.answer(*[DOWN] * 100)
    messages = [message() for _ in range(40)]
    push.publish(*messages)
    assert len(push.failed(40)) == 40
    assert (push.breaker(), push.breaker("failures")) == ("open", "5")
    push.set_breaker("open")
    before = len(push.posts())
    push.publish(*[message() for _ in range(30)])
    assert len(push.failed(30)) == 30
    assert len(push.posts()) == before
    second.terminate()
    assert second.wait() == 0
    push.programs.remove(second)
