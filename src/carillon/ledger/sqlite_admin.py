"""What administrators ask and do, in SQLite."""

import json
import sqlite3
from collections.abc import Mapping
from typing import Any

from carillon.domain.admin import AdminAction, FailedCounts, Revival, Revived
from carillon.domain.ports import Signal
from carillon.ledger.admin_rows import (
    ACTION_FILTERS,
    FAILED_FILTERS,
    action_values,
    counts_of,
    page_of,
    read_action,
    with_count,
)
from carillon.ledger.questions import bound
from carillon.ledger.sqlite_file import SqliteFile


class SqliteAdmin:
    """Satisfies AdminLedger."""

    _file: SqliteFile
    _sql: Mapping[str, str]
    signal: Signal

    async def failed(self, filters: Mapping[str, Any], limit: int, offset: int) -> tuple[list[dict[str, Any]], int]:
        rows = await self._read("failed", *bound(filters, FAILED_FILTERS), limit, offset)
        return page_of(rows, "notification_id")

    async def failed_counts(self, filters: Mapping[str, Any]) -> FailedCounts:
        values = bound(filters, FAILED_FILTERS)

        def work(connection: sqlite3.Connection, now: int) -> FailedCounts:
            rows = connection.execute(self._sql["failed_counts"], values).fetchall()
            return counts_of([dict(row) for row in rows], now)

        return await self._file.read(work)

    async def revive(
        self,
        filters: Mapping[str, Any],
        revival: Revival,
        limit: int,
        action: AdminAction,
        action_id: int | None = None,
    ) -> Revived:
        values = bound(filters, FAILED_FILTERS)

        def work(connection: sqlite3.Connection, now: int) -> Revived:
            keys = connection.execute(self._sql["revive_candidates"], (*values, limit)).fetchall()
            count = self._revive(connection, now, [dict(key) for key in keys], revival)
            if not count:
                return Revived(0, action_id)
            counted = with_count(action, revival.done + count)
            return Revived(count, self._note(connection, now, counted, action_id))

        revived = await self._file.write(work)
        if revived.count:
            self.signal.ring()
        return revived

    async def note_action(self, action: AdminAction) -> int:
        return await self._file.write(lambda connection, now: self._note(connection, now, action, None))

    async def actions(self, filters: Mapping[str, Any], limit: int, offset: int) -> tuple[list[dict[str, Any]], int]:
        rows = await self._read("actions", *bound(filters, ACTION_FILTERS), limit, offset)
        found, total = page_of(rows, "action_id")
        return [read_action(row) for row in found], total

    async def recent_outcomes(self, tenant_id: str | None, limit: int) -> list[dict[str, Any]]:
        return await self._read("recent_outcomes", limit, tenant_id)

    def _revive(self, connection: sqlite3.Connection, now: int, keys: list[dict[str, Any]], revival: Revival) -> int:
        how = {
            "provider": revival.provider,
            "forced": revival.forced,
            "unqueued": json.dumps(revival.unqueued),
            "instead": revival.instead,
            "now": now,
        }
        for place, key in enumerate(keys, revival.done):
            turn = now if revival.rate is None else round(revival.began_ms + place / revival.rate * 1000)
            connection.execute(self._sql["revive"], {**how, **key, "due_at": max(now, turn)})
            connection.execute(self._sql["redrive_forget"], key)
        return len(keys)

    async def _read(self, name: str, *values: object) -> list[dict[str, Any]]:
        rows = await self._file.read(lambda connection, _: connection.execute(self._sql[name], values).fetchall())
        return [dict(row) for row in rows]

    def _note(self, connection: sqlite3.Connection, now: int, action: AdminAction, action_id: int | None) -> int:
        values = action_values(action)
        if action_id is None:
            (noted,) = connection.execute(self._sql["note_action"], (*values, now)).fetchone()
            return int(noted)
        connection.execute(self._sql["amend_action"], (action_id, values[-1]))
        return action_id
