"""Builds an intent with the rules of its reader, publishes it with one XADD, and replays a dead letter."""

import logging
import re
import shlex
from collections.abc import Awaitable, Collection, Iterable, Mapping
from functools import cache
from typing import Any, Protocol

import msgspec

from carillon.blueprints.galaxy.catalogue import read
from carillon.blueprints.galaxy.envelope import INVALID_ENVELOPE, INVALID_PAYLOAD, INVALID_RECIPIENTS
from carillon.blueprints.galaxy.wire import GalaxyWire
from carillon.domain.errors import BadIntent
from carillon.domain.intents import Malformed, canonical

STREAM = "notification:intents"
_THIRTY_DAYS_MS = 30 * 86_400_000
_log = logging.getLogger("carillon.notificationintent")
_PLAIN = re.compile(r"[A-Za-z0-9_.:/@%+=-]+")
_USER = "user:"


class Metadata(msgspec.Struct, frozen=True, kw_only=True):
    """The origin of an intent; `idempotency_key` is the producer's own and the same on every repeat."""

    idempotency_key: str
    occurred_at_ms: int
    request_id: str | None = None
    trace_id: str | None = None


class NotificationIntent(msgspec.Struct, frozen=True):
    """The checked fields of one stream entry."""

    fields: dict[str, str]


class StreamClient(Protocol):
    """The one command that a synchronous Redis client must have."""

    def xadd(self, name: str, fields: dict[Any, Any]) -> Any:  # noqa: ANN401 - clients answer bytes or text
        """Append an entry and return its id."""
        ...


class AsyncStreamClient(Protocol):
    """The one command that an asynchronous Redis client must have."""

    def xadd(self, name: str, fields: dict[Any, Any]) -> Awaitable[Any]:
        """Append an entry and return its id."""
        ...


def thirty_days_after(occurred_at_ms: int) -> int:
    """The end of the 30 days in which a race name may be registered."""
    return occurred_at_ms + _THIRTY_DAYS_MS


def build(
    notification_type: str,
    metadata: Metadata,
    payload: Mapping[str, Any],
    recipient_user_ids: Iterable[str] | None = None,
    *,
    wire: GalaxyWire | None = None,
) -> NotificationIntent:
    """Build an intent of any type; without recipients it is for the administrators.

    `wire` knows types of your own: `wire.open_wire(Path("types.toml"), {})`. Raises BadIntent with the failure
    code under which the consumer would have filed it.
    """
    if isinstance(recipient_user_ids, str):
        raise BadIntent(INVALID_RECIPIENTS, "recipient_user_ids must be several strings, not one")
    users = None if recipient_user_ids is None else list(recipient_user_ids)
    judge = wire or _shipped()
    fields: dict[str, Any] = {
        "notification_type": notification_type,
        "producer": judge.producer_of(notification_type),
        "audience_kind": "admin_email" if users is None else "user",
        "idempotency_key": metadata.idempotency_key,
        "occurred_at_ms": str(metadata.occurred_at_ms),
        "payload_json": _json(payload, INVALID_PAYLOAD),
    }
    if users is not None:
        fields["recipient_user_ids_json"] = _json(users, INVALID_RECIPIENTS)
    if metadata.request_id:
        fields["request_id"] = metadata.request_id
    if metadata.trace_id:
        fields["trace_id"] = metadata.trace_id
    if strange := [name for name, value in fields.items() if not isinstance(value, str)]:
        raise BadIntent(INVALID_ENVELOPE, f"must be text: {', '.join(strange)}")
    read_back = judge.decode("0-0", fields)
    if isinstance(read_back, Malformed):
        raise BadIntent(read_back.failure_code, read_back.failure_message)
    return NotificationIntent(fields)


def publish(redis: StreamClient, intent: NotificationIntent, *, stream: str = STREAM) -> str:
    """Append the intent with one plain XADD and return its id, the notification's id; raises what the client raises."""
    return _entry_id(redis.xadd(stream, dict(intent.fields)))


async def publish_async(redis: AsyncStreamClient, intent: NotificationIntent, *, stream: str = STREAM) -> str:
    """`publish` for an asynchronous client."""
    return _entry_id(await redis.xadd(stream, dict(intent.fields)))


def publish_best_effort(redis: StreamClient, intent: NotificationIntent, *, stream: str = STREAM) -> str | None:
    """`publish` that never raises: a failed notification must not undo what has already happened."""
    try:
        return publish(redis, intent, stream=stream)
    except Exception as error:  # noqa: BLE001 - the caller continues after any failure
        _warn(intent, error)
        return None


async def publish_best_effort_async(
    redis: AsyncStreamClient, intent: NotificationIntent, *, stream: str = STREAM
) -> str | None:
    """`publish_async` that never raises; a cancelled task stays cancelled."""
    try:
        return await publish_async(redis, intent, stream=stream)
    except Exception as error:  # noqa: BLE001 - the caller continues after any failure
        _warn(intent, error)
        return None


@cache
def _shipped() -> GalaxyWire:
    return GalaxyWire.open(read(), {})


def _json(value: object, code: str) -> str:
    try:
        return canonical(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise BadIntent(code, f"not to be written as JSON: {error}") from None


def _entry_id(answer: object) -> str:
    match answer:
        case bytes():
            return answer.decode()
        case str():
            return answer
        case _:
            raise TypeError("the client gave no entry id; asynchronous clients go with publish_async")


def _warn(intent: NotificationIntent, error: Exception) -> None:
    named = {name: intent.fields.get(name) for name in ("notification_type", "producer", "idempotency_key")}
    _log.warning("notification intent not published: %s: %s", type(error).__name__, error, extra=named)


def replay_fields(record: Mapping[str, Any], only: Collection[str] | None = None) -> dict[str, str]:
    """The fields of the new intent, from the old one's record; `only` narrows the audience to these recipient refs."""
    fields = {
        "notification_type": str(record["notification_type"]),
        "producer": str(record["producer"]),
        "audience_kind": str(record["audience_kind"]),
        # Made from the old notification, so that pasting a line twice tells nobody twice.
        "idempotency_key": f"replay:{record['notification_id']}",
        "occurred_at_ms": str(record["occurred_at"]),
        "payload_json": str(record["payload_json"]),
    }
    users: list[str] | None = record["recipient_user_ids"]
    if users is not None:
        named = users if only is None else [user for user in users if f"{_USER}{user}" in only]
        fields["recipient_user_ids_json"] = canonical(named)
    return fields


def xadd_line(stream: str, fields: Mapping[str, str]) -> str:
    """One line that a shell after `redis-cli` and the prompt of redis-cli read alike."""
    words = [_quoted_json(value) if name.endswith("_json") else _quoted(value) for name, value in fields.items()]
    pairs = (word for pair in zip(fields, words, strict=True) for word in pair)
    return " ".join(["XADD", _quoted(stream), "'*'", *pairs])


def _quoted(text: str) -> str:
    return text if _PLAIN.fullmatch(text) else shlex.quote(text)


def _quoted_json(text: str) -> str:
    # The two disagree on how to write an apostrophe inside apostrophes; JSON can do without one.
    return "'" + text.replace("'", "\\u0027") + "'"
