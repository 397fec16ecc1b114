"""Ten thousand notifications for a thousand people who listen, while the processes that tell them are killed."""

import asyncio
import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.support import tables
from tests.support.kafka import Kafka, Topic
from tests.support.process import Program
from tests.support.sse_crowd import Crowd, Told, out_of_turn, wrong
from tests.support.sse_stand import SseStand
from tests.support.waiting import until

PEOPLE, MANY = 1000, 9000
FEW, CALM = 50, 1000
PRIORITIES = ("HIGH", "MEDIUM", "LOW")
SEED = 20261116
# Short leases and absences, so that what a dead process held is taken over soon; what is hit by every kill still has a
# try left, for what is given up is told to nobody.
SETTINGS = """
lease_duration = "3s"
lease_cleanup_interval = "1s"
max_retries = 20
[sse]
presence_seconds = 3
max_per_key = 100000
heartbeat_seconds = 5
[work]
drain_seconds = 10
[kafka]
session_timeout_ms = 3000
"""
OPEN = "SELECT count(*) AS n FROM notifications.notifications WHERE status NOT IN ('pushed', 'delivered')"
STATES = "SELECT status, count(*) AS n FROM notifications.notifications GROUP BY status"


def message(number: int) -> dict[str, Any]:
    """First a few for everybody, then many for a few."""
    people = PEOPLE if number < MANY else FEW
    return {
        "event_id": f"event-{number}",
        "event_type": "job.new",
        "user_id": f"user-{number % people}",
        "priority": PRIORITIES[number // people % 3],
        "payload": {"n": number},
    }


def theirs(numbers: range) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for number in numbers:
        found.setdefault(message(number)["user_id"], []).append(number)
    return found


class Replicas:
    """The processes that live now; each is reached at its own address."""

    def __init__(self, stand: SseStand) -> None:
        self._stand = stand
        self._alive: list[tuple[Program, str]] = []

    def addresses(self) -> list[str]:
        return [address for _, address in self._alive]

    async def start(self) -> None:
        program = await self._stand.start()
        self._alive.append((program, self._stand.address))

    def lose(self, how: signal.Signals) -> Program:
        """The eldest ends."""
        program, _ = self._alive.pop(0)
        os.kill(program.pid, how)
        return program


async def heard(crowd: Crowd, number: int, seconds: float = 90.0) -> None:
    async def enough() -> bool:
        return crowd.heard >= number

    try:
        await until(enough, timeout=seconds, what=f"{number} notifications heard")
    except TimeoutError as error:
        error.add_note(f"{crowd.heard} were, {crowd.listening} listen; {wrong(crowd, theirs(range(number)))[:20]}")
        raise


async def everybody_listens(crowd: Crowd) -> None:
    async def here() -> bool:
        return crowd.listening == PEOPLE

    await until(here, timeout=90, what="everybody connected")


async def until_only(replicas: Replicas, crowd: Crowd, leaving: Program) -> None:
    """Everybody has come to the one that is left, and the other one is gone."""

    async def there() -> bool:
        return leaving.returncode is not None and crowd.listening_at(replicas.addresses()[0]) == PEOPLE

    await until(there, timeout=90, what="everybody connected to the last process")


async def all_pushed(url: str) -> None:
    async def settled() -> bool:
        return bool((await tables.read(url, OPEN))[0]["n"] == 0)

    await until(settled, timeout=90, what="every notification pushed")


@pytest.mark.req("S4-63", "S4-68", "S4-48", "S4-49", "S4-54", "S4-64", "G-04")
@pytest.mark.timeout(600)
async def test_nothing_is_lost_nothing_comes_twice(tmp_path: Path, postgres_dsn: str) -> None:
    with Kafka() as kafka, kafka.topic(4) as topic:
        kept = {"KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap, "KAFKA_TOPIC": topic.name, "KAFKA_GROUP_ID": topic.group}
        async with SseStand(tmp_path, postgres_dsn, SETTINGS, **kept) as stand:
            replicas = Replicas(stand)
            await replicas.start()
            await replicas.start()
            async with Crowd(PEOPLE, replicas.addresses, SEED) as crowd:
                await everybody_listens(crowd)
                await storm(topic, replicas, crowd)
                assert not wrong(crowd, theirs(range(MANY)))
                assert not out_of_turn(crowd, 0)
                await all_pushed(postgres_dsn)
                assert len(await tables.read(postgres_dsn, STATES)) == 1
                await calm(topic, replicas, crowd)
                assert not wrong(crowd, theirs(range(MANY + CALM)))


async def storm(topic: Topic, replicas: Replicas, crowd: Crowd) -> None:
    """Two processes are killed, one is told to stop, and phones go through tunnels, all while it pours in."""
    dice = random.Random(SEED)
    writing = asyncio.create_task(asyncio.to_thread(topic.write_all, [message(number) for number in range(MANY)]))
    for share, how in ((0.1, signal.SIGKILL), (0.3, signal.SIGTERM), (0.5, signal.SIGKILL)):
        await heard(crowd, int(MANY * share))
        for listener in dice.sample(list(crowd.listeners.values()), PEOPLE // 10):
            listener.hang_up()
        replicas.lose(how)
        await replicas.start()
    await writing
    await heard(crowd, MANY)


async def calm(topic: Topic, replicas: Replicas, crowd: Crowd) -> None:
    """One process is left and nobody disturbs it: inside a priority everybody hears in the order of arrival."""
    await until_only(replicas, crowd, replicas.lose(signal.SIGTERM))
    await asyncio.to_thread(topic.write_all, [message(number) for number in range(MANY, MANY + CALM)])
    await heard(crowd, MANY + CALM)
    assert not out_of_turn(crowd, MANY)


def test_the_check_sees_what_it_looks_for() -> None:
    def checked(*told: Told) -> list[str]:
        crowd = Crowd(1, list, SEED)
        crowd.listeners["user-0"].told = list(told)
        return wrong(crowd, {"user-0": [1, 2]})

    one, two = Told(1, "a", "HIGH", {"n": 1}), Told(2, "b", "HIGH", {"n": 2})
    assert not checked(one, two)
    assert "never told [2]" in checked(one)[0]
    assert "told twice" in checked(one, two, two._replace(seq=3))[0]
    assert "not theirs" in checked(one, two, Told(3, "c", "LOW", {"n": 9}))[0]
    assert "out of order" in checked(one._replace(seq=2), two._replace(seq=1))[0]
    crowd = Crowd(1, list, SEED)
    crowd.listeners["user-0"].told = [two._replace(seq=1), one._replace(seq=2)]
    assert out_of_turn(crowd, 0)
    assert not out_of_turn(crowd, 2)
