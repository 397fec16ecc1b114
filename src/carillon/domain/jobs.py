"""Jobs of a list queue: the format of their messages, how a retry changes one, and the job log in SQL."""

import datetime as dt
import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

import msgspec
from msgspec import UNSET, UnsetType

from carillon.domain.errors import BadIntent, CarillonError
from carillon.domain.timing import read_moment, read_seconds

LOG_KEY = "q:log:jobs"
LONGEST_ID = 512
_CAMEL = {"expires_at": "expiresAt", "scheduled_for": "scheduledFor"}
_WHOLE = 2**53
"""Above this, other languages read JSON numbers as inexact floats, so a larger number is not accepted as an id."""

# The text that a retry appends to a message without `attempts`, and the blanks that make equal messages distinct
# members of a ZSET.
_APPENDED = re.compile(rb'\A(.*),"attempts":[0-9]+\}[ \t\r\n]*\Z', re.DOTALL)
_as_raw = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


class Permanent(CarillonError):
    """Raised by a handler if no later attempt can succeed: the message goes to the failed list at once."""


class BadMessage(CarillonError):
    """The value to enqueue is not a valid message; nothing was written."""


class JobMessage(msgspec.Struct, frozen=True, gc=False):
    """One message, decoded from an envelope or from a plain JSON object."""

    id: str
    action: str
    attempts: int
    """Runs that failed so far."""
    payload: dict[str, Any]
    max_attempts: int | None = None
    correlation_id: str | None = None
    idempotency_key: str | None = None
    created_at: str | None = None
    enveloped: bool = True
    expires_at: float | None = None
    """Unix seconds after which it is not run; from `expires_at`, or from `ttl` and `created_at`."""
    scheduled_for: float | None = None
    """Unix seconds before which it is not run."""


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """The envelope of a job in a list queue, in the order of its fields."""

    id: str
    action: str
    correlation_id: str | None = None
    idempotency_key: str | None = None
    created_at: str
    attempts: int = 0
    max_attempts: int | None = None
    expires_at: str | UnsetType = UNSET
    scheduled_for: str | UnsetType = UNSET
    payload: dict[str, Any]


def read_message(raw: bytes, message_id: str, action: str) -> JobMessage | None:
    """Decode a message; None if it is not a JSON object. `action` is the queue's default for messages without one."""
    try:
        found = _decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    said, held = found.get("action"), found.get("payload")
    enveloped = isinstance(held, dict) and "action" in found
    payload: dict[str, Any] = held if isinstance(held, dict) and enveloped else found
    return JobMessage(
        message_id,
        said if isinstance(said, str) and said else action,
        _count(found.get("attempts")) or 0,
        payload,
        _count(found.get("max_attempts")),
        _word(found.get("correlation_id")),
        _word(found.get("idempotency_key")),
        _word(found.get("created_at")),
        enveloped,
        _expiry(found) if enveloped else None,
        _at(found, "scheduled_for") if enveloped else None,
    )


def _expiry(found: Mapping[str, Any]) -> float | None:
    """When an envelope expires, the earlier one where it says both."""
    at, made = _at(found, "expires_at"), _unix(_word(found.get("created_at")))
    ends = [] if at is None else [at]
    try:
        seconds = read_seconds(found.get("ttl"), "ttl")
    except BadIntent:
        seconds = None
    if seconds is not None and made is not None:
        ends.append(made + seconds)
    return min(ends, default=None)


def _at(found: Mapping[str, Any], name: str) -> float | None:
    """A moment of an envelope; one that cannot be read is none, because a queue refuses no message."""
    try:
        unix_ms = read_moment(found.get(name, found.get(_CAMEL[name])), _CAMEL[name])
    except BadIntent:
        return None
    return None if unix_ms is None else unix_ms / 1000


def message_id(raw: bytes) -> str:
    """The id of a message, by the same rule as in lists_rules.lua: its `id`, else the SHA-256 of the text."""
    try:
        found = _decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        found = None
    own = found.get("id") if isinstance(found, dict) else None
    if isinstance(own, str) and 0 < len(own.encode()) <= LONGEST_ID:
        return own
    if isinstance(own, int | float) and not isinstance(own, bool) and abs(own) < _WHOLE and own == int(own):
        return str(int(own))
    return text_id(raw)


def text_id(raw: bytes) -> str:
    """The id of a message without `id`, from the text as its producer wrote it, so that a retry keeps the id."""
    appended = _APPENDED.match(raw)
    return hashlib.sha256(raw if appended is None else appended[1] + b"}").hexdigest()


def with_attempts(raw: bytes, attempts: int) -> bytes:
    """The message with its number of failed runs set; every other byte of it stays as it was."""
    appended = _APPENDED.match(raw)
    if appended is not None:
        return b'%b,"attempts":%d}' % (appended[1], attempts)
    fields = _as_raw(raw)
    if "attempts" in fields or not fields:
        fields["attempts"] = msgspec.Raw(b"%d" % attempts)
        return _encode(fields)
    return b'%b,"attempts":%d}' % (raw.rstrip()[:-1], attempts)


def encode_message(message: Envelope | dict[str, Any], longest: int) -> bytes:
    """The bytes of a new message; raises BadMessage with the reason."""
    try:
        raw = _encode(message)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise BadMessage(f"the payload cannot be written as JSON: {error}") from None
    if len(raw) > longest:
        raise BadMessage(f"the message has {len(raw)} bytes, {longest} are allowed; put large content elsewhere")
    return raw


def moment(unix_seconds: float) -> str:
    """A time in the format of messages and logs."""
    return dt.datetime.fromtimestamp(unix_seconds, dt.UTC).isoformat()


def age_seconds(created_at: str | None, now: float) -> float | None:
    """The age of a message; None if its creation time is missing or has an unknown format."""
    made = _unix(created_at)
    return None if made is None else max(0.0, now - made)


def _unix(moment: str | None) -> float | None:
    if moment is None:
        return None
    try:
        made = dt.datetime.fromisoformat(moment)
    except ValueError:
        return None
    # A time without an offset is UTC.
    return made.replace(tzinfo=made.tzinfo or dt.UTC).timestamp()


def _count(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value or value < 0:  # noqa: PLR0124
        return None
    return int(min(value, _WHOLE))


def _word(value: object) -> str | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value if isinstance(value, str) and value else None


class JobRow(msgspec.Struct, frozen=True, gc=False):
    """The state of a message; `at` is the time of the Redis server, so that rows of many processes can be ordered."""

    service: str
    queue: str
    message_id: str
    correlation_id: str | None
    idempotency_key: str | None
    status: str
    """received, processing, success, retry, skipped, failed, or dead once the cleanup trimmed the failed list."""
    attempts: int
    """Runs that failed so far."""
    last_error: str | None
    next_retry_at: float | None
    action: str
    since: float
    """When the message was first seen; not later than `at`."""
    at: float


Effect = Literal["begun", "done", "busy"]
"""The answer to `begin_effect`: begun by this message, already done, or busy in another message."""


class Effects(Protocol):
    """Records which effects have run, by key; `holder` is the message that runs one."""

    async def begin_effect(self, key: str, holder: str, seconds: float) -> Effect:
        """Ask for the right to run the effect; other messages are refused for `seconds`."""
        ...

    async def finish_effect(self, key: str, holder: str) -> None:
        """Record that the effect has run; no message begins it again."""
        ...

    async def abandon_effect(self, key: str, holder: str) -> None:
        """Release the key; another job may run the effect."""
        ...


class JobLedger(Effects, Protocol):
    """Job logs and effects in SQL."""

    async def write_job_logs(self, rows: Sequence[JobRow]) -> None:
        """Write each row, replacing an older row of the same message; raises LedgerUnavailable."""
        ...

    async def job_logs(self, filters: Mapping[str, Any], limit: int) -> list[dict[str, Any]]:
        """Rows that match, newest first; filters are queue, status, correlation_id and idempotency_key.

        The filters before_us and before_id go on behind the row with this `place` and `id`.
        """
        ...

    async def prune_jobs(self, older_than_seconds: float, limit: int) -> int:
        """Delete at most `limit` old rows and effects each; returns the larger number of the two."""
        ...
