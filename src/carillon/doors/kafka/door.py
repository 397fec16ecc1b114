"""The Kafka door: offsets are committed behind the ledger's commit, and never above a record not written down."""

import asyncio
from collections.abc import Collection, Mapping

from carillon.domain.events import PartStarted, PartStopped, StreamTrimmed, Trouble
from carillon.domain.ports import Clock, Observer, OrderedAcceptor
from carillon.doors.backoff import LONGEST_WAIT, Patience
from carillon.doors.kafka.group import Group, TopicRules, Turn
from carillon.doors.kafka.offsets import judge
from carillon.doors.kafka.partition import Partition, Tools
from carillon.doors.kafka.wire import Record, TopicWire
from carillon.faultpoint import faultpoint

PART = "kafka_door"
COMMIT_WAIT = 1.0
"""After a commit that failed, before the next."""
LEAVE_SECONDS = 5.0
"""A broker that hangs must not take the time that others need to end."""
MOST_TOLD = 20


class KafkaDoor:
    """Reads until it is stopped; whatever the brokers, the ledger or a record does, it goes on by itself."""

    def __init__(
        self, *, rules: TopicRules, wire: TopicWire, acceptor: OrderedAcceptor, clock: Clock, observer: Observer
    ) -> None:
        self._rules = rules
        self._wire = wire
        self._clock = clock
        self._observe = observer
        self._stopping = asyncio.Event()
        self._broker = Patience(PART, self._stopping, observer)
        self._tools = Tools(acceptor, Patience(PART, self._stopping, observer), rules.batch)
        self._partitions: dict[int, Partition] = {}
        self._commit_after = 0.0
        self._told: dict[str, float] = {}
        self._group: Group | None = None

    async def run(self) -> None:
        """Read until stop()."""
        while not self._stopping.is_set():
            began = self._clock.monotonic()
            try:
                await self._read()
            except Exception as error:  # noqa: BLE001 - a door that ends would let the topic grow unread
                if self._clock.monotonic() - began > LONGEST_WAIT:
                    self._broker.reset()
                await self._broker.trouble(error)

    def stop(self) -> None:
        """Read no more; what is being accepted is accepted and committed, everything else stays in the topic."""
        self._stopping.set()

    async def oldest_unprocessed_age_ms(self) -> float | None:
        """How long the oldest record that is in hand here has waited since it was written; 0 when there is none."""
        written = [at for each in self._partitions.values() if (at := each.oldest_ms) is not None]
        return max(0.0, self._clock.wall() * 1000 - min(written)) if written else 0.0

    async def check(self) -> dict[str, str]:
        """A health check: raise when no broker answers."""
        if self._group is None:
            raise ConnectionError("the door has not joined its group")
        await self._group.reach()
        return {}

    async def given(self, starts: Mapping[int, int | None]) -> None:
        """Partitions that are ours from now on."""
        for partition, start in starts.items():
            if partition in self._partitions:
                self._partitions[partition].abandon()
            self._partitions[partition] = Partition(self._tools, start)
        if starts:
            places = ", ".join(f"{name} from {at or 'the start'}" for name, at in sorted(starts.items()))
            self._observe(PartStarted(part=PART, detail=f"reads {self._rules.topic}, partitions {places}"))

    async def taken(self, partitions: Collection[int], *, lost: bool) -> dict[int, int]:
        """Partitions that are ours no more; what may still be committed of each."""
        going = {name: self._partitions.pop(name) for name in partitions if name in self._partitions}
        await asyncio.gather(*(each.end() for each in going.values()))
        if going and not self._partitions:
            self._observe(PartStopped(part=PART))
        return {} if lost else {name: at for name, each in going.items() if (at := each.resume) is not None}

    async def _read(self) -> None:
        """One stretch: from joining the group until the door stops or the client gives up."""
        group = Group(self._rules, self)
        try:
            await group.open()
            self._group = group
            while not self._stopping.is_set():
                await self._turn(group)
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
        """Finish what is being written; the client asks for the last commits while it leaves."""
        await asyncio.gather(*(each.end() for each in self._partitions.values()))
        try:
            async with asyncio.timeout(LEAVE_SECONDS):
                await group.close()
        except TimeoutError:
            raise ConnectionError("no broker took the last commits: those records will be read again") from None

    async def _turn(self, group: Group) -> None:
        held = self._partitions
        commit = self._commits()
        pause = {name for name, each in held.items() if each.full and not each.paused}
        resume = {name for name, each in held.items() if each.fresh or (each.roomy and each.paused)} - pause
        for name in pause | resume:
            held[name].fresh, held[name].paused, held[name].unsure = False, name in pause, True
        turn = await group.turn(commit, pause, resume)
        faultpoint("after_kafka_read")
        self._tell(turn)
        for record in turn.records:
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

    def _tell(self, turn: Turn) -> None:
        now = self._clock.monotonic()
        for name in turn.uncommitted & self._partitions.keys():
            self._partitions[name].committed = None
            self._commit_after = now + COMMIT_WAIT
        for error in turn.errors:
            # The client says the same of every broker and every try.
            if now - self._told.get(error, -LONGEST_WAIT) >= LONGEST_WAIT:
                self._observe(Trouble(where=PART, error=error))
                if len(self._told) > MOST_TOLD:
                    self._told.clear()
                self._told[error] = now

    async def _take(self, group: Group, partition: Partition, record: Record) -> None:
        expected = partition.expected
        if expected is not None and (record.offset < expected or (partition.unsure and record.offset > expected)):
            gap = judge(expected, record.offset, await group.oldest(record.partition))
            if gap is not None:
                stream = f"{self._rules.topic}[{record.partition}]"
                first = str(record.offset)
                self._observe(StreamTrimmed(stream=stream, offset=str(expected), first_entry_id=first, lost=gap.lost))
        partition.unsure = False
        partition.take(record, self._wire.arrival(record))
