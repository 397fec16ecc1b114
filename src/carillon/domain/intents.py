"""What a producer asks for, decoded and not yet accepted, and the fingerprint of its content."""

import hashlib
import json
from enum import IntEnum
from typing import Any

import msgspec


class Priority(IntEnum):
    """The order of urgency, smallest first, whatever words a wire format uses."""

    HIGH = 1
    NORMAL = 2
    LOW = 3


class Recipient(msgspec.Struct, frozen=True, kw_only=True):
    """One person, and what is known of how to reach them."""

    ref: str
    """`user:<id>`, `email:<address>`, `config:<type>` and the like; unique inside a notification."""
    user_id: str | None = None
    addresses: dict[str, str] = {}
    """Channel to address, as far as known."""
    locale: str | None = None
    """The person's preferred locale, if a directory knows it."""
    unreachable: dict[str, str] = {}
    """Channel to the reason why the person cannot be reached there: the route is laid and skipped."""
    refused: frozenset[str] = frozenset()
    """Channels the person has switched off: an intent for one of them is not accepted."""


class Intent(msgspec.Struct, frozen=True, kw_only=True):
    """A request to tell people something, from whichever door."""

    notification_type: str
    producer: str
    """Whose idempotency keys these are; a tenant's producer is `<tenant>/<origin>`."""
    recipients: tuple[Recipient, ...]
    channels: tuple[str, ...]
    skips: dict[str, str] = {}
    """Channel to the reason why nobody is told there: every recipient's route is laid and skipped, to be seen."""
    payload: dict[str, Any]
    content: Any
    """What the fingerprint is taken of: everything that makes two requests the same."""
    origin: str = "system"
    audience_kind: str = "user"
    idempotency_key: str | None = None
    notification_id: str | None = None
    """Given by doors whose transport names the message; otherwise made at acceptance."""
    tenant_id: str | None = None
    priority: Priority = Priority.NORMAL
    bulk: bool = False
    synchronous: bool = False
    """The caller waits for the outcome: nothing is queued."""
    locale: str | None = None
    accept_language: str | None = None
    request_id: str | None = None
    trace_id: str | None = None
    metadata: dict[str, Any] = {}
    occurred_at_ms: int | None = None
    scheduled_for_ms: int | None = None


class Malformed(msgspec.Struct, frozen=True, kw_only=True):
    """What arrived and could not become a notification, kept for an operator."""

    stream_entry_id: str
    failure_code: str
    failure_message: str
    raw_fields: dict[str, Any]
    notification_type: str | None = None
    producer: str | None = None
    idempotency_key: str | None = None


class Arrival(msgspec.Struct, frozen=True):
    """What one message of a queue or a stream was read as, with everything it carried."""

    stream_entry_id: str
    raw_fields: dict[str, Any]
    read: Intent | Malformed


class Progress(msgspec.Struct, frozen=True):
    """How many arrivals, from the first on, are written down and may be acknowledged."""

    done: int
    stopped_by: str | None = None
    """Why the next one could not be; None when all are done."""


def canonical(value: Any) -> str:
    """Sorted keys, no spaces, non-ASCII raw: equal content gives equal text."""
    return _writer.encode(value)


def fingerprint(value: Any) -> str:
    """SHA-256 of the canonical text, lower-case hex."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()


# Made once: building one for every text costs as much as the text.
_writer = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
