"""Redrives many dead letters page by page; each route gets its due time at once, so no process has to stay running."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from carillon.domain.admin import AdminAction, AdminLedger, FailedCounts, RedrivePlan, RedriveResult
from carillon.domain.lanes import Lanes

PAGE = 500


async def redrive_failed(
    ledger: AdminLedger,
    filters: Mapping[str, Any],
    plan: RedrivePlan,
    action: AdminAction,
    counts: FailedCounts,
    *,
    progress: Callable[[int], None] = lambda _: None,
) -> RedriveResult:
    """Redrive the dead letters that matched at the count; a route that fails again meanwhile is left alone."""
    # A ledger's clock may tick in milliseconds: a letter that failed in the millisecond of the count was counted.
    until = counts.now_ms + 1
    before = min(filters.get("failed_before_ms") or until, until)
    chosen = {**filters, "failed_before_ms": before}
    done = RedriveResult(0, None)
    while True:
        how = msgspec.structs.replace(plan, began_ms=counts.now_ms, done=done.count)
        page = await ledger.redrive(chosen, how, PAGE, action, done.action_id)
        if not page.count:
            return done
        done = RedriveResult(done.count + page.count, page.action_id)
        progress(page.count)


def redrive_plan(
    lanes: Lanes, *, provider: str | None = None, forced: bool = False, rate: float | None = None
) -> RedrivePlan:
    """The plan of a redrive; routes of a lane without workers move to a lane with workers."""
    queued = [lane.rank for lane in lanes.queued()]
    unqueued = tuple(lane.rank for lane in lanes.ordered() if lane.rank not in queued)
    return RedrivePlan(provider=provider, forced=forced, rate=rate, unqueued=unqueued, instead=min(queued, default=1))


def redrive_action(
    *,
    actor: str,
    reason: str | None,
    filters: Mapping[str, Any],
    matched: int,
    rate: float | None = None,
    provider: str | None = None,
) -> AdminAction:
    """The entry in the audit trail; for routes that are listed one by one, it holds only their number."""
    said = {name: value for name, value in filters.items() if name != "letters"}
    detail: dict[str, Any] = {"filters": said, "ratePerSecond": rate, "matched": matched}
    detail |= {"chosen": len(filters["letters"])} if "letters" in filters else {}
    detail |= {"provider": provider} if provider is not None else {}
    return AdminAction(actor=actor, action="redrive", reason=reason, tenant_id=filters.get("tenant_id"), detail=detail)


def last_turn_ms(counts: FailedCounts, number: int, rate: float | None) -> float | None:
    """When the last of `number` routes becomes due."""
    if not number:
        return None
    return counts.now_ms if rate is None else counts.now_ms + (number - 1) / rate * 1000
