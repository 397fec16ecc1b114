"""Expiry and collapse from outside: in an embedded Carillon under moved time, and in a queue of pushes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from carillon.client import Rejected
from carillon.testing import Outbox
from tests.support.push_stand import Push, message, shared_fixtures

shared_push, push = shared_fixtures()

WELCOME = {"channel": "email", "recipient": "ada@example.org", "data": {"name": "Ada", "link": "https://example.org/"}}


@pytest.fixture
def outbox(tmp_path: Path) -> Iterator[Outbox]:
    with Outbox(tmp_path) as outbox:
        yield outbox


def gates(outbox: Outbox, notification_id: str) -> list[str | None]:
    return [route.gate for route in outbox.wait(notification_id).routes]


@pytest.mark.req("P-301")
def test_a_retry_never_comes_after_the_expiry(outbox: Outbox) -> None:
    outbox.fail("email")
    accepted = outbox.send("welcome", ttl="1h", **WELCOME)
    outbox.assert_nothing_sent()
    tried = len(outbox.messages)
    assert tried > 0
    outbox.recover("email")
    outbox.clock.advance("2h")
    assert gates(outbox, accepted.notification_id) == ["expired"]
    assert len(outbox.messages) == tried
    assert outbox.wait(accepted.notification_id).status == "skipped"


@pytest.mark.req("P-301")
def test_without_an_expiry_the_retry_comes(outbox: Outbox) -> None:
    """The control of the test above."""
    outbox.fail("email", times=1)
    outbox.send("welcome", **WELCOME)
    outbox.assert_nothing_sent()
    outbox.clock.advance("2h")
    outbox.assert_sent("welcome")


@pytest.mark.req("P-302")
def test_only_the_newest_of_one_key_is_sent(outbox: Outbox) -> None:
    later = "2090-01-01T00:00:00Z"
    first = outbox.send("welcome", collapse_key="score", scheduled_for=later, **WELCOME)
    other = {**WELCOME, "recipient": "bob@example.org"}
    second = outbox.send("welcome", collapse_key="score", scheduled_for=later, **other)
    third = outbox.send("welcome", collapse_key="score", **WELCOME)
    (sent,) = outbox.assert_sent("welcome")
    assert sent.notification_id == third.notification_id
    replaced = outbox.wait(first.notification_id)
    assert [(route.gate, route.last_error) for route in replaced.routes] == [
        ("collapsed", f"replaced by notification {third.notification_id}")
    ]
    waiting = outbox.get(second.notification_id)
    assert waiting is not None
    assert waiting.status == "queued"


@pytest.mark.req("P-301")
@pytest.mark.parametrize("wrong", [{"ttl": "soon"}, {"ttl": -1}, {"expires_at": "2090-01-01T00:00:00"}])
def test_a_wrong_word_is_refused_at_the_door(outbox: Outbox, wrong: dict[str, object]) -> None:
    with pytest.raises(Rejected) as refused:
        outbox.send("welcome", **wrong, **WELCOME)
    assert refused.value.code == "VALIDATION_ERROR"


@pytest.mark.req("P-301")
def test_a_push_in_the_queue_expires(push: Push) -> None:
    late, fresh = message(expires_at="2020-01-01T00:00:00Z"), message(ttl="1h")
    push.publish(late)
    push.publish(fresh)
    push.until_mark(fresh, "sent")
    row = push.until_audited(late, "skipped")
    assert row["metadata"]["skipped_because"] == "expired"
    assert not push.posts(late["trace_id"])
    push.until_empty()
