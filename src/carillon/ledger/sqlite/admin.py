"""What administrators ask and do, in SQLite."""

import json
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from carillon.domain.admin import AdminAction, FailedCounts, Revival, Revived
from carillon.domain.ports import Signal
from carillon.ledger.admin_rows import (
    ACTION_FILTERS,
    action_values,
    counts_of,
    failed_values,
    page_of,
    read_action,
    with_count,
)
from carillon.ledger.questions import bound
from carillon.ledger.sqlite.file import SqliteFile


class SqliteAdmin:
    """Satisfies AdminLedger."""

    _file: SqliteFile
    _sql: Mapping[str, str]
    signal: Signal

    async def failed(self, filters: Mapping[str, Any], limit: int, offset: int) -> tuple[list[dict[str, Any]], int]:
        rows = await self._read("failed", *_chosen(filters), limit, offset)
        return page_of(rows, "notification_id")

    async def failed_counts(self, filters: Mapping[str, Any]) -> FailedCounts:
        values = _chosen(filters)

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
        values = _chosen(filters)

        def work(connection: sqlite3.Connection, now: int) -> Revived:
            keys = connection.execute(self._sql["revive_candidates"], (*values, limit)).fetchall()
            if not keys:
                return Revived(0, action_id)
            self._revive(connection, now, [dict(key) for key in keys], revival)
            noted = self._note(connection, now, with_count(action, revival.done + len(keys)), action_id)
            connection.executemany(self._sql["mark_redriven"], [(*key, noted) for key in keys])
            return Revived(len(keys), noted)

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

    async def redriven(self, action_ids: Sequence[int]) -> list[dict[str, Any]]:
        return await self._read("redriven", json.dumps(list(action_ids)))

    async def recent_outcomes(self, tenant_id: str | None, limit: int) -> list[dict[str, Any]]:
        return await self._read("recent_outcomes", limit, tenant_id)

    def _revive(self, connection: sqlite3.Connection, now: int, keys: list[dict[str, Any]], revival: Revival) -> None:
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
            connection.execute(self._sql["revive_forget"], key)

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


def _chosen(filters: Mapping[str, Any]) -> list[Any]:
    values = failed_values(filters)
    return [json.dumps(value) if isinstance(value, list) else value for value in values]
