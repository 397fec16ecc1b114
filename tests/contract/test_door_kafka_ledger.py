"""The Kafka door while the ledger is away, refuses, breaks or takes its time; and doors that commit too early."""

import asyncio
from collections.abc import Iterator

import msgspec
import pytest

from carillon.domain.errors import LedgerUnavailable, Overloaded
from carillon.domain.events import StreamTrimmed, Trouble
from carillon.doors.kafka import group as kafka_group
from carillon.doors.kafka import partition as kafka_partition
from carillon.doors.kafka.door import KafkaDoor
from carillon.doors.kafka.partition import Partition
from tests.support.kafka import (
    COORDINATOR_NOT_AVAILABLE,
    METADATA_TOO_LARGE,
    OFFSET_COMMIT,
    Kafka,
    Topic,
)
from tests.support.kafka_door import QUICK_MS, SECONDS, Ledger, all_committed, fill, home
from tests.support.raw_texts import RawProducer
from tests.support.stream_door import becomes

pytestmark = pytest.mark.slow


@pytest.fixture
def topic(kafka: Kafka) -> Iterator[Topic]:
    with kafka.topic() as found:
        yield found


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many a partition held, noted with each record it took."""
    noted: list[int] = []
    take = Partition.take

    def counted(self: Partition, *given: object) -> None:
        take(self, *given)  # type: ignore[arg-type]
        noted.append(len(self._waiting))

    monkeypatch.setattr(Partition, "take", counted)
    return noted


@pytest.mark.req("S4-05")
@pytest.mark.parametrize("error", [LedgerUnavailable("PostgreSQL is not available"), Overloaded("full")])
async def test_a_ledger_that_is_away_commits_nothing_and_says_so_once_a_wait(topic: Topic, error: Exception) -> None:
    ledger = Ledger()
    ledger.trouble = error
    await fill(topic, range(300))
    async with home(topic, ledger, batch=20) as living:
        await becomes(lambda: len(living.seen(Trouble)) >= 3, "three waits", SECONDS)
        waits = [trouble.retry_in_seconds for trouble in living.seen(Trouble) if trouble.retry_in_seconds]
        assert waits == [0.1 * 2**place for place in range(len(waits))]
        assert topic.committed() == {}
        ledger.trouble = None
        await living.until_keys(300)
        assert ledger.keys == [str(number) for number in range(300)], "in the order of the partition"
        assert max(map(len, ledger.offered)) <= 20
    assert topic.committed() == {0: 300}


async def test_what_is_held_while_the_ledger_is_away_is_bounded(topic: Topic, held: list[int]) -> None:
    ledger = Ledger()
    ledger.trouble = LedgerUnavailable("PostgreSQL is not available")
    await fill(topic, range(1000))
    async with home(topic, ledger, batch=20) as living:
        await becomes(lambda: len(living.seen(Trouble)) >= 4, "four waits", SECONDS)
        assert max(held) < 3 * 20, "two batches and what came with the second"
        ledger.trouble = None
        await living.until_keys(1000)
        assert living.seen(StreamTrimmed) == [], "a pause is no gap"
    assert ledger.keys == [str(number) for number in range(1000)]


async def test_a_door_that_stops_during_an_outage_leaves_everything(topic: Topic) -> None:
    ledger = Ledger()
    ledger.trouble = LedgerUnavailable("PostgreSQL is not available")
    await fill(topic, range(30))
    async with home(topic, ledger, session_ms=QUICK_MS) as living:
        await becomes(lambda: len(living.seen(Trouble)) >= 2, "two waits", SECONDS)
    assert topic.committed() == {}
    async with home(topic, session_ms=QUICK_MS) as heir:
        await heir.until_keys(30)


async def test_what_is_being_written_at_the_stop_is_committed(topic: Topic) -> None:
    ledger = Ledger()
    ledger.open.clear()
    await fill(topic, range(30))
    async with home(topic, ledger, batch=20) as living:
        await becomes(lambda: bool(ledger.offered), "an acceptance", SECONDS)
        many = len(ledger.offered[0])
        living.door.stop()
        asyncio.get_running_loop().call_later(0.5, ledger.open.set)
        await living.task
    assert len(ledger.keys) == many
    assert topic.committed() == {0: many}


async def test_what_stops_the_ledger_is_passed_by_nobody(topic: Topic, held: list[int]) -> None:
    ledger = Ledger()
    ledger.at_most = 3
    ledger.open.clear()
    await fill(topic, range(10))
    async with home(topic, ledger) as living:
        await becomes(lambda: len(held) == 10, "everything in hand, so that some offer is longer than three", SECONDS)
        ledger.open.set()
        await living.until_keys(10)
    assert ledger.keys == [str(number) for number in range(10)]
    assert any("the directory answered 503" in said for said in living.troubles())


async def test_an_error_nobody_expects_parks_the_one_and_stops_nobody(
    topic: Topic, held: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_partition, "STRANGE_TRIES", 3)
    ledger = Ledger()
    ledger.poison = "17"
    await fill(topic, range(40))
    async with home(topic, ledger) as living:
        await living.until_keys(39)
        await all_committed(topic)
        (found,) = ledger.parked.values()
        assert (found.failure_code, found.idempotency_key) == ("internal_error", "17")
        assert found.raw_fields["offset"] == 17
        assert sum(offered == [found.stream_entry_id] for offered in ledger.offered) >= 3
        assert "17" not in ledger.keys
        # All of them are in hand before the ledger answers, so that it can be asked for many.
        ledger.open.clear()
        taken = len(held)
        await fill(topic, range(40, 140))
        await becomes(lambda: len(held) == taken + 100, "everything in hand", SECONDS)
        ledger.open.set()
        await living.until_keys(139)
        assert max(map(len, ledger.offered[-3:])) > 1, "many at a time again"


async def test_a_commit_that_is_repeated_does_not_overwrite_a_newer_one(kafka: Kafka, topic: Topic) -> None:
    """The client repeats a commit that found no coordinator; a commit that overtakes it would be undone.

    On a busy machine the client sometimes finds no coordinator again until its session is over; then it joins anew.
    """
    async with home(topic, session_ms=QUICK_MS) as living:
        for number in range(0, 8, 2):
            kafka.tell("fail", OFFSET_COMMIT, COORDINATOR_NOT_AVAILABLE)
            for each in (number, number + 1):
                await fill(topic, [each], partition=0)
                await living.until_keys(each + 1)
            await all_committed(topic)


async def test_a_commit_that_fails_is_made_again(kafka: Kafka, topic: Topic) -> None:
    async with home(topic) as living:
        await fill(topic, range(10))
        await living.until_keys(10)
        await all_committed(topic)
        kafka.tell("fail", OFFSET_COMMIT, METADATA_TOO_LARGE, COORDINATOR_NOT_AVAILABLE)
        await fill(topic, range(10, 20))
        await living.until_keys(20)
        await all_committed(topic)
        assert any("offsets were not committed" in said for said in living.troubles())


class EagerDoor(KafkaDoor):
    """The guard switched off: what was taken is committed, written down or not."""

    def _commits(self) -> dict[int, int]:
        taken = {name: each.expected for name, each in self._partitions.items()}
        return {name: offset for name, offset in taken.items() if offset is not None}


async def die_while_writing(topic: Topic, kind: type[KafkaDoor] = KafkaDoor, *, committed: bool = False) -> int:
    """How many of twenty records are read again when the process dies before the ledger has them."""
    ledger = Ledger()
    ledger.open.clear()
    await fill(topic, range(20))
    async with home(topic, ledger, kind, batch=10, session_ms=QUICK_MS) as living:
        await becomes(lambda: bool(ledger.offered), "an acceptance", SECONDS)
        if committed:
            await all_committed(topic)
        await living.kill()
        assert ledger.keys == []
    again = Ledger()
    await fill(topic, [99])
    async with home(topic, again, session_ms=QUICK_MS):
        await becomes(lambda: "99" in again.keys, "the last", SECONDS)
    return len(again.keys) - 1


@pytest.mark.req("S4-05")
async def test_death_before_the_commit_loses_nothing(topic: Topic) -> None:
    assert await die_while_writing(topic) == 20


async def test_control_a_door_that_commits_above_a_gap_loses_them(topic: Topic) -> None:
    assert await die_while_writing(topic, EagerDoor, committed=True) == 0


async def test_control_a_client_that_commits_by_itself_loses_them(
    topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    careless = {"enable.auto.commit": True, "enable.auto.offset.store": True, "auto.commit.interval.ms": 100}
    monkeypatch.setattr(kafka_group, "FIXED", {**kafka_group.FIXED, **careless})
    assert await die_while_writing(topic, committed=True) == 0


def test_what_the_promises_rest_on_cannot_be_said_otherwise() -> None:
    rules = kafka_group.TopicRules(
        bootstrap_servers="127.0.0.1:1", topic="t", group_id="g", options={"enable.auto.commit": "true"}
    )
    assert rules.properties()["enable.auto.commit"] is False
    assert "enable.auto.commit" in (kafka_group.refusal(rules) or "")


@pytest.mark.parametrize(("session", "told"), [(45_000, 3000), (6000, 2000), (3000, 1000)])
def test_a_member_shows_three_times_a_session_that_it_lives(session: int, told: int) -> None:
    rules = kafka_group.TopicRules(bootstrap_servers="127.0.0.1:1", topic="t", group_id="g", session_timeout_ms=session)
    assert rules.properties()["heartbeat.interval.ms"] == told
    assert kafka_group.refusal(rules) is None
    newer = msgspec.structs.replace(rules, options={"group.protocol": "consumer"})
    assert "heartbeat.interval.ms" not in newer.properties(), "the brokers' to say there"
    assert kafka_group.refusal(newer) is None


async def test_headers_whose_names_are_no_text_stop_nobody(topic: Topic) -> None:
    """A broker passes on names that are no UTF-8; the client's answer about them is broken.

    Python checks the answers of extension modules where code is new, and no longer where it has run often: hence many
    records before the strange one, in a test that would pass without them by luck.
    """
    await fill(topic, range(200))
    strange = (b'{"n": 200}', [(b"\xff\xfe", b"a"), (b"traceparent", b"b")])
    await asyncio.to_thread(lambda: RawProducer(topic).write(strange, strange))
    await fill(topic, [201])
    async with home(topic) as living:
        await living.until_keys(202)
        assert living.ledger.keys == [str(number) for number in range(202)]
        assert living.troubles() == []
        await all_committed(topic)
