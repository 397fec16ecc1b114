"""What the clients send, and how its answer is read, without I/O."""

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Literal, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from carillon.client.answers import (
    Accepted,
    BatchAnswer,
    Cancelled,
    ErasureReport,
    ItemAnswer,
    KeptPreferences,
    LiftedCount,
    Notification,
    Page,
    PageLink,
    Reported,
    SaidProblem,
    SkippedRedrive,
    SuppressedAddress,
)
from carillon.domain.admin import WaitingCount
from carillon.domain.content.mail import Attachment, Invitation
from carillon.domain.content.parts import InAppParts, PushParts
from carillon.domain.explain import Explanation
from carillon.domain.people import under_api_names

_NOTIFICATIONS, _SUPPRESSIONS = "/api/v1/notifications", "/api/v1/suppressions"
LARGEST_BATCH = 500
LARGEST_BODY = 240 * 1024
"""Bytes of one batch: a server takes 256 KiB unless `http.max_body_bytes` says otherwise."""
LARGEST_ANSWER = 8 * 1024 * 1024
_NO_KEY = '"'
_LARGEST_EXPORT = 1024 * 1024 * 1024
_LONG_WORK_SECONDS = 300.0
"""An export, an erasure and a redrive read whole tables before they answer."""
_NOT_FOUND, _CONFLICT, _NONE_ACCEPTED = frozenset({404}), frozenset({409}), frozenset({422})


Answered = TypeVar("Answered")


_reported = msgspec.json.Decoder(Reported).decode
_cancelled = msgspec.json.Decoder(Cancelled).decode
_removed = msgspec.json.Decoder(LiftedCount).decode
_object = msgspec.json.Decoder(dict[str, Any]).decode
_lines = msgspec.json.Decoder(dict[str, Any]).decode_lines
_held = msgspec.json.Decoder(KeptPreferences).decode
_link = msgspec.json.Decoder(PageLink).decode
_problem = msgspec.json.Decoder(SaidProblem).decode


class Item(msgspec.Struct, frozen=True, rename="camel", kw_only=True, omit_defaults=True):
    """One notification to send; the client makes an `idempotency_key` where none is given."""

    template_key: str
    channel: Literal["push", "sms", "email", "inApp", "webhook"] | None = None
    channels: Sequence[str] = ()
    """Several channels: all at once, or with `until` and `after` one after the other."""
    until: Literal["delivered", "read", "acknowledged"] | None = None
    """The next channel is tried only while the earlier ones have not reached this goal."""
    after: float | str | None = None
    """How long a channel has before the next one is tried: seconds, or a duration such as `10m` or `PT10M`."""
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
    time_zone: Literal["recipient"] | None = None
    """`scheduled_for` has no offset: it is the time on the recipient's clock."""
    expires_at: dt.datetime | None = None
    """Nothing is sent after this time."""
    ttl: float | str | None = None
    """The same, counted from acceptance: seconds, or a duration such as `10m` or `PT10M`."""
    collapse_key: str | None = None
    """Replaces what still waits for the same recipient under the same key."""
    category: str | None = None
    digest: Mapping[str, Any] | None = None
    """`key`, `window` and `max`: tell this event with others of the person in one message."""
    correlation_id: str | None = None
    idempotency_key: str | None = None
    attachments: Sequence[Attachment] = ()
    """Files of an email; `attachment` makes one of a path or a URL."""
    cc: Sequence[str] = ()
    bcc: Sequence[str] = ()
    reply_to: str | None = None
    headers: Mapping[str, str] = {}
    calendar: Invitation | None = None
    push: PushParts | None = None
    in_app: InAppParts | None = None


class ApiAnswer(msgspec.Struct, frozen=True):
    """An HTTP answer; header names are lower-case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class ApiRequest(msgspec.Struct, Generic[Answered], frozen=True, kw_only=True):
    """One request, whether it may be repeated, and the reading of its answer."""

    method: str
    path: str
    read: Callable[[ApiAnswer], Answered]
    body: bytes | None = None
    headers: Mapping[str, str] = {}
    repeatable: bool = True
    """True where sending the request twice has the effect of sending it once."""
    key: str | None = None
    understood: frozenset[int] = frozenset()
    """Statuses of 400 and above that this request reads as an answer instead of a refusal."""
    largest: int = LARGEST_ANSWER
    """The longest answer that is read, in bytes."""
    takes_seconds: float = 0.0
    """How long the server may work before it answers, where that is longer than the client's own patience."""


def send(item: Item, key: str) -> ApiRequest[Accepted]:
    """Carillon accepts it once under its key, however often it is sent."""
    return ApiRequest(
        method="POST",
        path=f"{_NOTIFICATIONS}/send",
        body=msgspec.json.encode(msgspec.structs.replace(item, idempotency_key=None)),
        headers=key_header(key),
        read=_accepted,
        key=key,
    )


def key_header(key: str) -> dict[str, str]:
    """The header of a key; one that no header can carry goes as a key that Carillon refuses in its own words."""
    return {"Idempotency-Key": key if key.isascii() and key.isprintable() else _NO_KEY}


def send_many(items: Sequence[Item], key: str) -> ApiRequest[list[ItemAnswer]]:
    """One answer for each item, also where none is accepted; an item without a key gets one of the batch's key."""
    return ApiRequest(
        method="POST",
        path=f"{_NOTIFICATIONS}/batch",
        body=msgspec.json.encode({"notifications": items}),
        headers={"Idempotency-Key": key},
        read=lambda answer: msgspec.json.decode(answer.body, type=BatchAnswer).results,
        key=key,
        understood=_NONE_ACCEPTED,
    )


def get(notification_id: str, *, attempts: bool) -> ApiRequest[Notification | None]:
    """None when there is no such notification, or not for this caller."""
    path = f"{_NOTIFICATIONS}/{quote(notification_id, safe='')}"
    return ApiRequest(
        method="GET", path=f"{path}?include=attempts" if attempts else path, read=_found, understood=_NOT_FOUND
    )


def search(filters: Mapping[str, Any], page: int, page_size: int, cursor: str | None) -> ApiRequest[Page[Notification]]:
    """Filters by their names in Python; a cursor takes the place of the page."""
    return ApiRequest(
        method="GET",
        path=f"{_NOTIFICATIONS}{_listed(filters, page, page_size, cursor)}",
        read=lambda answer: msgspec.json.decode(answer.body, type=Page[Notification]),
    )


def cancel(notification_id: str) -> ApiRequest[int]:
    """How many routes were cancelled; 0 when none was waiting."""
    return ApiRequest(
        method="POST",
        path=f"{_NOTIFICATIONS}/{quote(notification_id, safe='')}/cancel",
        read=lambda answer: 0 if _said(answer, _CONFLICT) else _cancelled(answer.body).cancelled,
        understood=_CONFLICT,
    )


def waiting(
    verb: Literal["cancel", "change"], selected: Mapping[str, Any], *, dry_run: bool
) -> ApiRequest[WaitingCount]:
    """Cancel what waits, or give it the times among what is `selected`: what matched and what became of it."""
    return ApiRequest(
        method="POST",
        path=f"{_NOTIFICATIONS}/{verb}",
        body=msgspec.json.encode(_given({**selected, "dry_run": dry_run})),
        read=lambda answer: msgspec.json.decode(answer.body, type=WaitingCount),
    )


def _given(fields: Mapping[str, Any]) -> dict[str, Any]:
    """What is given under its names in Python, under those of the API."""
    return {_camel(name): value for name, value in fields.items() if value is not None}


def _listed(filters: Mapping[str, Any], page: int, page_size: int, cursor: str | None) -> str:
    """The query of one page; a cursor takes the place of its number."""
    named = {name: _text(value) for name, value in _given(filters).items()}
    place = {"page": page} if cursor is None else {"cursor": cursor}
    return f"?{urlencode({**named, **place, 'pageSize': page_size})}"


def prefer(user_id: str, tenant_id: str | None, wishes: Mapping[str, Any]) -> ApiRequest[None]:
    """Change a person's preferences; what is not named stays, unless `replace` is among the wishes."""
    wishes = dict(wishes)
    return ApiRequest(
        method="PUT" if wishes.pop("replace", False) else "PATCH",
        path=_preferences(user_id, tenant_id),
        body=msgspec.json.encode(under_api_names(wishes)),
        read=_changed,
    )


def _changed(answer: ApiAnswer) -> None:
    """Only Carillon's own answer says that the preferences were changed: a redirection changes nothing."""
    _held(answer.body)


def preferences(user_id: str, tenant_id: str | None) -> ApiRequest[dict[str, Any]]:
    """A person's preferences, or the defaults."""
    return ApiRequest(method="GET", path=_preferences(user_id, tenant_id), read=lambda answer: _object(answer.body))


def _preferences(user_id: str, tenant_id: str | None) -> str:
    return f"/api/v1/preferences/user/{_in_path(user_id)}{_query(tenantId=tenant_id)}"


def preference_link(user_id: str, tenant_id: str | None) -> ApiRequest[str]:
    """The address of a person's own page."""
    return ApiRequest(
        method="POST",
        path=f"/api/v1/people/{_in_path(user_id)}/preference-link{_query(tenantId=tenant_id)}",
        read=lambda answer: _link(answer.body).url,
    )


def export_person(user_id: str, tenant_id: str | None) -> ApiRequest[list[dict[str, Any]]]:
    """Everything about a person; an answer that was cut off is none."""
    return ApiRequest(
        method="GET",
        path=f"/api/v1/people/{_in_path(user_id)}/export{_query(tenantId=tenant_id)}",
        read=_whole_export,
        largest=_LARGEST_EXPORT,
        takes_seconds=_LONG_WORK_SECONDS,
    )


def erase_person(user_id: str, tenant_id: str | None) -> ApiRequest[ErasureReport]:
    """Erase a person: safe to repeat."""
    return ApiRequest(
        method="DELETE",
        path=f"/api/v1/people/{_in_path(user_id)}{_query(tenantId=tenant_id)}",
        read=lambda answer: msgspec.json.decode(answer.body, type=ErasureReport),
        takes_seconds=_LONG_WORK_SECONDS,
    )


def suppress(channel: str, address: str, reason: str, about: Mapping[str, Any]) -> ApiRequest[SuppressedAddress]:
    """Send nothing more to an address; `about` may have `tenant_id` and `expires_at`."""
    said = {"channel": channel, "address": address, "reason": reason, **_given(about)}
    return ApiRequest(
        method="POST",
        path=_SUPPRESSIONS,
        body=msgspec.json.encode(said),
        read=lambda answer: msgspec.json.decode(answer.body, type=SuppressedAddress),
    )


def suppressions(
    filters: Mapping[str, Any], page: int, page_size: int, cursor: str | None
) -> ApiRequest[Page[SuppressedAddress]]:
    """Suppressions in force, by the filters of the API under their names in Python."""
    return ApiRequest(
        method="GET",
        path=f"{_SUPPRESSIONS}{_listed(filters, page, page_size, cursor)}",
        read=lambda answer: msgspec.json.decode(answer.body, type=Page[SuppressedAddress]),
    )


def lift_suppression(channel: str, address: str, tenant_id: str | None) -> ApiRequest[bool]:
    """Whether there was one to lift."""
    return ApiRequest(
        method="DELETE",
        path=f"{_SUPPRESSIONS}{_query(channel=channel, address=address, tenantId=tenant_id)}",
        read=lambda answer: not _said(answer, _NOT_FOUND) and _removed(answer.body).removed > 0,
        understood=_NOT_FOUND,
    )


def redrive_skipped(reason: str, selected: Mapping[str, Any], *, dry_run: bool) -> ApiRequest[SkippedRedrive]:
    """Let what gates skipped pass them again; a repeat would count only what the first left."""
    return ApiRequest(
        method="POST",
        path="/api/v1/admin/redrive-skipped",
        body=msgspec.json.encode({"reason": reason, "dryRun": dry_run, **_given(selected)}),
        headers={"X-Admin-Override": "true"},
        read=lambda answer: msgspec.json.decode(answer.body, type=SkippedRedrive),
        repeatable=dry_run,
        takes_seconds=_LONG_WORK_SECONDS,
    )


def _whole_export(answer: ApiAnswer) -> list[dict[str, Any]]:
    *found, end = _lines(answer.body) or [{}]
    if end.get("what") != "end" or end.get("count") != len(found):
        raise msgspec.DecodeError("the export was cut off")
    return found


def _query(**named: str | None) -> str:
    given = {name: value for name, value in named.items() if value is not None}
    return f"?{urlencode(given)}" if given else ""


def _in_path(user_id: str) -> str:
    """Servers decode a path once before they divide it: a slash inside an id is encoded twice."""
    return quote(user_id.replace("/", "%2F"), safe="")


def report(notification_id: str, kind: str, channel: str | None, route_id: str | None) -> ApiRequest[str]:
    """What the receipt did: noted, repeated or waiting."""
    said = {"kind": kind, "channel": channel, "routeId": route_id}
    return ApiRequest(
        method="POST",
        path=f"{_NOTIFICATIONS}/{quote(notification_id, safe='')}/receipts",
        body=msgspec.json.encode({name: value for name, value in said.items() if value is not None}),
        read=lambda answer: _reported(answer.body).effect,
    )


def explain(item: Item) -> ApiRequest[Explanation]:
    """What would happen to the notification; nothing is sent."""
    return ApiRequest(
        method="POST",
        path=f"{_NOTIFICATIONS}/explain",
        body=msgspec.json.encode(msgspec.structs.replace(item, idempotency_key=None)),
        headers={} if item.idempotency_key is None else key_header(item.idempotency_key),
        read=lambda answer: msgspec.json.decode(answer.body, type=Explanation),
    )


def _accepted(answer: ApiAnswer) -> Accepted:
    accepted = msgspec.json.decode(answer.body, type=Accepted)
    return msgspec.structs.replace(accepted, replayed=answer.headers.get("idempotent-replayed") == "true")


def _found(answer: ApiAnswer) -> Notification | None:
    return None if _said(answer, _NOT_FOUND) else msgspec.json.decode(answer.body, type=Notification)


def _said(answer: ApiAnswer, statuses: frozenset[int]) -> bool:
    """Whether Carillon answers with such a status; raises DecodeError where somebody else does, such as a proxy."""
    if answer.status not in statuses:
        return False
    _problem(answer.body)
    return True


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return value.isoformat() if isinstance(value, dt.datetime) else str(value)
