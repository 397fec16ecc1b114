"""The RabbitMQ door: it acknowledges a delivery after the ledger's commit; the ledger keeps malformed ones too."""

import asyncio
import hashlib
import re
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Literal, assert_never

import msgspec
from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractIncomingMessage, AbstractQueue
from aio_pika.exceptions import AMQPError, ChannelInvalidStateError, ChannelNotFoundEntity
from pamqp.common import FieldTable

from carillon import amqp
from carillon.border import strict_loads
from carillon.domain.errors import BadIntent, DirectoryUnavailable, LedgerUnavailable, Overloaded
from carillon.domain.events import IntentMalformed, PartStarted, PartStopped
from carillon.domain.intents import Intent, Malformed
from carillon.domain.ports import Acceptor, Clock, IntakeLedger, Observer
from carillon.doors.backoff import LONGEST_WAIT, DoorBackoff, pause
from carillon.doors.http.wire import Context, SendBody, idempotency_key, reach_named, to_intent
from carillon.web import Problem
from carillon.web.request import convert, trace_of

KEPT_BYTES = 65_536
"""How much of a body is kept for an operator."""
_KEPT_TEXT = 1000
_CORRELATION = re.compile(r"[A-Za-z0-9._:/+=@~-]{1,128}")
PART = "rabbitmq_door"
CANCELLED_WAIT = 1.0
"""The pause after a queue was deleted: an operator may be creating it again with other arguments."""
STRANGE_TRIES = 5
"""After so many unexpected errors a delivery is stored as malformed: otherwise it would be retried forever."""
_CONNECT_SECONDS, _HEARTBEAT_SECONDS, _LEAVE_SECONDS = 5.0, 10, 1.0
_LATER = (LedgerUnavailable, Overloaded, DirectoryUnavailable)
_GONE = (AMQPError, ChannelInvalidStateError, OSError)


class QueueWire(msgspec.Struct, frozen=True):
    """Reads the deliveries of one queue."""

    queue: str
    max_bytes: int
    ids: Callable[[], str]

    def read(self, message: AbstractIncomingMessage) -> Intent | Malformed:
        """The intent of a delivery; never raises, whatever the delivery holds."""
        try:
            return self._intent(message)
        except (BadIntent, Problem) as error:
            return self.malformed(message, error.code, str(error))
        except Exception as error:  # noqa: BLE001 - one bad message must not block those after it
            return self.malformed(message, "VALIDATION_ERROR", f"{type(error).__name__}: {error}")

    def malformed(self, message: AbstractIncomingMessage, code: str, said: str) -> Malformed:
        """The delivery as a malformed intent; a redelivery is the same row."""
        body, named = message.body, _text(message.message_id)
        digest = hashlib.sha256(b"\0".join([(named or "").encode(), (_header(message) or "").encode(), body]))
        return Malformed(
            stream_entry_id=f"rabbitmq:{self.queue}:{digest.hexdigest()[:32]}",
            failure_code=code,
            failure_message=said[:_KEPT_TEXT],
            raw_fields={
                "body": body[:KEPT_BYTES].decode("utf-8", "replace"),
                "bytes": len(body),
                "message_id": named,
                "headers": {str(name)[:_KEPT_TEXT]: str(value)[:_KEPT_TEXT] for name, value in message.headers.items()},
            },
            idempotency_key=_header(message) or named,
        )

    def _intent(self, message: AbstractIncomingMessage) -> Intent:
        if len(message.body) > self.max_bytes:
            raise BadIntent("PAYLOAD_TOO_LARGE", f"the body is larger than {self.max_bytes} bytes")
        if amqp.UNREADABLE in message.headers:
            # One of them may have been the idempotency key.
            raise BadIntent(
                "VALIDATION_ERROR", f"the headers are not readable: {_text(message.headers[amqp.UNREADABLE])}"
            )
        body = convert(strict_loads(message.body), SendBody)
        if body.synchronous:
            raise BadIntent(
                "SYNCHRONOUS_UNAVAILABLE", "a message from a queue is never synchronous", field="synchronous"
            )
        correlation = _text(message.correlation_id) or ""
        return to_intent(
            body,
            Context(
                # A publisher to the queue may name any tenant.
                reach=reach_named(body),
                correlation_id=correlation if _CORRELATION.fullmatch(correlation) else self.ids(),
                idempotency_key=idempotency_key(_header(message) or _text(message.message_id), None),
                trace_id=trace_of((_text(message.headers.get("traceparent")) or "").encode()),
                accept_language=_text(message.headers.get("accept-language")),
            ),
        )


def _header(message: AbstractIncomingMessage) -> str | None:
    """The explicit key; it overrides the message id, which some publishers change with each attempt."""
    return _text(message.headers.get("idempotency-key"))


def _text(value: Any) -> str | None:  # noqa: ANN401 - a header may be of any AMQP type
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    return None if value is None or value == "" else str(value)


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
        self._wire = wire
        self._acceptor = acceptor
        self._ledger = ledger
        self._clock = clock
        self._observe = observer
        self._stopping = asyncio.Event()
        self._broker = DoorBackoff(PART, self._stopping, observer)
        self._ledger_backoff = DoorBackoff(PART, self._stopping, observer)
        self._accepting: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Read until stop()."""
        while not self._stopping.is_set():
            began = self._clock.monotonic()
            try:
                await self._read()
            except Exception as error:  # noqa: BLE001 - if the door ended, the queue would grow unread
                if self._clock.monotonic() - began > LONGEST_WAIT:
                    self._broker.reset()
                await self._broker.failed(error)

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
                await queue.cancel(tag, timeout=_CONNECT_SECONDS)
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
        """Write one delivery to the ledger, with retries, then acknowledge it; the broker repeats it otherwise."""
        read = self._wire.read(message)
        strange = 0
        while True:
            try:
                await self._write(read)
            except BadIntent as error:
                read = self._wire.malformed(message, error.code, str(error))
                continue
            except Exception as error:  # noqa: BLE001 - nothing was acknowledged, so the delivery is tried again
                strange += not isinstance(error, _LATER)
                if strange >= STRANGE_TRIES:
                    read = self._wire.malformed(message, "INTERNAL_ERROR", f"{type(error).__name__}: {error}")
                await self._ledger_backoff.failed(error)
                if session.ended.is_set() or self._stopping.is_set():
                    return
                continue
            break
        self._ledger_backoff.reset()
        self._broker.reset()
        # If the connection is gone the broker repeats the delivery, and the ledger recognises its key.
        with suppress(*_GONE):
            await message.ack()

    async def _write(self, read: Intent | Malformed) -> None:
        match read:
            case Intent():
                await self._acceptor.accept(read)
            case Malformed():
                await self._ledger.keep_malformed([read])
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
