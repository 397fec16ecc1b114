"""The sse blueprint's message: what a producer writes to the topic, posts, or adds to a stream, read as an intent."""

import datetime as dt
import re
from collections.abc import Callable, Mapping
from typing import Any

from carillon.border import read_wishes, strict_loads
from carillon.domain.content.wishes import wished, with_wishes
from carillon.domain.errors import BadIntent
from carillon.domain.intents import Intent, Malformed, Priority, Recipient

CHANNEL = "sse"
OWN_CHANNELS = (CHANNEL, "inApp")
"""The channels whose address is the user."""
PRODUCER = "notifications"
"""One producer name for all messages: an event id is unique for every producer and every door."""
INVALID = "VALIDATION_ERROR"
PRIORITIES = {"HIGH": Priority.HIGH, "MEDIUM": Priority.NORMAL, "LOW": Priority.LOW}
OTHERS = "*"
_WORD = re.compile(r"[^\x00-\x1f\x7f]{1,255}")
_BEYOND_MICROSECONDS = re.compile(r"(\.\d{6})\d+")
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_LATEST_MS = 253_402_300_799_999
"""The end of the year 9999."""


class EventWire:
    """Reads messages; an event type can set the priority of a message without one."""

    def __init__(self, priorities: Mapping[str, str], ids: Callable[[], str]) -> None:
        """`priorities` maps event types, `prefix.*` and `*` to HIGH, MEDIUM or LOW."""
        self._priorities = {event_type: PRIORITIES[word] for event_type, word in priorities.items()}
        self._ids = ids

    def decode(self, body: bytes | str, key: str | None = None) -> Intent:
        """Read the bytes of a message; raises BadIntent."""
        return self.read(strict_loads(body), key)

    def read(self, said: object, key: str | None = None) -> Intent:
        """Read a message; `key` replaces a missing event id; raises BadIntent."""
        if not isinstance(said, dict):
            raise BadIntent(INVALID, "the message must be a JSON object")
        user_id, event_type = _word(said, "user_id"), _word(said, "event_type")
        payload, metadata = _object(said, "payload"), _object(said, "metadata")
        priority, wishes = self._priority(said.get("priority"), event_type), read_wishes(said)
        content = {"event_type": event_type, "payload": payload, "priority": int(priority), "user_id": user_id}
        intent = Intent(
            notification_id=self._ids(),
            notification_type=event_type,
            producer=PRODUCER,
            recipients=(
                Recipient(ref=f"user:{user_id}", user_id=user_id, addresses=dict.fromkeys(OWN_CHANNELS, user_id)),
            ),
            channels=tuple(dict.fromkeys(wishes.channels)) or (CHANNEL,),
            payload=payload,
            # A repeat of the message may change its time and its source.
            content=content | wished(wishes),
            idempotency_key=_word(said, "event_id") if said.get("event_id") else key,
            priority=priority,
            trace_id=_trace(metadata),
            metadata=metadata,
            occurred_at_ms=_moment(said.get("event_timestamp")),
        )
        return with_wishes(intent, wishes)

    def priority_of(self, event_type: str) -> Priority:
        """The priority of the exact name, then of the longest `prefix.*`, then of `*`."""
        if event_type in self._priorities:
            return self._priorities[event_type]
        prefix = event_type
        while "." in prefix:
            prefix = prefix.rpartition(".")[0]
            if f"{prefix}.{OTHERS}" in self._priorities:
                return self._priorities[f"{prefix}.{OTHERS}"]
        return self._priorities.get(OTHERS, Priority.NORMAL)

    def _priority(self, said: Any, event_type: str) -> Priority:  # noqa: ANN401 - a message may hold anything
        if said is None or said == "":
            return self.priority_of(event_type)
        found = PRIORITIES.get(said.upper()) if isinstance(said, str) else None
        if found is None:
            raise BadIntent(INVALID, "priority must be HIGH, MEDIUM or LOW", field="priority")
        return found


def open_events(priorities: Mapping[str, str], ids: Callable[[], str]) -> EventWire:
    """The wire format of a running process."""
    return EventWire(priorities, ids)


class StreamWire:
    """The same messages as entries of a Redis stream, each in the field `event`."""

    def __init__(self, events: EventWire) -> None:
        self._events = events
        self.encoders: dict[str, Any] = {}

    def decode(self, entry_id: str, fields: Mapping[str, str]) -> Intent | Malformed:
        """Read an entry; a malformed one is a value, never an exception."""
        try:
            return self._events.decode(fields.get("event", ""), f"stream:{entry_id}")
        except BadIntent as error:
            return Malformed(
                stream_entry_id=entry_id,
                failure_code="invalid_envelope",
                failure_message=str(error),
                raw_fields=dict(fields),
            )


def open_stream(priorities: Mapping[str, str], ids: Callable[[], str]) -> StreamWire:
    """The wire format of a process that reads a Redis stream."""
    return StreamWire(EventWire(priorities, ids))


def _word(said: Mapping[str, Any], name: str) -> str:
    value = said.get(name)
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or not value.strip():
        raise BadIntent(INVALID, f"{name} is required", field=name)
    if not _WORD.fullmatch(value):
        raise BadIntent(INVALID, f"{name} must have at most 255 characters and no control characters", field=name)
    return value


def _object(said: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = said.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadIntent(INVALID, f"{name} must be a JSON object", field=name)
    return value


def _trace(metadata: Mapping[str, Any]) -> str | None:
    value = metadata.get("trace_id")
    return value if isinstance(value, str) and _WORD.fullmatch(value) else None


def _moment(said: Any) -> int | None:  # noqa: ANN401 - a message may hold anything
    """Unix milliseconds, from an RFC 3339 text or a number."""
    if said is None or said == "":
        return None
    unix_ms = said if isinstance(said, int) and not isinstance(said, bool) else _unix_ms(said)
    if unix_ms is None or unix_ms > _LATEST_MS:
        raise BadIntent(INVALID, "event_timestamp must be an RFC 3339 time", field="event_timestamp")
    # Go writes an unset time as the year 1.
    return unix_ms if unix_ms >= 0 else None


def _unix_ms(said: Any) -> int | None:  # noqa: ANN401 - a message may hold anything
    if not isinstance(said, str):
        return None
    try:
        moment = dt.datetime.fromisoformat(_BEYOND_MICROSECONDS.sub(r"\1", said))
    except ValueError:
        return None
    zoned = moment if moment.tzinfo is not None else moment.replace(tzinfo=dt.UTC)
    return (zoned - _EPOCH) // dt.timedelta(milliseconds=1)
