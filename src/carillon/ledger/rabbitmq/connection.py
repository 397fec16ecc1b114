"""One process's connection to RabbitMQ: a consumer, its acknowledgements, a confirmed publisher, and reconnecting."""

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import aio_pika
import msgspec
from aio_pika.abc import AbstractChannel, AbstractConnection
from aio_pika.exceptions import AMQPError, ChannelInvalidStateError, ChannelNotFoundEntity

from carillon import amqp
from carillon.domain.events import PartStarted, Trouble
from carillon.domain.ports import Dice, Observer

if TYPE_CHECKING:
    from aiormq.abc import AbstractChannel as RawChannel
    from aiormq.abc import DeliveredMessage


GONE = (AMQPError, ChannelInvalidStateError, OSError, RuntimeError)
"""The exceptions that the client raises on a broken connection."""


class Delivery(msgspec.Struct, frozen=True, eq=False):
    """One unacknowledged message; its holder calls `ack` or `give_back`, once."""

    tag: int
    body: bytes
    message_id: str | None
    acks: "Acks"

    @property
    def lost(self) -> bool:
        """Whether the channel is closed, so that the broker redelivers the message."""
        return self.acks.channel.is_closed

    def ack(self) -> None:
        """Acknowledge; on a closed channel, the broker redelivers the message, and its mark prevents a second send."""
        self.acks.ack(self.tag)

    async def give_back(self) -> None:
        """Let the broker redeliver the message; raises one of GONE."""
        await self.acks.give_back(self.tag)


class Acks:
    """Acknowledgements of one channel, sent together; one may acknowledge all earlier tags."""

    def __init__(self, channel: "RawChannel") -> None:
        self.channel = channel
        self._open: dict[int, None] = {}
        """Unacknowledged tags in the order of their arrival."""
        self._done: list[int] = []
        self._last = 0
        self._gapless = True
        """Whether every tag so far arrived here: an acknowledgement of all earlier tags must not cover others."""
        self._leaving: asyncio.Task[None] | None = None

    def arrived(self, tag: int) -> None:
        """Add a new delivery, which only its own `ack` may acknowledge."""
        self._gapless = self._gapless and tag == self._last + 1
        self._last = tag
        self._open[tag] = None

    def ack(self, tag: int) -> None:
        self._open.pop(tag, None)
        self._done.append(tag)
        if self._leaving is None:
            self._leaving = asyncio.get_running_loop().create_task(self._leave())

    async def give_back(self, tag: int) -> None:
        await self.channel.basic_nack(tag, requeue=True, wait=False)
        # Remove the tag only now: before, an acknowledgement of all earlier tags could have covered it.
        self._open.pop(tag, None)

    async def drain(self) -> None:
        """Wait until every acknowledgement so far is sent."""
        while self._leaving is not None:
            await asyncio.wait({self._leaving})

    async def _leave(self) -> None:
        try:
            while self._done:
                done, self._done = self._done, []
                first_open = next(iter(self._open), None) if self._gapless else 0
                for tag, multiple in words(done, first_open):
                    await self.channel.basic_ack(tag, multiple=multiple, wait=False)
        except GONE:
            self._done.clear()
        finally:
            self._leaving = None


def words(done: list[int], first_open: int | None) -> list[tuple[int, bool]]:
    """Tags to acknowledge, and whether each covers all earlier tags, which is allowed below the first open tag."""
    below = [tag for tag in done if first_open is None or tag < first_open]
    above = [(tag, False) for tag in done if first_open is not None and tag > first_open]
    return [(max(below), len(below) > 1), *above] if below else above


FIRST_WAIT, LONGEST_WAIT = 0.1, 5.0
_CONNECT_SECONDS, _HEARTBEAT_SECONDS, _LEAVE_SECONDS = 5.0, 10, 1.0


class BrokerRules(msgspec.Struct, frozen=True, kw_only=True):
    """The queues, and the number of unacknowledged deliveries."""

    url: str
    queue: str = "push.queue"
    failed_queue: str = "failed.queue"
    prefetch: int = 10
    exchange: str | None = None
    """A direct exchange to which both queues are bound, if producers publish to one."""
    queue_key: str = "push"
    failed_key: str = "failed"


async def depths(url: str, queues: Iterable[str]) -> dict[str, int | None]:
    """The number of waiting messages of each queue, None if the queue does not exist; raises ConnectionError."""
    found: dict[str, int | None] = {}
    try:
        connection = await amqp.connect(url, timeout=_CONNECT_SECONDS)
        async with connection:
            for queue in queues:
                channel = await connection.channel()
                try:
                    declared = await channel.declare_queue(queue, passive=True, timeout=_CONNECT_SECONDS)
                    found[queue] = declared.declaration_result.message_count or 0
                except ChannelNotFoundEntity:
                    found[queue] = None
    except GONE as error:
        raise ConnectionError(f"{type(error).__name__}: {error}") from error
    return found


async def take_out(url: str, queue: str, about: Callable[[bytes], bool]) -> int:
    """Remove the messages of a queue that `about` names; the others keep their order. Raises ConnectionError.

    Each message is fetched and not acknowledged; when the channel closes, the broker puts back those that stay. A
    process that dies in between has removed some and lost none.
    """
    removed = 0
    try:
        connection = await amqp.connect(url, timeout=_CONNECT_SECONDS)
        async with connection:
            channel = await connection.channel()
            try:
                found = await channel.declare_queue(queue, passive=True, timeout=_CONNECT_SECONDS)
            except ChannelNotFoundEntity:
                return 0
            for _ in range(found.declaration_result.message_count or 0):
                message = await found.get(fail=False, timeout=_CONNECT_SECONDS)
                if message is None:
                    break
                if about(message.body):
                    await message.ack()
                    removed += 1
            await channel.close()
    except GONE as error:
        raise ConnectionError(f"{type(error).__name__}: {error}") from error
    return removed


class BrokerConnection:
    """Connects and reconnects, declares the queues, consumes, and calls back on arrivals and on loss."""

    def __init__(
        self,
        rules: BrokerRules,
        *,
        arrived: Callable[[Delivery], None],
        lost: Callable[[], None],
        observer: Observer,
        dice: Dice,
    ) -> None:
        self._rules = rules
        self._arrived = arrived
        self._lost = lost
        self._observe = observer
        self._dice = dice
        self._connection: AbstractConnection | None = None
        self._publisher: AbstractChannel | None = None
        self._acks: Acks | None = None
        self._consumed: str | None = None
        self._over = asyncio.Event()
        self._checking: asyncio.Task[None] | None = None
        self._closing = False
        self.begun = asyncio.Event()
        """Both queues exist, and the first is consumed."""

    async def run(self) -> None:
        """Keep the connection open until `aclose`."""
        wait = FIRST_WAIT
        while True:
            said = "the connection to the broker was lost"
            try:
                await self._open()
                wait = FIRST_WAIT
                await self._over.wait()
            except Exception as error:  # noqa: BLE001 - any error must lead to a new connection
                said = f"{type(error).__name__}: {error}"
            finally:
                await self._leave()
            if self._closing:
                return
            pause, wait = round(wait * (0.5 + self._dice()), 3), min(wait * 2, LONGEST_WAIT)
            self._observe(Trouble(where="rabbitmq", error=said, retry_in_seconds=pause))
            await asyncio.sleep(pause)

    async def stop_consuming(self) -> None:
        """Stop consuming; this process keeps its unacknowledged messages."""
        consumed, self._consumed = self._consumed, None
        if consumed is not None and self._acks is not None:
            await amqp.answered_within(_LEAVE_SECONDS, self._acks.channel.basic_cancel(consumed))

    async def publish_failed(self, body: bytes) -> None:
        """Put a persistent message into the failed queue and return once the broker has confirmed it."""
        if self._publisher is None:
            raise ConnectionError("there is no connection to the broker")
        message = aio_pika.Message(
            body, content_type="application/json", delivery_mode=aio_pika.DeliveryMode.PERSISTENT
        )
        await self._publisher.default_exchange.publish(message, routing_key=self._rules.failed_queue, mandatory=True)

    async def check(self) -> None:
        """Check the connection by opening and closing a channel; raises if that fails."""
        if self._connection is None or self._connection.is_closed:
            raise ConnectionError("there is no connection to the broker")
        if self._checking is None or self._checking.done():
            self._checking = asyncio.create_task(_open_and_close(self._connection))
        # A check that is given up half-way must not leave half a channel behind: the broker would close the connection,
        # with every delivery on it.
        await asyncio.shield(self._checking)

    async def aclose(self) -> None:
        """Close after the last acknowledgement is sent; the broker delivers unacknowledged messages again."""
        self._closing = True
        if self._acks is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LEAVE_SECONDS):
                    await self._acks.drain()
        await self._leave()

    async def _open(self) -> None:
        rules = self._rules
        self._over.clear()
        connection = await amqp.connect(rules.url, timeout=_CONNECT_SECONDS, heartbeat=_HEARTBEAT_SECONDS)
        self._connection = connection
        connection.close_callbacks.add(self._end)
        await self._declare(connection, rules.failed_queue)
        channel = await self._declare(connection, rules.queue)
        if rules.exchange is not None:
            await self._bind(connection, rules.exchange)
        self._publisher = await connection.channel(on_return_raises=True)
        self._publisher.close_callbacks.add(self._end)
        channel.close_callbacks.add(self._end)
        underlay = await channel.get_underlay_channel()
        underlay.on_consumer_cancel_callbacks.add(self._end)
        await channel.set_qos(prefetch_count=rules.prefetch, timeout=_CONNECT_SECONDS)
        acks = self._acks = Acks(underlay)

        # Consume below aio-pika's own consumer, which creates two tasks and a second message for each delivery.
        async def take(message: "DeliveredMessage") -> None:
            tag = message.delivery_tag or 0
            acks.arrived(tag)
            self._arrived(Delivery(tag, message.body, message.header.properties.message_id, acks))

        begun = await underlay.basic_consume(rules.queue, take, timeout=_CONNECT_SECONDS)
        self._consumed = begun.consumer_tag
        self.begun.set()
        self._observe(PartStarted(part="rabbitmq", detail=f"consumes {rules.queue}"))

    async def _declare(self, connection: AbstractConnection, queue: str) -> AbstractChannel:
        channel = await connection.channel()
        try:
            # Look first, so that an existing queue keeps the arguments of its owner; a refusal closes the channel.
            await channel.declare_queue(queue, passive=True, timeout=_CONNECT_SECONDS)
        except ChannelNotFoundEntity:
            channel = await connection.channel()
            await channel.declare_queue(queue, durable=True, timeout=_CONNECT_SECONDS)
        return channel

    async def _bind(self, connection: AbstractConnection, name: str) -> None:
        rules = self._rules
        channel = await connection.channel()
        try:
            exchange = await channel.declare_exchange(name, passive=True, timeout=_CONNECT_SECONDS)
        except ChannelNotFoundEntity:
            channel = await connection.channel()
            exchange = await channel.declare_exchange(name, durable=True, timeout=_CONNECT_SECONDS)
        for queue, key in ((rules.queue, rules.queue_key), (rules.failed_queue, rules.failed_key)):
            bound = await channel.get_queue(queue, ensure=False)
            await bound.bind(exchange, routing_key=key, timeout=_CONNECT_SECONDS)
        await channel.close()

    def _end(self, *_: object) -> None:
        self._over.set()

    async def _leave(self) -> None:
        connection, self._connection, self._publisher, self._consumed = self._connection, None, None, None
        self._acks = None
        if connection is None:
            return
        self._lost()
        with contextlib.suppress(*GONE, TimeoutError):
            async with asyncio.timeout(_LEAVE_SECONDS):
                await connection.close()


async def _open_and_close(connection: AbstractConnection) -> None:
    channel = await connection.channel()
    await channel.close()
