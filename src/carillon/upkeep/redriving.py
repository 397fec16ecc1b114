"""Gives many dead letters another chance: page by page, each with its turn, so that nothing has to stay running."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from carillon.domain.admin import AdminAction, AdminLedger, FailedCounts, Revival, Revived

PAGE = 500


async def redrive_failed(
    ledger: AdminLedger,
    filters: Mapping[str, Any],
    revival: Revival,
    action: AdminAction,
    counts: FailedCounts,
    *,
    progress: Callable[[int], None] = lambda _: None,
) -> Revived:
    """Revive what matched when it was counted; what fails again meanwhile is left for the next time."""
    # A ledger's clock may tick in milliseconds: what failed in the very one of counting was counted.
    until = counts.now_ms + 1
    before = min(filters.get("failed_before_ms") or until, until)
    chosen = {**filters, "failed_before_ms": before}
    done = Revived(0, None)
    while True:
        how = msgspec.structs.replace(revival, began_ms=counts.now_ms, done=done.count)
        page = await ledger.revive(chosen, how, PAGE, action, done.action_id)
        if not page.count:
            return done
        done = Revived(done.count + page.count, page.action_id)
        progress(page.count)


def last_turn_ms(counts: FailedCounts, number: int, rate: float | None) -> float | None:
    """When the last of so many has its turn."""
    if not number:
        return None
    return counts.now_ms if rate is None else counts.now_ms + (number - 1) / rate * 1000
