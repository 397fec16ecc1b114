"""Process-wide guards of queues, each switched off: what they prevent must be seen to happen."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.test_queue_faults import BRIEF, once, supervised
from tests.support.queue_stand import QUEUE, QueueStand, job, stand_fixture
from tests.support.servers import Redis

stand: Any = stand_fixture(start=False, queues={QUEUE: BRIEF})


def test_without_renewal_a_long_run_is_taken_for_dead(stand: QueueStand) -> None:
    stand.start(mutant="no_renewal")
    gate = stand.gate()
    sent = job(gate=str(gate))
    stand.put(sent)
    stand.until(lambda: len(stand.notes("begin", sent["id"])) >= 2, what="a second run beside the first")
    assert stand.notes("end", sent["id"]) == []


@pytest.mark.req("S3-90")
def test_without_marks_an_effect_is_had_twice(stand: QueueStand) -> None:
    (sent,) = once(1, do="raise_first", times=1)
    stand.start(mutant="no_effects")
    stand.put(sent)
    stand.until_logged(sent["id"], "success")
    assert stand.ran("effect") == {sent["id"]: 2}


def test_without_cancelling_a_zombie_goes_on(stand: QueueStand) -> None:
    gate = stand.gate()
    sent = job(gate=str(gate))
    stand.put(sent)
    zombie = stand.start(mutant="no_cancelling")
    stand.until_ran(1, "begin")
    zombie.stop()
    stand.start()
    stand.until_ran(2, "begin")
    zombie.cont()
    zombie.wait_for("lease_lost", timeout=60)
    gate.touch()
    stand.until(lambda: len(stand.notes("end", sent["id"])) >= 2, what="two ends")
    stand.until_empty()


def test_without_counted_crashes_poison_never_ends(tmp_path: Path, redis_server: Redis) -> None:
    policy = {**BRIEF, "max_retries": 1}
    with QueueStand(tmp_path, redis_server=redis_server, queues={QUEUE: policy}) as stand:
        stand.put(job(do="die"))
        assert supervised(stand, lambda: len(stand.failed()) == 1, mutant="crashes_are_free", lives=4) == 4
        stand.until(lambda: bool(stand.processing()), what="it still in hand")
        assert json.loads(stand.processing()[0])["attempts"] == 0
