"""Rows of replays, the same for every engine: what went to one endpoint since a time, page by page."""

from collections.abc import Mapping, Sequence
from typing import Any

from carillon.domain.admin import AdminAction, RedrivePlan, RedriveResult
from carillon.domain.ports import Signal
from carillon.domain.store import Ask, Engine, Row, Steps
from carillon.domain.timing import LATEST_MS
from carillon.ledger.admin import is_stopped, noted
from carillon.ledger.rows import chosen

FILTERS = ("provider", "tenant_id", "since_ms", "until_ms")
_PLACE = ("after_us", "after_id", "after_route")


class ReplayStore:
    """Satisfies ReplayLedger."""

    engine: Engine
    signal: Signal

    async def replayable(
        self, filters: Mapping[str, Any], limit: int, after: Row | None, *, delivered: bool
    ) -> list[Row]:
        at = (None, None, None) if after is None else (after["place_us"], after["notification_id"], after["route_id"])
        values = {**chosen(filters, FILTERS), **dict(zip(_PLACE, at, strict=True)), "limit": limit}
        return await self.engine.rows("replay_taken" if delivered else "replay_failed", values)

    async def replay_delivered(
        self,
        routes: Sequence[tuple[str, str]],
        until_ms: float,
        plan: RedrivePlan,
        action: AdminAction,
        action_id: int | None = None,
    ) -> RedriveResult:
        keys = [{"notification_id": notification_id, "route_id": route_id} for notification_id, route_id in routes]
        lanes = {"unqueued": list(plan.unqueued), "instead": plan.instead}

        def steps() -> Steps[RedriveResult]:
            if action_id is not None and (yield from is_stopped(action_id)):
                return RedriveResult(0, action_id)
            locked = yield Ask("replay_lock", {"until_ms": until_ms}, keys)
            if not locked:
                return RedriveResult(0, action_id)
            yield Ask("replay_keep", each=locked)
            lines = [{**key, "due_ms": _due_ms(plan, place)} for place, key in enumerate(locked)]
            yield Ask("replay", lanes, lines)
            told = yield from noted(action, plan.done + len(locked), action_id)
            yield Ask("mark_redriven", {"action_id": told, "delivered": True}, locked)
            return RedriveResult(len(locked), told)

        # Not repeated after a broken connection: the second run would find nothing and report 0.
        replayed = await self.engine.change(steps, repeatable=False)
        if replayed.count:
            self.signal.ring()
        return replayed


def _due_ms(plan: RedrivePlan, place: int) -> float:
    """When the route at this place of the page has its turn."""
    if plan.rate is None:
        return plan.began_ms
    return min(plan.began_ms + (plan.done + place) / plan.rate * 1000, LATEST_MS)
