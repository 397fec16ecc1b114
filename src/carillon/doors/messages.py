"""What the doors of message brokers share: reading a message, and storing it before the broker may forget it."""

import asyncio
import hashlib
import re
from collections.abc import Callable, Mapping
from typing import Any, assert_never

import msgspec

from carillon.border import strict_loads
from carillon.domain.errors import BadIntent, DirectoryUnavailable, LedgerUnavailable, Overloaded
from carillon.domain.events import IntentMalformed
from carillon.domain.intents import Intent, Malformed
from carillon.domain.ports import Acceptor, IntakeLedger, Observer
from carillon.doors.backoff import DoorBackoff
from carillon.doors.http.wire import Context, SendBody, idempotency_key, reach_named, to_intent
from carillon.web import Problem
from carillon.web.request import LARGER, convert, trace_of

KEPT_BYTES = 65_536
"""How much of a body is kept for an operator."""
_KEPT_TEXT = 1000
_CORRELATION = re.compile(r"[A-Za-z0-9._:/+=@~-]{1,128}")
STRANGE_TRIES = 5
"""After so many unexpected errors a message is stored as malformed: otherwise it would be retried forever."""
_LATER = (LedgerUnavailable, Overloaded, DirectoryUnavailable)


class BrokerMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message of a broker, in words that no broker owns; the texts are as the broker passed them on."""

    body: bytes
    message_id: str | None
    correlation_id: str | None
    headers: Mapping[str, Any]
    unreadable: str | None = None
    """Why the body or the headers cannot be read."""
    number: str | None = None
    """What the broker calls this message at each delivery; the last resort for an idempotency key."""

    def header(self, name: str) -> str | None:
        return text_of(self.headers.get(name))

    @property
    def key(self) -> str | None:
        """The explicit key; it overrides the message id, which some publishers change with each attempt."""
        return self.header("idempotency-key") or self.message_id


def text_of(value: Any) -> str | None:  # noqa: ANN401 - a header may be of any type of the broker's
    """The value as text; None for an empty one."""
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    return None if value is None or value == "" else str(value)


class QueueWire(msgspec.Struct, frozen=True):
    """Reads the messages of one queue."""

    broker: str
    queue: str
    max_bytes: int
    ids: Callable[[], str]

    def read(self, message: BrokerMessage) -> Intent | Malformed:
        """The intent of a message; never raises, whatever the message holds."""
        try:
            return self._intent(message)
        except (BadIntent, Problem) as error:
            return self.malformed(message, error.code, str(error))
        except Exception as error:  # noqa: BLE001 - one bad message must not block those after it
            return self.malformed(message, "VALIDATION_ERROR", f"{type(error).__name__}: {error}")

    def malformed(self, message: BrokerMessage, code: str, said: str) -> Malformed:
        """The message as a malformed intent; a redelivery is the same row."""
        body, named = message.body, message.message_id
        said_key = message.header("idempotency-key")
        digest = hashlib.sha256(b"\0".join([(named or "").encode(), (said_key or "").encode(), body]))
        return Malformed(
            stream_entry_id=f"{self.broker}:{self.queue}:{digest.hexdigest()[:32]}",
            failure_code=code,
            failure_message=said[:_KEPT_TEXT],
            raw_fields={
                "body": body[:KEPT_BYTES].decode("utf-8", "replace"),
                "bytes": len(body),
                "message_id": named,
                "headers": {str(name)[:_KEPT_TEXT]: str(value)[:_KEPT_TEXT] for name, value in message.headers.items()},
            },
            idempotency_key=message.key,
        )

    def _intent(self, message: BrokerMessage) -> Intent:
        if len(message.body) > self.max_bytes:
            raise BadIntent("PAYLOAD_TOO_LARGE", f"the body is larger than {self.max_bytes} bytes{LARGER}")
        if message.unreadable is not None:
            raise BadIntent("VALIDATION_ERROR", message.unreadable)
        body = convert(strict_loads(message.body), SendBody)
        if body.synchronous:
            raise BadIntent(
                "SYNCHRONOUS_UNAVAILABLE", "a message from a queue is never synchronous", field="synchronous"
            )
        correlation = message.correlation_id or ""
        return to_intent(
            body,
            Context(
                # A publisher to the queue may name any tenant.
                reach=reach_named(body),
                correlation_id=correlation if _CORRELATION.fullmatch(correlation) else self.ids(),
                idempotency_key=idempotency_key(message.key or message.number, None),
                trace_id=trace_of((message.header("traceparent") or "").encode()),
                accept_language=message.header("accept-language"),
            ),
        )


class MessageStore:
    """Writes messages to the ledger; the caller tells the broker only after that."""

    def __init__(
        self,
        door: str,
        wire: QueueWire,
        acceptor: Acceptor,
        ledger: IntakeLedger,
        *,
        stopping: asyncio.Event,
        observer: Observer,
    ) -> None:
        self._wire = wire
        self._acceptor = acceptor
        self._ledger = ledger
        self._stopping = stopping
        self._observe = observer
        self._backoff = DoorBackoff(door, stopping, observer)

    async def store(self, message: BrokerMessage, ended: asyncio.Event) -> Intent | Malformed | None:
        """What was written, with retries while the ledger is away; None if the session ended or the door stops."""
        read = self._wire.read(message)
        strange = 0
        while True:
            try:
                await self._write(read)
            except BadIntent as error:
                read = self._wire.malformed(message, error.code, str(error))
                continue
            except Exception as error:  # noqa: BLE001 - the broker was told nothing, so the message is tried again
                strange += not isinstance(error, _LATER)
                if strange >= STRANGE_TRIES:
                    read = self._wire.malformed(message, "INTERNAL_ERROR", f"{type(error).__name__}: {error}")
                await self._backoff.failed(error)
                if ended.is_set() or self._stopping.is_set():
                    return None
                continue
            break
        self._backoff.reset()
        return read

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
