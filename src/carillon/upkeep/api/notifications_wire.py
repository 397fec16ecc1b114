"""The JSON operators read and write about notifications."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

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
ChannelWord = Literal["push", "sms", "email", "inApp", "webhook"]


class AttemptView(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One call of one provider, with what came of it."""

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


class MessageView(msgspec.Struct, frozen=True, kw_only=True):
    """The content that was rendered for the channel."""

    text: str
    subject: str | None = None
    html: str | None = None


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
    attempts: list[AttemptView] | UnsetType = UNSET
    message: MessageView | UnsetType | None = UNSET


class NotificationView(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One accepted notification and how far it has come."""

    id: str
    tenant_id: str | None
    user_id: str | None
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
    correlation_id: str | None
    trace_id: str | None
    routes: list[RouteView]


class NotificationPage(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One page of notifications, newest first."""

    items: list[NotificationView]
    total_count: int
    page_number: int
    page_size: int
    total_pages: int


class Cancelled(msgspec.Struct, frozen=True, rename="camel"):
    """How many routes will not be attempted any more."""

    notification_id: str
    cancelled: int


class DeadLetterView(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One route that was given up, and why."""

    notification_id: str
    route_id: str
    channel: str
    attempt_count: int
    max_attempts: int
    classification: str
    error: str
    hint: str
    failed_at: str


class DeadLetterPage(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One page of dead letters, newest first."""

    items: list[DeadLetterView]
    total_count: int
    page_number: int
    page_size: int
    total_pages: int


class ShowQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to show beyond the routes."""

    include: Include | UnsetType = UNSET


class SearchQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """Which notifications to list."""

    page: Page = 1
    page_size: PageSize = 20
    include: Include | UnsetType = UNSET
    channel: ChannelWord | UnsetType = UNSET
    status: StatusWord | UnsetType = UNSET
    user_id: Id | UnsetType = UNSET
    template_key: Id | UnsetType = UNSET
    recipient: Text | UnsetType = UNSET
    trace_id: Id | UnsetType = UNSET
    service_origin: Id | UnsetType = UNSET
    accepted_after: Moment | UnsetType = UNSET
    accepted_before: Moment | UnsetType = UNSET


class DeadLetterQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """Which dead letters to list."""

    page: Page = 1
    page_size: PageSize = 20
    channel: ChannelWord | UnsetType = UNSET
    classification: Id | UnsetType = UNSET
    notification_id: Id | UnsetType = UNSET


class RouteKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The name of one route."""

    notification_id: Id
    route_id: Text


class RedriveBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which dead letters get a fresh budget, with which provider, if not their last one, and why."""

    items: Annotated[list[RouteKey], Meta(min_length=1, max_length=500)]
    provider: Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]{1,64}\Z")] | None = None
    reason: Reason | None = None


class Redriven(msgspec.Struct, frozen=True):
    """How many of the named routes were dead letters."""

    redriven: int
