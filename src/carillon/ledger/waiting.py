"""What waits, chosen by filters: counted, cancelled, or given another time."""

from collections.abc import Mapping
from typing import Any

from carillon.domain.admin import WaitingChange, WaitingCount
from carillon.domain.ports import Signal
from carillon.domain.store import Ask, Engine, Row, Steps
from carillon.domain.timing import CANCELLED, LATEST_MS, Stop
from carillon.ledger.rows import chosen
from carillon.ledger.timing import stopping

FILTERS = (
    "notification_id",
    "idempotency_key",
    "collapse_key",
    "tenant_id",
    "user_id",
    "notification_type",
    "origin",
    "channel",
    "accepted_after_ms",
    "accepted_before_ms",
)
_BATCH = 500


class WaitingStore:
    """Satisfies WaitingLedger."""

    engine: Engine
    signal: Signal

    async def count_waiting(self, filters: Mapping[str, Any]) -> WaitingCount:
        found, after = WaitingCount(), ""
        while rows := await self.engine.rows("still_waiting", _page(filters, after)):
            found, after = _summed(found, rows, done=0), rows[-1]["notification_id"]
        return found

    async def cancel(self, notification_id: str, tenant_id: str | None = None) -> int:
        """Stop one notification; returns how many routes no longer wait."""
        own = {} if tenant_id is None else {"tenant_id": tenant_id}
        return (await self.cancel_waiting({"notification_id": notification_id, **own})).done

    async def cancel_waiting(self, filters: Mapping[str, Any]) -> WaitingCount:
        return await self._each_page(filters, _cancelled)

    async def change_waiting(self, filters: Mapping[str, Any], change: WaitingChange) -> WaitingCount:
        values = {"scheduled_for_ms": change.scheduled_for_ms, "expires_at_ms": change.expires_at_ms}

        def changed(rows: list[Row]) -> Steps[int]:
            ids = [row["notification_id"] for row in rows if row["routed"]]
            yield Ask("change_time", {**values, "notification_ids": ids})
            # The window of its digest says when an event is told: it can expire, and has no schedule.
            events = [] if change.expires_at_ms is None else [row for row in rows if row["gathered"]]
            alone = [row["notification_id"] for row in events if not row["routed"]]
            yield Ask("change_time", {**values, "scheduled_for_ms": None, "notification_ids": alone})
            due = {**values, "latest_ms": LATEST_MS, "notification_ids": ids}
            return sum(int(row["gathered"]) for row in events) + len((yield Ask("change_due", due)))

        done = await self._each_page(filters, changed)
        self.signal.ring()
        return done

    async def _each_page(self, filters: Mapping[str, Any], work: Any) -> WaitingCount:  # noqa: ANN401 - steps of a page
        found, after = WaitingCount(), ""
        while True:

            def steps(after: str = after) -> Steps[tuple[list[Row], int]]:
                rows = yield Ask("still_waiting", _page(filters, after))
                return rows, (yield from work(rows)) if rows else 0

            rows, done = await self.engine.change(steps, repeatable=True)
            if not rows:
                return found
            found, after = _summed(found, rows, done=done), rows[-1]["notification_id"]


def _cancelled(rows: list[Row]) -> Steps[int]:
    stop = Stop(CANCELLED)
    stopped = yield from stopping((row["notification_id"], stop) for row in rows)
    gathered = [row for row in rows if row["gathered"]]
    left = {"gate": stop.gate, "reason": stop.reason}
    yield Ask("digest_replaced", each=[{"notification_id": row["notification_id"], **left} for row in gathered])
    return len(stopped) + sum(int(row["gathered"]) for row in gathered)


def _page(filters: Mapping[str, Any], after: str) -> Row:
    return {**chosen(filters, FILTERS), "after": after, "limit": _BATCH}


def _summed(found: WaitingCount, rows: list[Row], *, done: int) -> WaitingCount:
    return WaitingCount(
        notifications=found.notifications + len(rows),
        waiting=found.waiting + sum(row["waiting"] for row in rows),
        too_late=found.too_late + sum(row["held"] for row in rows),
        done=found.done + done,
    )
