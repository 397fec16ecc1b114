"""The push worker's retries and the words it gives up with, from outside."""

from itertools import pairwise
from typing import Any

import pytest

from tests.support.push_stand import DOWN, Push, message, shared_fixtures
from tests.support.vendor import Reply

CALL_SECONDS = 3.0
"""Long enough for a stub on a busy machine, and far from the ten of the document."""
shared_push, push = shared_fixtures(
    f"[policy.retry.fcm]\ntimeout_seconds = {CALL_SECONDS}\n[push]\ntemplate_timeout_seconds = {CALL_SECONDS}\n"
)

HANGS = Reply(hang=True)
RESET = Reply(reset=True)


def gaps(push: Push, sent: dict[str, Any]) -> list[float]:
    """Seconds between the calls about one message."""
    moments = [entry["time_us"] / 1e6 for entry in push.posts(sent["trace_id"])]
    return [after - before for before, after in pairwise(moments)]


@pytest.mark.req("S0-39")
@pytest.mark.parametrize("trouble", [DOWN, Reply(503), HANGS, RESET], ids=["500", "503", "hangs", "reset"])
def test_trouble_of_fcm_is_tried_again(push: Push, trouble: Reply) -> None:
    push.fcm.answer(trouble, trouble)
    sent = message()
    push.publish(sent)
    push.until_mark(sent, "sent")
    assert push.pushed(sent) == 3
    assert push.finished(sent)["attempts"] == 3


@pytest.mark.req("S0-41", "S0-55")
@pytest.mark.parametrize(
    ("trouble", "cause"),
    [(DOWN, "HTTP 500"), (HANGS, "connection timeout"), (RESET, "connection failure")],
    ids=["500", "hangs", "reset"],
)
def test_four_calls_and_then_the_failed_queue(push: Push, trouble: Reply, cause: str) -> None:
    push.fcm.answer(*[trouble] * 10)
    sent = message()
    push.publish(sent)
    assert push.dead(sent)["failure_reason"] == f"FCM {cause} after 3 retries"
    assert push.pushed(sent) == 4
    assert push.finished(sent)["attempts"] == 4


@pytest.mark.req("S0-43", "S0-55", "S0-64")
@pytest.mark.parametrize("status", [400, 401, 403, 404])
def test_a_refusal_is_final(push: Push, status: int) -> None:
    push.fcm.answer(*[Reply(status, body=b"")] * 5)
    messages = [message() for _ in range(5)]
    push.publish(*messages)
    reasons = {body["failure_reason"] for body in push.failed(5)}
    assert reasons == {f"FCM rejected: HTTP {status}"}
    assert [push.pushed(sent) for sent in messages] == [1] * 5
    assert push.breaker() in (None, "closed")


@pytest.mark.req("S0-44")
@pytest.mark.parametrize("status", [429, 408])
def test_who_asks_for_patience_gets_it_in_the_same_budget(push: Push, status: int) -> None:
    push.fcm.answer(Reply(status, {"Retry-After": "1"}))
    sent = message()
    push.publish(sent)
    push.until_mark(sent, "sent")
    (gap,) = gaps(push, sent)
    assert 1.0 <= gap < 20
    push.fcm.answer(*[Reply(status)] * 10)
    sent = message()
    push.publish(sent)
    assert push.dead(sent)["failure_reason"] == f"FCM HTTP {status} after 3 retries"
    assert push.pushed(sent) == 4


@pytest.mark.req("S0-46")
def test_a_call_ends_after_the_configured_time(push: Push) -> None:
    push.fcm.answer(HANGS)
    sent = message()
    push.publish(sent)
    push.until_mark(sent, "sent")
    (gap,) = gaps(push, sent)
    assert CALL_SECONDS <= gap < 10


@pytest.mark.req("S0-24")
@pytest.mark.parametrize(
    "trouble",
    # A refused token is an outage of the template service: nothing is wrong with the message.
    [Reply(503), Reply(401), Reply(403), HANGS, RESET],
    ids=["503", "401", "403", "hangs", "reset"],
)
def test_trouble_of_the_template_service_is_tried_again(push: Push, trouble: Reply) -> None:
    before = len(push.template_service.gets)
    push.template_service.answer(trouble, trouble)
    sent = message()
    push.publish(sent)
    push.until_mark(sent, "sent")
    assert len(push.template_service.gets) == before + 3
    assert (push.pushed(sent), push.finished(sent)["attempts"]) == (1, 1)


@pytest.mark.req("S0-24")
def test_retries_of_the_template_service_are_counted_apart(push: Push) -> None:
    before = len(push.template_service.gets)
    push.template_service.answer(*[Reply(503)] * 3)
    push.fcm.answer(*[DOWN] * 3)
    sent = message()
    push.publish(sent)
    push.until_mark(sent, "sent")
    # One template for all attempts of a message.
    assert (len(push.template_service.gets), push.pushed(sent)) == (before + 4, 4)


@pytest.mark.req("S0-24")
@pytest.mark.parametrize(
    ("status", "cause"), [(503, "HTTP 503"), (403, "HTTP 403 (it refuses our token)")], ids=["503", "403"]
)
def test_a_template_service_that_stays_down_ends_in_the_failed_queue(push: Push, status: int, cause: str) -> None:
    before = len(push.template_service.gets)
    push.template_service.answer(*[Reply(status)] * 10)
    sent = message()
    push.publish(sent)
    assert push.dead(sent)["failure_reason"] == f"Template Service {cause} after 3 retries"
    assert (len(push.template_service.gets), push.pushed(sent)) == (before + 4, 0)
