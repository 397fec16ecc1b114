"""One member of a Kafka consumer group: it reads records, commits offsets and reports its partitions."""

import asyncio
import contextvars
import logging
import queue
import threading
from collections.abc import Callable, Collection, Coroutine, Mapping
from contextlib import suppress
from functools import partial
from operator import methodcaller
from typing import Any, Protocol, TypeVar

import msgspec
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, KafkaException, Message, TopicPartition

from carillon.doors.kafka.wire import Record
from carillon.faultpoint import faultpoint

T = TypeVar("T")
Call = Callable[[], None]
POLL_SECONDS = 0.2
ASK_SECONDS = 5.0
"""How long a request to the broker may delay reading."""
REACH_SECONDS = 1.0
"""How long a health check waits for a broker; reading waits meanwhile."""
GIVE_SECONDS = 10.0
"""How long a revocation waits for records that are being accepted; the next owner reads the others again."""
FIXED: dict[str, Any] = {
    # The door commits an offset after the ledger's commit; the client must not.
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    # Without a committed offset, or with one that is gone, read everything that is left.
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
    # Limits the memory that the client uses to fetch ahead.
    "queued.max.messages.kbytes": 16_384,
    "reconnect.backoff.max.ms": 5000,
    # How soon the client finds a new topic or partition.
    "topic.metadata.refresh.interval.ms": 10_000,
    # Not an error: brokers close idle connections.
    "log.connection.close": False,
    # Only critical messages: errors arrive in the callback.
    "log_level": 2,
}


BROKERS_OWN = frozenset({"partition.assignment.strategy", "session.timeout.ms", "heartbeat.interval.ms"})
MOVING = frozenset({KafkaError.REBALANCE_IN_PROGRESS, KafkaError.ILLEGAL_GENERATION, KafkaError.UNKNOWN_MEMBER_ID})
"""Errors of a commit during a rebalance: the next owner of the partitions commits again."""


class ClientThread:
    """Runs calls in order."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._calls: queue.SimpleQueue[Call | None] = queue.SimpleQueue()
        # In the starter's context, so that its logs carry the right blueprint.
        run = partial(contextvars.copy_context().run, self._run)
        # A daemon: a client that hangs must not block the exit of the process.
        threading.Thread(target=run, name=name, daemon=True).start()

    async def call(self, work: Callable[[], T]) -> T:
        """Run the work and return its result; cancelling the caller does not stop the work."""
        answer: asyncio.Future[T] = self._loop.create_future()
        self._calls.put(partial(self._answer, work, answer))
        return await answer

    def start(self, work: Callable[[], None]) -> None:
        """Run the work without waiting for it."""
        self._calls.put(partial(self._answer, work, self._loop.create_future()))

    def wait_for(self, asked: Coroutine[Any, Any, T], seconds: float) -> T:
        """Called in the thread: run a coroutine in the event loop and wait for it; raises TimeoutError."""
        answer = asyncio.run_coroutine_threadsafe(asked, self._loop)
        try:
            return answer.result(seconds)
        except TimeoutError:
            answer.cancel()
            raise

    def end(self) -> None:
        """End the thread after the queued calls."""
        self._calls.put(None)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call()

    def _answer(self, work: Callable[[], T], answer: "asyncio.Future[T]") -> None:
        try:
            finish = partial(_set_result, answer, work())
        except Exception as error:  # noqa: BLE001 - the caller gets every exception
            finish = partial(_set_error, answer, error)
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(finish)


def _set_result(answer: "asyncio.Future[T]", value: T) -> None:
    if not answer.done():
        answer.set_result(value)


def _set_error(answer: "asyncio.Future[T]", error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)


class TopicRules(msgspec.Struct, frozen=True, kw_only=True):
    """The topic, its brokers, the consumer group and the batch size."""

    bootstrap_servers: str
    topic: str
    group_id: str
    session_timeout_ms: int = 45_000
    batch: int = 500
    options: dict[str, str] = {}

    def properties(self) -> dict[str, Any]:
        """The client's properties; `options` cannot change those that the door's guarantees need."""
        named = {"bootstrap.servers": self.bootstrap_servers, "group.id": self.group_id}
        alive = {
            "session.timeout.ms": self.session_timeout_ms,
            # The client's default of three seconds is too long for a short session: the brokers would expel the member
            # again and again, and the group would rebalance forever instead of reading.
            "heartbeat.interval.ms": max(1, min(3000, self.session_timeout_ms // 3)),
        }
        found = {**DEFAULTS, **alive, **self.options, **named, **FIXED}
        if self.options.get("group.protocol") == "consumer":
            # In the newer protocol the brokers decide these, and the client refuses to set them.
            found = {name: value for name, value in found.items() if name not in BROKERS_OWN}
        return found


def refusal(rules: TopicRules) -> str | None:
    """Why the client cannot work with these rules; asks no broker."""
    for name in rules.options:
        if name in FIXED or name in NAMED:
            return f"{name} is set by {NAMED.get(name, 'the door itself, whose guarantees need it')}"
    try:
        Consumer(rules.properties()).close()
    except KafkaException as error:
        return str(error.args[0].str())
    return None


class Member(Protocol):
    """Gets the partitions of a group member; the client waits for the answers."""

    async def assigned(self, starts: Mapping[int, int | None]) -> None:
        """The group assigned these partitions, each with its committed offset; None where there is none."""
        ...

    async def revoked(self, partitions: Collection[int], *, lost: bool) -> dict[int, int]:
        """The group revoked these partitions; returns the offsets that may still be committed."""
        ...


class NoMember:
    """Satisfies Member for a group that is being left."""

    async def assigned(self, starts: Mapping[int, int | None]) -> None:
        del starts

    async def revoked(self, partitions: Collection[int], *, lost: bool) -> dict[int, int]:
        del partitions, lost
        return {}


class Poll(msgspec.Struct, kw_only=True):
    """The result of one poll."""

    records: list[Record] = []
    uncommitted: set[int] = set()
    """Partitions whose last commit failed."""
    errors: list[str] = []


class Group:
    """One thread makes all calls of the client; the client runs its callbacks inside these calls."""

    def __init__(self, rules: TopicRules, member: Member) -> None:
        self._rules = rules
        self._member: Member = member
        self._thread = ClientThread("kafka")
        self._result = Poll()
        self._consumer: Consumer | None = None
        self.committing = False
        """A commit is under way. The client may repeat it later and undo a newer one: so there is none beside it."""

    async def open(self) -> None:
        """Join the group; later polls assign partitions."""
        await self._thread.call(self._open)

    async def poll(self, commit: Mapping[int, int], pause: Collection[int], resume: Collection[int]) -> Poll:
        """Commit offsets, then read the records that are there, or wait a moment for the first."""
        return await self._thread.call(lambda: self._poll(commit, pause, resume))

    async def oldest(self, partition: int) -> int | None:
        """The oldest offset that the broker still has; None when it does not answer."""
        return await self._thread.call(lambda: self._oldest(partition))

    async def reach(self) -> None:
        """Ask a broker for the topic; KafkaException when none answers."""
        await self._thread.call(lambda: self._opened().list_topics(self._rules.topic, timeout=REACH_SECONDS))

    async def close(self) -> None:
        """Commit what is accepted and leave the group."""
        await self._thread.call(self._close)
        self._thread.end()

    def abandon(self) -> None:
        """Leave the group as soon as the client can, without asking the member."""
        self._member = NoMember()
        self._thread.start(self._close)
        self._thread.end()

    def _open(self) -> None:
        callbacks = {"on_commit": self._on_commit, "error_cb": self._on_error, "logger": logging.getLogger(__name__)}
        self._consumer = Consumer({**self._rules.properties(), **callbacks})
        self._consumer.subscribe(
            [self._rules.topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )

    def _poll(self, commit: Mapping[int, int], pause: Collection[int], resume: Collection[int]) -> Poll:
        consumer = self._opened()
        result = self._result = Poll()
        if commit:
            faultpoint("before_kafka_commit")
            self.committing = True
            consumer.commit(offsets=self._places(commit), asynchronous=True)
        if pause:
            consumer.pause(self._places(pause))
        if resume:
            consumer.resume(self._places(resume))
        # One by one: when a partition is revoked during a poll, exactly its records are dropped.
        while len(result.records) < self._rules.batch:
            message = consumer.poll(0 if result.records else POLL_SECONDS)
            if message is None:
                break
            self._keep(message)
        return result

    def _keep(self, message: Message) -> None:
        error = message.error()
        if error is not None:
            self._on_error(error)
            return
        record = _record(message)
        if record is not None:
            self._result.records.append(record)

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
            self._result.errors.append(f"the committed offsets could not be read: {error.args[0].str()}")
        self._thread.wait_for(self._member.assigned(starts), GIVE_SECONDS)

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        commit = self._release(partitions, lost=False)
        if commit:
            try:
                consumer.commit(offsets=self._places(commit), asynchronous=False)
            except KafkaException as error:
                if error.args[0].code() not in MOVING:
                    self._result.errors.append(
                        f"offsets of revoked partitions were not committed: {error.args[0].str()}"
                    )

    def _on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        del consumer
        self._release(partitions, lost=True)

    def _release(self, partitions: list[TopicPartition], *, lost: bool) -> dict[int, int]:
        gone = {each.partition for each in partitions}
        # The next owner reads these records again.
        self._result.records = [record for record in self._result.records if record.partition not in gone]
        try:
            return self._thread.wait_for(self._member.revoked(gone, lost=lost), GIVE_SECONDS)
        except TimeoutError:
            self._result.errors.append("partitions were revoked while their records were being written")
            return {}

    def _on_commit(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        self.committing = False
        failed = {each.partition: each.error or error for each in partitions if each.error or error}
        self._result.uncommitted.update(failed)
        said = {found.str() for found in failed.values() if found is not None and found.code() not in MOVING}
        self._result.errors += [f"offsets were not committed: {each}" for each in sorted(said)]

    def _on_error(self, error: KafkaError) -> None:
        # The client's own code for a fatal error does not say so in `fatal()`.
        if error.fatal() or error.code() == KafkaError._FATAL:  # noqa: SLF001 - a public constant by its C name
            raise ConnectionError(error.str())
        self._result.errors.append(error.str())

    def _places(self, partitions: Collection[int]) -> list[TopicPartition]:
        offsets = partitions if isinstance(partitions, Mapping) else dict.fromkeys(partitions, 0)
        return [TopicPartition(self._rules.topic, partition, offset) for partition, offset in offsets.items()]


def _record(message: Message) -> Record | None:
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    if topic is None or partition is None or offset is None:
        return None
    named = _headers(message)
    kind, written_ms = message.timestamp()
    known = None if kind == TIMESTAMP_NOT_AVAILABLE else written_ms
    return Record(topic, partition, offset, message.key(), message.value(), named, known)


# At a name that is not UTF-8 the client answers and leaves an exception behind. After `message.headers()`, in code that
# has run often, Python does not look for it, and whatever comes next raises it. A call from C always looks for it.
_ask_headers = methodcaller("headers")


def _headers(message: Message) -> tuple[tuple[str, bytes | None], ...]:
    """Those of the message; none where one of their names is not UTF-8: the door needs no header."""
    try:
        headers = _ask_headers(message) or []
    except (SystemError, ValueError):
        # A record that raised here would be read again for ever, and nothing behind it.
        return ()
    pairs = headers.items() if isinstance(headers, dict) else headers
    return tuple((name, value.encode() if isinstance(value, str) else value) for name, value in pairs)
