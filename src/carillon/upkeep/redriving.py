"""Redrives dead letters and skipped routes page by page; each gets its due time at once, so no process has to stay."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from carillon.domain.admin import AdminAction, AdminLedger, FailedCounts, RedrivePlan, RedriveResult, SkippedLedger
from carillon.domain.consent import Categories
from carillon.domain.lanes import Lanes
from carillon.domain.skipped import SkippedPage, SkippedPlan
from carillon.domain.timing import LATEST_MS

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


async def redrive_skipped(
    ledger: SkippedLedger,
    filters: Mapping[str, Any],
    plan: SkippedPlan,
    action: AdminAction,
    *,
    progress: Callable[[int], None] = lambda _: None,
) -> SkippedPage:
    """Evaluate what was skipped until now again, page by page; what is skipped again meanwhile is left alone."""
    began = await ledger.now_ms()
    before = min(filters.get("skipped_before_ms") or began + 1, began + 1)
    chosen = {**filters, "skipped_before_ms": before}
    done = page = SkippedPage()
    while True:
        how = msgspec.structs.replace(plan, began_ms=began, done=done.redriven)
        page = await ledger.redrive_skipped(chosen, how, PAGE, action, done)
        done = SkippedPage(
            matched=dict(Counter(done.matched) + Counter(page.matched)),
            held=dict(Counter(done.held) + Counter(page.held)),
            redriven=done.redriven + page.redriven,
            action_id=page.action_id,
            after=page.after,
        )
        progress(sum(page.matched.values()))
        if page.after is None:
            return done


def skipped_plan(
    lanes: Lanes, categories: Categories, *, rate: float | None = None, dry_run: bool = False
) -> SkippedPlan:
    """The plan of a redrive of skipped routes, through the gates as they stand now."""
    how = redrive_plan(lanes, rate=rate)
    return SkippedPlan(categories=categories, unqueued=how.unqueued, instead=how.instead, rate=rate, dry_run=dry_run)


def skipped_action(*, actor: str, reason: str | None, filters: Mapping[str, Any], rate: float | None) -> AdminAction:
    """The entry in the audit trail; for notifications that are listed one by one, it holds only their number."""
    said = {name: value for name, value in filters.items() if name != "notification_ids"}
    detail: dict[str, Any] = {"skipped": True, "filters": said, "ratePerSecond": rate}
    detail |= {"chosen": len(filters["notification_ids"])} if "notification_ids" in filters else {}
    return AdminAction(actor=actor, action="redrive", reason=reason, tenant_id=filters.get("tenant_id"), detail=detail)


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
    return counts.now_ms if rate is None else min(counts.now_ms + (number - 1) / rate * 1000, LATEST_MS)
