"""From a RabbitMQ delivery to an intent: its body is that of the send endpoint, its properties are the headers."""

import hashlib
import re
from collections.abc import Callable
from typing import Any

import msgspec
from aio_pika.abc import AbstractIncomingMessage

from carillon.border import strict_loads
from carillon.domain.errors import BadIntent
from carillon.domain.intents import Intent, Malformed
from carillon.doors.http.intent import Context, idempotency_key, reach_named, to_intent
from carillon.doors.http.wire import SendBody
from carillon.web import Problem
from carillon.web.body import convert
from carillon.web.request import trace_of

KEPT_BYTES = 65_536
"""How much of a body is kept for an operator."""
_KEPT_TEXT = 1000
_CORRELATION = re.compile(r"[A-Za-z0-9._:/+=@~-]{1,128}")


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
        body = convert(strict_loads(message.body), SendBody)
        if body.synchronous:
            raise BadIntent("SYNCHRONOUS_UNAVAILABLE", "nobody waits behind a queue", field="synchronous")
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
