"""Messages between replicas: that a log has grown, and whether a connection has an entry; Redis can carry them."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from carillon.domain.events import Trouble
from carillon.domain.ports import Clock, Observer
from carillon.domain.streams import Entry, NotifyBus
from carillon.live.hub import HERE, Confirmation, Hub

if TYPE_CHECKING:
    from redis.asyncio import Redis
    from redis.asyncio.client import PubSub

MAX_MESSAGE_BYTES = 7000
"""The longest message in bytes; a NOTIFY of PostgreSQL holds fewer than 8,000."""


class _Message(msgspec.Struct, array_like=True):
    sender: str
    grew: list[tuple[str, int]] = []
    """Person and sequence number: the log has entries up to it."""
    wrote: list[tuple[str, int, bool]] = []
    """Person, sequence number, and whether a live connection has the entry."""
    changed: list[str] = []
    """People who have marked or archived something; a replica of an earlier release does not read it."""


_read = msgspec.json.Decoder(_Message).decode


class ReplicaRelay:
    """Wakes readers and reports back; the entries themselves always come from the ledger."""

    def __init__(self, hub: Hub, bus: NotifyBus, replica: str) -> None:
        self._hub = hub
        self._bus = bus
        self._replica = replica
        self._outbox: dict[str, _Message] = {}
        self._to_send = asyncio.Event()

    async def run(self) -> None:
        """Send and receive until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._bus.run(self._replica, self.receive))
            group.create_task(self._send())

    def announce(self, entries: Collection[tuple[Entry, Collection[str]]]) -> None:
        """Tell the replicas, at which the logs of these entries are read, that the logs have grown."""
        for entry, replicas in entries:
            for replica in replicas:
                self._message(replica).grew.append((entry.user_id, entry.seq))

    def changed(self, user_id: str, replicas: Collection[str]) -> None:
        """Tell these replicas that a person has marked or archived something."""
        for replica in replicas:
            self._message(replica).changed.append(user_id)

    def receive(self, text: str) -> None:
        """Handle a message to this replica; ignore one that cannot be read."""
        try:
            message = _read(text)
        except msgspec.DecodeError:
            return
        for user_id, seq, written in message.wrote:
            self._hub.reported(message.sender, user_id, seq, written=written)
        for user_id in message.changed:
            self._hub.changed(user_id)
        for user_id, seq in message.grew:
            confirmation = self._hub.expect(user_id, seq, {HERE})
            self._hub.grown(user_id, seq)
            confirmation.written.add_done_callback(partial(self._report, message.sender, confirmation))

    def _report(self, replica: str, confirmation: Confirmation, written: asyncio.Future[bool]) -> None:
        self._hub.release(confirmation)
        self._message(replica).wrote.append((confirmation.user_id, confirmation.seq, written.result()))

    def _message(self, replica: str) -> _Message:
        self._to_send.set()
        return self._outbox.setdefault(replica, _Message(self._replica))

    async def _send(self) -> None:
        while True:
            await self._to_send.wait()
            self._to_send.clear()
            # Messages added during a send go out with the next one.
            outbox, self._outbox = self._outbox, {}
            await self._bus.send({replica: texts(message) for replica, message in outbox.items()})


def texts(message: _Message) -> list[str]:
    """The message as text, split until each part fits."""
    text = msgspec.json.encode(message)
    said: list[tuple[str, object]] = [("grew", one) for one in message.grew]
    said += [("wrote", one) for one in message.wrote]
    said += [("changed", one) for one in message.changed]
    if len(text) <= MAX_MESSAGE_BYTES or len(said) <= 1:
        return [text.decode()]
    halves = (said[: len(said) // 2], said[len(said) // 2 :])
    return [text for half in halves for text in texts(_gathered(message.sender, half))]


def _gathered(sender: str, said: Sequence[tuple[str, object]]) -> _Message:
    message = _Message(sender)
    for kind, one in said:
        getattr(message, kind).append(one)
    return message


FIRST_WAIT, LONGEST_WAIT = 0.1, 5.0
LISTEN_SECONDS = 5.0


class RedisBus:
    """Satisfies NotifyBus; each replica subscribes to a channel of its own."""

    def __init__(self, redis: "Redis", *, prefix: str, clock: Clock, observer: Observer) -> None:
        # Loaded here: redis brings the SDK of OpenTelemetry along, and with it every process would count its metrics.
        from redis.exceptions import RedisError  # noqa: PLC0415 - as said

        self._failures = (RedisError, OSError, TimeoutError)
        self._redis = redis
        self._prefix = prefix
        self._clock = clock
        self._observe = observer

    async def send(self, messages: Mapping[str, Sequence[str]]) -> None:
        """Publish in one round trip; an error is reported and the messages are lost."""
        try:
            async with self._redis.pipeline(transaction=False) as pipeline:
                for replica, texts in messages.items():
                    for text in texts:
                        pipeline.publish(self._prefix + replica, text)
                await pipeline.execute()
        except self._failures as error:
            # The messages are lost: a sender that needs an answer has a timeout and sends again.
            self._observe(Trouble(where="stream_relay", error=f"{type(error).__name__}: {error}"))

    async def run(self, replica: str, receive: Callable[[str], None]) -> None:
        """Receive until cancelled; a broken connection is opened again."""
        wait = FIRST_WAIT
        while True:
            try:
                async with self._redis.pubsub(ignore_subscribe_messages=True) as pubsub:
                    await pubsub.subscribe(self._prefix + replica)
                    wait = FIRST_WAIT
                    while True:
                        await self._receive(pubsub, receive)
            except self._failures as error:
                said = f"{type(error).__name__}: {error}"
                self._observe(Trouble(where="stream_relay", error=said, retry_in_seconds=wait))
                await self._clock.sleep(wait)
                wait = min(wait * 2, LONGEST_WAIT)

    async def _receive(self, pubsub: "PubSub", receive: Callable[[str], None]) -> None:
        message = await pubsub.get_message(timeout=LISTEN_SECONDS)
        if message is None:
            await asyncio.wait_for(pubsub.ping(), LISTEN_SECONDS)
        elif message["type"] == "message":
            data = message["data"]
            receive(data.decode() if isinstance(data, bytes) else data)
