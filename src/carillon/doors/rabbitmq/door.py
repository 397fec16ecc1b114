"""The RabbitMQ door: a delivery is acknowledged behind the ledger's commit, and what cannot be read is parked first."""

import asyncio
from contextlib import suppress
from functools import partial
from typing import Literal, assert_never

import aio_pika
import msgspec
from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractIncomingMessage, AbstractQueue
from aio_pika.exceptions import AMQPError, ChannelInvalidStateError, ChannelNotFoundEntity
from pamqp.common import FieldTable

from carillon.domain.errors import BadIntent, DirectoryUnavailable, LedgerUnavailable, Overloaded
from carillon.domain.events import IntentMalformed, PartStarted, PartStopped
from carillon.domain.intents import Intent, Malformed
from carillon.domain.ports import Acceptor, Clock, IntakeLedger, Observer
from carillon.doors.backoff import LONGEST_WAIT, Patience, pause
from carillon.doors.rabbitmq.wire import QueueWire

PART = "rabbitmq_door"
CANCELLED_WAIT = 1.0
"""Whoever deletes a queue to make it anew with other arguments is given this long."""
STRANGE_TRIES = 5
"""A delivery that an unexpected error met so often is parked: it would keep its place for ever."""
_CONNECT_SECONDS, _HEARTBEAT_SECONDS, _LEAVE_SECONDS = 5.0, 10, 1.0
_LATER = (LedgerUnavailable, Overloaded, DirectoryUnavailable)
_GONE = (AMQPError, ChannelInvalidStateError, OSError)


class QueueRules(msgspec.Struct, frozen=True, kw_only=True):
    """Which queue is read, and how much of it at once."""

    url: str
    queue: str
    queue_type: Literal["classic", "quorum"] = "classic"
    """Of a queue that is not there yet; one that is there stays as its owner made it."""
    prefetch: int = 200


class RabbitDoor:
    """Reads until it is stopped; whatever the broker, the ledger or a message does, it goes on by itself."""

    def __init__(
        self,
        *,
        rules: QueueRules,
        wire: QueueWire,
        acceptor: Acceptor,
        ledger: IntakeLedger,
        clock: Clock,
        observer: Observer,
    ) -> None:
        self._rules = rules
        self._wire = wire
        self._acceptor = acceptor
        self._ledger = ledger
        self._clock = clock
        self._observe = observer
        self._stopping = asyncio.Event()
        self._broker = Patience(PART, self._stopping, observer)
        self._writing = Patience(PART, self._stopping, observer)
        self._carried: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Read until stop()."""
        while not self._stopping.is_set():
            began = self._clock.monotonic()
            try:
                await self._read()
            except Exception as error:  # noqa: BLE001 - a door that ends would let the queue grow unread
                if self._clock.monotonic() - began > LONGEST_WAIT:
                    self._broker.reset()
                await self._broker.trouble(error)

    def stop(self) -> None:
        """Read no more; what is being accepted is accepted and acknowledged, everything else stays in the queue."""
        self._stopping.set()

    async def _read(self) -> None:
        """One stretch: from a new connection until it ends, the consumer is cancelled, or the door stops."""
        connection = await aio_pika.connect(self._rules.url, timeout=_CONNECT_SECONDS, heartbeat=_HEARTBEAT_SECONDS)
        stretch = Stretch()
        connection.close_callbacks.add(lambda *_: stretch.end("the connection was closed"))
        try:
            queue = await self._queue(connection, stretch)
            tag = await queue.consume(partial(self._take, stretch), timeout=_CONNECT_SECONDS)
            self._observe(PartStarted(part=PART, detail=f"reads {self._rules.queue}"))
            await self._until_over(stretch)
            if stretch.why is None:
                await queue.cancel(tag, timeout=_CONNECT_SECONDS)
            await self._finish()
            self._observe(PartStopped(part=PART))
        except asyncio.CancelledError:
            # Out of patience: what is not written yet stays in the queue.
            for task in self._carried:
                task.cancel()
            raise
        finally:
            stretch.end("the connection is left")
            await self._finish()
            await _leave(connection)
        if not self._stopping.is_set():
            if stretch.cancelled:
                await pause(self._stopping, CANCELLED_WAIT)
            raise ConnectionError(stretch.why)

    async def _queue(self, connection: AbstractConnection, stretch: "Stretch") -> AbstractQueue:
        """The queue on a channel whose end ends the stretch; made only when it is not there."""
        channel = await self._channel(connection)
        try:
            queue = await channel.declare_queue(self._rules.queue, passive=True, timeout=_CONNECT_SECONDS)
        except ChannelNotFoundEntity:
            # The refusal cost the channel.
            channel = await self._channel(connection)
            kind: FieldTable = {} if self._rules.queue_type == "classic" else {"x-queue-type": self._rules.queue_type}
            queue = await channel.declare_queue(
                self._rules.queue, durable=True, arguments=kind, timeout=_CONNECT_SECONDS
            )
        channel.close_callbacks.add(lambda *_: stretch.end("the channel was closed"))
        underlay = await channel.get_underlay_channel()
        underlay.on_consumer_cancel_callbacks.add(stretch.cancel)
        return queue

    async def _channel(self, connection: AbstractConnection) -> AbstractChannel:
        channel = await connection.channel(publisher_confirms=False)
        await channel.set_qos(prefetch_count=self._rules.prefetch, timeout=_CONNECT_SECONDS)
        return channel

    async def _until_over(self, stretch: "Stretch") -> None:
        over = [asyncio.create_task(each.wait()) for each in (stretch.ended, self._stopping)]
        try:
            await asyncio.wait(over, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in over:
                task.cancel()
            await asyncio.gather(*over, return_exceptions=True)

    async def _take(self, stretch: "Stretch", message: AbstractIncomingMessage) -> None:
        # Not in the client's own task, which it cancels with the channel: an acceptance is never cut off.
        task = asyncio.create_task(self._carry(message, stretch))
        self._carried.add(task)
        task.add_done_callback(self._carried.discard)

    async def _finish(self) -> None:
        if self._carried:
            await asyncio.wait(self._carried)

    async def _carry(self, message: AbstractIncomingMessage, stretch: "Stretch") -> None:
        """Write one delivery down, however long that takes, and acknowledge it; unacknowledged it comes again."""
        read = self._wire.read(message)
        strange = 0
        while True:
            try:
                await self._write(read)
            except BadIntent as error:
                read = self._wire.malformed(message, error.code, str(error))
                continue
            except Exception as error:  # noqa: BLE001 - nothing was acknowledged, so it is simply tried again
                strange += not isinstance(error, _LATER)
                if strange >= STRANGE_TRIES:
                    read = self._wire.malformed(message, "INTERNAL_ERROR", f"{type(error).__name__}: {error}")
                await self._writing.trouble(error)
                if stretch.ended.is_set() or self._stopping.is_set():
                    return
                continue
            break
        self._writing.reset()
        self._broker.reset()
        # Where the connection is gone it comes again, and the ledger knows it by its key.
        with suppress(*_GONE):
            await message.ack()

    async def _write(self, read: Intent | Malformed) -> None:
        match read:
            case Intent():
                await self._acceptor.accept(read)
            case Malformed():
                await self._ledger.park([read])
                self._observe(
                    IntentMalformed(
                        stream_entry_id=read.stream_entry_id,
                        failure_code=read.failure_code,
                        failure_message=read.failure_message,
                        idempotency_key=read.idempotency_key,
                    )
                )
            case _:
                assert_never(read)


class Stretch:
    """One connection's life as a consumer."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()
        self.why: str | None = None
        self.cancelled = False

    def end(self, why: str) -> None:
        self.why = self.why or why
        self.ended.set()

    async def cancel(self, _: object) -> None:
        self.cancelled = True
        self.end("the broker cancelled the consumer: the queue was deleted or its node left")


async def _leave(connection: AbstractConnection) -> None:
    with suppress(*_GONE, TimeoutError):
        async with asyncio.timeout(_LEAVE_SECONDS):
            await connection.close()
