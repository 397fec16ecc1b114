"""The push worker's idempotency marks, from outside."""

from typing import Any

import pytest

from tests.support.push_stand import Push, message, shared_fixtures
from tests.support.vendor import Reply

shared_push, push = shared_fixtures("[push]\ntakeover_after = 3600\n")


def preset(push: Push, sent: dict[str, Any], value: str, seconds: int | None = 86_400) -> None:
    push.redis.set(f"idempotency:{sent['idempotency_key']}", value, ex=seconds)


def another(push: Push) -> None:
    """A message behind the others goes through: whatever came before it has been looked at."""
    sent = message()
    push.publish(sent)
    push.until_mark(sent, "sent")


@pytest.mark.req("S0-11", "S0-15", "S0-19")
def test_a_delivered_message_leaves_one_mark_for_a_day(push: Push) -> None:
    sent = message(idempotency_key="notif_with strange:chars/ü")
    push.publish(sent)
    push.until_mark(sent, "sent")
    assert push.redis.keys("idempotency:*ü") == ["idempotency:notif_with strange:chars/ü"]
    assert 86_390 <= push.redis.ttl("idempotency:notif_with strange:chars/ü") <= 86_400


@pytest.mark.req("S0-12")
def test_what_was_sent_is_acknowledged_and_skipped(push: Push) -> None:
    sent = message()
    push.publish(sent)
    push.until_audited(sent, "sent")
    push.publish(sent, {**sent, "trace_id": "another-trace"}, sent)
    push.programs[-1].wait_for(
        "message_finished", lambda line: line["status"] == "skipped" and line["trace_id"] == "another-trace"
    )
    push.until_empty()
    assert (push.pushed(sent), len(push.posts("another-trace"))) == (1, 0)
    assert len(push.audit(sent)) == 1
    assert not push.rows("SELECT 1 AS n FROM audit_logs WHERE trace_id = 'another-trace'")


@pytest.mark.req("S0-12", "S0-48")
def test_a_sent_mark_without_an_audit_row_gets_one_row_however_many_copies_come(push: Push) -> None:
    sent = message()
    preset(push, sent, "sent")
    asked = len(push.template_service.gets)
    push.publish(*[sent] * 12)
    push.until_audited(sent, "sent")
    push.until_empty()
    assert (push.pushed(sent), len(push.audit(sent)), len(push.template_service.gets)) == (0, 1, asked)


@pytest.mark.req("S0-13")
def test_what_another_worker_has_in_hand_stays_in_the_queue(push: Push) -> None:
    sent = message()
    preset(push, sent, "processing")
    push.publish(sent)
    another(push)
    another(push)
    assert (push.mark(sent), push.pushed(sent)) == ("processing", 0)
    assert push.broker.ready("failed.queue") == 0
    push.redis.delete(f"idempotency:{sent['idempotency_key']}")
    push.until_mark(sent, "sent")
    push.until_empty()
    assert push.pushed(sent) == 1


@pytest.mark.req("S0-16")
def test_a_failed_mark_is_a_fresh_start(push: Push) -> None:
    sent = message()
    preset(push, sent, "failed")
    push.publish(sent)
    push.until_mark(sent, "sent")
    assert push.pushed(sent) == 1


@pytest.mark.req("S0-20")
def test_a_message_that_was_given_up_is_marked_for_a_day(push: Push) -> None:
    push.fcm.answer(Reply(400, body="Error=InvalidParameters"))
    sent = message()
    push.publish(sent)
    push.dead(sent)
    assert push.mark(sent) == "failed"
    assert 86_390 <= push.redis.ttl(f"idempotency:{sent['idempotency_key']}") <= 86_400


@pytest.mark.req("S0-17")
def test_the_mark_stands_before_anybody_is_called(push: Push) -> None:
    seen: list[Any] = []
    sent = message()
    key = f"idempotency:{sent['idempotency_key']}"

    def look(entry: dict[str, Any]) -> Reply:
        seen.append((push.redis.get(key), push.redis.ttl(key)))
        return push.template_service._serve(entry)  # noqa: SLF001 - its usual answer

    push.template_service.answer(look)
    push.publish(sent)
    push.until_mark(sent, "sent")
    ((value, ttl),) = seen
    assert value == "processing"
    assert 86_390 <= ttl <= 86_400


@pytest.mark.req("S0-17")
def test_copies_to_two_workers_at_once_are_pushed_once(push: Push) -> None:
    second = push.start()
    messages = [message() for _ in range(300)]
    push.publish(*[copy for sent in messages for copy in [sent] * 3])
    push.until(lambda: all(push.mark(sent) == "sent" for sent in messages), what="all sent", timeout=60)
    push.until_empty(timeout=60)
    bodies = "\n".join(post["body"] for post in push.posts())
    assert [bodies.count(sent["trace_id"]) for sent in messages] == [1] * 300
    second.terminate()
    assert second.wait() == 0
    push.programs.remove(second)


@pytest.mark.req("S0-18")
def test_a_mark_without_an_end_counts_as_live_and_a_young_one_too(push: Push) -> None:
    endless, young = message(), message()
    preset(push, endless, "processing", seconds=None)
    preset(push, young, "processing", seconds=86_400 - 3500)
    push.publish(endless, young)
    another(push)
    another(push)
    assert (push.pushed(endless), push.pushed(young)) == (0, 0)
    old = message()
    preset(push, old, "processing", seconds=86_400 - 3600)
    push.publish(old)
    push.until_mark(old, "sent")
    for sent in (endless, young):
        push.redis.delete(f"idempotency:{sent['idempotency_key']}")
        push.until_mark(sent, "sent")
