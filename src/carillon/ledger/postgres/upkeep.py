"""What operators and retention ask of PostgreSQL."""

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import asyncpg

from carillon.domain.notifications import Story
from carillon.domain.ports import Signal
from carillon.ledger.postgres.pools import Connection, Pools
from carillon.ledger.questions import DEAD_LETTER_FILTERS, SEARCH_FILTERS, bound, counted, plain, stories

_DURABILITY = ("fsync", "full_page_writes", "synchronous_commit", "synchronous_standby_names")


class PostgresUpkeep:
    """Satisfies UpkeepLedger."""

    _pools: Pools
    _sql: Mapping[str, str]
    signal: Signal

    async def story(self, notification_id: str, tenant_id: str | None) -> Story | None:
        found = await self._pools.reads.run(lambda c: self._stories(c, [notification_id], tenant_id), repeatable=True)
        return found[0] if found else None

    async def search(self, filters: Mapping[str, Any], limit: int, offset: int) -> tuple[list[Story], int]:
        values = bound(filters, SEARCH_FILTERS)

        async def work(connection: Connection) -> tuple[list[Story], int]:
            rows = await connection.fetch(self._sql["search"], *values, limit, offset)
            ids = [row["notification_id"] for row in rows if row["notification_id"] is not None]
            return await self._stories(connection, ids, None), rows[0]["total"]

        return await self._pools.reads.run(work, repeatable=True)

    async def counts(self) -> dict[str, Any]:
        rows = await self._pools.reads.run(lambda c: c.fetch(self._sql["counts"]), repeatable=True)
        return counted(dict(row) for row in rows)

    async def dead_letters(
        self, filters: Mapping[str, Any], limit: int, offset: int
    ) -> tuple[list[dict[str, Any]], int]:
        values = bound(filters, DEAD_LETTER_FILTERS)
        rows = await self._pools.reads.run(
            lambda c: c.fetch(self._sql["dead_letters"], *values, limit, offset), repeatable=True
        )
        found = _rows(row for row in rows if row["notification_id"] is not None)
        for row in found:
            del row["total"]
        return found, rows[0]["total"]

    async def cancel(self, notification_id: str, tenant_id: str | None = None) -> int:
        rows = await self._pools.reads.run(
            lambda c: c.fetch(self._sql["cancel"], notification_id, tenant_id), repeatable=True
        )
        return len(rows)

    async def rehome(self, channel: str, providers: Sequence[str], lanes: Sequence[int], otherwise: int) -> int:
        rows = await self._pools.reads.run(
            lambda c: c.fetch(self._sql["rehome"], channel, list(providers), list(lanes), otherwise), repeatable=True
        )
        return len(rows)

    async def hasten(self, seconds: float) -> int:
        rows = await self._pools.reads.run(lambda c: c.fetch(self._sql["hasten"], seconds), repeatable=False)
        self.signal.ring()
        return len(rows)

    async def prune(self, records_older_than: float, malformed_older_than: float, limit: int) -> tuple[int, int]:
        records = await self._pools.reads.run(lambda c: self._prune(c, records_older_than, limit), repeatable=True)
        malformed = await self._pools.reads.run(
            lambda c: c.fetchval(self._sql["prune_malformed"], malformed_older_than, limit), repeatable=True
        )
        await self._pools.reads.run(
            lambda c: c.execute(self._sql["prune_receipts"], records_older_than, limit), repeatable=True
        )
        await self._pools.reads.run(lambda c: c.execute(self._sql["prune_suppressions"]), repeatable=True)
        return records, int(malformed)

    async def check(self) -> dict[str, Any]:
        began, wall = time.monotonic(), time.time()
        rows = await self._pools.reads.run(lambda c: c.fetch(self._sql["check"]), repeatable=True)
        took = time.monotonic() - began
        row = rows[0]
        settings = {name: row[name] for name in _DURABILITY}
        return {
            "engine": "postgresql",
            "version": row["version"],
            "durable": not unsafe_settings(settings),
            "settings": settings,
            "clock_skew_seconds": row["clock"] - (wall + took / 2),
            "response_time_ms": took * 1000,
            "oldest_transaction_seconds": row["oldest_transaction_seconds"],
        }

    async def _prune(self, connection: Connection, older_than: float, limit: int) -> int:
        async with connection.transaction():
            candidates = await connection.fetch(self._sql["prune_candidates"], older_than, limit)
            ids = [row["notification_id"] for row in candidates]
            return int(await connection.fetchval(self._sql["prune"], ids)) if ids else 0

    async def _stories(self, connection: Connection, ids: list[str], tenant_id: str | None) -> list[Story]:
        # One snapshot: a route never shows an outcome whose attempt is missing.
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            records = _rows(await connection.fetch(self._sql["records"], ids, tenant_id))
            known = [record["notification_id"] for record in records]
            routes = _rows(await connection.fetch(self._sql["routes"], known))
            attempts = _rows(await connection.fetch(self._sql["attempts"], known))
        for record in records:
            users = record["recipient_user_ids"]
            record["recipient_user_ids"] = None if users is None else json.loads(users)
        return stories(records, routes, attempts)


def unsafe_settings(settings: Mapping[str, str]) -> list[str]:
    """The settings under which a commit that was answered can still be lost."""
    return [name for name in _DURABILITY[:3] if settings[name] == "off"]


def _rows(rows: Iterable[asyncpg.Record]) -> list[dict[str, Any]]:
    return [plain(row.items()) for row in rows]
