"""Builds the requests of both clients and reads their answers, without I/O."""

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Literal, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from carillon.client.wire import Accepted, BatchAnswer, Cancelled, ItemAnswer, Notification, Page
from carillon.domain.explain import Explanation

Answered = TypeVar("Answered")
_NOTIFICATIONS = "/api/v1/notifications"
LARGEST_BATCH = 500
_NOT_FOUND, _CONFLICT = frozenset({404}), frozenset({409})
_cancelled = msgspec.json.Decoder(Cancelled).decode


class Item(msgspec.Struct, frozen=True, rename="camel", kw_only=True, omit_defaults=True):
    """One notification to send; the client makes an `idempotency_key` where none is given."""

    template_key: str
    channel: Literal["push", "sms", "email", "inApp", "webhook"] | None = None
    recipient: str | None = None
    user_id: str | None = None
    tenant_id: str | None = None
    data: Mapping[str, Any] = {}
    priority: Literal["high", "normal", "low"] = "normal"
    synchronous: bool = False
    is_bulk: bool = False
    locale: str | None = None
    metadata: Mapping[str, Any] = {}
    service_origin: str = "system"
    scheduled_for: dt.datetime | None = None
    correlation_id: str | None = None
    idempotency_key: str | None = None


class HttpAnswer(msgspec.Struct, frozen=True):
    """An HTTP answer; header names are lower-case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Asked(msgspec.Struct, Generic[Answered], frozen=True, kw_only=True):
    """One request, whether it may be repeated, and the reading of its answer."""

    method: str
    path: str
    read: Callable[[HttpAnswer], Answered]
    body: bytes | None = None
    headers: Mapping[str, str] = {}
    repeatable: bool = True
    """True where sending the request twice has the effect of sending it once."""
    key: str | None = None
    understood: frozenset[int] = frozenset()
    """Statuses of 400 and above that this request reads as an answer instead of a refusal."""


def send(item: Item, key: str) -> Asked[Accepted]:
    """Carillon accepts it once under its key, however often it is sent."""
    return Asked(
        method="POST",
        path=f"{_NOTIFICATIONS}/send",
        body=msgspec.json.encode(msgspec.structs.replace(item, idempotency_key=None)),
        headers={"Idempotency-Key": key},
        read=_accepted,
        key=key,
    )


def send_many(items: Sequence[Item], key: str) -> Asked[list[ItemAnswer]]:
    """One answer for each item; an item without a key gets one derived from the batch's key."""
    return Asked(
        method="POST",
        path=f"{_NOTIFICATIONS}/batch",
        body=msgspec.json.encode({"notifications": items}),
        headers={"Idempotency-Key": key},
        read=lambda answer: msgspec.json.decode(answer.body, type=BatchAnswer).results,
        key=key,
    )


def get(notification_id: str, *, attempts: bool) -> Asked[Notification | None]:
    """None when there is no such notification, or not for this caller."""
    path = f"{_NOTIFICATIONS}/{quote(notification_id, safe='')}"
    return Asked(
        method="GET", path=f"{path}?include=attempts" if attempts else path, read=_found, understood=_NOT_FOUND
    )


def search(filters: Mapping[str, Any], page: int, page_size: int) -> Asked[Page[Notification]]:
    """Filters by their names in Python."""
    named = {_camel(name): _text(value) for name, value in filters.items() if value is not None}
    query = urlencode({**named, "page": page, "pageSize": page_size})
    return Asked(
        method="GET",
        path=f"{_NOTIFICATIONS}?{query}",
        read=lambda answer: msgspec.json.decode(answer.body, type=Page[Notification]),
    )


def cancel(notification_id: str) -> Asked[int]:
    """How many routes were cancelled; 0 when none was waiting."""
    return Asked(
        method="POST",
        path=f"{_NOTIFICATIONS}/{quote(notification_id, safe='')}/cancel",
        read=lambda answer: 0 if answer.status in _CONFLICT else _cancelled(answer.body).cancelled,
        understood=_CONFLICT,
    )


def explain(item: Item) -> Asked[Explanation]:
    """What would happen to the notification; nothing is sent."""
    return Asked(
        method="POST",
        path=f"{_NOTIFICATIONS}/explain",
        body=msgspec.json.encode(msgspec.structs.replace(item, idempotency_key=None)),
        headers={} if item.idempotency_key is None else {"Idempotency-Key": item.idempotency_key},
        read=lambda answer: msgspec.json.decode(answer.body, type=Explanation),
    )


def _accepted(answer: HttpAnswer) -> Accepted:
    accepted = msgspec.json.decode(answer.body, type=Accepted)
    return msgspec.structs.replace(accepted, replayed=answer.headers.get("idempotent-replayed") == "true")


def _found(answer: HttpAnswer) -> Notification | None:
    return None if answer.status in _NOT_FOUND else msgspec.json.decode(answer.body, type=Notification)


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _text(value: object) -> str:
    return value.isoformat() if isinstance(value, dt.datetime) else str(value)
