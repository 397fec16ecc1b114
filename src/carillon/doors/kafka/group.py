"""One member of a Kafka consumer group: it reads, commits what it is told to, and says which partitions are its own."""

import logging
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any, Protocol

import msgspec
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, KafkaException, Message, TopicPartition

from carillon.doors.kafka.thread import OwnThread
from carillon.doors.kafka.wire import Record
from carillon.faultpoint import faultpoint

POLL_SECONDS = 0.2
ASK_SECONDS = 5.0
"""How long a question to the broker may hold reading up."""
REACH_SECONDS = 1.0
"""How long a health check waits for a broker; reading waits behind it."""
GIVE_SECONDS = 10.0
"""How long giving partitions away waits for what is being written; what it misses is read again, and recognised."""
FIXED: dict[str, Any] = {
    # An offset is committed by us, behind the ledger's commit, or never.
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    # Whoever has no offset, or one that is gone, reads everything that is left.
    "auto.offset.reset": "earliest",
}
NAMED = {
    "bootstrap.servers": "kafka.bootstrap_servers",
    "group.id": "kafka.group_id",
    "session.timeout.ms": "kafka.session_timeout_ms",
}
DEFAULTS: dict[str, Any] = {
    "client.id": "carillon",
    "partition.assignment.strategy": "cooperative-sticky",
    # What the client fetched ahead is the memory a burst may cost.
    "queued.max.messages.kbytes": 16_384,
    "reconnect.backoff.max.ms": 5000,
    # A topic or a partition that is made later is found so soon.
    "topic.metadata.refresh.interval.ms": 10_000,
    # Brokers close connections that are idle.
    "log.connection.close": False,
    # Only what is critical: errors are told to us.
    "log_level": 2,
}


BROKERS_OWN = frozenset({"partition.assignment.strategy", "session.timeout.ms", "heartbeat.interval.ms"})
MOVING = frozenset({KafkaError.REBALANCE_IN_PROGRESS, KafkaError.ILLEGAL_GENERATION, KafkaError.UNKNOWN_MEMBER_ID})
"""What a commit meets while the group shares its partitions anew: whoever has them then commits again."""


class TopicRules(msgspec.Struct, frozen=True, kw_only=True):
    """Which topic is read, where, as whom, and how much at once."""

    bootstrap_servers: str
    topic: str
    group_id: str
    session_timeout_ms: int = 45_000
    batch: int = 500
    options: dict[str, str] = {}

    def properties(self) -> dict[str, Any]:
        """The client's; what our promises rest on cannot be said otherwise."""
        named = {"bootstrap.servers": self.bootstrap_servers, "group.id": self.group_id}
        alive = {
            "session.timeout.ms": self.session_timeout_ms,
            # The client's own three seconds would be too seldom for a short session: its member would be put out again
            # and again, and the group would share its partitions for ever instead of reading them.
            "heartbeat.interval.ms": max(1, min(3000, self.session_timeout_ms // 3)),
        }
        found = {**DEFAULTS, **alive, **self.options, **named, **FIXED}
        if self.options.get("group.protocol") == "consumer":
            # In the newer protocol the brokers decide these, and the client refuses to be told.
            found = {name: value for name, value in found.items() if name not in BROKERS_OWN}
        return found


def refusal(rules: TopicRules) -> str | None:
    """Why the client cannot work by these rules; no broker is asked."""
    for name in rules.options:
        if name in FIXED or name in NAMED:
            return f"{name} is said by {NAMED.get(name, 'the door itself, whose promises rest on it')}"
    try:
        Consumer(rules.properties()).close()
    except KafkaException as error:
        return str(error.args[0].str())
    return None


class Member(Protocol):
    """Who is told of partitions that come and go; the client waits for the answer."""

    async def given(self, starts: Mapping[int, int | None]) -> None:
        """These partitions are ours from now on, each from its committed offset; None where there is none."""
        ...

    async def taken(self, partitions: Collection[int], *, lost: bool) -> dict[int, int]:
        """These are ours no more; answers what may still be committed of each."""
        ...


class Nobody:
    """Has no partitions."""

    async def given(self, starts: Mapping[int, int | None]) -> None:
        del starts

    async def taken(self, partitions: Collection[int], *, lost: bool) -> dict[int, int]:
        del partitions, lost
        return {}


class Turn(msgspec.Struct, kw_only=True):
    """What one turn of reading brought."""

    records: list[Record] = []
    uncommitted: set[int] = set()
    """Partitions whose commit, of this turn or an earlier one, has failed."""
    errors: list[str] = []


class Group:
    """Every call of the client is made by one thread; its callbacks come inside these calls."""

    def __init__(self, rules: TopicRules, member: Member) -> None:
        self._rules = rules
        self._member: Member = member
        self._thread = OwnThread("kafka")
        self._turn = Turn()
        self._consumer: Consumer | None = None

    async def open(self) -> None:
        """Join the group; partitions are given in later turns."""
        await self._thread.call(self._open)

    async def turn(self, commit: Mapping[int, int], pause: Collection[int], resume: Collection[int]) -> Turn:
        """Commit, then read: what is there already, or what comes within a moment."""
        return await self._thread.call(lambda: self._take_turn(commit, pause, resume))

    async def oldest(self, partition: int) -> int | None:
        """The oldest offset the broker still has; None when it does not say."""
        return await self._thread.call(lambda: self._oldest(partition))

    async def reach(self) -> None:
        """Ask a broker for the topic; KafkaException when none answers."""
        await self._thread.call(lambda: self._opened().list_topics(self._rules.topic, timeout=REACH_SECONDS))

    async def close(self) -> None:
        """Commit what is written down and leave the group."""
        await self._thread.call(self._close)
        self._thread.end()

    def abandon(self) -> None:
        """Leave the group as soon as the client can; nobody is told or asked any more."""
        self._member = Nobody()
        self._thread.start(self._close)
        self._thread.end()

    def _open(self) -> None:
        told = {"on_commit": self._on_commit, "error_cb": self._on_error, "logger": logging.getLogger(__name__)}
        self._consumer = Consumer({**self._rules.properties(), **told})
        self._consumer.subscribe(
            [self._rules.topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )

    def _take_turn(self, commit: Mapping[int, int], pause: Collection[int], resume: Collection[int]) -> Turn:
        consumer = self._opened()
        turn = self._turn = Turn()
        if commit:
            faultpoint("before_kafka_commit")
            consumer.commit(offsets=self._places(commit), asynchronous=True)
        if pause:
            consumer.pause(self._places(pause))
        if resume:
            consumer.resume(self._places(resume))
        # One by one, so that a partition that goes meanwhile takes along exactly what was read of it before.
        while len(turn.records) < self._rules.batch:
            message = consumer.poll(0 if turn.records else POLL_SECONDS)
            if message is None:
                break
            self._keep(message)
        return turn

    def _keep(self, message: Message) -> None:
        error = message.error()
        if error is not None:
            self._on_error(error)
            return
        record = _record(message)
        if record is not None:
            self._turn.records.append(record)

    def _oldest(self, partition: int) -> int | None:
        with suppress(KafkaException):
            bounds = self._opened().get_watermark_offsets(
                TopicPartition(self._rules.topic, partition), timeout=ASK_SECONDS, cached=False
            )
            return bounds[0] if bounds[0] >= 0 else None
        return None

    def _close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()

    def _opened(self) -> Consumer:
        if self._consumer is None:
            raise RuntimeError("the group was not joined")
        return self._consumer

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        starts: dict[int, int | None] = dict.fromkeys((each.partition for each in partitions), None)
        try:
            for each in consumer.committed(partitions, timeout=ASK_SECONDS):
                starts[each.partition] = each.offset if each.offset >= 0 else None
        except KafkaException as error:
            self._turn.errors.append(f"committed offsets are not known: {error.args[0].str()}")
        self._thread.wait_for(self._member.given(starts), GIVE_SECONDS)

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        commit = self._let_go(partitions, lost=False)
        if commit:
            try:
                consumer.commit(offsets=self._places(commit), asynchronous=False)
            except KafkaException as error:
                if error.args[0].code() not in MOVING:
                    self._turn.errors.append(f"partitions were given away uncommitted: {error.args[0].str()}")

    def _on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        del consumer
        self._let_go(partitions, lost=True)

    def _let_go(self, partitions: list[TopicPartition], *, lost: bool) -> dict[int, int]:
        gone = {each.partition for each in partitions}
        # Their next owner reads them again.
        self._turn.records = [record for record in self._turn.records if record.partition not in gone]
        try:
            return self._thread.wait_for(self._member.taken(gone, lost=lost), GIVE_SECONDS)
        except TimeoutError:
            self._turn.errors.append("partitions were given away while their records were being written")
            return {}

    def _on_commit(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        failed = {each.partition: each.error or error for each in partitions if each.error or error}
        self._turn.uncommitted.update(failed)
        said = {found.str() for found in failed.values() if found is not None and found.code() not in MOVING}
        self._turn.errors += [f"offsets were not committed: {each}" for each in sorted(said)]

    def _on_error(self, error: KafkaError) -> None:
        # The client's own word for its end does not call itself fatal.
        if error.fatal() or error.code() == KafkaError._FATAL:  # noqa: SLF001 - a public constant by its C name
            raise ConnectionError(error.str())
        self._turn.errors.append(error.str())

    def _places(self, partitions: Collection[int]) -> list[TopicPartition]:
        offsets = partitions if isinstance(partitions, Mapping) else dict.fromkeys(partitions, 0)
        return [TopicPartition(self._rules.topic, partition, offset) for partition, offset in offsets.items()]


def _record(message: Message) -> Record | None:
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    if topic is None or partition is None or offset is None:
        return None
    headers = message.headers() or []
    pairs = headers.items() if isinstance(headers, dict) else headers
    named = tuple((name, value.encode() if isinstance(value, str) else value) for name, value in pairs)
    kind, written_ms = message.timestamp()
    known = None if kind == TIMESTAMP_NOT_AVAILABLE else written_ms
    return Record(topic, partition, offset, message.key(), message.value(), named, known)
