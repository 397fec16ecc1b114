"""From the ledger's rows to what operators read."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec
from msgspec import UNSET

from carillon.domain.notifications import Status, Story
from carillon.upkeep.api.notifications_wire import (
    AttemptView,
    DeadLetterView,
    MessageView,
    NotificationView,
    RouteView,
    StatusWord,
)
from carillon.upkeep.api.providers import Chains, providers_of
from carillon.web.problems import rfc3339_ms

Row = Mapping[str, Any]

_STATES: dict[StatusWord, tuple[str, ...]] = {
    "queued": (Status.PENDING, Status.FAILED),
    "sent": (),
    # Beside the states of routes, the ledger tells published ones apart by their receipts.
    "delivered": (Status.PUBLISHED, "received"),
    "opened": ("opened",),
    "failed": (Status.DEAD_LETTER,),
    "skipped": (Status.SKIPPED,),
}
_STRICT: dict[StatusWord, tuple[str, ...]] = {**_STATES, "sent": (Status.PUBLISHED,), "delivered": ("received",)}
_WORST_FIRST: tuple[StatusWord, ...] = ("queued", "failed", "sent", "delivered", "opened")
_PRIORITIES: dict[int, Any] = {1: "high", 2: "normal", 3: "low"}


def statuses_of(word: StatusWord, *, strict: bool = False) -> tuple[str, ...]:
    """What the ledger is asked for behind one word."""
    return tuple(str(state) for state in (_STRICT if strict else _STATES)[word])


def word_of(route: Row, *, strict: bool) -> StatusWord:
    """One word for a route; strictly, nothing is delivered before a vendor said so."""
    match Status(route["status"]):
        case Status.PENDING | Status.FAILED:
            return "queued"
        case Status.DEAD_LETTER:
            return "failed"
        case Status.SKIPPED:
            return "skipped"
        case Status.PUBLISHED if route["opened_at"] is not None:
            return "opened"
        case Status.PUBLISHED:
            return "sent" if strict and route["delivered_at"] is None else "delivered"


def overall(words: Iterable[StatusWord]) -> StatusWord:
    """One word for several routes: open while any is open, failed when any failed, skipped when all were."""
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
    failing = max((route for route in story.routes if route["last_error_at"]), key=_error_time, default=None)
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
        attempt_count=sum(route["attempt_count"] for route in story.routes),
        last_attempt_at=_latest(attempt["started_at"] for attempt in attempts),
        last_error=None if failing is None else failing["last_error_message"],
        created_at=rfc3339_ms(row["accepted_at"]),
        sent_at=_latest(route["published_at"] for route in story.routes),
        delivered_at=arrived if status in {"delivered", "opened"} else None,
        opened_at=_latest(route["opened_at"] for route in story.routes),
        failed_at=_latest(route["dead_lettered_at"] for route in story.routes),
        recipient=first.get("address"),
        service_origin=row["origin"],
        is_bulk=bool(row["is_bulk"]),
        data=_object(row["payload_json"]),
        metadata=_object(row["metadata_json"]),
        scheduled_for=_time(row["scheduled_for"]),
        correlation_id=row["request_id"],
        trace_id=row["trace_id"],
        routes=[_route_view(route, attempts, include, strict=strict) for route in story.routes],
    )


def _arrival(route: Row, *, strict: bool) -> float | None:
    """When the person had it; where nobody reports that, when a provider took it."""
    at: float | None = route["delivered_at"]
    return at if strict or at is not None else route["published_at"]


def _route_view(row: Row, attempts: list[dict[str, Any]], include: Collection[str], *, strict: bool) -> RouteView:
    own = [attempt for attempt in attempts if attempt["route_id"] == row["route_id"]]
    text = row["message_json"]
    message = None if text is None else msgspec.json.decode(text, type=MessageView)
    return RouteView(
        route_id=row["route_id"],
        channel=row["channel"],
        recipient=row["address"],
        status=word_of(row, strict=strict),
        attempt_count=row["attempt_count"],
        max_attempts=row["max_attempts"],
        provider=row["provider"],
        next_attempt_at=_time(row["next_attempt_at"]),
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
        attempts=[_attempt_view(attempt) for attempt in own] if "attempts" in include else UNSET,
        message=message if "message" in include else UNSET,
    )


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


def dead_letter_view(row: Row) -> DeadLetterView:
    """One dead letter."""
    return DeadLetterView(
        notification_id=row["notification_id"],
        route_id=row["route_id"],
        channel=row["channel"],
        attempt_count=row["final_attempt_count"],
        max_attempts=row["max_attempts"],
        classification=row["failure_classification"],
        error=row["failure_message"],
        hint=row["recovery_hint"],
        failed_at=rfc3339_ms(row["created_at"]),
    )


def _error_time(row: Row) -> float:
    return float(row["last_error_at"])


def _time(unix_ms: float | None) -> str | None:
    return None if unix_ms is None else rfc3339_ms(unix_ms)


def _latest(times: Iterable[float | None]) -> str | None:
    return _time(max((time for time in times if time is not None), default=None))


def _object(text: str | None) -> dict[str, Any]:
    return {} if text is None else msgspec.json.decode(text, type=dict[str, Any])
