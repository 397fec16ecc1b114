"""The JSON administrators read and write."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from carillon.upkeep.api.notifications_wire import ChannelWord, Id, Moment, Page, PageSize, Reason, RouteKey

ProviderName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]{1,64}\Z")]
Rate = Annotated[float, Meta(gt=0.0, le=100_000.0, description="At most so many routes a second; without it, all now.")]


Chosen = Annotated[
    list[RouteKey],
    Meta(min_length=1, max_length=1000, description="Only these; more are chosen by filters."),
]


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
    channel: ChannelWord | UnsetType = UNSET
    failed_after: Moment | UnsetType = UNSET
    failed_before: Moment | UnsetType = UNSET
    classification: Id | UnsetType = UNSET
    provider: ProviderName | UnsetType = UNSET
    template_key: Id | UnsetType = UNSET


class FailedView(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One recipient of a notification that was given up."""

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
    total_count: int
    page_number: int
    page_size: int
    total_pages: int


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


class RedrivesQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """Which redrives to list."""

    page_number: Page = 1
    page_size: PageSize = 20


class RedriveView(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One redrive and how far it came; a route that was redriven again counts for the newer one."""

    id: int
    at: str
    actor: str
    reason: str | None
    rate_per_second: float | None
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
    last_turn_at: str | None


class RedrivePage(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One page of redrives, newest first."""

    items: list[RedriveView]
    total_count: int
    page_number: int
    page_size: int
    total_pages: int


class ProviderView(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One provider of one channel; counts are of the newest attempts."""

    channel: str
    provider: str
    position: int
    """0 is asked first."""
    state: str
    attempts: int
    failures: int
    share: float | None
    """Of the channel's newest attempts."""
    last_outcome: str | None
    last_error: str | None
    last_attempt_at: str | None


class ProviderList(msgspec.Struct, frozen=True, kw_only=True):
    """Every provider in use, by channel and in the order of failover."""

    items: list[ProviderView]


class AuditQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """Which actions to list."""

    page_number: Page = 1
    page_size: PageSize = 20
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
    total_count: int
    page_number: int
    page_size: int
    total_pages: int
