"""What the billing document says about list queues, seen in Redis and in what a program's handlers did."""

import json
import time
import uuid
from typing import Any

import pytest

from tests.support.queue_stand import QUEUE, QUICK, QueueStand, job, stand_fixture

SLOW, ORIGIN, SPREAD = "q:test:slow", "q:test:origin", "q:test:spread"
OURS: dict[str, Any] = {"max_retries": 5, "lock_ttl_seconds": 30.0}
stand: Any = stand_fixture(
    module=True,
    sql=True,
    queues={
        QUEUE: QUICK,
        SLOW: {**OURS, "jitter_seconds": 0.0},
        ORIGIN: {**OURS, "jitter_seconds": 0.0, "first_exponent": 1},
        SPREAD: {**OURS, "jitter_seconds": 10.0},
    },
    service="payment",
    action="webhook",
)


def waits(stand: QueueStand, queue: str, many: int) -> dict[str, float]:
    """How long each message of a queue waits, from its entry in the job log to its score."""
    stand.until(lambda: len(stand.delayed(queue)) >= many, what=f"{many} delayed")
    failed = {each["id"]: each["at"] for each in stand.notes("begin")}
    return {json.loads(text)["id"]: score - failed[json.loads(text)["id"]] for text, score in stand.delayed(queue)}


@pytest.mark.req("S3-13")
@pytest.mark.parametrize(
    ("sent", "payload", "action"),
    [
        ({"payload": {"n": 1}, "action": "trial"}, {"n": 1}, "trial"),
        ({"payload": {"n": 2}}, {"payload": {"n": 2}}, "webhook"),
        ({"action": "trial", "n": 3}, {"action": "trial", "n": 3}, "trial"),
        ({"payload": [4], "action": "trial"}, {"payload": [4], "action": "trial"}, "trial"),
    ],
    ids=["both", "payload alone", "action alone", "payload that is no object"],
)
def test_a_handler_sees_the_payload_of_an_envelope_and_else_the_whole_message(
    stand: QueueStand, sent: dict[str, Any], payload: dict[str, Any], action: str
) -> None:
    message_id = str(uuid.uuid4())
    stand.put({"id": message_id, **sent})
    stand.until(lambda: bool(stand.notes("begin", message_id)), what="a run")
    (note,) = stand.notes("begin", message_id)
    seen = {name: value for name, value in note["payload"].items() if name != "id"}
    assert (seen, note["action"]) == (payload, action)


@pytest.mark.req("S3-35")
@pytest.mark.parametrize(
    ("queue", "waited"),
    [(SLOW, [60, 120, 240, 480, 960, 1920, 3600, 3600]), (ORIGIN, [120, 240, 480, 960, 1920, 3600, 3600, 3600])],
    ids=["ours", "origin"],
)
def test_each_wait_is_in_the_score(stand: QueueStand, queue: str, waited: list[int]) -> None:
    """Messages that have failed before, as a producer may send them: each shows one wait of the series."""
    sent = [{**job(do="raise"), "attempts": number, "max_attempts": 20} for number in range(len(waited))]
    stand.put(*sent, queue=queue)
    found = waits(stand, queue, len(waited))
    late = [found[each["id"]] - wanted for each, wanted in zip(sent, waited, strict=True)]
    assert min(late) >= -0.1, (late, found)
    assert max(late) < 20, "the score is the time of the failure and the wait"


@pytest.mark.req("S3-36")
def test_jitter_is_spread_evenly_over_its_whole_width(stand: QueueStand) -> None:
    sent = [job(do="raise") for _ in range(200)]
    stand.put(*sent, queue=SPREAD)
    scores = waits(stand, SPREAD, 200)
    logged = {each["id"]: stand.until_logged(each["id"], "retry")["info"]["delay"] for each in sent}
    assert all(-0.1 <= scores[each] - delay < 20 for each, delay in logged.items()), "what is logged is what is waited"
    drawn = sorted(delay - 60 for delay in logged.values())
    assert 0 <= drawn[0] <= drawn[-1] <= 10
    # Of a thousand fair samples of this size fewer than one is as far from even as this (Kolmogorov and Smirnov).
    assert max(abs(draw / 10 - (place + 0.5) / 200) for place, draw in enumerate(drawn)) < 0.15


@pytest.mark.req("S3-42")
def test_a_waiting_poller_and_the_pump_are_quick(stand: QueueStand) -> None:
    """The document's origin polls every 10 to 15 s and pumps every 5 s; ours wait at the queue and pump each second."""
    told = [_wait_of(stand, job()) for _ in range(5)]
    assert sorted(told)[2] < 1.0, told
    due = job()
    at = time.time() + 1.0
    stand.redis.zadd(f"{QUEUE}:delayed", {json.dumps(due): at})
    stand.until(lambda: bool(stand.notes("begin", due["id"])), what="the delayed one")
    late = stand.notes("begin", due["id"])[0]["at"] - at
    assert 0 <= late < 3.0


def _wait_of(stand: QueueStand, sent: dict[str, Any]) -> float:
    began = time.time()
    stand.put(sent)
    stand.until(lambda: bool(stand.notes("begin", sent["id"])), what="a run")
    return float(stand.notes("begin", sent["id"])[0]["at"]) - began


@pytest.mark.req("S3-05")
def test_legacy_names_stay_where_they_are(stand: QueueStand) -> None:
    names = ("queue:payment_initiation", "queue:trial_payment", "queue:test:work", f"queue:{QUEUE}")
    for name in names:
        stand.put(job(), queue=name)
    # Two messages of a real queue and one delayed one are through: pollers, pump and sweep had their turns.
    sent = [job(), job(do="raise_first", times=1)]
    stand.put(*sent)
    for each in sent:
        stand.until_logged(each["id"], "success")
    assert [len(stand.main(name)) for name in names] == [1] * len(names)
    others = {key.decode() for key in stand.redis.keys("queue:*")}
    assert others == set(names), "and nothing was made beside them"
    stand.redis.delete(*names)
