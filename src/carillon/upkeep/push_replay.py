"""Returns dead letters of a push worker's failed queue to its queue; imported only for that command."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

import aio_pika
import msgspec
from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractIncomingMessage, AbstractQueue
from aio_pika.exceptions import AMQPError, ChannelInvalidStateError, ChannelNotFoundEntity

from carillon import amqp
from carillon.domain.errors import CarillonError
from carillon.domain.ports import Clock

_AT_ONCE = 100
_CONNECT_SECONDS, _ANSWER_SECONDS = 5.0, 30.0
_FAILURES = (AMQPError, ChannelInvalidStateError, OSError)


class ReplayStopped(CarillonError):
    """The broker does not answer or refuses; unconfirmed messages are still in the failed queue."""


class Replayed(msgspec.Struct, frozen=True):
    """The result for the dead letters that were in the queue at the start."""

    found: int
    replayed: int = 0
    left: int = 0
    """Dead letters that stay in the failed queue, because they contain no valid message."""


class _DeadLetter(msgspec.Struct):
    original_message: msgspec.Raw


class Replay:
    """Moves messages from the failed queue to the other one; a crash leaves a message in both, never in neither."""

    def __init__(self, url: str, queue: str, failed_queue: str, clock: Clock) -> None:
        self._url = url
        self._queue = queue
        self._failed_queue = failed_queue
        self._clock = clock
        self._connection: AbstractConnection | None = None

    async def count(self) -> int:
        """The number of dead letters that no consumer holds."""
        try:
            connection = await self._connected()
            channel = await connection.channel()
            found = await channel.declare_queue(self._failed_queue, passive=True, timeout=_ANSWER_SECONDS)
        except ChannelNotFoundEntity:
            return 0
        except _FAILURES as error:
            raise ReplayStopped(f"{self._failed_queue}: {type(error).__name__}: {error}") from None
        return found.declaration_result.message_count or 0

    async def run(self, found: int, most: int, rate: float | None, progress: Callable[[int], None]) -> Replayed:
        """Return at most `most` dead letters, oldest first; one that fails again meanwhile is not returned twice."""
        replayed = left = 0
        began = self._clock.monotonic()
        try:
            connection = await self._connected()
            channel = await connection.channel(on_return_raises=True)
            queue = await channel.get_queue(self._failed_queue, ensure=False)
            while replayed + left < min(found, most):
                if rate is not None:
                    await self._clock.sleep(max(0.0, began + (replayed + left) / rate - self._clock.monotonic()))
                wanted = 1 if rate is not None else min(_AT_ONCE, min(found, most) - replayed - left)
                taken = await self._taken(queue, wanted)
                if not taken:
                    break
                moved = await asyncio.gather(*(self._move(channel, each) for each in taken), return_exceptions=True)
                replayed += sum(one is True for one in moved)
                left += sum(one is False for one in moved)
                progress(len(taken))
                for one in moved:
                    if isinstance(one, BaseException):
                        raise one
        except (*_FAILURES, TimeoutError) as error:
            said = f"{type(error).__name__}: {error}"
            raise ReplayStopped(f"{replayed} were put back, then {self._queue} took no more: {said}") from None
        return Replayed(found, replayed, left)

    async def aclose(self) -> None:
        """Close the connection; the broker puts unacknowledged messages back in their place."""
        if self._connection is not None:
            with suppress(*_FAILURES):
                await self._connection.close()

    async def _connected(self) -> AbstractConnection:
        if self._connection is None:
            self._connection = await amqp.connect(self._url, timeout=_CONNECT_SECONDS)
        return self._connection

    async def _taken(self, queue: AbstractQueue, most: int) -> list[AbstractIncomingMessage]:
        found: list[AbstractIncomingMessage] = []
        while len(found) < most:
            message = await queue.get(fail=False, timeout=_ANSWER_SECONDS)
            if message is None:
                break
            found.append(message)
        return found

    async def _move(self, channel: AbstractChannel, dead: AbstractIncomingMessage) -> bool:
        original = _original(dead.body)
        if original is None:
            return False
        await self._publish(channel, original)
        await dead.ack()
        return True

    async def _publish(self, channel: AbstractChannel, body: bytes) -> None:
        """Publish a message and return once the broker has confirmed it."""
        message = aio_pika.Message(
            body, content_type="application/json", delivery_mode=aio_pika.DeliveryMode.PERSISTENT
        )
        await channel.default_exchange.publish(
            message, routing_key=self._queue, mandatory=True, timeout=_ANSWER_SECONDS
        )


def _original(body: bytes) -> bytes | None:
    """The original bytes of the message; None if they are not a JSON object, which would fail again."""
    try:
        original = bytes(msgspec.json.decode(body, type=_DeadLetter).original_message)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return original if original.lstrip().startswith(b"{") else None
