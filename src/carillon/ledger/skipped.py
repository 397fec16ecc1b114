"""Rows that a gate skipped, the same for every engine: evaluated again page by page."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from carillon.domain.admin import AdminAction
from carillon.domain.digests import THROTTLE, is_full, recent
from carillon.domain.ports import Signal
from carillon.domain.skipped import SkippedPage, SkippedPlan
from carillon.domain.store import Ask, Engine, Row, Steps
from carillon.domain.timing import LATEST_MS
from carillon.ledger.admin import is_stopped, noted
from carillon.ledger.rows import chosen
from carillon.ledger.throttles import kept_row, locked

FILTERS = (
    "gate",
    "channel",
    "tenant_id",
    "user_id",
    "notification_type",
    "notification_ids",
    "skipped_after_ms",
    "skipped_before_ms",
)
_read_times = msgspec.json.Decoder(list[int]).decode


class SkippedStore:
    """Satisfies SkippedLedger."""

    engine: Engine
    signal: Signal

    async def now_ms(self) -> float:
        (row,) = await self.engine.rows("ledger_now")
        return float(row["now_ms"])

    async def redrive_skipped(
        self, filters: Mapping[str, Any], plan: SkippedPlan, limit: int, action: AdminAction, before: SkippedPage
    ) -> SkippedPage:
        at = before.after or (None, None, None)
        place = dict(zip(("after_us", "after_id", "after_route"), at, strict=True))
        values = {**chosen(filters, FILTERS), **place, "limit": limit}

        def steps() -> Steps[SkippedPage]:
            if before.action_id is not None and (yield from is_stopped(before.action_id)):
                return SkippedPage(action_id=before.action_id)
            found = yield Ask("skipped", values)
            rows = _whole(found, limit)
            held = {(row["notification_id"], row["route_id"]): plan.holds(row) for row in rows}
            free = [row for row in rows if held[row["notification_id"], row["route_id"]] is None]
            if not plan.dry_run:
                over = yield from _throttled(free, plan)
                held |= dict.fromkeys(over, THROTTLE)
                free = [row for row in free if held[row["notification_id"], row["route_id"]] is None]
            action_id = before.action_id
            if free and not plan.dry_run:
                yield from _redriven(free, plan)
                action_id = yield from noted(action, plan.done + len(free), before.action_id)
                keys = [{name: row[name] for name in ("notification_id", "route_id")} for row in free]
                yield Ask("mark_redriven", {"action_id": action_id, "delivered": False}, keys)
            last = rows[-1] if len(found) == limit else None
            return SkippedPage(
                matched=dict(Counter(str(row["gate"]) for row in rows)),
                held=dict(Counter(gate for gate in held.values() if gate is not None)),
                redriven=0 if plan.dry_run else len(free),
                action_id=action_id,
                after=None if last is None else (last["skipped_us"], last["notification_id"], last["route_id"]),
            )

        # Not repeated after a broken connection: the second run would find nothing and report 0.
        page = await self.engine.change(steps, repeatable=False)
        if page.redriven:
            self.signal.ring()
        return page


def _whole(rows: Sequence[Row], limit: int) -> Sequence[Row]:
    """The rows of a page without the beginning of a chain that goes on behind it: the next page has the whole chain."""
    if len(rows) < limit or rows[-1]["goal"] is None:
        return rows
    end = len(rows)
    while end and rows[end - 1]["notification_id"] == rows[-1]["notification_id"]:
        end -= 1
    # One that fills a page by itself is cut.
    return rows[:end] if end else rows


def _redriven(free: Sequence[Row], plan: SkippedPlan) -> Steps[None]:
    lines = [line for turn, channels in _chains(free) for line in _times(channels, plan.due_ms(turn))]
    yield Ask("redrive_skipped", {"unqueued": list(plan.unqueued), "instead": plan.instead}, lines)


def _chains(free: Sequence[Row]) -> list[tuple[int, list[Row]]]:
    """The routes, those of one person's chain together and in its order, each with the turn of the first."""
    found: dict[tuple[str, str], tuple[int, list[Row]]] = {}
    for turn, row in enumerate(free):
        name = row["route_id"] if row["goal"] is None else f" {row['recipient_ref']}"
        found.setdefault((row["notification_id"], name), (turn, []))[1].append(row)
    for _, channels in found.values():
        channels.sort(key=lambda row: (row["planned_ms"], row["route_id"]))
    return list(found.values())


def _times(channels: Sequence[Row], turn_ms: float) -> list[Row]:
    """When each of these goes: not before its notification's time, and in a chain as far apart as it was planned."""
    lines: list[Row] = []
    for place, row in enumerate(channels):
        behind = row["planned_ms"] - channels[0]["planned_ms"]
        planned = min(max(turn_ms, row["scheduled_ms"] or 0.0) + behind, LATEST_MS)
        expires = math.inf if row["expires_ms"] is None else max(row["expires_ms"], turn_ms)
        step = None if len(channels) == 1 else place + (0 if row["last_step"] is None else row["last_step"] + 1)
        lines.append(
            {"notification_id": row["notification_id"], "route_id": row["route_id"], "step": step}
            | {"due_ms": min(planned, expires), "planned_ms": planned}
        )
    return lines


def _throttled(free: Sequence[Row], plan: SkippedPlan) -> Steps[list[tuple[str, str]]]:
    """Count each notification to a person against its throttle; returns the routes that are too many."""
    places: dict[tuple[str, str, str], list[Row]] = {}
    for row in free:
        if plan.throttle(row) is not None:
            places.setdefault((row["tenant_id"] or "", row["recipient_ref"], row["category"]), []).append(row)
    over: list[tuple[str, str]] = []
    kept: list[Row] = []
    for held in (yield from locked(places)):
        rows = places[held["tenant_id"], held["audience"], held["category"]]
        times, now_ms, passed = _read_times(held["times_json"]), int(held["now_ms"]), set[str]()
        for row in rows:
            rule = plan.throttle(row)
            if rule is None or row["notification_id"] in passed:
                continue
            if is_full(times, rule, now_ms):
                over.append((row["notification_id"], row["route_id"]))
            else:
                passed.add(row["notification_id"])
                times = recent([*times, now_ms], rule, now_ms)
        kept.append(kept_row(held["place"], times))
    yield Ask("throttle_keep", each=kept)
    return over
