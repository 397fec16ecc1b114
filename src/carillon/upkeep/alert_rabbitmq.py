"""Alerts as persistent messages in a durable RabbitMQ queue; imported only where it is configured."""

import asyncio
import contextlib

import aio_pika
import msgspec
from aio_pika.abc import AbstractChannel, AbstractConnection
from aio_pika.exceptions import AMQPError, ChannelInvalidStateError, ChannelNotFoundEntity

from carillon import amqp
from carillon.domain.alerts import Alert

_LONGEST_ERROR = 500
_LEAVE_SECONDS = 1.0
_FAILURES = (AMQPError, ChannelInvalidStateError, OSError)


class RabbitAlerts:
    """Publishes with confirmation by the broker; reconnects after every failure."""

    name = "rabbitmq"

    def __init__(self, url: str, queue: str) -> None:
        self._url = url
        self._queue = queue
        self._connection: AbstractConnection | None = None
        self._channel: AbstractChannel | None = None
        self._opening = asyncio.Lock()

    async def tell(self, alert: Alert) -> str | None:
        message = aio_pika.Message(
            msgspec.json.encode(alert),
            content_type="application/json",
            delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
            message_id=str(alert.alert_id),
            type=alert.event_type,
        )
        try:
            channel = await self._opened()
            await channel.default_exchange.publish(message, routing_key=self._queue, mandatory=True)
        except _FAILURES as error:
            await self._leave()
            return f"{type(error).__name__}: {error}"[:_LONGEST_ERROR]
        return None

    async def aclose(self) -> None:
        await self._leave()

    async def _opened(self) -> AbstractChannel:
        async with self._opening:
            if self._channel is None or self._channel.is_closed:
                await self._leave()
                self._connection = await amqp.connect(self._url)
                self._channel = await self._declared(self._connection)
            return self._channel

    async def _declared(self, connection: AbstractConnection) -> AbstractChannel:
        channel = await connection.channel(on_return_raises=True)
        try:
            # Look first, so that an existing queue keeps the arguments of its owner; a refusal closes the channel.
            await channel.declare_queue(self._queue, passive=True)
        except ChannelNotFoundEntity:
            channel = await connection.channel(on_return_raises=True)
            await channel.declare_queue(self._queue, durable=True)
        return channel

    async def _leave(self) -> None:
        connection, self._connection, self._channel = self._connection, None, None
        if connection is not None:
            with contextlib.suppress(*_FAILURES, TimeoutError):
                async with asyncio.timeout(_LEAVE_SECONDS):
                    await connection.close()
