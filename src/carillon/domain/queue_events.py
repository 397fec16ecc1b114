"""What happens around list queues and the webhooks that leave them, as values."""

import msgspec


class QueuePumped(msgspec.Struct, frozen=True, tag="queue_pumped", kw_only=True):
    """Messages whose wait was over went back to their queue; `late_seconds` is how long over at most."""

    queue: str
    moved: int
    late_seconds: float


class MessageSwept(msgspec.Struct, frozen=True, tag="message_swept", kw_only=True):
    """A message whose worker died was taken out of the processing list; `verdict` is retry or bury."""

    queue: str
    message_id: str
    attempts: int
    verdict: str


class MessageOverdue(msgspec.Struct, frozen=True, tag="message_overdue", kw_only=True):
    """A locked message has been in a worker's hands for longer than its queue's visibility timeout."""

    queue: str
    message_id: str
    seconds: float


class FailedTrimmed(msgspec.Struct, frozen=True, tag="failed_trimmed", kw_only=True):
    """The oldest failed messages of a queue were thrown away, because there were too many."""

    queue: str
    messages: int


class QueueLooked(msgspec.Struct, frozen=True, tag="queue_looked", kw_only=True):
    """How much a queue holds and where; the depth monitor tells it again and again."""

    queue: str
    main: int
    processing: int
    delayed: int
    failed: int
    oldest_seconds: float | None = None


class QueueDeep(msgspec.Struct, frozen=True, tag="queue_deep", kw_only=True):
    """More messages wait in a queue than its operator wants to see."""

    queue: str
    depth: int
    limit: int


class WebhookCalled(msgspec.Struct, frozen=True, tag="webhook_called", kw_only=True):
    """One service notified the other of a payment; `status` is None without an answer, `error` says what failed."""

    event_id: str | None
    immediate: bool
    """The best-effort call beside the queued one."""
    duration_ms: float
    status: int | None = None
    error: str | None = None
