"""What Carillon answers, as callers read it; fields it may learn later are passed over."""

from typing import Any, Generic, Literal, TypeVar

import msgspec

Row = TypeVar("Row")
Status = Literal["queued", "sent", "delivered", "opened", "failed", "skipped"]


class Accepted(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Written down; `delivered` when the caller asked to wait for it."""

    notification_id: str
    status: Literal["queued", "delivered"]
    queue_name: str | None = None
    delivered_at: str | None = None
    provider_message_id: str | None = None
    replayed: bool = False
    """It had been accepted before, under the same key."""


class Attempt(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One call of one provider, with what came of it."""

    number: int
    provider: str
    outcome: str
    started_at: str
    duration_ms: float
    verdict: str
    classification: str | None = None
    error: str | None = None
    next_try_in_ms: float | None = None


class Route(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One recipient on one channel."""

    route_id: str
    channel: str
    status: Status
    provider: str
    attempt_count: int
    max_attempts: int
    recipient: str | None = None
    next_attempt_at: str | None = None
    last_error: str | None = None
    attempts: list[Attempt] = []


class Notification(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One accepted notification and how far it has come."""

    id: str
    template_key: str
    status: Status
    created_at: str
    routes: list[Route]
    priority: Literal["high", "normal", "low"] = "normal"
    tenant_id: str | None = None
    user_id: str | None = None
    channel: str | None = None
    recipient: str | None = None
    locale: str | None = None
    attempt_count: int = 0
    last_error: str | None = None
    delivered_at: str | None = None
    failed_at: str | None = None
    correlation_id: str | None = None
    trace_id: str | None = None
    data: dict[str, Any] = {}
    metadata: dict[str, Any] = {}

    @property
    def finished(self) -> bool:
        """Nothing more will be tried."""
        return self.status not in ("queued", "sent")


class Page(msgspec.Struct, Generic[Row], frozen=True, rename="camel", kw_only=True):
    """One page, newest first."""

    items: list[Row]
    total_count: int
    page_number: int
    page_size: int
    total_pages: int


class Refusal(msgspec.Struct, frozen=True):
    """Why an item of a batch was not accepted."""

    code: str
    message: str
    field: str | None = None


class ItemAnswer(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """What became of one item of a batch."""

    index: int
    status: Literal["queued", "rejected"]
    notification_id: str | None = None
    replayed: bool = False
    error: Refusal | None = None


class BatchAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What became of every item, in the order they were given."""

    results: list[ItemAnswer]


class Cancelled(msgspec.Struct, frozen=True):
    """How many routes will not be attempted any more."""

    cancelled: int
