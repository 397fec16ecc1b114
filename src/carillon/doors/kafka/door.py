"""The Kafka door: it commits an offset only after the ledger holds every record below it."""

import asyncio
from collections.abc import Collection, Mapping

import msgspec
from confluent_kafka import Consumer, KafkaException, TopicPartition

from carillon.domain.events import PartStarted, PartStopped, StreamTrimmed, Trouble
from carillon.domain.ports import Clock, Observer, OrderedAcceptor
from carillon.doors.backoff import LONGEST_WAIT, DoorBackoff
from carillon.doors.kafka.group import ClientThread, Group, Poll, TopicRules
from carillon.doors.kafka.partition import Partition, PartitionTools, find_gap
from carillon.doors.kafka.wire import Record, TopicWire
from carillon.faultpoint import faultpoint

PART = "kafka_door"
COMMIT_WAIT = 1.0
"""The pause after a failed commit."""
LEAVE_SECONDS = 5.0
"""A broker that hangs must not use up the shutdown time of the other parts."""
MOST_REPORTED = 20


class KafkaDoor:
    """Reads until it is stopped; it recovers from every error of the brokers, the ledger or a record."""

    def __init__(
        self, *, rules: TopicRules, wire: TopicWire, acceptor: OrderedAcceptor, clock: Clock, observer: Observer
    ) -> None:
        self._rules = rules
        self._wire = wire
        self._clock = clock
        self._observe = observer
        self._stopping = asyncio.Event()
        self._broker = DoorBackoff(PART, self._stopping, observer)
        self._tools = PartitionTools(acceptor, DoorBackoff(PART, self._stopping, observer), rules.batch)
        self._partitions: dict[int, Partition] = {}
        self._commit_after = 0.0
        self._reported: dict[str, float] = {}
        self._group: Group | None = None

    async def run(self) -> None:
        """Read until stop()."""
        while not self._stopping.is_set():
            began = self._clock.monotonic()
            try:
                await self._read()
            except Exception as error:  # noqa: BLE001 - if the door ended, the topic would grow unread
                if self._clock.monotonic() - began > LONGEST_WAIT:
                    self._broker.reset()
                await self._broker.failed(error)

    def stop(self) -> None:
        """Stop reading; records that are being accepted are still committed, all others stay in the topic."""
        self._stopping.set()

    async def oldest_unprocessed_age_ms(self) -> float | None:
        """The age of the oldest record that this process has read and not accepted yet; 0 when there is none."""
        written = [at for each in self._partitions.values() if (at := each.oldest_ms) is not None]
        return max(0.0, self._clock.wall() * 1000 - min(written)) if written else 0.0

    async def check(self) -> dict[str, str]:
        """A health check: raise when no broker answers."""
        if self._group is None:
            raise ConnectionError("the door has not joined its group")
        await self._group.reach()
        return {}

    async def assigned(self, starts: Mapping[int, int | None]) -> None:
        """Start to accept records of these partitions."""
        for partition, start in starts.items():
            if partition in self._partitions:
                self._partitions[partition].abandon()
            self._partitions[partition] = Partition(self._tools, start)
        if starts:
            places = ", ".join(f"{name} from {at or 'the start'}" for name, at in sorted(starts.items()))
            self._observe(PartStarted(part=PART, detail=f"reads {self._rules.topic}, partitions {places}"))

    async def revoked(self, partitions: Collection[int], *, lost: bool) -> dict[int, int]:
        """Stop accepting records of these partitions; returns the offsets that may still be committed."""
        going = {name: self._partitions.pop(name) for name in partitions if name in self._partitions}
        await asyncio.gather(*(each.end() for each in going.values()))
        if going and not self._partitions:
            self._observe(PartStopped(part=PART))
        return {} if lost else {name: at for name, each in going.items() if (at := each.resume) is not None}

    async def _read(self) -> None:
        """One session: from joining the group until the door stops or the client fails."""
        group = Group(self._rules, self)
        try:
            await group.open()
            self._group = group
            while not self._stopping.is_set():
                await self._poll(group)
            await self._leave(group)
        except BaseException:
            group.abandon()
            for each in self._partitions.values():
                each.abandon()
            self._partitions.clear()
            raise
        finally:
            self._group = None

    async def _leave(self, group: Group) -> None:
        """Finish what is being accepted; the client asks for the last commits while it leaves the group."""
        await asyncio.gather(*(each.end() for each in self._partitions.values()))
        try:
            async with asyncio.timeout(LEAVE_SECONDS):
                await group.close()
        except TimeoutError:
            raise ConnectionError("no broker took the last commits: those records will be read again") from None

    async def _poll(self, group: Group) -> None:
        held = self._partitions
        commit = {} if group.committing else self._commits()
        pause = {name for name, each in held.items() if each.full and not each.paused}
        resume = {name for name, each in held.items() if each.fresh or (each.roomy and each.paused)} - pause
        for name in pause | resume:
            held[name].fresh, held[name].paused, held[name].unsure = False, name in pause, True
        poll = await group.poll(commit, pause, resume)
        faultpoint("after_kafka_read")
        self._report(poll)
        for record in poll.records:
            if record.partition in held:
                await self._take(group, held[record.partition], record)

    def _commits(self) -> dict[int, int]:
        if self._clock.monotonic() < self._commit_after:
            return {}
        held = self._partitions
        commit = {name: at for name, each in held.items() if (at := each.resume) not in {None, each.committed}}
        for name, offset in commit.items():
            held[name].committed = offset
        return commit

    def _report(self, poll: Poll) -> None:
        now = self._clock.monotonic()
        for name in poll.uncommitted & self._partitions.keys():
            self._partitions[name].committed = None
            self._commit_after = now + COMMIT_WAIT
        for error in poll.errors:
            # The client repeats the same error for every broker and every attempt.
            if now - self._reported.get(error, -LONGEST_WAIT) >= LONGEST_WAIT:
                self._observe(Trouble(where=PART, error=error))
                if len(self._reported) > MOST_REPORTED:
                    self._reported.clear()
                self._reported[error] = now

    async def _take(self, group: Group, partition: Partition, record: Record) -> None:
        expected = partition.expected
        if expected is not None and (record.offset < expected or (partition.unsure and record.offset > expected)):
            gap = find_gap(expected, record.offset, await group.oldest(record.partition))
            if gap is not None:
                stream = f"{self._rules.topic}[{record.partition}]"
                first = str(record.offset)
                self._observe(StreamTrimmed(stream=stream, offset=str(expected), first_entry_id=first, lost=gap.lost))
        partition.unsure = False
        partition.take(record, self._wire.arrival(record))


class TopicDepth(msgspec.Struct, frozen=True):
    """The partitions of a topic, and the records that its group has not read."""

    partitions: int
    unread: int


async def topic_depth(rules: TopicRules, seconds: float) -> TopicDepth | None:
    """Ask once, without joining the group; None when there is no such topic, OSError when no broker answers."""
    thread = ClientThread("kafka-depth")
    try:
        return await thread.call(lambda: _ask_depth(rules, seconds / 4))
    except KafkaException as error:
        raise ConnectionError(f"{rules.bootstrap_servers}: {error.args[0].str()}") from None
    finally:
        thread.end()


def _ask_depth(rules: TopicRules, seconds: float) -> TopicDepth | None:
    consumer = Consumer(rules.properties())
    try:
        found = consumer.list_topics(rules.topic, timeout=seconds).topics.get(rules.topic)
        if found is None or found.error is not None:
            return None
        places = [TopicPartition(rules.topic, number) for number in found.partitions]
        unread = 0
        for place in consumer.committed(places, timeout=seconds):
            oldest, end = consumer.get_watermark_offsets(place, timeout=seconds)
            unread += max(0, end - max(oldest, place.offset))
        return TopicDepth(len(places), unread)
    finally:
        consumer.close()
