"""The RabbitMQ door: it acknowledges a delivery after the ledger's commit; the ledger keeps malformed ones too."""

import asyncio
from contextlib import suppress
from functools import partial
from typing import Literal

import msgspec
from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractIncomingMessage, AbstractQueue
from aio_pika.exceptions import AMQPError, ChannelInvalidStateError, ChannelNotFoundEntity
from pamqp.common import FieldTable

from carillon import amqp
from carillon.domain.events import PartStarted, PartStopped
from carillon.domain.ports import Acceptor, Clock, IntakeLedger, Observer
from carillon.doors.backoff import DoorBackoff, pause, read_until_stopped
from carillon.doors.messages import BrokerMessage, MessageStore, QueueWire, text_of

PART = "rabbitmq_door"
CANCELLED_WAIT = 1.0
"""The pause after a queue was deleted: an operator may be creating it again with other arguments."""
_CONNECT_SECONDS, _HEARTBEAT_SECONDS, _LEAVE_SECONDS = 5.0, 10, 1.0
_GONE = (AMQPError, ChannelInvalidStateError, OSError)


def seen(message: AbstractIncomingMessage) -> BrokerMessage:
    """A delivery of RabbitMQ."""
    headers = message.headers
    unreadable = None
    if amqp.UNREADABLE in headers:
        # One of them may have been the idempotency key.
        unreadable = f"the headers are not readable: {text_of(headers[amqp.UNREADABLE])}"
    return BrokerMessage(
        body=message.body,
        message_id=text_of(message.message_id),
        correlation_id=text_of(message.correlation_id),
        headers=headers,
        unreadable=unreadable,
    )


class RabbitDoorRules(msgspec.Struct, frozen=True, kw_only=True):
    """The queue, and how many deliveries are read at once."""

    url: str
    queue: str
    queue_type: Literal["classic", "quorum"] = "classic"
    """The type of a queue that the door creates; an existing queue stays as it is."""
    prefetch: int = 200


class RabbitDoor:
    """Reads until it is stopped; it recovers from every error of the broker, the ledger or a message."""

    def __init__(
        self,
        *,
        rules: RabbitDoorRules,
        wire: QueueWire,
        acceptor: Acceptor,
        ledger: IntakeLedger,
        clock: Clock,
        observer: Observer,
    ) -> None:
        self._rules = rules
        self._clock = clock
        self._observe = observer
        self._stopping = asyncio.Event()
        self._broker = DoorBackoff(PART, self._stopping, observer)
        self._store = MessageStore(PART, wire, acceptor, ledger, stopping=self._stopping, observer=observer)
        self._accepting: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Read until stop()."""
        await read_until_stopped(self._read, self._broker, self._clock, self._stopping)

    def stop(self) -> None:
        """Stop reading; deliveries that are being accepted are still acknowledged, all others stay in the queue."""
        self._stopping.set()

    async def _read(self) -> None:
        """One session: from a new connection until it ends, the broker cancels the consumer, or the door stops."""
        connection = await amqp.connect(self._rules.url, timeout=_CONNECT_SECONDS, heartbeat=_HEARTBEAT_SECONDS)
        session = ConsumerSession()
        connection.close_callbacks.add(lambda *_: session.end("the connection was closed"))
        try:
            queue = await self._queue(connection, session)
            tag = await queue.consume(partial(self._take, session), timeout=_CONNECT_SECONDS)
            self._observe(PartStarted(part=PART, detail=f"reads {self._rules.queue}"))
            await self._until_over(session)
            if session.why is None:
                await amqp.answered_within(_CONNECT_SECONDS, queue.cancel(tag))
            await self._finish()
            self._observe(PartStopped(part=PART))
        except asyncio.CancelledError:
            # The shutdown's time is over: deliveries that are not accepted yet stay in the queue.
            for task in self._accepting:
                task.cancel()
            raise
        finally:
            session.end("the door closes the connection")
            await self._finish()
            await _leave(connection)
        if not self._stopping.is_set():
            if session.cancelled:
                await pause(self._stopping, CANCELLED_WAIT)
            raise ConnectionError(session.why)

    async def _queue(self, connection: AbstractConnection, session: "ConsumerSession") -> AbstractQueue:
        """The queue, on a channel whose end ends the session; created if it does not exist."""
        channel = await self._channel(connection)
        try:
            queue = await channel.declare_queue(self._rules.queue, passive=True, timeout=_CONNECT_SECONDS)
        except ChannelNotFoundEntity:
            # The broker closes the channel with its refusal.
            channel = await self._channel(connection)
            kind: FieldTable = {} if self._rules.queue_type == "classic" else {"x-queue-type": self._rules.queue_type}
            queue = await channel.declare_queue(
                self._rules.queue, durable=True, arguments=kind, timeout=_CONNECT_SECONDS
            )
        channel.close_callbacks.add(lambda *_: session.end("the channel was closed"))
        underlay = await channel.get_underlay_channel()
        underlay.on_consumer_cancel_callbacks.add(session.cancel)
        return queue

    async def _channel(self, connection: AbstractConnection) -> AbstractChannel:
        channel = await connection.channel(publisher_confirms=False)
        await channel.set_qos(prefetch_count=self._rules.prefetch, timeout=_CONNECT_SECONDS)
        return channel

    async def _until_over(self, session: "ConsumerSession") -> None:
        over = [asyncio.create_task(each.wait()) for each in (session.ended, self._stopping)]
        try:
            await asyncio.wait(over, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in over:
                task.cancel()
            await asyncio.gather(*over, return_exceptions=True)

    async def _take(self, session: "ConsumerSession", message: AbstractIncomingMessage) -> None:
        # Not in the client's task, which ends with the channel: an acceptance must not be cancelled.
        task = asyncio.create_task(self._accept(message, session))
        self._accepting.add(task)
        task.add_done_callback(self._accepting.discard)

    async def _finish(self) -> None:
        if self._accepting:
            await asyncio.wait(self._accepting)

    async def _accept(self, message: AbstractIncomingMessage, session: "ConsumerSession") -> None:
        """Write one delivery to the ledger, then acknowledge it; the broker repeats it otherwise."""
        if await self._store.store(seen(message), session.ended) is None:
            return
        self._broker.reset()
        # If the connection is gone the broker repeats the delivery, and the ledger recognises its key.
        with suppress(*_GONE):
            await message.ack()


class ConsumerSession:
    """One connection as a consumer, and why it ended."""

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
