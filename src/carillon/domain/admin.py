"""Actions of operators and their record: dead letters, redrives, and the audit log of delivered messages."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from carillon.domain.skipped import SkippedPage, SkippedPlan


class AdminAction(msgspec.Struct, frozen=True, kw_only=True):
    """Who did what, to what, and why."""

    actor: str
    action: str
    reason: str | None = None
    tenant_id: str | None = None
    subject: str | None = None
    detail: dict[str, Any] = {}


class RedrivePlan(msgspec.Struct, frozen=True, kw_only=True):
    """How to redrive dead letters: through which provider and lane, and how fast."""

    provider: str | None = None
    """The provider that is tried first."""
    forced: bool = False
    """Call the provider even if its breaker is open."""
    unqueued: tuple[int, ...] = ()
    """Lanes that no worker claims from."""
    instead: int = 1
    """The lane to which routes of the `unqueued` lanes move."""
    rate: float | None = None
    """Routes per second; None makes all of them due at once."""
    began_ms: float = 0.0
    """The moment from which the rate counts, by the ledger's clock."""
    done: int = 0
    """How many routes earlier pages have redriven."""


class RedriveResult(msgspec.Struct, frozen=True):
    """The result of one page of a redrive."""

    count: int
    action_id: int | None
    """The id of the recorded action; None if no dead letter matched."""


class FailedCounts(msgspec.Struct, frozen=True):
    """The number of dead letters that match a filter, and the time of the count."""

    total: int
    by_cause: list[dict[str, Any]]
    """Rows with channel, classification and count."""
    now_ms: float
    suppressed: int = 0
    """How many of them a redrive leaves alone, because their address is suppressed."""


class AdminLedger(Protocol):
    """The ledger as administrators use it."""

    async def failed(self, filters: Mapping[str, Any], limit: int, offset: int) -> tuple[list[dict[str, Any]], int]:
        """One page of dead letters with their notifications, newest first, and the total number that match."""
        ...

    async def failed_counts(self, filters: Mapping[str, Any]) -> FailedCounts:
        """Count matching dead letters by cause; the filters `letters` and `notification_ids` list single ones."""
        ...

    async def redrive(
        self,
        filters: Mapping[str, Any],
        plan: RedrivePlan,
        limit: int,
        action: AdminAction,
        action_id: int | None = None,
    ) -> RedriveResult:
        """Give the oldest matching dead letters a fresh budget and record the action, in one commit."""
        ...

    async def stop_redrive(self, action_id: int, action: AdminAction) -> int:
        """Make the routes of a redrive that wait for their turn what they were, and record the action.

        Returns how many. What a worker holds or has attempted goes on, and the redrive takes no further ones.
        """
        ...

    async def action(self, action_id: int) -> dict[str, Any] | None:
        """One recorded action."""
        ...

    async def note_action(self, action: AdminAction) -> int:
        """Record an action of an operator; returns its id."""
        ...

    async def actions(self, filters: Mapping[str, Any], limit: int, offset: int) -> tuple[list[dict[str, Any]], int]:
        """One page of recorded actions, newest first, and the total number that match."""
        ...

    async def redriven(self, action_ids: Sequence[int]) -> list[dict[str, Any]]:
        """For each action, what became of its routes: waiting, delivered, failed_again, skipped, last_turn_at.

        A route that was redriven again counts for the newer action.
        """
        ...

    async def recent_outcomes(self, tenant_id: str | None, limit: int) -> list[dict[str, Any]]:
        """The newest attempts, oldest first, each with channel, provider, outcome, error and started_at."""
        ...


class SkippedLedger(Protocol):
    """The ledger as redrives of skipped routes use it."""

    async def now_ms(self) -> float:
        """The ledger's clock."""
        ...

    async def redrive_skipped(
        self, filters: Mapping[str, Any], plan: SkippedPlan, limit: int, action: AdminAction, before: SkippedPage
    ) -> SkippedPage:
        """Evaluate one page of skipped routes again, after the page `before`, and record the action, in one commit."""
        ...


class ReplayLedger(Protocol):
    """The ledger as replays to one endpoint use it."""

    async def replayable(
        self, filters: Mapping[str, Any], limit: int, after: dict[str, Any] | None, *, delivered: bool
    ) -> list[dict[str, Any]]:
        """One page of dead letters of a provider, or of what it delivered, oldest first, after the row `after`.

        Filters are provider, tenant_id, since_ms and until_ms. Each row has the address, opened, and whether the
        address is suppressed.
        """
        ...

    async def replay_delivered(
        self,
        routes: Sequence[tuple[str, str]],
        until_ms: float,
        plan: RedrivePlan,
        action: AdminAction,
        action_id: int | None = None,
    ) -> RedriveResult:
        """Send these delivered routes again with a fresh budget, and record the action, in one commit.

        What was delivered again since `until_ms`, cancelled, replaced, suppressed or has expired stays as it is.
        """
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

    async def prune_audit(self, older_than: float, limit: int) -> int:
        """Delete at most `limit` rows that are older than so many seconds; returns how many."""
        ...


class WaitingCount(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What matched a selection of waiting notifications, and what became of it."""

    notifications: int = 0
    waiting: int = 0
    """Routes and events of digests that wait."""
    too_late: int = 0
    """Routes that a worker holds: a provider may be called at this moment."""
    done: int = 0
    """Routes that were cancelled or changed."""


class WaitingChange(msgspec.Struct, frozen=True, kw_only=True):
    """Another time for what waits; what is None stays."""

    scheduled_for_ms: int | None = None
    expires_at_ms: int | None = None


class WaitingLedger(Protocol):
    """Counts, cancels and changes what waits, by filters; a route in a provider's call is left alone."""

    async def count_waiting(self, filters: Mapping[str, Any]) -> WaitingCount:
        """Count what matches; nothing changes."""
        ...

    async def cancel_waiting(self, filters: Mapping[str, Any]) -> WaitingCount:
        """Stop what matches: what waits is skipped, and what is being sent is not tried again."""
        ...

    async def change_waiting(self, filters: Mapping[str, Any], change: WaitingChange) -> WaitingCount:
        """Give what matches another time; what was tried before keeps the time of its retry."""
        ...
