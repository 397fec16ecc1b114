"""History as it is read from SQLite."""

import sqlite3
from collections.abc import Mapping
from typing import Any

from carillon.domain.history import Cursor, Ending, Mark
from carillon.ledger.history_rows import ending
from carillon.ledger.sqlite.file import SqliteFile


class SqliteHistory:
    """Satisfies HistoryLedger."""

    _file: SqliteFile
    _sql: Mapping[str, str]

    async def take_history(self, owner: str, lease_seconds: float, lag_seconds: float) -> Cursor | None:
        def work(connection: sqlite3.Connection, now: int) -> Cursor | None:
            asked = {"owner": owner, "lease_seconds": lease_seconds, "now": now}
            row = connection.execute(self._sql["take_history"], asked).fetchone()
            if row is None:
                return None
            mark = Mark(_us(row["changed_at"]), row["notification_id"], row["route_id"])
            return Cursor(mark, _us(now - round(lag_seconds * 1000)))

        return await self._file.write(work)

    async def endings(self, after: Mark, until_us: int, limit: int) -> list[Ending]:
        asked = {**_place(after), "until": until_us // 1000, "most": limit}
        rows = await self._file.read(lambda connection, _: connection.execute(self._sql["endings"], asked).fetchall())
        return [ending(row, _us) for row in rows]

    async def advance_history(self, owner: str, to: Mark) -> bool:
        asked = {**_place(to), "owner": owner}
        moved = await self._file.write(
            lambda connection, _: connection.execute(self._sql["advance_history"], asked).fetchone()
        )
        return moved is not None

    async def rewind_history(self, to_us: int) -> None:
        asked = {"changed": to_us // 1000}
        await self._file.write(lambda connection, _: connection.execute(self._sql["rewind_history"], asked))


def _place(mark: Mark) -> dict[str, Any]:
    return {"changed": mark.changed_us // 1000, "notification_id": mark.notification_id, "route_id": mark.route_id}


def _us(unix_ms: int) -> int:
    return unix_ms * 1000
