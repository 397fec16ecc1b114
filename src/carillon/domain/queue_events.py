"""The events of list queues: what the pump, the sweep, the cleanup and the depth monitor report."""

import msgspec


class QueuePumped(msgspec.Struct, frozen=True, tag="queue_pumped", kw_only=True):
    """Delayed messages went back to their queue; `late_seconds` is how overdue the latest of them was."""

    queue: str
    moved: int
    late_seconds: float


class MessageSwept(msgspec.Struct, frozen=True, tag="message_swept", kw_only=True):
    """The sweep took a dead worker's message out of the processing list; `verdict` is retry or bury."""

    queue: str
    message_id: str
    attempts: int
    verdict: str


class MessageOverdue(msgspec.Struct, frozen=True, tag="message_overdue", kw_only=True):
    """A worker has held a message for longer than the visibility timeout of its queue."""

    queue: str
    message_id: str
    seconds: float


class FailedTrimmed(msgspec.Struct, frozen=True, tag="failed_trimmed", kw_only=True):
    """The cleanup deleted the oldest failed messages of a queue, because there were too many."""

    queue: str
    messages: int


class QueueLooked(msgspec.Struct, frozen=True, tag="queue_looked", kw_only=True):
    """The number of messages in each list of a queue; the depth monitor reports it at intervals."""

    queue: str
    main: int
    processing: int
    delayed: int
    failed: int
    oldest_seconds: float | None = None


class QueueDeep(msgspec.Struct, frozen=True, tag="queue_deep", kw_only=True):
    """More messages wait in a queue than the setting `beat.depth_limit` allows."""

    queue: str
    depth: int
    limit: int
