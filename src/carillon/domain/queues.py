"""List queues as an operator sees them."""

import msgspec

from carillon.domain.jobs import JobMessage


class Depth(msgspec.Struct, frozen=True):
    """How many messages one queue holds, and where."""

    main: int
    processing: int
    delayed: int
    failed: int
    oldest_seconds: float | None
    """The age of the next message of the main list, where it says when it was made."""


class FailedMessage(msgspec.Struct, frozen=True):
    """One message of a failed list, as it was last claimed."""

    queue: str
    id: str
    message: JobMessage | None
    """None when it is no JSON object."""
    raw: bytes
