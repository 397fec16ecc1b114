"""The JSON that operators read and write about notifications, and how the ledger's rows become it."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from carillon.domain.content.shown import MessageView, message_view
from carillon.domain.notifications import Message, Status, Story
from carillon.domain.receipts import ReceiptKind
from carillon.domain.timing import QUIET_HOURS
from carillon.web.paging import Cursor
from carillon.web.problems import rfc3339_ms

StatusWord = Literal["queued", "sent", "delivered", "opened", "failed", "skipped"]
Text = Annotated[str, Meta(pattern=r"^[^\x00-\x1f\x7f]{1,2000}\Z")]
Id = Annotated[str, Meta(pattern=r"^[^\x00-\x1f\x7f]{1,255}\Z")]
Reason = Annotated[
    str, Meta(pattern=r"^(?=.*\S)[^\x00-\x08\x0b\x0c\x0e-\x1f\x7f]{1,1000}\Z", description="Kept in the audit trail.")
]
Page = Annotated[int, Meta(ge=1, le=10_000)]
PageSize = Annotated[int, Meta(ge=1, le=200)]
Include = Annotated[
    str,
    Meta(
        pattern=r"^(attempts|message)(,(attempts|message))*\Z",
        description="attempts, message, or both: what to show of each route beyond its state.",
    ),
]
Moment = Annotated[
    str, Meta(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ].{1,30}\Z", extra_json_schema={"format": "date-time"})
]
"""Text, because loose conversion would also read `0.5` as a time."""
Counted = Annotated[
    Literal["exact", "capped"],
    Meta(description="`capped` counts no further than 1000, which is fast in every ledger."),
]
ChannelWord = Literal["push", "sms", "email", "inApp", "webhook"]
Chains = Mapping[str, Sequence[str]]
Row = Mapping[str, Any]

_STATES: dict[StatusWord, tuple[str, ...]] = {
    # Beside the states of routes, the ledger tells published ones apart by their receipts.
    "queued": (Status.PENDING, Status.FAILED, "vendor_queued"),
    "sent": ("vendor_sent",),
    "delivered": (Status.PUBLISHED, "received"),
    "opened": ("opened",),
    "failed": (Status.DEAD_LETTER,),
    "skipped": (Status.SKIPPED,),
}
_STRICT: dict[StatusWord, tuple[str, ...]] = {
    **_STATES,
    "sent": (Status.PUBLISHED, "vendor_sent"),
    "delivered": ("received",),
}
_ON_ITS_WAY: dict[str | None, StatusWord] = {ReceiptKind.QUEUED: "queued", ReceiptKind.SENT: "sent"}
"""What a vendor says about a message that it accepted and has not delivered yet."""
_WORST_FIRST: tuple[StatusWord, ...] = ("queued", "failed", "sent", "delivered", "opened")
_PRIORITIES: dict[int, Any] = {1: "high", 2: "normal", 3: "low"}


class AttemptView(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One call of one provider, with its outcome."""

    number: int
    provider: str
    outcome: str
    classification: str | None
    error: str | None
    started_at: str
    duration_ms: float
    verdict: str
    next_try_in_ms: float | None
    settled: str


class RouteSuppressionView(msgspec.Struct, frozen=True):
    """The suppression that stopped a route, as it was then; it may have ended since."""

    id: int
    kind: str
    until: str | None


class RouteView(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One recipient on one channel."""

    route_id: str
    channel: str
    recipient: str | None
    status: StatusWord
    attempt_count: int
    max_attempts: int
    provider: str
    next_attempt_at: str | None
    waits_for: str | None
    last_error: str | None
    last_error_at: str | None
    locale: str | None
    created_at: str
    updated_at: str
    delivered_at: str | None
    opened_at: str | None
    clicked_at: str | None
    failed_at: str | None
    skipped_at: str | None
    gate: str | None
    """What stopped a skipped route: `expired`, `collapsed`, `category`, `suppressed` and so on; `skipped` is none.

    `quiet_hours` on a queued route that waits for their end.
    """
    goal: str | None
    """What the chain of its person is tried for; null outside of chains."""
    step: int | None
    """Its place in that chain, from 1; null where a gate skipped it."""
    redriven_by: int | None
    """The action of the audit trail that redrove it last."""
    suppression: RouteSuppressionView | None
    """Why it was skipped or given up, if the address was suppressed."""
    attempts: list[AttemptView] | UnsetType = UNSET
    message: MessageView | UnsetType | None = UNSET


class NotificationView(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One accepted notification and how far it has come."""

    id: str
    tenant_id: str | None
    user_id: str | None
    category: str | None
    channel: str | None
    template_key: str
    priority: Literal["high", "normal", "low"]
    status: StatusWord
    locale: str | None
    provider_message_ids: list[str | None]
    """By provider, under the same index as `providerNames`; null where a provider gave none."""
    provider_names: list[str]
    attempt_count: int
    last_attempt_at: str | None
    last_error: str | None
    created_at: str
    sent_at: str | None
    delivered_at: str | None
    opened_at: str | None
    failed_at: str | None
    recipient: str | None
    service_origin: str
    is_bulk: bool
    data: dict[str, Any]
    metadata: dict[str, Any]
    scheduled_for: str | None
    expires_at: str | None
    correlation_id: str | None
    trace_id: str | None
    routes: list[RouteView]


class NotificationPage(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One page of notifications, newest first."""

    items: list[NotificationView]
    total_count: int | None
    """None behind a cursor: only pages are counted."""
    page_number: int | None
    page_size: int
    total_pages: int | None
    next_cursor: str | None
    """Goes on after the last item; None at the end."""


class Cancelled(msgspec.Struct, frozen=True, rename="camel"):
    """How many routes will not be attempted any more."""

    notification_id: str
    cancelled: int
    too_late: int = 0
    """Routes in a provider's call, which is not interrupted."""


class ShowQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to show beyond the routes."""

    include: Include | UnsetType = UNSET


class SearchQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """Which notifications to list."""

    page: Page = 1
    page_size: PageSize = 20
    cursor: Cursor | UnsetType = UNSET
    count: Counted = "exact"
    include: Include | UnsetType = UNSET
    q: Text | UnsetType = UNSET
    """An id, a person, a trace, the beginning of an address or of a template's key, or words of an error."""
    channel: ChannelWord | UnsetType = UNSET
    status: StatusWord | UnsetType = UNSET
    user_id: Id | UnsetType = UNSET
    template_key: Id | UnsetType = UNSET
    recipient: Text | UnsetType = UNSET
    trace_id: Id | UnsetType = UNSET
    service_origin: Id | UnsetType = UNSET
    tenant_id: Id | UnsetType = UNSET
    accepted_after: Moment | UnsetType = UNSET
    accepted_before: Moment | UnsetType = UNSET


def providers_of(
    routes: Iterable[Mapping[str, Any]], attempts: Sequence[Mapping[str, Any]], chains: Chains
) -> tuple[list[str], list[str | None]]:
    """Names and message ids under one index, the primary first; None where a provider gave no id or was passed over."""
    names: dict[str, str | None] = {}
    for route in routes:
        tried = [attempt for attempt in attempts if attempt["route_id"] == route["route_id"]]
        for name in _in_order({attempt["provider"]: None for attempt in tried}, chains.get(route["channel"], ())):
            names.setdefault(name, None)
        for attempt in tried:
            names[attempt["provider"]] = attempt["provider_message_id"] or names[attempt["provider"]]
    return list(names), list(names.values())


def _in_order(tried: Mapping[str, None], chain: Sequence[str]) -> list[str]:
    """All providers up to the last one tried, in the order of failover."""
    known = [place for place, name in enumerate(chain) if name in tried]
    reached = list(chain)[: max(known) + 1] if known else []
    return [*reached, *(name for name in tried if name not in reached)]


def statuses_of(word: StatusWord, *, strict: bool = False) -> tuple[str, ...]:
    """The ledger's states behind one status of the API."""
    return tuple(str(state) for state in (_STRICT if strict else _STATES)[word])


def word_of(route: Row, *, strict: bool) -> StatusWord:
    """The status of a route: its vendor's last word; without any it is delivered, and strictly only sent."""
    match Status(route["status"]):
        case Status.PENDING | Status.FAILED:
            return "queued"
        case Status.DEAD_LETTER:
            return "failed"
        case Status.SKIPPED:
            return "skipped"
        case Status.PUBLISHED if route["opened_at"] is not None:
            return "opened"
        case Status.PUBLISHED if route["delivered_at"] is not None:
            return "delivered"
        case Status.PUBLISHED:
            return _ON_ITS_WAY.get(route["receipt"], "sent" if strict else "delivered")


def overall(words: Iterable[StatusWord]) -> StatusWord:
    """The status of several routes: queued while any is, failed if any failed, skipped if all were."""
    found = set(words)
    for word in _WORST_FIRST:
        if word in found:
            return word
    return "skipped"


def notification_view(
    story: Story, include: Collection[str] = (), *, chains: Chains | None = None, strict: bool = False
) -> NotificationView:
    """One notification with its routes, and with what else was asked for."""
    row, attempts = story.notification, story.attempts
    names, message_ids = providers_of(story.routes, attempts, chains or {})
    first: Row = story.routes[0] if story.routes else {}
    status = overall(word_of(route, strict=strict) for route in story.routes)
    arrived = _latest(_arrival(route, strict=strict) for route in story.routes)
    return NotificationView(
        id=row["notification_id"],
        tenant_id=row["tenant_id"],
        user_id=row["user_id"],
        channel=first.get("channel"),
        template_key=row["notification_type"],
        priority=_PRIORITIES[row["priority"]],
        status=status,
        locale=first.get("resolved_locale"),
        provider_message_ids=message_ids,
        provider_names=names,
        attempt_count=sum(_calls(route, attempts) for route in story.routes),
        last_attempt_at=_latest(attempt["started_at"] for attempt in attempts),
        last_error=_last_error(story.routes),
        created_at=rfc3339_ms(row["accepted_at"]),
        sent_at=_latest(route["published_at"] for route in story.routes),
        delivered_at=arrived if status in {"delivered", "opened"} else None,
        opened_at=_latest(route["opened_at"] for route in story.routes),
        failed_at=_latest(route["dead_lettered_at"] for route in story.routes),
        recipient=first.get("address"),
        routes=[_route_view(route, attempts, include, strict=strict) for route in story.routes],
        **_asked(row),
    )


def _asked(row: Row) -> dict[str, Any]:
    """What the request said, and what does not change any more."""
    return {
        "category": row["category"],
        "service_origin": row["origin"],
        "is_bulk": bool(row["is_bulk"]),
        "data": _object(row["payload_json"]),
        "metadata": _object(row["metadata_json"]),
        "scheduled_for": _time(row["scheduled_for"]),
        "expires_at": _time(row["expires_at"]),
        "correlation_id": row["request_id"],
        "trace_id": row["trace_id"],
    }


def _arrival(route: Row, *, strict: bool) -> float | None:
    """When the message arrived; without receipts, when a provider accepted it."""
    at: float | None = route["delivered_at"]
    waits = strict or route["receipt"] in _ON_ITS_WAY
    return at if waits or at is not None else route["published_at"]


def _calls(route: Row, attempts: Sequence[Row]) -> int:
    """How many calls were made for a route, those before a redrive included.

    The route itself counts from its last redrive on, and also an attempt whose worker died before it wrote a word.
    """
    counted: int = route["attempt_count"]
    return max(counted, len([attempt for attempt in attempts if attempt["route_id"] == route["route_id"]]))


def _route_view(row: Row, attempts: list[dict[str, Any]], include: Collection[str], *, strict: bool) -> RouteView:
    own = [attempt for attempt in attempts if attempt["route_id"] == row["route_id"]]
    quiet = bool(row["in_quiet_hours"])
    return RouteView(
        route_id=row["route_id"],
        channel=row["channel"],
        recipient=row["address"],
        status=word_of(row, strict=strict),
        attempt_count=_calls(row, attempts),
        max_attempts=row["max_attempts"],
        provider=row["provider"],
        next_attempt_at=_time(row["next_attempt_at"]),
        waits_for=f"the end of quiet hours at {_time(row['not_before'])}" if quiet else row.get("waits_for"),
        last_error=row["last_error_message"],
        last_error_at=_time(row["last_error_at"]),
        locale=row["resolved_locale"],
        created_at=rfc3339_ms(row["created_at"]),
        updated_at=rfc3339_ms(row["updated_at"]),
        delivered_at=_time(_arrival(row, strict=strict)),
        opened_at=_time(row["opened_at"]),
        clicked_at=_time(row["clicked_at"]),
        failed_at=_time(row["dead_lettered_at"]),
        skipped_at=_time(row["skipped_at"]),
        goal=row["goal"],
        step=None if row["goal"] is None or row["step"] is None else row["step"] + 1,
        redriven_by=row["redriven_by"],
        gate=QUIET_HOURS if quiet else row["last_error_classification"] if row["status"] == Status.SKIPPED else None,
        suppression=_suppression(row),
        attempts=[_attempt_view(attempt) for attempt in own] if "attempts" in include else UNSET,
        message=_message(row) if "message" in include else UNSET,
    )


def _message(row: Row) -> MessageView | None:
    text = row["message_json"]
    return None if text is None else message_view(row["channel"], msgspec.json.decode(text, type=Message))


def _suppression(row: Row) -> RouteSuppressionView | None:
    number, until = row["suppression_id"], _time(row["suppressed_until"])
    return None if number is None else RouteSuppressionView(number, row["suppression_kind"], until)


def _attempt_view(row: Row) -> AttemptView:
    return AttemptView(
        number=row["attempt"],
        provider=row["provider"],
        outcome=row["outcome"],
        classification=row["classification"],
        error=row["error"],
        started_at=rfc3339_ms(row["started_at"]),
        duration_ms=row["duration_ms"],
        verdict=row["verdict"],
        next_try_in_ms=row["delay_ms"],
        settled=row["settled"],
    )


def _last_error(routes: Iterable[Row]) -> str | None:
    failed = [route for route in routes if route["last_error_at"]]
    newest = max(failed, key=lambda route: float(route["last_error_at"]), default=None)
    return None if newest is None else newest["last_error_message"]


def _time(unix_ms: float | None) -> str | None:
    return None if unix_ms is None else rfc3339_ms(unix_ms)


def _latest(times: Iterable[float | None]) -> str | None:
    return _time(max((time for time in times if time is not None), default=None))


def _object(text: str | None) -> dict[str, Any]:
    return {} if text is None else msgspec.json.decode(text, type=dict[str, Any])
