"""A plain AMQP client for tests: publishes, counts and takes, from outside any event loop."""

import asyncio
import json
import threading
from collections.abc import Coroutine, Sequence
from typing import Any, Self, TypeVar

import aio_pika
from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractIncomingMessage
from aio_pika.exceptions import AMQPError, ChannelNotFoundEntity

Found = TypeVar("Found")


class Broker:
    """One connection in a thread of its own; a broker that was restarted is connected to again."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._connection: AbstractConnection | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=10)
        self._loop.close()

    def declare(self, queue: str, *, durable: bool = True, **arguments: Any) -> None:
        """Arguments are written with underscores for the dashes."""
        given = {name.replace("_", "-"): value for name, value in arguments.items()}

        async def work(channel: AbstractChannel) -> None:
            await channel.declare_queue(queue, durable=durable, arguments=given)

        self._with_channel(work)

    def delete(self, *queues: str) -> None:
        async def work(channel: AbstractChannel) -> None:
            for queue in queues:
                await channel.queue_delete(queue)

        self._with_channel(work)

    def publish(self, *messages: Any, queue: str = "push.queue", exchange: str = "") -> None:
        """Persistent and confirmed; bytes go as they are, everything else as JSON; raises where there is no queue."""

        async def work(channel: AbstractChannel) -> None:
            where = await channel.get_exchange(exchange) if exchange else channel.default_exchange
            await asyncio.gather(*(where.publish(_message(each), routing_key=queue) for each in messages))

        self._with_channel(work)

    def publish_with(self, content: Any, *, queue: str = "push.queue", **properties: Any) -> None:
        """One message with properties of its own."""
        body = content if isinstance(content, bytes) else json.dumps(content).encode()

        async def work(channel: AbstractChannel) -> None:
            await channel.default_exchange.publish(aio_pika.Message(body, **properties), routing_key=queue)

        self._with_channel(work)

    def ready(self, queue: str = "push.queue") -> int:
        """Messages nobody holds."""
        return self._look(queue)[0]

    def consumers(self, queue: str = "push.queue") -> int:
        return self._look(queue)[1]

    def exists(self, queue: str) -> bool:
        try:
            self._look(queue)
        except ChannelNotFoundEntity:
            return False
        return True

    def take(self, queue: str = "failed.queue", most: int | None = None) -> list[AbstractIncomingMessage]:
        """Everything that is ready, or so many, taken out."""
        found: list[AbstractIncomingMessage] = []

        async def work(channel: AbstractChannel) -> None:
            taken = await channel.declare_queue(queue, passive=True)
            while most is None or len(found) < most:
                message = await taken.get(fail=False, no_ack=True)
                if message is None:
                    return
                found.append(message)

        self._with_channel(work)
        return found

    def bodies(self, queue: str = "failed.queue", most: int | None = None) -> list[Any]:
        return [json.loads(message.body) for message in self.take(queue, most)]

    def _look(self, queue: str) -> tuple[int, int]:
        found: list[tuple[int, int]] = []

        async def work(channel: AbstractChannel) -> None:
            result = (await channel.declare_queue(queue, passive=True)).declaration_result
            found.append((result.message_count or 0, result.consumer_count or 0))

        self._with_channel(work)
        return found[0]

    def _with_channel(self, work: Any) -> None:
        async def whole() -> None:
            channel = await self._channel()
            try:
                await work(channel)
            finally:
                await channel.close()

        self._run(whole())

    async def _channel(self) -> AbstractChannel:
        if self._connection is not None and not self._connection.is_closed:
            try:
                return await self._connection.channel(on_return_raises=True)
            except (RuntimeError, AMQPError):
                # The broker closed it and the news is only coming.
                await self._connection.close()
        self._connection = await aio_pika.connect(self.url)
        return await self._connection.channel(on_return_raises=True)

    def _run(self, work: Coroutine[Any, Any, Found]) -> Found:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=60)

    async def _close(self) -> None:
        if self._connection is not None:
            await self._connection.close()


def _message(content: Any) -> aio_pika.Message:
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    return aio_pika.Message(body, content_type="application/json", delivery_mode=aio_pika.DeliveryMode.PERSISTENT)


def reset(broker: Broker, queues: Sequence[str] = ("push.queue", "failed.queue")) -> None:
    """As if nobody had been here."""
    broker.delete(*queues)
