"""The Kafka door as one of a group: partitions that come and go, brokers that do, and records that are gone."""

import asyncio
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import asynccontextmanager

import pytest

from carillon.domain.events import PartStarted, StreamTrimmed, Trouble
from carillon.doors.kafka import door as kafka_door
from carillon.doors.kafka.door import KafkaDoor
from tests.support.kafka import FENCED, HEARTBEAT, Kafka, Topic
from tests.support.kafka_door import QUICK_MS, SECONDS, SESSION_MS, Home, Ledger, all_committed, fill, home
from tests.support.stream_door import becomes

pytestmark = pytest.mark.slow

PARTITIONS = 4


@pytest.fixture
def topic(kafka: Kafka) -> Iterator[Topic]:
    with kafka.topic(PARTITIONS) as found:
        yield found


def held(living: Home) -> set[int]:
    return set(living.door._partitions)  # noqa: SLF001 - what the group gave to whom is nobody else's business


async def shared(*members: Home) -> None:
    def fair() -> bool:
        return all(map(held, members)) and sum(len(held(each)) for each in members) == PARTITIONS

    await becomes(fair, "partitions shared", 2 * SECONDS)


@asynccontextmanager
async def flood(topic: Topic, ledger: Ledger) -> AsyncIterator[list[int]]:
    """Records that keep coming until the block is left, no faster than they are written down."""
    written: list[int] = []
    over = asyncio.Event()

    async def write() -> None:
        while not over.is_set():
            batch = range(len(written), len(written) + 50)
            await fill(topic, batch)
            written.extend(batch)
            await becomes(lambda: len(ledger.keys) >= len(written) - 500, "most of them", 2 * SECONDS)

    writing = asyncio.create_task(write())
    try:
        yield written
    finally:
        over.set()
        await writing


@pytest.mark.req("S4-05")
@pytest.mark.timeout(400)
async def test_members_that_come_and_go_lose_nothing_and_keep_the_order(topic: Topic) -> None:
    ledger = Ledger()
    async with home(topic, ledger, batch=20, session_ms=QUICK_MS) as first, flood(topic, ledger) as written:
        await shared(first)
        async with home(topic, ledger, batch=20, session_ms=QUICK_MS) as second:
            await shared(first, second)
            async with home(topic, ledger, batch=20, session_ms=QUICK_MS) as third:
                await shared(first, second, third)
            await shared(first, second)
        await shared(first)
    async with home(topic, ledger, session_ms=QUICK_MS):
        await becomes(lambda: len(ledger.keys) == len(written), "all of them", SECONDS)
        await all_committed(topic)
    for partition in range(PARTITIONS):
        mine = [entry for batch in ledger.offered for entry in batch if f":{partition}:" in entry]
        offsets = list(dict.fromkeys(int(entry.rpartition(":")[2]) for entry in mine))
        assert offsets == sorted(offsets), "a later record is never offered first"


class ForgetfulDoor(KafkaDoor):
    """The guard switched off: nothing is committed of what is given away."""

    async def revoked(self, partitions: Collection[int], *, lost: bool) -> dict[int, int]:
        await super().revoked(partitions, lost=lost)
        return {}

    def _commits(self) -> dict[int, int]:
        return {}


async def read_twice(topic: Topic, kind: type[KafkaDoor]) -> int:
    """How many records two members in turn were offered more than once."""
    ledger = Ledger()
    await fill(topic, range(100))
    async with home(topic, ledger, kind, session_ms=QUICK_MS) as first:
        await first.until_keys(100)
    # The last record of each partition: a reader that has it has read every record again.
    for partition in range(PARTITIONS):
        await fill(topic, [100 + partition], partition)
    async with home(topic, ledger, kind, session_ms=QUICK_MS) as second:
        await second.until_keys(100 + PARTITIONS)
    offered = [entry for batch in ledger.offered for entry in batch]
    return len(offered) - len(set(offered))


async def test_who_leaves_commits_what_is_written(topic: Topic) -> None:
    # Not 0: a machine that stands still for a session's length has its last commit refused.
    assert await read_twice(topic, KafkaDoor) < 100


async def test_control_who_leaves_without_committing_leaves_it_all_to_be_read_again(topic: Topic) -> None:
    # Not 100 alone, for the same reason.
    assert await read_twice(topic, ForgetfulDoor) >= 100


async def test_a_broker_that_goes_and_comes_is_read_on(kafka: Kafka, topic: Topic) -> None:
    async with home(topic) as living:
        await fill(topic, range(10))
        await living.until_keys(10)
        kafka.tell("down", 1)
        try:
            await becomes(lambda: bool(living.seen(Trouble)), "somebody says so", SECONDS)
        finally:
            kafka.tell("up", 1)
        await fill(topic, range(10, 20))
        await living.until_keys(20)
        await all_committed(topic)


async def test_nobody_there_at_the_start_is_waited_for(topic: Topic) -> None:
    kafka = topic.kafka
    kafka.tell("down", 1)
    try:
        living = Home(topic, Ledger(), KafkaDoor, 100, SESSION_MS)
        await becomes(lambda: bool(living.seen(Trouble)), "somebody says so", SECONDS)
        assert living.seen(PartStarted) == []
    finally:
        kafka.tell("up", 1)
    await fill(topic, range(10))
    await living.until_keys(10)
    await living.close()


async def test_records_that_are_gone_are_counted_and_told(kafka: Kafka, topic: Topic) -> None:
    ledger = Ledger()
    await fill(topic, range(10), partition=2)
    async with home(topic, ledger, session_ms=QUICK_MS) as living:
        await living.until_keys(10)
        await all_committed(topic)
    await fill(topic, range(10, 30), partition=2)
    kafka.tell("delete_records", topic.name, 2, 25)
    async with home(topic, ledger, session_ms=QUICK_MS) as heir:
        await heir.until_keys(15)
        (told,) = heir.seen(StreamTrimmed)
    assert (told.stream, told.offset, told.first_entry_id, told.lost) == (f"{topic.name}[2]", "10", "25", 15)
    assert ledger.keys == [str(number) for number in [*range(10), *range(25, 30)]]


async def test_an_offset_beyond_the_end_is_told_and_everything_is_read(topic: Topic) -> None:
    await fill(topic, range(10), partition=2)
    await asyncio.to_thread(topic.commit, {2: 1000})
    async with home(topic) as living:
        await living.until_keys(10)
        (told,) = living.seen(StreamTrimmed)
        assert (told.offset, told.first_entry_id, told.lost) == ("1000", "0", None)
    assert topic.committed()[2] == 10


async def test_the_newer_group_protocol(topic: Topic) -> None:
    await fill(topic, range(100))
    async with home(topic, group_protocol="consumer") as living:
        await living.until_keys(100)
        await all_committed(topic)
        assert held(living) == set(range(PARTITIONS))


async def test_a_client_that_gives_up_is_followed_by_another(kafka: Kafka, topic: Topic) -> None:
    async with home(topic, session_ms=QUICK_MS, group_instance_id="one", heartbeat_interval_ms="300") as living:
        await fill(topic, range(10))
        await living.until_keys(10)
        # Another process took this one's name: the client can never read again.
        kafka.tell("fail", HEARTBEAT, FENCED)
        await becomes(lambda: any("Fatal error" in said for said in living.troubles()), "a client given up", SECONDS)
        await fill(topic, range(10, 20))
        await living.until_keys(20)
        await all_committed(topic)
    assert sorted(map(int, living.ledger.keys)) == [*range(20)]


async def test_a_broker_that_hangs_does_not_hold_up_the_end(
    kafka: Kafka, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_door, "LEAVE_SECONDS", 0.5)
    ledger = Ledger()
    ledger.open.clear()
    await fill(topic, range(10))
    async with home(topic, ledger) as living:
        await becomes(lambda: bool(ledger.offered), "an acceptance", SECONDS)
        kafka.pause()
        try:
            ledger.open.set()
            living.door.stop()
            async with asyncio.timeout(SECONDS):
                await living.task
        finally:
            kafka.resume()
    assert ledger.keys
    assert any("will be read again" in said for said in living.troubles())
