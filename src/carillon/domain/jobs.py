"""Jobs of a list queue: what the bytes of a message mean, how a retry changes them, and the job log in SQL."""

import datetime as dt
import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

import msgspec

from carillon.domain.errors import CarillonError

LOG_KEY = "q:log:jobs"
LONGEST_ID = 512
_WHOLE = 2**53
"""Beyond this, JSON numbers of other languages are no longer whole: such an id is no id."""

# What a retry appended to a message that had no `attempts`, and the blanks that tell equal messages apart in a ZSET.
_APPENDED = re.compile(rb'\A(.*),"attempts":[0-9]+\}[ \t\r\n]*\Z', re.DOTALL)
_as_raw = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


class Permanent(CarillonError):
    """Raised by a handler: no later attempt can succeed, the message belongs to the failed ones at once."""


class BadMessage(CarillonError):
    """What was to be enqueued is no message; nothing was written."""


class JobMessage(msgspec.Struct, frozen=True, gc=False):
    """One message, envelope or raw dict alike."""

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


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """The envelope of a job in a list queue, in the order of its fields."""

    id: str
    action: str
    correlation_id: str | None = None
    idempotency_key: str | None = None
    created_at: str
    attempts: int = 0
    max_attempts: int | None = None
    payload: dict[str, Any]


def read_message(raw: bytes, message_id: str, action: str) -> JobMessage | None:
    """What a message says; None when it is no JSON object. `action` is the queue's own, for those that name none."""
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
    )


def message_id(raw: bytes) -> str:
    """The one id rule, as lists_rules.lua has it: the message's `id`, else the SHA-256 of the text."""
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
    """The id of a message without one: of the text as its producer wrote it, so that a retry keeps it."""
    appended = _APPENDED.match(raw)
    return hashlib.sha256(raw if appended is None else appended[1] + b"}").hexdigest()


def with_attempts(raw: bytes, attempts: int) -> bytes:
    """The same message after so many failed runs: every other byte of an envelope's fields stays as it was."""
    appended = _APPENDED.match(raw)
    if appended is not None:
        return b'%b,"attempts":%d}' % (appended[1], attempts)
    fields = _as_raw(raw)
    if "attempts" in fields or not fields:
        fields["attempts"] = msgspec.Raw(b"%d" % attempts)
        return _encode(fields)
    return b'%b,"attempts":%d}' % (raw.rstrip()[:-1], attempts)


def encode_message(message: Envelope | dict[str, Any], longest: int) -> bytes:
    """The bytes of a new message; BadMessage says what is wrong with it."""
    try:
        raw = _encode(message)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise BadMessage(f"the payload cannot be written as JSON: {error}") from None
    if len(raw) > longest:
        raise BadMessage(f"the message has {len(raw)} bytes, {longest} are allowed; put large content elsewhere")
    return raw


def moment(unix_seconds: float) -> str:
    """A time as messages and logs carry it."""
    return dt.datetime.fromtimestamp(unix_seconds, dt.UTC).isoformat()


def age_seconds(created_at: str | None, now: float) -> float | None:
    """How old a message is; None when it does not say when it was made, or says it in no known way."""
    if created_at is None:
        return None
    try:
        made = dt.datetime.fromisoformat(created_at)
    except ValueError:
        return None
    # Times without an offset were written by clocks set to UTC.
    made = made.replace(tzinfo=made.tzinfo or dt.UTC)
    return max(0.0, now - made.timestamp())


def _count(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value or value < 0:  # noqa: PLR0124
        return None
    return int(min(value, _WHOLE))


def _word(value: object) -> str | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value if isinstance(value, str) and value else None


class JobRow(msgspec.Struct, frozen=True, gc=False):
    """What a message has come to; `at` is the time of the server that moved it, so that many processes' rows order."""

    service: str
    queue: str
    message_id: str
    correlation_id: str | None
    idempotency_key: str | None
    status: str
    """received, processing, success, retry, failed, or dead once it was trimmed from the failed ones."""
    attempts: int
    """Runs that failed so far."""
    last_error: str | None
    next_retry_at: float | None
    action: str
    since: float
    """When it was first heard of; not later than `at`."""
    at: float


Effect = Literal["begun", "done", "busy"]
"""The answer to `begin_effect`: begun by us, done already, or busy in another message."""


class Effects(Protocol):
    """Records which effects have run, by key; `holder` is the message that runs one."""

    async def begin_effect(self, key: str, holder: str, seconds: float) -> Effect:
        """Ask for the right to run the effect; other messages are refused for `seconds`."""
        ...

    async def finish_effect(self, key: str, holder: str) -> None:
        """The effect has run; nobody begins it again."""
        ...

    async def abandon_effect(self, key: str, holder: str) -> None:
        """Release the key; another job may run the effect."""
        ...


class JobLedger(Effects, Protocol):
    """Job logs and effects in SQL."""

    async def write_job_logs(self, rows: Sequence[JobRow]) -> None:
        """Write each row over an older one of its message; raises LedgerUnavailable."""
        ...

    async def job_logs(self, filters: Mapping[str, str | None], limit: int) -> list[dict[str, Any]]:
        """Rows that match, newest first; filters are queue, status, correlation_id and idempotency_key."""
        ...

    async def prune_jobs(self, older_than_seconds: float, limit: int) -> int:
        """Delete at most so many old rows and effects; answers how many rows."""
        ...
