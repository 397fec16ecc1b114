"""What becomes of the marks of push workers that die or stop, from outside."""

from itertools import islice
from typing import Any

import pytest

from tests.support.push_stand import Push, message, stand_fixture
from tests.support.vendor import Reply

push: Any = stand_fixture("[push]\ntakeover_after = 3\n", start=False)


@pytest.mark.req("S0-18")
def test_the_mark_of_a_worker_that_died_is_taken_over_by_its_age(push: Push) -> None:
    first = push.start()
    push.fcm.answer(Reply(hang=True))
    sent = message()
    push.publish(sent)
    push.fcm.wait_for(1)
    first.kill()
    assert push.mark(sent) == "processing"
    push.start()
    push.until_mark(sent, "sent")
    one, two = push.posts(sent["trace_id"])
    assert 2.9 <= (two["time_us"] - one["time_us"]) / 1e6 < 60
    push.until_audited(sent, "sent")
    assert len(push.audit(sent)) == 1


@pytest.mark.req("S0-14")
def test_requeueing_does_not_spin(push: Push) -> None:
    push.start(CARILLON_DRILL__TIME_SCALE="1")
    sent = message()
    mark = f"idempotency:{sent['idempotency_key']}"
    push.redis.set(mark, "processing")
    watcher: Any = push.redis
    with watcher.monitor() as commands:
        push.publish(sent)
        # Scripts look at breakers too; the pause is between looks at this mark.
        looks = (each["time"] for each in commands.listen() if each["command"] == f"GET {mark}")
        first, *_, fourth = islice(looks, 4)
    assert fourth - first >= 3.0
    assert push.broker.ready("failed.queue") == 0


@pytest.mark.req("S0-16", "S0-13")
def test_a_worker_that_is_told_to_stop_clears_its_mark_and_gives_the_message_back(push: Push) -> None:
    program = push.start(CARILLON_WORK__DRAIN_SECONDS="0.3")
    push.fcm.answer(Reply(hang=True))
    sent = message()
    push.publish(sent)
    push.fcm.wait_for(1)
    program.terminate()
    assert program.wait() == 0
    assert push.mark(sent) is None
    push.until(lambda: push.broker.ready() == 1, what="the message back in the queue")
    push.start()
    push.until_mark(sent, "sent")
