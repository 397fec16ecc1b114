"""The push worker's waits and timeouts, with the blueprint's numbers and with others, from outside."""

from itertools import pairwise
from typing import Any

import pytest

from tests.support.push_stand import DOWN, Push, message, stand_fixture
from tests.support.vendor import Reply

HANGS = Reply(hang=True)


def gaps(push: Push, sent: dict[str, Any]) -> list[float]:
    """Seconds between the calls about one message."""
    moments = [entry["time_us"] / 1e6 for entry in push.posts(sent["trace_id"])]
    return [after - before for before, after in pairwise(moments)]


timed: Any = stand_fixture(scale=1.0, name="timed")


@pytest.mark.req("S0-40", "S0-42")
def test_waits_are_one_two_and_four_seconds_and_up_to_a_quarter_more(timed: Push) -> None:
    timed.fcm.answer(*[DOWN] * 4)
    sent = message()
    timed.publish(sent)
    timed.dead(sent, timeout=60)
    found = gaps(timed, sent)
    told = [
        line["delay_seconds"] for line in timed.programs[-1].events("route_attempted") if line["verdict"] == "retry"
    ]
    shares = [delay / wait for delay, wait in zip(told, (1, 2, 4), strict=True)]
    assert all(1.0 <= share <= 1.25 for share in shares)
    assert len({round(share, 3) for share in shares}) > 1
    # What was told is what was done; a busy machine may be late, never early.
    assert all(delay - 0.001 <= gap <= delay + 5 for gap, delay in zip(found, told, strict=True))


@pytest.mark.req("S0-46")
def test_ten_seconds_are_the_default(timed: Push) -> None:
    timed.fcm.answer(HANGS)
    sent = message()
    timed.publish(sent)
    timed.until_mark(sent, "sent", timeout=60)
    (gap,) = gaps(timed, sent)
    assert 11.0 <= gap < 25


knobs: Any = stand_fixture(
    "[push]\nretry_429 = false\nmissing_variable = 'empty'\ntemplate_cache_seconds = 60\n"
    "[policy.retry.fcm]\nmax_retries = 1\n[policy.retry.template_service]\nmax_retries = 0\n"
    "base_delay_seconds = 1\nmax_delay_seconds = 4\ntimeout_seconds = 10\non_open = 'dlq'\n",
    name="knobs",
)


@pytest.mark.req("S0-28", "S0-31", "S0-41", "S0-44", "S0-24")
def test_each_does_what_it_says(knobs: Push) -> None:
    knobs.fcm.answer(Reply(429, {"Retry-After": "1"}))
    sent = message(variables={"name": "Ada"})
    knobs.publish(sent)
    assert knobs.dead(sent)["failure_reason"] == "FCM rejected: HTTP 429"
    assert knobs.pushed(sent) == 1
    assert "click  to begin" in knobs.posts(sent["trace_id"])[0]["body"]
    knobs.fcm.answer(*[DOWN] * 2)
    sent = message()
    knobs.publish(sent)
    assert knobs.dead(sent)["failure_reason"] == "FCM HTTP 500 after 1 retries"
    assert len(knobs.template_service.gets) == 1
    knobs.template_service.answer(Reply(503))
    sent = message(template_code="another")
    knobs.publish(sent)
    assert knobs.dead(sent)["failure_reason"] == "Template Service HTTP 503 after 0 retries"
