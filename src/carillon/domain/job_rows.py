"""The SQL side of job logs: one row per message through its whole life."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

import msgspec


class JobRow(msgspec.Struct, frozen=True, gc=False):
    """What a message has come to; `at` is the time of the server that moved it, so that many processes' rows order."""

    service: str
    queue: str
    message_id: str
    correlation_id: str | None
    idempotency_key: str | None
    status: str
    """received, processing, success, retry, failed, or dead once it was trimmed from the failed ones."""
    attempts: int
    """Runs that failed so far."""
    last_error: str | None
    next_retry_at: float | None
    action: str
    since: float
    """When it was first heard of; not later than `at`."""
    at: float


Effect = Literal["begun", "done", "busy"]
"""What asking for an effect came to: ours to have, had already, or another's at the moment."""


class Effects(Protocol):
    """Where it is written down which effects were had; by key, on behalf of a message (`holder`)."""

    async def begin_effect(self, key: str, holder: str, seconds: float) -> Effect:
        """Ask for the right to have the effect; it is kept for so long against other messages."""
        ...

    async def finish_effect(self, key: str, holder: str) -> None:
        """It was had; nobody will begin it again."""
        ...

    async def abandon_effect(self, key: str, holder: str) -> None:
        """Release the key; another job may run the effect."""
        ...


class JobLedger(Effects, Protocol):
    """Job logs and effects in SQL."""

    async def write_job_logs(self, rows: Sequence[JobRow]) -> None:
        """Write each row over an older one of its message; raises LedgerUnavailable."""
        ...

    async def job_logs(self, filters: Mapping[str, str | None], limit: int) -> list[dict[str, Any]]:
        """Rows that match, newest first; filters are queue, status, correlation_id and idempotency_key."""
        ...

    async def prune_jobs(self, older_than_seconds: float, limit: int) -> int:
        """Delete at most so many old rows and effects; answers how many rows."""
        ...
