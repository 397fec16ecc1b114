"""From a Kafka record to an arrival: an intent, or a malformed record that an operator can inspect."""

from collections.abc import Callable
from typing import Any

import msgspec

from carillon.domain.errors import BadIntent
from carillon.domain.intents import Arrival, Intent, Malformed
from carillon.web.request import LARGER, trace_of

KEPT_BYTES = 65_536
"""How much of a record is kept for an operator."""
_KEPT_TEXT = 1000
INVALID, TOO_LARGE, INTERNAL = "invalid_envelope", "payload_too_large", "internal_error"

Decode = Callable[[bytes, str], Intent]
"""Decodes a record's value; the second argument is the idempotency key of a message without one; raises BadIntent."""


class Record(msgspec.Struct, frozen=True):
    """One record of a topic."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    written_ms: int | None = None
    """Its timestamp, by the producer's clock or the broker's."""

    @property
    def place(self) -> str:
        """The permanent name of the record."""
        return f"{self.topic}:{self.partition}:{self.offset}"


class TopicWire(msgspec.Struct, frozen=True):
    """Reads the records of one topic."""

    decode: Decode
    max_bytes: int

    def arrival(self, record: Record) -> Arrival:
        """The arrival of a record; never raises, whatever the record holds."""
        entry_id = f"kafka:{record.place}"
        raw_fields = _raw(record)
        try:
            return Arrival(entry_id, raw_fields, self._intent(record))
        except BadIntent as error:
            code, said = TOO_LARGE if error.code == TOO_LARGE else INVALID, str(error)
        except Exception as error:  # noqa: BLE001 - one bad record must not block those after it
            code, said = INVALID, f"{type(error).__name__}: {error}"
        return malformed(Arrival(entry_id, raw_fields, _nothing(entry_id)), code, said)

    def _intent(self, record: Record) -> Intent:
        if record.value is None:
            raise BadIntent(INVALID, "the record has no value")
        if len(record.value) > self.max_bytes:
            raise BadIntent(TOO_LARGE, f"the value is larger than {self.max_bytes} bytes{LARGER}")
        intent = self.decode(record.value, record.place)
        if intent.trace_id is None:
            said = next((value for name, value in record.headers if name.lower() == "traceparent" and value), None)
            return intent if said is None else msgspec.structs.replace(intent, trace_id=trace_of(said))
        return intent


def malformed(arrival: Arrival, code: str, said: str) -> Arrival:
    """The same arrival as a malformed one; when the record is read again, it is the same row."""
    read = arrival.read
    flaw = Malformed(
        stream_entry_id=arrival.stream_entry_id,
        failure_code=code,
        failure_message=said[:_KEPT_TEXT],
        raw_fields=arrival.raw_fields,
        notification_type=read.notification_type,
        producer=read.producer,
        idempotency_key=read.idempotency_key,
    )
    return Arrival(arrival.stream_entry_id, arrival.raw_fields, flaw)


def _nothing(entry_id: str) -> Malformed:
    return Malformed(stream_entry_id=entry_id, failure_code=INVALID, failure_message="", raw_fields={})


def _raw(record: Record) -> dict[str, Any]:
    value = record.value or b""
    return {
        "body": value[:KEPT_BYTES].decode("utf-8", "replace"),
        "bytes": len(value),
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "key": _text(record.key),
        "headers": {name[:_KEPT_TEXT]: _text(value) for name, value in record.headers},
    }


def _text(value: bytes | None) -> str | None:
    return None if value is None else value[:_KEPT_TEXT].decode("utf-8", "replace")
