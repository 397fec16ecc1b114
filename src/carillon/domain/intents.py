"""An intent: the decoded request of a producer, not yet accepted, and the fingerprint of its content."""

import hashlib
import json
from enum import IntEnum
from functools import lru_cache
from typing import Any

import msgspec

from carillon.domain.content.mail import MailParts
from carillon.domain.content.parts import InAppParts, PushParts
from carillon.domain.people import QuietHours
from carillon.domain.timing import AT_ONCE, Timing


class Priority(IntEnum):
    """The urgency of an intent; the smallest number is the most urgent."""

    HIGH = 1
    NORMAL = 2
    LOW = 3


class Recipient(msgspec.Struct, frozen=True, kw_only=True):
    """One person with their addresses and preferences."""

    ref: str
    """Such as `user:<id>`, `email:<address>` or `config:<type>`; unique within a notification."""
    user_id: str | None = None
    addresses: dict[str, str] = {}
    """The address of each channel, where it is known."""
    locale: str | None = None
    """The person's preferred locale, if the directory has one."""
    unreachable: dict[str, str] = {}
    """For each channel on which the person cannot be reached, the reason; the route is stored as skipped."""
    time_zone: str | None = None
    """The person's time zone, where it is known."""
    refused: frozenset[str] = frozenset()
    """Channels that the person has switched off; an intent without a category for one of them is rejected."""
    chosen: dict[str, dict[str, bool]] = {}
    """The person's choices by category and channel."""
    quiet_hours: QuietHours | None = None
    """The hours that hold the later channels of a chain, and digests; None where they do not count."""
    given: "Recipient | None" = None
    """As the sender named it, before preferences were added: a digest asks for them again when it closes."""


class Intent(msgspec.Struct, frozen=True, kw_only=True):
    """A request to notify people, in the same form from every door."""

    notification_type: str
    producer: str
    """The scope of the idempotency key; a tenant's producer is `<tenant>/<origin>`."""
    recipients: tuple[Recipient, ...]
    channels: tuple[str, ...]
    skips: dict[str, str] = {}
    """For each channel that is not used, the reason; every recipient's route on it is stored as skipped."""
    payload: dict[str, Any]
    content: Any
    """The input of the fingerprint: two requests with equal content are the same request."""
    origin: str = "system"
    audience_kind: str = "user"
    idempotency_key: str | None = None
    notification_id: str | None = None
    """Set by a door whose transport gives the message an id; otherwise the intake makes one."""
    tenant_id: str | None = None
    category: str | None = None
    """Without one, the category of its template."""
    sent_by: str | None = None
    """The service that asked for it, where a door knows one."""
    asked_by: str | None = None
    """The caller who names an address and no person: the record and the language are theirs, and everything that people
    choose is the address's, unless it is one of the caller's contacts."""
    priority: Priority = Priority.NORMAL
    bulk: bool = False
    synchronous: bool = False
    """The caller waits for the outcome, and nothing is queued."""
    locale: str | None = None
    accept_language: str | None = None
    request_id: str | None = None
    trace_id: str | None = None
    metadata: dict[str, Any] = {}
    mail: MailParts | None = None
    """What the email carries beside its text; only for the channel email."""
    push: PushParts | None = None
    """The same for a push."""
    in_app: InAppParts | None = None
    """The same for the inbox."""
    occurred_at_ms: int | None = None
    scheduled_for_ms: int | None = None
    timing: Timing = AT_ONCE
    urgent: bool = False
    """Quiet hours do not delay it, because its category is urgent."""


class Malformed(msgspec.Struct, frozen=True, kw_only=True):
    """An input that could not become a notification; the ledger keeps it for an operator."""

    stream_entry_id: str
    failure_code: str
    failure_message: str
    raw_fields: dict[str, Any]
    notification_type: str | None = None
    producer: str | None = None
    idempotency_key: str | None = None


class Arrival(msgspec.Struct, frozen=True):
    """One message of a queue or a Redis stream: its raw fields, and the intent or the error that they decode to."""

    stream_entry_id: str
    raw_fields: dict[str, Any]
    read: Intent | Malformed


class Progress(msgspec.Struct, frozen=True):
    """The number of arrivals, from the first on, that are stored and may be acknowledged."""

    done: int
    stopped_by: str | None = None
    """Why the next arrival could not be stored; None if all are."""


def own_key(user_id: str, key: str) -> str:
    """A person's idempotency key as it is stored: two people may use the same one, and so may a service."""
    return f"{user_id}{_OWNED}{key}"


def said_key(key: str) -> str:
    """A stored idempotency key as its caller has said it."""
    return key.rpartition(_OWNED)[2]


def canonical(value: Any) -> str:
    """JSON with sorted keys, no spaces and no escaped non-ASCII, so that equal values give equal text."""
    try:
        written = _quick_writer.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return _writer.encode(value)
    marks = written.translate(_AS_ZERO)
    # One by one: this is a part of every acceptance, and a loop over the marks takes longer than all of them.
    if b"0e" in marks or b"0E" in marks or b"null" in marks or _SIXTEEN in marks or b"0.0000" in written:
        return _writer.encode(value)
    return written.decode()


def fingerprint(value: Any) -> str:
    """The SHA-256 of the canonical text, in lower-case hex."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def fingerprint_around(value: dict[str, Any], name: str, written: str) -> str:
    """The same for an object whose field `name` is `written` in canonical text already, as large data are."""
    names = sorted(value)
    texts = [f"{_named(one)}:{written if one == name else canonical(value[one])}" for one in names]
    return hashlib.sha256(f"{{{','.join(texts)}}}".encode()).hexdigest()


@lru_cache(maxsize=256)
def _named(name: str) -> str:
    return canonical(name)


# No key that a caller may say holds it.
_OWNED = "\x1f"
# The quick writer is the faster by far, but writes very large and very small numbers in another way than the exact one,
# whose texts are in every ledger; and it writes null for what is no number. Each of these leaves a mark.
_AS_ZERO = bytes.maketrans(b"123456789", b"0" * 9)
_SIXTEEN = b"0" * 16
_quick_writer = msgspec.json.Encoder(order="deterministic")
# One encoder for all calls: creating an encoder costs as much as encoding a text.
_writer = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
