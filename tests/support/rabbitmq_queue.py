"""A queue of a real broker as a producer and an operator see it."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import aio_pika
from aio_pika.abc import AbstractChannel
from pamqp.common import FieldTable

_numbers = count(1)
BODY: dict[str, Any] = {
    "templateKey": "welcome",
    "channel": "push",
    "recipient": "device-1",
    "data": {"name": "Ada", "link": "https://example.org/start"},
}


class Queue:
    """One queue, and a channel with confirms to speak about it."""

    def __init__(self, channel: AbstractChannel, name: str) -> None:
        self._channel = channel
        self.name = name

    async def make(self, kind: str = "classic", arguments: FieldTable | None = None) -> None:
        table: FieldTable = {"x-queue-type": kind, **(arguments or {})}
        await self._channel.declare_queue(self.name, durable=True, arguments=table)

    async def publish(self, body: Mapping[str, Any] | bytes, key: str | None = None, **properties: Any) -> None:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        message = aio_pika.Message(
            content, delivery_mode=aio_pika.DeliveryMode.PERSISTENT, message_id=key, **properties
        )
        await self._channel.default_exchange.publish(message, routing_key=self.name, mandatory=True)

    async def publish_around(self, body: Mapping[str, Any], key: str, routing_key: str) -> None:
        """Through an exchange that gives the queue everything, whatever its routing key."""
        exchange = await self._channel.declare_exchange(f"{self.name}-all", aio_pika.ExchangeType.FANOUT)
        bound = await self._channel.get_queue(self.name, ensure=False)
        await bound.bind(exchange)
        await exchange.publish(aio_pika.Message(json.dumps(body).encode(), message_id=key), routing_key=routing_key)
        await exchange.delete()

    async def ready(self) -> int:
        """Messages that nobody holds."""
        found = await self._channel.declare_queue(self.name, passive=True)
        return int(found.declaration_result.message_count or 0)

    async def consumers(self) -> int:
        found = await self._channel.declare_queue(self.name, passive=True)
        return int(found.declaration_result.consumer_count or 0)

    async def take(self) -> dict[str, Any] | None:
        """The first message, taken out for good."""
        queue = await self._channel.get_queue(self.name, ensure=False)
        message = await queue.get(no_ack=True, fail=False)
        return None if message is None else dict(json.loads(message.body))

    async def delete(self) -> None:
        await self._channel.queue_delete(self.name)


@asynccontextmanager
async def queue(url: str, name: str | None = None) -> AsyncIterator[Queue]:
    """A queue with a name of its own; it is not made yet."""
    connection = await aio_pika.connect(url)
    try:
        yield Queue(await connection.channel(on_return_raises=True), name or f"requests-{next(_numbers)}")
    finally:
        await connection.close()
