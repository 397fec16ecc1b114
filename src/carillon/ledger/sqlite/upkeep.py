"""What operators and retention ask of SQLite."""

import json
import sqlite3
import time
from collections.abc import Mapping, Sequence
from typing import Any

from carillon.domain.notifications import Story
from carillon.domain.ports import Signal
from carillon.ledger.questions import DEAD_LETTER_FILTERS, SEARCH_FILTERS, bound, counted, stories
from carillon.ledger.sqlite.file import SqliteFile

_SYNCHRONOUS_FULL = 2


class SqliteUpkeep:
    """Satisfies UpkeepLedger."""

    _file: SqliteFile
    _sql: Mapping[str, str]
    signal: Signal

    async def story(self, notification_id: str, tenant_id: str | None) -> Story | None:
        found = await self._file.read(lambda connection, _: self._stories(connection, [notification_id], tenant_id))
        return found[0] if found else None

    async def search(self, filters: Mapping[str, Any], limit: int, offset: int) -> tuple[list[Story], int]:
        values = bound(filters, SEARCH_FILTERS)

        def work(connection: sqlite3.Connection, _now: int) -> tuple[list[Story], int]:
            rows = connection.execute(self._sql["search"], (*values, limit, offset)).fetchall()
            ids = [row["notification_id"] for row in rows if row["notification_id"] is not None]
            return self._stories(connection, ids, None), rows[0]["total"]

        return await self._file.read(work)

    async def counts(self) -> dict[str, Any]:
        rows = await self._file.read(lambda connection, now: connection.execute(self._sql["counts"], (now,)).fetchall())
        return counted(dict(row) for row in rows)

    async def dead_letters(
        self, filters: Mapping[str, Any], limit: int, offset: int
    ) -> tuple[list[dict[str, Any]], int]:
        values = bound(filters, DEAD_LETTER_FILTERS)
        rows = await self._file.read(
            lambda connection, _: connection.execute(self._sql["dead_letters"], (*values, limit, offset)).fetchall()
        )
        found = [dict(row) for row in rows if row["notification_id"] is not None]
        for row in found:
            del row["total"]
        return found, rows[0]["total"]

    async def cancel(self, notification_id: str, tenant_id: str | None = None) -> int:
        key = {"notification_id": notification_id, "tenant_id": tenant_id}
        return await self._file.write(
            lambda connection, now: connection.execute(self._sql["cancel"], {**key, "now": now}).rowcount
        )

    async def rehome(self, channel: str, providers: Sequence[str], lanes: Sequence[int], otherwise: int) -> int:
        given = {
            "channel": channel,
            "providers": json.dumps(list(providers)),
            "first": providers[0],
            "lanes": json.dumps(list(lanes)),
            "otherwise": otherwise,
        }
        return await self._file.write(
            lambda connection, now: connection.execute(self._sql["rehome"], {**given, "now": now}).rowcount
        )

    async def hasten(self, seconds: float) -> int:
        moved = await self._file.write(
            lambda connection, _: connection.execute(self._sql["hasten"], {"ms": round(seconds * 1000)}).rowcount
        )
        self.signal.ring()
        return moved

    async def prune(self, records_older_than: float, malformed_older_than: float, limit: int) -> tuple[int, int]:
        def work(connection: sqlite3.Connection, now: int) -> tuple[int, int]:
            before = {"before": now - round(records_older_than * 1000), "most": limit}
            ids = [(row[0],) for row in connection.execute(self._sql["prune_candidates"], before)]
            for statement in ("prune_attempts", "prune_stream_note", "prune_stream"):
                connection.executemany(self._sql[statement], ids)
            connection.executemany(self._sql["prune"], ids)
            connection.execute(self._sql["prune_receipts"], before)
            before["before"] = now - round(malformed_older_than * 1000)
            malformed = connection.execute(self._sql["prune_malformed"], before).rowcount
            connection.execute(self._sql["prune_suppressions"], (now,))
            return len(ids), malformed

        return await self._file.write(work)

    async def check(self) -> dict[str, Any]:
        def work(connection: sqlite3.Connection, now: int) -> tuple[int, str, int]:
            (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
            (synchronous,) = connection.execute("PRAGMA synchronous").fetchone()
            return now, mode, synchronous

        began, wall = time.monotonic(), time.time()
        now, mode, synchronous = await self._file.read(work)
        took = time.monotonic() - began
        return {
            "engine": "sqlite",
            "version": sqlite3.sqlite_version,
            "durable": synchronous >= _SYNCHRONOUS_FULL,
            "settings": {"journal_mode": mode, "synchronous": str(synchronous)},
            "clock_skew_seconds": now / 1000 - (wall + took / 2),
            "response_time_ms": took * 1000,
            "oldest_transaction_seconds": 0.0,
        }

    def _stories(self, connection: sqlite3.Connection, ids: list[str], tenant_id: str | None) -> list[Story]:
        records = _rows(connection, self._sql["records"], json.dumps(ids), tenant_id)
        known = json.dumps([record["notification_id"] for record in records])
        routes = _rows(connection, self._sql["routes"], known)
        attempts = _rows(connection, self._sql["attempts"], known)
        for record in records:
            users = record["recipient_user_ids"]
            record["recipient_user_ids"] = None if users is None else json.loads(users)
            record["is_bulk"] = bool(record["is_bulk"])
        return stories(records, routes, attempts)


def _rows(connection: sqlite3.Connection, statement: str, *values: object) -> list[dict[str, Any]]:
    return [dict(row) for row in connection.execute(statement, values)]
