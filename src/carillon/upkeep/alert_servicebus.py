"""Alerts as messages in a queue or topic of Azure Service Bus; imported only where it is configured."""

import asyncio

import msgspec
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusSender

from carillon import servicebus
from carillon.domain.alerts import Alert

_LONGEST_ERROR = 500


class ServiceBusAlerts:
    """Sends one message for an alert and waits until Service Bus has accepted it; reconnects after every failure."""

    name = "servicebus"

    def __init__(self, connection_string: str, entity: str) -> None:
        self._connection_string = connection_string
        self._entity = entity
        self._namespace: servicebus.Namespace | None = None
        self._sender: ServiceBusSender | None = None
        # The library reads answers in the task that waits for them: two of them would read from one socket.
        self._turn = asyncio.Lock()

    async def tell(self, alert: Alert) -> str | None:
        message = ServiceBusMessage(
            msgspec.json.encode(alert),
            content_type="application/json",
            # A queue with duplicate detection keeps one of an alert that is sent again.
            message_id=str(alert.alert_id),
            subject=alert.event_type,
        )
        async with self._turn:
            try:
                async with asyncio.timeout(servicebus.OPEN_SECONDS):
                    await self._opened().send_messages(message)
            except TimeoutError:
                await self._leave()
                return "no answer; is it a Service Bus?"
            except servicebus.FAILURES as error:
                await self._leave()
                return f"{type(error).__name__}: {error}"[:_LONGEST_ERROR]
            except asyncio.CancelledError:
                # The answer may still come, and would be taken for that of the next message.
                await self._leave()
                raise
        return None

    async def aclose(self) -> None:
        await self._leave()

    def _opened(self) -> ServiceBusSender:
        if self._sender is None:
            self._namespace = servicebus.Namespace(self._connection_string)
            # A topic is addressed as a queue is.
            self._sender = self._namespace.client.get_queue_sender(self._entity)
        return self._sender

    async def _leave(self) -> None:
        namespace, self._namespace, self._sender = self._namespace, None, None
        if namespace is not None:
            await namespace.leave()
