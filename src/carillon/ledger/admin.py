"""Statements of administrators: dead letters, redrives, recorded actions, API keys and the audit log."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from carillon.domain.admin import AdminAction, AuditRow, FailedCounts, RedrivePlan, RedriveResult
from carillon.domain.keys import ApiKey, NewKey
from carillon.domain.ports import Signal
from carillon.domain.store import Ask, Engine, Row, Steps
from carillon.domain.timing import LATEST_MS
from carillon.ledger.rows import RECOVERY_HINT, chosen, storable, storable_json

FAILED_FILTERS = (
    "channel",
    "classification",
    "provider",
    "notification_type",
    "tenant_id",
    "notification_id",
    "failed_after_ms",
    "failed_before_ms",
    "notification_ids",
    "letters",
)
FAILED_PLACE = ("before_us", "before_id", "before_route")
ACTION_FILTERS = ("actor", "action", "subject", "tenant_id", "after_ms", "before_id")
_BETWEEN = "\x1f"
"""Neither a notification's id nor a route's contains it."""
_LEAST_RATE = 1e-12
"""The second route has its turn after the last year already; by much smaller numbers no database divides."""


class AdminStore:
    """Satisfies AdminLedger."""

    engine: Engine
    signal: Signal

    async def failed(self, filters: Mapping[str, Any], limit: int, offset: int) -> tuple[list[Row], int]:
        place = {name: filters.get(name) for name in FAILED_PLACE}
        given = {name: value for name, value in filters.items() if name not in FAILED_PLACE}
        rows = await self.engine.rows("failed", {**_failed(given), **place, "limit": limit, "offset": offset})
        return _page(rows, "notification_id")

    async def failed_counts(self, filters: Mapping[str, Any]) -> FailedCounts:
        rows = await self.engine.rows("failed_counts", _failed(filters))
        by_cause = [
            {name: row[name] for name in ("channel", "classification", "count")}
            for row in rows
            if row["count"] is not None
        ]
        suppressed = sum(row["suppressed"] or 0 for row in rows)
        return FailedCounts(sum(row["count"] for row in by_cause), by_cause, round(rows[0]["now"]), suppressed)

    async def redrive(
        self,
        filters: Mapping[str, Any],
        plan: RedrivePlan,
        limit: int,
        action: AdminAction,
        action_id: int | None = None,
    ) -> RedriveResult:
        values = {**_failed(filters), "limit": limit, **_how(plan)}

        def steps() -> Steps[RedriveResult]:
            if action_id is not None and (yield from is_stopped(action_id)):
                return RedriveResult(0, action_id)
            keys = yield Ask("redrive", values)
            if not keys:
                return RedriveResult(0, action_id)
            yield Ask("redrive_forget", each=keys)
            noted = yield from _note(_with_count(action, plan.done + len(keys)), action_id)
            yield Ask("mark_redriven", {"action_id": noted, "delivered": False}, keys)
            return RedriveResult(len(keys), noted)

        # Not repeated after a broken connection: the second run would find nothing and report 0.
        redriven = await self.engine.change(steps, repeatable=False)
        if redriven.count:
            self.signal.ring()
        return redriven

    async def stop_redrive(self, action_id: int, action: AdminAction) -> int:
        def steps() -> Steps[int]:
            (row,) = yield Ask("lock_action", {"action_id": action_id})
            keys = yield Ask("stop_redrive", {"action_id": action_id})
            if keys:
                yield Ask("stop_redrive_bury", {"recovery_hint": RECOVERY_HINT}, keys)
            # A redrive is of dead letters, of what a gate skipped or of what was delivered; each finds its own.
            keys += yield Ask("unskip_stop", {"action_id": action_id})
            keys += yield Ask("stop_replay", {"action_id": action_id})
            if keys:
                yield Ask("stop_redrive_forget", each=keys)
            detail = _detail(row)
            stopped = detail.get("stopped", 0) + len(keys)
            text = storable_json({**detail, "stopped": stopped})
            yield Ask("update_action", {"action_id": action_id, "detail_json": text})
            count = {**action.detail, "stopped": len(keys)}
            yield from _note(msgspec.structs.replace(action, detail=count), None)
            return len(keys)

        # Not repeated after a broken connection: the second run would find nothing and report 0.
        return await self.engine.change(steps, repeatable=False)

    async def action(self, action_id: int) -> Row | None:
        row = await self.engine.one("action", {"action_id": action_id})
        return None if row is None else _read_action(row)

    async def note_action(self, action: AdminAction) -> int:
        return await self.engine.change(lambda: _note(action, None), repeatable=False)

    async def actions(self, filters: Mapping[str, Any], limit: int, offset: int) -> tuple[list[Row], int]:
        values = {**chosen(filters, ACTION_FILTERS), "limit": limit, "offset": offset}
        found, total = _page(await self.engine.rows("actions", values), "action_id")
        return [_read_action(row) for row in found], total

    async def redriven(self, action_ids: Sequence[int]) -> list[Row]:
        return await self.engine.rows("redriven", {"action_ids": list(action_ids)})

    async def recent_outcomes(self, tenant_id: str | None, limit: int) -> list[Row]:
        return await self.engine.rows("recent_outcomes", {"limit": limit, "tenant_id": tenant_id})


def is_stopped(action_id: int) -> Steps[bool]:
    """Whether somebody has stopped this redrive; holds the lock of its row."""
    (row,) = yield Ask("lock_action", {"action_id": action_id})
    return "stopped" in _detail(row)


def _detail(row: Row) -> dict[str, Any]:
    return {} if row["detail_json"] is None else dict(json.loads(row["detail_json"]))


def _failed(filters: Mapping[str, Any]) -> dict[str, Any]:
    """The filters of dead letters; a listed letter becomes one text made of its notification id and route id."""
    letters = filters.get("letters")
    if letters is None:
        return chosen(filters, FAILED_FILTERS)
    ids = filters.get("notification_ids") or sorted({notification_id for notification_id, _ in letters})
    names = [_BETWEEN.join(letter) for letter in letters]
    # An index exists for the ids only.
    return chosen({**filters, "notification_ids": ids, "letters": names}, FAILED_FILTERS)


def _how(plan: RedrivePlan) -> dict[str, Any]:
    return {
        "new_provider": plan.provider,
        "unqueued": list(plan.unqueued),
        "instead": plan.instead,
        "rate": None if plan.rate is None else max(plan.rate, _LEAST_RATE),
        "latest_ms": LATEST_MS,
        "began_ms": plan.began_ms,
        "done": plan.done,
        "forced": plan.forced,
    }


def _note(action: AdminAction, action_id: int | None) -> Steps[int]:
    """Write the action, or update its detail; returns its id."""
    detail = storable_json(action.detail)
    if action_id is not None:
        yield Ask("update_action", {"action_id": action_id, "detail_json": detail})
        return action_id
    row = {
        "actor": storable(action.actor),
        "action": action.action,
        "tenant_id": storable(action.tenant_id),
        "subject": storable(action.subject),
        "reason": storable(action.reason),
        "detail_json": detail,
    }
    (noted,) = yield Ask("note_action", row)
    return int(noted["action_id"])


def _with_count(action: AdminAction, count: int) -> AdminAction:
    return AdminAction(
        actor=action.actor,
        action=action.action,
        reason=action.reason,
        tenant_id=action.tenant_id,
        subject=action.subject,
        detail={**action.detail, "redriven": count},
    )


def noted(action: AdminAction, count: int, action_id: int | None) -> Steps[int]:
    """Write an action about so many routes, or update its count; returns its id."""
    return (yield from _note(_with_count(action, count), action_id))


def _page(rows: Sequence[Row], key: str) -> tuple[list[Row], int]:
    """The rows and the total; the total is there also for an empty page."""
    found = [{name: value for name, value in row.items() if name != "total"} for row in rows if row[key] is not None]
    return found, rows[0]["total"]


def _read_action(row: Row) -> Row:
    text = row.pop("detail_json")
    return {**row, "detail": {} if text is None else json.loads(text)}


class AuditStore:
    """Satisfies AuditLedger."""

    engine: Engine

    async def write_audit(self, rows: Sequence[AuditRow]) -> None:
        if rows:
            given = [{**msgspec.structs.asdict(row), "metadata": row.metadata_json} for row in rows]
            # A repeat writes nothing, because the key is unique.
            await self.engine.write("write_audit", each=given, repeatable=True, pool="settlements")

    async def prune_audit(self, older_than: float, limit: int) -> int:
        old = {"older_than_seconds": older_than, "limit": limit}
        return len(await self.engine.write("prune_audit", old, repeatable=True))


class KeyStore:
    """Satisfies KeyLedger."""

    engine: Engine

    async def api_key(self, key_id: str) -> ApiKey | None:
        row = await self.engine.one("api_key", {"key_id": key_id})
        return None if row is None else msgspec.convert(row, ApiKey)

    async def api_keys(self) -> list[ApiKey]:
        return [msgspec.convert(row, ApiKey) for row in await self.engine.rows("api_keys")]

    async def add_api_key(self, key: NewKey, most: int) -> ApiKey | None:
        values = {**msgspec.structs.asdict(key), "most": most}

        def steps() -> Steps[list[Row]]:
            yield Ask("lock_api_keys")
            return (yield Ask("add_api_key", values))

        rows = await self.engine.change(steps, repeatable=False)
        return msgspec.convert(rows[0], ApiKey) if rows else None

    async def revoke_api_key(self, key_id: str) -> ApiKey | None:
        rows = await self.engine.write("revoke_api_key", {"key_id": key_id}, repeatable=True)
        return msgspec.convert(rows[0], ApiKey) if rows else None

    async def touch_api_key(self, key_id: str, every_seconds: float) -> None:
        await self.engine.write("touch_api_key", {"key_id": key_id, "every_seconds": every_seconds}, repeatable=True)
