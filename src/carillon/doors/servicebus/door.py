"""The Service Bus door: it completes a message after the ledger's commit, and dead-letters malformed ones."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec
from azure.servicebus import ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusReceiver
from azure.servicebus.amqp import AmqpMessageBodyType
from azure.servicebus.exceptions import MessageLockLostError

from carillon import servicebus
from carillon.domain.events import PartStarted, PartStopped
from carillon.domain.intents import Intent, Malformed
from carillon.domain.ports import Acceptor, Clock, IntakeLedger, Observer
from carillon.doors.backoff import DoorBackoff, read_until_stopped
from carillon.doors.messages import BrokerMessage, MessageStore, QueueWire, text_of

PART = "servicebus_door"
_IDLE_SECONDS = 1.0
"""How long one request for messages waits; an idle door notices the stop after it."""
_LONGEST_REASON = 1000


class ServiceBusDoorRules(msgspec.Struct, frozen=True, kw_only=True):
    """The queue, and how many messages the door holds at once."""

    connection_string: str
    queue: str
    prefetch: int = 200


def seen(message: ServiceBusReceivedMessage, queue: str) -> BrokerMessage:
    """A message of Service Bus; one that cannot be read says why."""
    raw = message.raw_amqp_message
    properties, headers = raw.properties, raw.application_properties or {}
    body, unreadable = _body(message)
    sequence, since = message.sequence_number, message.enqueued_time_utc
    # A queue that is deleted and made again counts from the start; the time tells the messages apart.
    number = None if sequence is None or since is None else f"{queue}:{sequence}:{int(since.timestamp() * 1000)}"
    return BrokerMessage(
        body=body,
        message_id=None if properties is None else _spelt(properties.message_id),
        correlation_id=None if properties is None else _spelt(properties.correlation_id),
        headers={_spelt(name) or "": value for name, value in headers.items()},
        unreadable=unreadable,
        number=number,
    )


def _body(message: ServiceBusReceivedMessage) -> tuple[bytes, str | None]:
    """The bytes of the body, and why they are not what was sent."""
    body: Any = message.body
    match message.body_type:
        case AmqpMessageBodyType.DATA:
            return b"".join(body), None
        case AmqpMessageBodyType.VALUE if isinstance(body, str | bytes):
            return body.encode() if isinstance(body, str) else body, None
        case kind:
            return str(body).encode(), f"the body is an AMQP {kind.value} section; send JSON as data or as text"


def _spelt(value: Any) -> str | None:  # noqa: ANN401 - an id may be text, bytes, a number or a UUID
    """The value as text; other bytes than UTF-8 are spelt out, so that two ids stay two."""
    return text_of(value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value)


class ServiceBusDoor:
    """Reads until it is stopped; it recovers from every error of the namespace, the ledger or a message.

    It asks for the next messages after every message of the last request is settled. While the ledger is away the door
    asks for nothing: Service Bus counts the deliveries of a message, and gives it up after ten of them by default.
    """

    def __init__(
        self,
        *,
        rules: ServiceBusDoorRules,
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

    async def run(self) -> None:
        """Read until stop()."""
        await read_until_stopped(self._read, self._broker, self._clock, self._stopping)

    def stop(self) -> None:
        """Ask for nothing more; messages that are being accepted are still completed, all others stay in the queue."""
        self._stopping.set()

    async def _read(self) -> None:
        """One session: from a new connection until it fails or the door stops."""
        namespace = servicebus.Namespace(self._rules.connection_string)
        try:
            receiver = namespace.client.get_queue_receiver(self._rules.queue)
            async with asyncio.timeout(servicebus.OPEN_SECONDS):
                await receiver.__aenter__()
            self._observe(PartStarted(part=PART, detail=f"reads {self._rules.queue}"))
            while not self._stopping.is_set():
                batch = await receiver.receive_messages(self._rules.prefetch, max_wait_time=_IDLE_SECONDS)
                if batch:
                    await self._take(receiver, batch)
            self._observe(PartStopped(part=PART))
        finally:
            await namespace.leave()

    async def _take(self, receiver: ServiceBusReceiver, batch: Sequence[ServiceBusReceivedMessage]) -> None:
        """Store the messages side by side, and settle each one when it is stored."""
        ended = asyncio.Event()
        tasks = [asyncio.create_task(self._stored(message, ended)) for message in batch]
        try:
            for finished in asyncio.as_completed(tasks):
                message, stored = await finished
                # The lock is over: Service Bus delivers the message again, and the ledger recognises it.
                with suppress(MessageLockLostError):
                    await _settle(receiver, message, stored)
            self._broker.reset()
        except asyncio.CancelledError:
            # The shutdown's time is over: messages that are not accepted yet stay in the queue.
            for task in tasks:
                task.cancel()
            raise
        finally:
            ended.set()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _stored(
        self, message: ServiceBusReceivedMessage, ended: asyncio.Event
    ) -> tuple[ServiceBusReceivedMessage, Intent | Malformed | None]:
        return message, await self._store.store(seen(message, self._rules.queue), ended)


async def _settle(
    receiver: ServiceBusReceiver, message: ServiceBusReceivedMessage, stored: Intent | Malformed | None
) -> None:
    match stored:
        case Intent():
            await receiver.complete_message(message)
        case Malformed():
            await receiver.dead_letter_message(
                message, reason=stored.failure_code, error_description=stored.failure_message[:_LONGEST_REASON]
            )
        case None:
            await receiver.abandon_message(message)


async def waiting(connection_string: str, queue: str) -> bool:
    """Whether a message waits in the queue, which the door may read; raises OSError with the reason if it may not."""
    namespace = servicebus.Namespace(connection_string)
    try:
        async with asyncio.timeout(servicebus.OPEN_SECONDS):
            # A look locks nothing and counts as no delivery.
            return bool(await namespace.client.get_queue_receiver(queue).peek_messages(1))
    except TimeoutError:
        raise OSError("no answer; is it a Service Bus?") from None
    except servicebus.FAILURES as error:
        raise OSError(str(error)) from error
    finally:
        await namespace.leave()
