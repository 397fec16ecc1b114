"""A push worker that dies at each of its own points: nothing is lost, and only what was under way is pushed again."""

from typing import Any

import pytest

from tests.support.push_faults import whereabouts
from tests.support.push_stand import Push, message, stand_fixture
from tests.support.vendor import Reply

push: Any = stand_fixture("[push]\ntakeover_after = 1\n", start=False)
SENDING = ("after_mark", "after_settled_mark", "after_audit")
AT_ONCE = 10


HITS = (1, 2, 10)
ENOUGH = 60
"""So many messages that the tenth pass comes although others went through before."""


def die(push: Push, point: str, sent: list[dict[str, Any]]) -> None:
    """Processes die at the point's first, second and tenth pass, and another one finishes."""
    push.broker.declare("push.queue")
    push.publish(*sent)
    for hit in HITS:
        program = push.launch(CARILLON_FAULTPOINTS=f"{point}=exit9@{hit}")
        assert program.wait(40) == -9, f"{point}@{hit} was not hit"
    push.start()


@pytest.mark.req("S0-18", "S0-48", "G-04", "G-05")
@pytest.mark.parametrize("point", SENDING)
def test_death_on_the_way_to_a_push(push: Push, point: str) -> None:
    sent = [message() for _ in range(ENOUGH)]
    die(push, point, sent)
    push.until(lambda: all(push.mark(each) == "sent" for each in sent), what="every mark sent", timeout=30)
    push.until(lambda: len(push.rows()) >= len(sent), what="every audit row", timeout=30)
    push.until_empty()
    found = whereabouts(push, sent)
    assert found.lost(sent) == []
    assert max(found.pushed.values()) <= 1 + len(HITS), "once for each life"
    assert len(found.twice()) <= len(HITS) * AT_ONCE, "only what was under way at a death"
    assert (found.failed, found.waiting) == ({}, {})
    assert sorted(row["trace_id"] for row in push.rows()) == sorted(each["trace_id"] for each in sent)


@pytest.mark.req("S0-52", "S0-53", "G-04")
def test_death_between_the_failed_queues_confirm_and_the_acknowledgement(push: Push) -> None:
    push.fcm.default = Reply(400, body={"error": "InvalidRegistration"})
    sent = [message() for _ in range(ENOUGH)]
    die(push, "after_park", sent)
    push.until(lambda: push.broker.ready("failed.queue") >= len(sent), what="every dead letter", timeout=30)
    push.until_empty()
    found = whereabouts(push, sent)
    assert set(found.failed) == {each["trace_id"] for each in sent}
    assert max(found.failed.values()) <= 1 + len(HITS), "once for each life"
    assert found.waiting == {}
