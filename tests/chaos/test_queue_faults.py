"""Programs on queues that are killed, stopped and poisoned: every message ends done, failed or still queued, once."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from carillon.domain.jobs import message_id
from tests.support.process import Program
from tests.support.queue_stand import QUEUE, QUICK, QueueStand, job, stand_fixture
from tests.support.servers import Redis

BRIEF = {**QUICK, "lock_ttl_seconds": 1.0, "max_retries": 1000}
"""Locks that run out soon after their worker's death, and a budget that no number of deaths spends."""
stand: Any = stand_fixture(start=False, queues={QUEUE: BRIEF})


def whereabouts(stand: QueueStand) -> list[str]:
    """Every message that is somewhere, one entry for each copy."""
    delayed = [text for text, _ in stand.delayed()]
    return sorted(message_id(text) for text in [*stand.main(), *stand.processing(), *delayed, *stand.failed()])


def ended(stand: QueueStand, sent: list[dict[str, Any]], *, timeout: float = 90) -> None:
    """All of them ran to their end and had their effect; nothing is left anywhere."""
    stand.until(lambda: set(stand.ran()) == {each["id"] for each in sent}, what="each to end", timeout=timeout)
    stand.until_empty(timeout=timeout)
    assert whereabouts(stand) == []
    assert set(stand.ran("effect")) == {each["id"] for each in sent}


def once(number: int, **payload: Any) -> list[dict[str, Any]]:
    sent = [job(**payload) for _ in range(number)]
    for each in sent:
        each["payload"]["once"] = each["id"]
    return sent


@pytest.mark.req("S3-90", "G-04")
@pytest.mark.parametrize("point", ["after_provider_ok", "before_settle"])
def test_killed_between_the_effect_and_the_ack_the_effect_is_had_once(stand: QueueStand, point: str) -> None:
    sent = once(1)
    stand.put(*sent)
    assert stand.launch(CARILLON_FAULTPOINTS=f"{point}=exit9").wait(90) == -9
    stand.start()
    stand.until_logged(sent[0]["id"], "success")
    assert stand.ran("begin")[sent[0]["id"]] >= 2
    assert stand.ran("effect") == {sent[0]["id"]: 1}


@pytest.mark.req("S3-33", "G-05")
def test_killed_at_every_point_of_a_message(stand: QueueStand) -> None:
    sent = once(200)
    stand.put(*sent)
    for point in ("after_claim", "before_send", "after_provider_ok", "before_settle", "after_settle"):
        program = stand.launch(CARILLON_FAULTPOINTS=f"{point}=exit9@5")
        assert program.wait(90) == -9
        ids = whereabouts(stand)
        assert len(ids) == len(set(ids)), f"a message is in two places after {point}"
        assert {each["id"] for each in sent} <= set(ids) | set(stand.ran()), f"a message is nowhere after {point}"
    stand.start()
    ended(stand, sent)


@pytest.mark.req("S3-33", "G-05")
def test_killed_again_and_again_under_load(stand: QueueStand) -> None:
    sent = once(200, sleep=0.02)
    stand.put(*sent)
    for round_number in range(1, 5):
        program = stand.start()
        progressed(stand, 20 * round_number)
        program.kill()
        ids = whereabouts(stand)
        assert len(ids) == len(set(ids))
        assert {each["id"] for each in sent} <= set(ids) | set(stand.ran())
    stand.start()
    ended(stand, sent)


@pytest.mark.req("S3-32", "S3-38")
def test_a_worker_that_overslept_settles_nothing(stand: QueueStand) -> None:
    gate = stand.gate()
    sent = once(5, gate=str(gate))
    stand.put(*sent)
    zombie = stand.start()
    stand.until_ran(5, "begin")
    zombie.stop()
    heir = stand.start()
    stand.until(lambda: len(heir.events("message_swept")) >= 5, what="its messages to be swept")
    stand.until_ran(10, "begin")
    zombie.cont()
    zombie.wait_for("lease_lost", timeout=60)
    gate.touch()
    ended(stand, sent)
    ends = [note for note in stand.notes("end") if note["pid"] == zombie.pid]
    assert ends == [], "a handler whose lock is gone is not left to go on"
    successes = [entry for entry in stand.logs() if entry["status"] == "success"]
    assert len(successes) == 5


def progressed(stand: QueueStand, least: int) -> None:
    stand.until(lambda: len(stand.ran()) >= least, what=f"{least} ends")


def met_in(program: Program, stand: QueueStand, condition: Callable[[], bool]) -> bool:
    """Whether the condition came to hold in this life of the program."""
    stand.until(lambda: condition() or program.returncode is not None, what="an end", timeout=60)
    return condition()


def supervised(stand: QueueStand, until: Callable[[], bool], mutant: str | None = None, lives: int = 12) -> int:
    """Start the program again whenever it dies; how many died before the condition held."""
    for life in range(lives):
        program = stand.launch(mutant=mutant)
        if met_in(program, stand, until):
            return life
    return lives


@pytest.mark.req("S3-43")
def test_a_message_that_kills_its_worker_ends_among_the_failed(tmp_path: Path, redis_server: Redis) -> None:
    policy = {**BRIEF, "max_retries": 2}
    with QueueStand(tmp_path, redis_server=redis_server, queues={QUEUE: policy}) as stand:
        poison, others = job(do="die"), [job() for _ in range(50)]
        stand.put(poison, *others)
        died = supervised(stand, lambda: len(stand.failed()) == 1 and len(stand.ran()) == 50)
        assert died == 3
        assert json.loads(stand.failed()[0])["id"] == poison["id"]
        assert len(stand.notes("begin", poison["id"])) == 3
        stand.until_empty()


@pytest.mark.req("G-05")
def test_a_redis_that_is_killed_and_comes_back(tmp_path: Path) -> None:
    with (
        Redis(appendonly=True) as server,
        QueueStand(tmp_path, redis_server=server, queues={QUEUE: BRIEF}) as stand,
    ):
        sent = once(200, sleep=0.02)
        stand.put(*sent)
        stand.start()
        for least in (30, 90):
            progressed(stand, least)
            server.kill()
            server.start()
        stand.until(lambda: set(stand.ran()) == {each["id"] for each in sent}, what="each to end", timeout=90)
        stand.until_empty(timeout=90)
        assert whereabouts(stand) == []
        assert stand.programs[0].returncode is None
