"""What operators do by hand, and how it is written down."""

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
    """How dead letters come back: at once, or one after the other from a moment on."""

    provider: str | None = None
    """The provider whose turn it is first."""
    forced: bool = False
    """Call it whatever its breaker says."""
    unqueued: tuple[int, ...] = ()
    """Lanes that no worker claims from."""
    instead: int = 1
    """The lane that their routes wait in from now on."""
    rate: float | None = None
    """Routes a second."""
    began_ms: float = 0.0
    """The moment from which the rate counts, by the ledger's clock."""
    done: int = 0
    """How many have been given their turn before."""


class Revived(msgspec.Struct, frozen=True):
    """What one page of a revival came to."""

    count: int
    action_id: int | None
    """The row it was written down in; None while nothing was revived."""


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
