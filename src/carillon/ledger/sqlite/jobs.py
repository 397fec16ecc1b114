"""Job logs and effects in SQLite."""

import datetime as dt
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from carillon.domain.job_rows import Effect, JobRow
from carillon.ledger.sqlite.file import SqliteFile

_TIMES = ("next_retry_at", "created_at", "updated_at")


class SqliteJobs:
    """Satisfies JobLedger and Effects."""

    _file: SqliteFile
    _sql: Mapping[str, str]

    async def write_job_logs(self, rows: Sequence[JobRow]) -> None:
        if rows:
            given = [_given(row) for row in rows]
            await self._file.write(lambda connection, _: connection.executemany(self._sql["write_job_logs"], given))

    async def job_logs(self, filters: Mapping[str, str | None], limit: int) -> list[dict[str, Any]]:
        names = ("queue", "status", "correlation_id", "idempotency_key")
        given: dict[str, Any] = {name: filters.get(name) for name in names} | {"limit": limit}

        def look(connection: sqlite3.Connection, _now: int) -> list[dict[str, Any]]:
            found = connection.execute(self._sql["job_logs"], given)
            columns = [column[0] for column in found.description]
            return [_told(dict(zip(columns, row, strict=True))) for row in found]

        return await self._file.read(look)

    async def begin_effect(self, key: str, holder: str, seconds: float) -> Effect:
        def begin(connection: sqlite3.Connection, now: int) -> Effect:
            given = {"key": key, "holder": holder, "until": now + round(seconds * 1000), "now": now}
            if connection.execute(self._sql["begin_effect"], given).fetchone():
                return "begun"
            found = connection.execute(self._sql["effect_done"], {"key": key}).fetchone()
            return "done" if found is not None and found[0] else "busy"

        return await self._file.write(begin)

    async def finish_effect(self, key: str, holder: str) -> None:  # noqa: ARG002 - it was done, whoever says so
        statement = self._sql["finish_effect"]
        await self._file.write(lambda connection, now: connection.execute(statement, {"key": key, "now": now}))

    async def abandon_effect(self, key: str, holder: str) -> None:
        given = {"key": key, "holder": holder}
        await self._file.write(lambda connection, _: connection.execute(self._sql["abandon_effect"], given))

    async def prune_jobs(self, older_than_seconds: float, limit: int) -> int:
        def prune(connection: sqlite3.Connection, now: int) -> int:
            given = {"before": now - round(older_than_seconds * 1000), "limit": limit}
            connection.execute(self._sql["prune_effects"], given)
            return len(connection.execute(self._sql["prune_jobs"], given).fetchall())

        return await self._file.write(prune)


def _given(row: JobRow) -> dict[str, Any]:
    return {
        "service": row.service,
        "queue": row.queue,
        "message_id": row.message_id,
        "correlation_id": row.correlation_id,
        "idempotency_key": row.idempotency_key,
        "status": row.status,
        "attempts": row.attempts,
        "last_error": row.last_error,
        "next_retry_at": None if row.next_retry_at is None else round(row.next_retry_at * 1000),
        "action": row.action,
        "since": round(row.since * 1000),
        "at": round(row.at * 1000),
    }


def _told(row: dict[str, Any]) -> dict[str, Any]:
    for name in _TIMES:
        if row[name] is not None:
            row[name] = dt.datetime.fromtimestamp(row[name] / 1000, dt.UTC)
    return row
