"""The JSON that administrators read and write, and how the ledger's rows become it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from carillon.upkeep.api.dead_letters_wire import RouteKey
from carillon.upkeep.api.notifications_wire import ChannelWord, Id, Moment, Page, PageSize, Reason
from carillon.web.paging import Cursor, CursorShape, counts
from carillon.web.problems import rfc3339_ms

ProviderName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]{1,64}\Z")]
Rate = Annotated[float, Meta(gt=0.0, le=100_000.0, description="At most so many routes a second; without it, all now.")]


Chosen = Annotated[
    list[RouteKey],
    Meta(min_length=1, max_length=1000, description="Only these; more are chosen by filters."),
]
Row = Mapping[str, Any]

FAILED = CursorShape(
    "failed-notifications",
    {"before_us": ("place", int), "before_id": ("notification_id", str), "before_route": ("route_id", str)},
)
ACTIONS = CursorShape("actions", {"before_id": ("action_id", int)})


class RetryBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """Why a failed notification is tried again, and by whom if not by its last provider."""

    reason: Reason
    force_provider: ProviderName | None = None


class Retried(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The notification waits for its next attempt."""

    success: bool
    notification_id: str
    retry_attempt_id: str
    status: Literal["queued"]
    estimated_delivery_time: str


class FailedQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """Which failed notifications to list."""

    page_number: Page = 1
    page_size: PageSize = 20
    cursor: Cursor | UnsetType = UNSET
    channel: ChannelWord | UnsetType = UNSET
    failed_after: Moment | UnsetType = UNSET
    failed_before: Moment | UnsetType = UNSET
    classification: Id | UnsetType = UNSET
    provider: ProviderName | UnsetType = UNSET
    template_key: Id | UnsetType = UNSET


class FailedView(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One recipient of a notification whose delivery failed."""

    id: str
    route_id: str
    tenant_id: str | None
    user_id: str | None
    channel: str
    template_key: str
    status: Literal["failed"]
    attempt_count: int
    last_error: str
    classification: str
    provider: str
    created_at: str
    failed_at: str


class FailedPage(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One page of failed notifications, newest first."""

    items: list[FailedView]
    total_count: int | None
    """None behind a cursor: only pages are counted."""
    page_number: int | None
    page_size: int
    total_pages: int | None
    next_cursor: str | None
    """Goes on after the last item; None at the end."""


class RedriveFailedBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """Which failed notifications get a fresh budget, how fast, and why; without a filter, all of them."""

    reason: Reason
    dry_run: bool = False
    rate_per_second: Rate | None = None
    items: Chosen | None = None
    channel: ChannelWord | None = None
    classification: Id | None = None
    provider: ProviderName | None = None
    template_key: Id | None = None
    tenant_id: Id | None = None
    failed_after: Moment | None = None
    failed_before: Moment | None = None


class CauseCount(msgspec.Struct, frozen=True, kw_only=True):
    """How many of the matching ones failed for one cause."""

    channel: str
    classification: str
    count: int


class RedrivenFailed(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """What matched, what was redriven, and when the last one has its turn."""

    dry_run: bool
    matched: int
    redriven: int
    by_cause: list[CauseCount]
    last_turn_at: str | None
    action_id: int | None
    suppressed: int
    """Those of `matched` that stay dead letters, because their address is suppressed."""


class StopBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why a redrive is stopped."""

    reason: Reason


class StoppedRedrive(msgspec.Struct, frozen=True):
    """How many routes are dead letters again; what was attempted already goes on."""

    stopped: int


class RedrivesQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """Which redrives to list."""

    page_number: Page = 1
    page_size: PageSize = 20
    cursor: Cursor | UnsetType = UNSET


class RedriveView(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One redrive and how far it came; a route that was redriven again counts for the newer one."""

    id: int
    at: str
    actor: str
    reason: str | None
    rate_per_second: float | None
    endpoint: str | None
    """Whose replay it is; None for other redrives."""
    chosen: int | None
    """How many were named one by one; None where filters chose."""
    matched: int | None
    """How many there were when it began."""
    redriven: int
    """How many have been given their turn."""
    waiting: int
    delivered: int
    failed_again: int
    skipped: int
    stopped: int | None
    """How many became dead letters again when somebody stopped it; None where nobody did."""
    last_turn_at: str | None


class RedrivePage(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One page of redrives, newest first."""

    items: list[RedriveView]
    total_count: int | None
    """None behind a cursor: only pages are counted."""
    page_number: int | None
    page_size: int
    total_pages: int | None
    next_cursor: str | None
    """Goes on after the last item; None at the end."""


class AuditQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """Which actions to list."""

    page_number: Page = 1
    page_size: PageSize = 20
    cursor: Cursor | UnsetType = UNSET
    actor: Id | UnsetType = UNSET
    action: Id | UnsetType = UNSET
    subject: Id | UnsetType = UNSET
    after: Moment | UnsetType = UNSET


class ActionView(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Who did what, when and why."""

    id: int
    at: str
    actor: str
    action: str
    tenant_id: str | None
    subject: str | None
    reason: str | None
    detail: dict[str, Any]


class ActionPage(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One page of actions, newest first."""

    items: list[ActionView]
    total_count: int | None
    """None behind a cursor: only pages are counted."""
    page_number: int | None
    page_size: int
    total_pages: int | None
    next_cursor: str | None
    """Goes on after the last item; None at the end."""


def failed_page(found: Sequence[Row], total: int, query: FailedQuery) -> FailedPage:
    """One page of failed routes; `found` has one more than the page if there is more."""
    rows, cursor = FAILED.cut(found, query.page_size, found)
    return FailedPage(items=[_failed(row) for row in rows], next_cursor=cursor, **_counts(query, total))


def action_page(found: Sequence[Row], total: int, query: AuditQuery) -> ActionPage:
    """One page of recorded actions; `found` has one more than the page if there is more."""
    rows, cursor = ACTIONS.cut(found, query.page_size, found)
    return ActionPage(items=[_action(row) for row in rows], next_cursor=cursor, **_counts(query, total))


def redrive_page(found: Sequence[Row], became: Iterable[Row], total: int, query: RedrivesQuery) -> RedrivePage:
    """One page of redrives with the present state of their routes; `found` has one more if there is more."""
    of_action = {row["action_id"]: row for row in became}
    rows, cursor = ACTIONS.cut(found, query.page_size, found)
    items = [_redrive(row, of_action.get(row["action_id"], {})) for row in rows]
    return RedrivePage(items=items, next_cursor=cursor, **_counts(query, total))


def _counts(query: FailedQuery | AuditQuery | RedrivesQuery, total: int) -> dict[str, Any]:
    return counts(query.cursor, query.page_number, query.page_size, total)


def _failed(row: Row) -> FailedView:
    return FailedView(
        id=row["notification_id"],
        route_id=row["route_id"],
        tenant_id=row["tenant_id"],
        user_id=row["user_id"],
        channel=row["channel"],
        template_key=row["notification_type"],
        status="failed",
        attempt_count=row["final_attempt_count"],
        last_error=row["failure_message"],
        classification=row["failure_classification"],
        provider=row["provider"],
        created_at=rfc3339_ms(row["accepted_at"]),
        failed_at=rfc3339_ms(row["created_at"]),
    )


def _action(row: Row) -> ActionView:
    return ActionView(
        id=row["action_id"],
        at=rfc3339_ms(row["at"]),
        actor=row["actor"],
        action=row["action"],
        tenant_id=row["tenant_id"],
        subject=row["subject"],
        reason=row["reason"],
        detail=row["detail"],
    )


def _redrive(row: Row, became: Row) -> RedriveView:
    detail, last = row["detail"], became.get("last_turn_at")
    return RedriveView(
        id=row["action_id"],
        at=rfc3339_ms(row["at"]),
        actor=row["actor"],
        reason=row["reason"],
        rate_per_second=detail.get("ratePerSecond"),
        endpoint=detail.get("endpoint"),
        chosen=detail.get("chosen"),
        matched=detail.get("matched"),
        redriven=detail.get("redriven", 0),
        waiting=became.get("waiting", 0),
        delivered=became.get("delivered", 0),
        failed_again=became.get("failed_again", 0),
        skipped=became.get("skipped", 0),
        stopped=detail.get("stopped"),
        last_turn_at=None if last is None else rfc3339_ms(last),
    )
