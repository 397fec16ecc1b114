"""What operators do by hand and how it is written down, and the audit log of delivered messages."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec


class AdminAction(msgspec.Struct, frozen=True, kw_only=True):
    """Who did what, to what, and why."""

    actor: str
    action: str
    reason: str | None = None
    tenant_id: str | None = None
    subject: str | None = None
    detail: dict[str, Any] = {}


class Revival(msgspec.Struct, frozen=True, kw_only=True):
    """How dead letters are redriven: all at once, or at a rate from a moment on."""

    provider: str | None = None
    """The provider that is tried first."""
    forced: bool = False
    """Call the provider even if its breaker is open."""
    unqueued: tuple[int, ...] = ()
    """Lanes that no worker claims from."""
    instead: int = 1
    """The lane to which the routes of those lanes move."""
    rate: float | None = None
    """Routes a second."""
    began_ms: float = 0.0
    """The moment from which the rate counts, by the ledger's clock."""
    done: int = 0
    """How many routes earlier pages have redriven."""


class Revived(msgspec.Struct, frozen=True):
    """The result of one page of a redrive."""

    count: int
    action_id: int | None
    """The number of the action; None while nothing was redriven."""


class FailedCounts(msgspec.Struct, frozen=True):
    """How many dead letters match, and when they were counted."""

    total: int
    by_cause: list[dict[str, Any]]
    """channel, classification and count."""
    now_ms: float


class AdminLedger(Protocol):
    """What administrators ask and do."""

    async def failed(self, filters: Mapping[str, Any], limit: int, offset: int) -> tuple[list[dict[str, Any]], int]:
        """Dead letters with their notifications, newest first, and how many match in all."""
        ...

    async def failed_counts(self, filters: Mapping[str, Any]) -> FailedCounts:
        """How many dead letters match, by cause; `letters` and `notification_ids` name some of them one by one."""
        ...

    async def revive(
        self,
        filters: Mapping[str, Any],
        revival: Revival,
        limit: int,
        action: AdminAction,
        action_id: int | None = None,
    ) -> Revived:
        """Give the oldest dead letters that match a fresh budget, and write down who did, in one commit."""
        ...

    async def note_action(self, action: AdminAction) -> int:
        """Write down what an operator did; answers its number."""
        ...

    async def actions(self, filters: Mapping[str, Any], limit: int, offset: int) -> tuple[list[dict[str, Any]], int]:
        """What operators did, newest first, and how many match in all."""
        ...

    async def redriven(self, action_ids: Sequence[int]) -> list[dict[str, Any]]:
        """For each action the routes it revived last: waiting, delivered, failed_again, skipped, last_turn_at."""
        ...

    async def recent_outcomes(self, tenant_id: str | None, limit: int) -> list[dict[str, Any]]:
        """channel, provider, outcome, error and started_at of about the newest attempts, oldest first."""
        ...


class AuditRow(msgspec.Struct, frozen=True, kw_only=True):
    """One row of `audit_logs`; copies of one message share the `audit_key` and write one row."""

    audit_key: str
    trace_id: str
    user_id: str
    notification_type: str
    template_id: str
    status: str
    metadata_json: str


class AuditLedger(Protocol):
    """Where audit rows are kept."""

    async def write_audit(self, rows: Sequence[AuditRow]) -> None:
        """Write each row whose key is not there yet, in one commit; raises LedgerUnavailable."""
        ...
