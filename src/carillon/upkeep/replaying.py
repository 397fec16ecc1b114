"""Replays: sends again what went to one endpoint since a time, page by page, as redrives do."""

from collections.abc import AsyncIterator, Callable
from typing import Any, Protocol

import msgspec

from carillon.domain.admin import AdminAction, AdminLedger, RedrivePlan, RedriveResult, ReplayLedger, SkippedLedger
from carillon.upkeep.redriving import PAGE

EndpointOf = Callable[[str | None], str | None]
"""The endpoint that a route with this address calls, under the name that targets have."""


class ReplayingLedger(AdminLedger, ReplayLedger, SkippedLedger, Protocol):
    """The ledger as replays use it: its clock, its pages, and the redrive of dead letters."""


class ReplayScope(msgspec.Struct, frozen=True, kw_only=True):
    """What is replayed: everything that ended in failure at one endpoint since a time, and what it took if asked."""

    provider: str
    endpoint: str
    since_ms: int
    until_ms: float
    """What ends later belongs to the next replay."""
    delivered: bool = False
    """Whether what the endpoint took is sent again too."""
    tenant_id: str | None = None

    def filters(self) -> dict[str, Any]:
        """The filters of the ledger's pages."""
        found: dict[str, Any] = {"provider": self.provider, "since_ms": self.since_ms, "until_ms": self.until_ms}
        return found if self.tenant_id is None else {**found, "tenant_id": self.tenant_id}


class ReplayCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How many routes a replay finds."""

    failed: int = 0
    delivered: int = 0
    suppressed: int = 0
    """Those of both that stay as they are, because their address is suppressed."""

    @property
    def total(self) -> int:
        return self.failed + self.delivered


async def count_replay(ledger: ReplayingLedger, scope: ReplayScope, endpoint: EndpointOf) -> ReplayCounts:
    """Count what a replay finds; nothing changes."""
    failed = delivered = suppressed = 0
    for taken in (False, True) if scope.delivered else (False,):
        async for rows in _pages(ledger, scope, endpoint, delivered=taken):
            failed, delivered = (failed, delivered + len(rows)) if taken else (failed + len(rows), delivered)
            suppressed += sum(bool(row["suppressed"]) for row in rows)
    return ReplayCounts(failed=failed, delivered=delivered, suppressed=suppressed)


async def replay(
    ledger: ReplayingLedger, scope: ReplayScope, endpoint: EndpointOf, plan: RedrivePlan, action: AdminAction
) -> RedriveResult:
    """Give everything that the scope finds its turn: first what failed, then what was delivered if asked.

    All pages belong to one recorded action, so that one stop ends them.
    """
    done = RedriveResult(0, None)
    for taken in (False, True) if scope.delivered else (False,):
        async for rows in _pages(ledger, scope, endpoint, delivered=taken):
            how = msgspec.structs.replace(plan, began_ms=scope.until_ms, done=done.count)
            keys = [(row["notification_id"], row["route_id"]) for row in rows]
            if taken:
                page = await ledger.replay_delivered(keys, scope.until_ms, how, action, done.action_id)
            else:
                chosen: dict[str, Any] = {"letters": keys, "failed_before_ms": scope.until_ms}
                page = await ledger.redrive(chosen, how, len(keys), action, done.action_id)
            done = RedriveResult(done.count + page.count, page.action_id)
    return done


def replay_action(*, actor: str, reason: str, scope: ReplayScope, matched: int, rate: float | None) -> AdminAction:
    """The entry in the audit trail: a redrive that names its endpoint."""
    detail: dict[str, Any] = {
        "endpoint": scope.endpoint,
        "filters": {**scope.filters(), "delivered": scope.delivered},
        "ratePerSecond": rate,
        "matched": matched,
    }
    subject = f"{scope.provider}@{scope.endpoint}"
    return AdminAction(
        actor=actor, action="redrive", reason=reason, tenant_id=scope.tenant_id, subject=subject, detail=detail
    )


async def _pages(
    ledger: ReplayLedger, scope: ReplayScope, endpoint: EndpointOf, *, delivered: bool
) -> AsyncIterator[list[dict[str, Any]]]:
    """The rows of the endpoint, page by page; pages without one are passed over."""
    names: dict[str | None, str | None] = {}
    last: dict[str, Any] | None = None
    while True:
        rows = await ledger.replayable(scope.filters(), PAGE, last, delivered=delivered)
        for row in rows:
            if row["address"] not in names:
                names[row["address"]] = endpoint(row["address"])
        found = [row for row in rows if names[row["address"]] == scope.endpoint]
        if found:
            yield found
        if len(rows) < PAGE:
            return
        last = rows[-1]
        names.clear()
