"""A push worker that dies, fails or hangs at each of its own points: nothing is lost or late, little is repeated."""

import time
from typing import Any

import pytest

from tests.support.process import Program
from tests.support.push_faults import whereabouts
from tests.support.push_stand import Push, message, stand_fixture
from tests.support.vendor import Reply

push: Any = stand_fixture("[push]\ntakeover_after = 1\n", start=False)
LEASE_SECONDS = 3
failing: Any = stand_fixture(
    # The age limit of marks as it is shipped: what met an error must not wait for it.
    f"""
[push]
takeover_after = 300
[ledger]
lease_seconds = {LEASE_SECONDS}
[policy.retry.fcm]
timeout_seconds = 2
[policy.retry."*/*"]
timeout_seconds = 2
""",
    name="failing",
    start=False,
)
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


def strike(push: Push, fault: str, sent: list[dict[str, Any]]) -> Program:
    """A process that has met the fault; it gets one message after the other until then."""
    program = push.start(CARILLON_FAULTPOINTS=fault)
    told = "faultpoint {}: {}".format(*fault.partition("@")[0].split("="))
    while told not in program.noise:
        sent.append(message())
        push.publish(sent[-1])
        push.until(lambda: told in program.noise or push.broker.ready() == 0, what=fault)
    return program


def fail_at(push: Push, point: str, hits: tuple[int, ...] = HITS) -> list[dict[str, Any]]:
    """One process after the other meets an error at the point and ends all of its messages by itself."""
    push.broker.declare("push.queue")
    sent: list[dict[str, Any]] = []
    for hit in hits:
        program = strike(push, f"{point}=raise@{hit}", sent)
        push.until_empty()
        program.terminate()
        assert program.wait(60) == 0
    return sent


@pytest.mark.req("P-800")
@pytest.mark.parametrize("point", SENDING)
def test_an_error_on_the_way_to_a_push_is_over_after_a_lease(failing: Push, point: str) -> None:
    """No process dies, so the broker keeps what met the error from everybody until the worker gives it back."""
    sent = fail_at(failing, point)
    found = whereabouts(failing, sent)
    assert found.lost(sent) == []
    assert len(found.twice()) <= len(HITS), "only what met the error"
    assert (found.failed, found.waiting) == ({}, {})
    assert sorted(row["trace_id"] for row in failing.rows()) == sorted(each["trace_id"] for each in sent)


@pytest.mark.req("P-800")
def test_an_error_behind_a_dead_letter_leaves_nothing_in_the_queue(failing: Push) -> None:
    failing.fcm.default = Reply(400, body={"error": "InvalidRegistration"})
    sent = fail_at(failing, "after_park", (1, 2))
    found = whereabouts(failing, sent)
    assert set(found.failed) == {each["trace_id"] for each in sent}
    assert sum(found.failed.values()) <= len(sent) + 2, "once more for each error"
    assert found.waiting == {}


def hang_at(push: Push, fault: str, sent: list[dict[str, Any]]) -> None:
    """A process stands still for longer than its leases while another one works, and then goes on with its own."""
    zombie = strike(push, fault, sent)
    over = time.monotonic() + LEASE_SECONDS
    heir = push.start()
    # More than the broker still hands to the process that hangs.
    more = [message() for _ in range(2 * AT_ONCE)]
    sent += more
    push.publish(*more)
    push.until(lambda: any(push.mark(each) == "sent" for each in more), what="the heir at work")
    push.until(lambda: time.monotonic() > over, what="the end of a lease")
    zombie.cont()
    push.until_empty()
    for program in (zombie, heir):
        program.terminate()
        assert program.wait(60) == 0


@pytest.mark.req("P-801")
@pytest.mark.parametrize("point", SENDING)
def test_a_hang_past_the_lease_on_the_way_to_a_push(failing: Push, point: str) -> None:
    failing.broker.declare("push.queue")
    sent: list[dict[str, Any]] = []
    for hit in HITS:
        hang_at(failing, f"{point}=stop@{hit}", sent)
    found = whereabouts(failing, sent)
    assert found.lost(sent) == []
    assert len(found.twice()) <= len(HITS) * AT_ONCE, "only what was in the hands of the process that hung"
    assert (found.failed, found.waiting) == ({}, {})
