"""Readers of Kafka that are killed, frozen, or find their ledger away: nothing is lost, doubled or out of order."""

import asyncio
import json
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.support import tables
from tests.support.kafka import Kafka, Topic
from tests.support.process import Program
from tests.support.servers import Postgres
from tests.support.stand import ROOT
from tests.support.stream_door import becomes
from tests.support.waiting import until

USERS = 5
RECORDS = "SELECT count(*) AS n FROM records"
IN_ORDER = "SELECT user_id, payload_json FROM records ORDER BY user_id, accepted_at, rowid"
_CONFIG = """extends = "sse"
[kafka]
session_timeout_ms = {session_ms}
batch = 10
[kafka.options]
"heartbeat.interval.ms" = "500"
"""


class Home:
    """A topic, a ledger, and the processes that read one into the other."""

    def __init__(self, topic: Topic, ledger: str, folder: Path, session_ms: int = 3000) -> None:
        self.topic, self.ledger = topic, ledger
        self.programs: list[Program] = []
        self._folder = folder
        (folder / "carillon.toml").write_text(_CONFIG.format(session_ms=session_ms))
        self._written = 0

    def launch(self, mutant: str | None = None, **more: str) -> Program:
        environment = {
            "DATABASE_URL": self.ledger,
            "KAFKA_BOOTSTRAP_SERVERS": self.topic.kafka.bootstrap,
            "KAFKA_TOPIC": self.topic.name,
            "KAFKA_GROUP_ID": self.topic.group,
            "CARILLON_LEDGER__ALLOW_UNSAFE": "1",
            "CARILLON_HTTP__PORT": "0",
            "PYTHONPATH": str(ROOT),
            **more,
        }
        command = None if mutant is None else [sys.executable, "-m", "tests.support.kafka_mutant", mutant]
        words = ("serve", "--config", "carillon.toml", "--roles", "doors")
        self.programs.append(Program(*words, env=environment, cwd=self._folder, command=command))
        return self.programs[-1]

    async def start(self, mutant: str | None = None, **more: str) -> Program:
        program = self.launch(mutant, **more)
        await program.until("part_started", lambda line: line["part"] == "kafka_door", timeout=60)
        return program

    async def write(self, many: int, *, named: bool = True) -> None:
        numbers = range(self._written, self._written + many)
        messages = [{"event_type": "job.new", "user_id": f"user-{n % USERS}", "payload": {"n": n}} for n in numbers]
        if named:
            messages = [{**message, "event_id": f"e-{n}"} for n, message in zip(numbers, messages, strict=True)]
        await asyncio.to_thread(self.topic.write_all, messages)
        self._written += many

    async def settled(self) -> None:
        """Everything is written down once, in its order for each person, and committed."""
        await self.has(self._written)
        await asyncio.to_thread(self.topic.wait_all_committed, 60)
        assert await tables.number(self.ledger, RECORDS) == self._written

    async def has(self, many: int) -> None:
        async def written() -> bool:
            return await tables.number(self.ledger, RECORDS) >= many

        await until(written, timeout=60, what=f"{many} notifications")

    async def order(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for row in await tables.read(self.ledger, IN_ORDER):
            found.setdefault(row["user_id"], []).append(json.loads(row["payload_json"])["n"])
        return found


def _all_seen(program: Program, many: int) -> bool:
    return sum(len(program.events(word)) for word in ("intent_accepted", "intent_repeated")) >= many


@pytest.fixture
def topic(kafka: Kafka) -> Iterator[Topic]:
    with kafka.topic(2) as found:
        yield found


@pytest.fixture
def home(topic: Topic, tmp_path: Path) -> Iterator[Home]:
    found = Home(topic, f"sqlite:///{tmp_path}/ledger.db", tmp_path)
    yield found
    for program in found.programs:
        program.close()


@pytest.mark.req("S4-05", "S4-06", "S4-68", "G-04")
async def test_killed_between_any_two_steps(home: Home) -> None:
    await home.write(200)
    for points in ("after_kafka_read=exit9@3", "after_accept_commit=exit9@2", "before_kafka_commit=exit9@2"):
        program = home.launch(CARILLON_FAULTPOINTS=points)
        assert await asyncio.to_thread(program.wait, 60) == -9
        await home.write(20)
    heir = await home.start()
    await home.settled()
    # What was written and not committed came again.
    await heir.until("intent_repeated")
    assert all(numbers == sorted(numbers) for numbers in (await home.order()).values())


@pytest.mark.req("S4-05")
async def test_while_the_ledger_is_away_nothing_is_committed_and_nothing_lost(topic: Topic, tmp_path: Path) -> None:
    with Postgres() as postgres:
        home = Home(topic, postgres.database(), tmp_path, session_ms=30_000)
        program = await home.start()
        await home.write(50)
        await home.settled()
        before = program.mark()
        await asyncio.to_thread(postgres.stop)
        await home.write(50)
        await program.until("trouble", lambda line: line["where"] == "kafka_door", timeout=60, since=before)
        assert sum(topic.committed().values()) == 50
        await asyncio.to_thread(postgres.start)
        await home.settled()
        program.terminate()
        assert await asyncio.to_thread(program.wait, 60) == 0
        assert program.noise == [], "nothing but JSON"


@pytest.mark.req("S4-06", "S4-68")
async def test_a_frozen_reader_is_succeeded_and_does_no_harm_when_it_wakes(home: Home) -> None:
    await home.write(50)
    first = await home.start()
    await home.settled()
    first.stop()
    await home.write(50)
    second = await home.start()
    await home.has(100)
    first.cont()
    await home.write(50)
    await home.settled()
    assert all(numbers == sorted(numbers) for numbers in (await home.order()).values())
    assert not [line for line in first.lines + second.lines if line["level"] == "critical"]


async def rows_after_reading_twice(home: Home, mutant: str | None) -> int:
    """Forty records without ids, read by one group and then, from the start, by another."""
    await home.write(40, named=False)
    for group in ("one", "two"):
        program = await home.start(mutant, KAFKA_GROUP_ID=f"{home.topic.group}-{group}")
        await becomes(partial(_all_seen, program, 40), "forty records read", 60)
        await asyncio.to_thread(program.kill)
    return await tables.number(home.ledger, RECORDS)


@pytest.mark.req("S4-06")
async def test_records_without_ids_read_again_from_the_start_are_recognised(home: Home) -> None:
    assert await rows_after_reading_twice(home, None) == 40


async def test_control_without_a_name_for_their_place_they_are_doubled(home: Home) -> None:
    assert await rows_after_reading_twice(home, "no_name_for_a_place") == 80
