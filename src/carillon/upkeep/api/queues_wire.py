"""The JSON that operators read and write about list queues, in the names of the billing blueprint."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from carillon.domain.queues import Policy
from carillon.web.paging import Cursor, CursorShape

StatusWord = Literal["received", "processing", "success", "retry", "skipped", "failed", "dead"]
Name = Annotated[str, Meta(pattern=r"^[^\x00-\x1f\x7f]{1,512}\Z")]
JOB_LOGS = CursorShape("job-logs", {"before_us": ("place", int), "before_id": ("id", int)})
ACTIONS = CursorShape("queue-actions", {"before_id": ("action_id", int)})
FAILED_MESSAGES = CursorShape("failed-messages", {"older": ("older", int), "id": ("id", str)})
Reason = Annotated[str, Meta(pattern=r"^[^\x00-\x1f\x7f]{1,2000}\Z")]


class RunsView(msgspec.Struct, frozen=True, kw_only=True):
    """What the asked process did since it started; other processes have numbers of their own."""

    success: int
    retry: int
    failed: int
    swept: int
    average_ms: float | None


class QueueView(msgspec.Struct, frozen=True, kw_only=True):
    """One queue: its depths, its handler in this process, and its policy."""

    queue: str
    main: int
    processing: int
    delayed: int
    failed: int
    oldest_seconds: float | None
    """The age of the next message, where it says when it was made."""
    handler: str | None
    """None if another process handles the queue."""
    runs: RunsView
    policy: Policy


class QueueList(msgspec.Struct, frozen=True, kw_only=True):
    """Every queue that the settings name or this process works off."""

    queues: list[QueueView]


class FailedMessagesQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many to show, and from where."""

    limit: Annotated[int, Meta(ge=1, le=500)] = 50
    cursor: Cursor | UnsetType = UNSET


class FailedMessageView(msgspec.Struct, frozen=True, kw_only=True):
    """One failed message as it was last claimed."""

    message_id: str
    action: str | None = None
    attempts: int | None = None
    max_attempts: int | None = None
    correlation_id: str | None = None
    idempotency_key: str | None = None
    created_at: str | None = None
    payload: Any = None
    text: str | None = None
    """The beginning of a text that is no message."""


class FailedList(msgspec.Struct, frozen=True, kw_only=True):
    """One page of the failed messages of one queue, newest first."""

    queue: str
    total: int
    messages: list[FailedMessageView]
    next_cursor: str | None
    """Goes on after the last message, also while others fail or are requeued; null at the end."""


class RequeueBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which failed messages to requeue; all of them by default."""

    ids: Annotated[list[Name], Meta(min_length=1, max_length=1000)] | None = None
    limit: Annotated[int, Meta(ge=1, le=1_000_000, description="The oldest so many.")] | None = None
    reason: Reason = "requeued over HTTP"
    dry_run: bool = False


class Requeued(msgspec.Struct, frozen=True, kw_only=True):
    """How many failed, and how many were requeued with their attempts at 0."""

    queue: str
    found: int
    requeued: int
    dry_run: bool


class QueueAuditQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which queue; all of them by default."""

    queue: Name | None = None
    limit: Annotated[int, Meta(ge=1, le=500)] = 50
    cursor: Cursor | UnsetType = UNSET


class QueueActionView(msgspec.Struct, frozen=True, kw_only=True):
    """Who did what to a queue by hand, and why."""

    id: int
    at: str
    actor: str
    action: str
    queue: str
    reason: str | None
    chosen: int | None
    """How many messages were named one by one."""
    limit: int | None
    """At most so many, the oldest first."""
    found: int | None
    """How many there were."""


class QueueAudit(msgspec.Struct, frozen=True, kw_only=True):
    """Newest first."""

    actions: list[QueueActionView]
    total: int
    next_cursor: str | None
    """Goes on after the last action; null at the end."""


class JobLogQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which messages; all filters must match."""

    queue: Name | None = None
    status: StatusWord | None = None
    correlation_id: Name | None = None
    idempotency_key: Name | None = None
    limit: Annotated[int, Meta(ge=1, le=500)] = 50
    cursor: Cursor | UnsetType = UNSET


class JobLogView(msgspec.Struct, frozen=True, kw_only=True):
    """The log of one message."""

    id: int
    service: str
    queue: str
    message_id: str
    correlation_id: str | None
    idempotency_key: str | None
    status: str
    attempts: int
    last_error: str | None
    next_retry_at: str | None
    action: str
    created_at: str
    updated_at: str


class JobLogList(msgspec.Struct, frozen=True, kw_only=True):
    """Newest first."""

    job_logs: list[JobLogView]
    next_cursor: str | None
    """Goes on after the last row; null at the end."""
