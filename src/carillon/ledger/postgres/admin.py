"""What administrators ask and do, in PostgreSQL."""

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
from carillon.ledger.postgres.pools import Connection, Pools
from carillon.ledger.questions import bound, plain


class PostgresAdmin:
    """Satisfies AdminLedger."""

    _pools: Pools
    _sql: Mapping[str, str]
    signal: Signal

    async def failed(self, filters: Mapping[str, Any], limit: int, offset: int) -> tuple[list[dict[str, Any]], int]:
        rows = await self._read("failed", *failed_values(filters), limit, offset)
        return page_of(rows, "notification_id")

    async def failed_counts(self, filters: Mapping[str, Any]) -> FailedCounts:
        rows = await self._read("failed_counts", *failed_values(filters))
        return counts_of(rows, round(rows[0]["now"]))

    async def revive(
        self,
        filters: Mapping[str, Any],
        revival: Revival,
        limit: int,
        action: AdminAction,
        action_id: int | None = None,
    ) -> Revived:
        values = failed_values(filters)
        how = (
            revival.provider,
            list(revival.unqueued),
            revival.instead,
            revival.rate,
            revival.began_ms,
            revival.done,
            revival.forced,
        )

        async def work(connection: Connection) -> Revived:
            async with connection.transaction():
                keys = await connection.fetch(self._sql["revive"], *values, limit, *how)
                if not keys:
                    return Revived(0, action_id)
                noted = await self._note(connection, with_count(action, revival.done + len(keys)), action_id)
                await connection.execute(self._sql["mark_redriven"], *zip(*keys, strict=True), noted)
                return Revived(len(keys), noted)

        # Not repeated when the connection breaks: what was done unheard would look as if there had been nothing to do.
        revived = await self._pools.reads.run(work, repeatable=False)
        if revived.count:
            self.signal.ring()
        return revived

    async def note_action(self, action: AdminAction) -> int:
        return await self._pools.reads.run(lambda c: self._note(c, action, None), repeatable=False)

    async def actions(self, filters: Mapping[str, Any], limit: int, offset: int) -> tuple[list[dict[str, Any]], int]:
        rows = await self._read("actions", *bound(filters, ACTION_FILTERS), limit, offset)
        found, total = page_of(rows, "action_id")
        return [read_action(row) for row in found], total

    async def redriven(self, action_ids: Sequence[int]) -> list[dict[str, Any]]:
        return await self._read("redriven", list(action_ids))

    async def recent_outcomes(self, tenant_id: str | None, limit: int) -> list[dict[str, Any]]:
        return await self._read("recent_outcomes", limit, tenant_id)

    async def _read(self, name: str, *values: object) -> list[dict[str, Any]]:
        rows = await self._pools.reads.run(lambda c: c.fetch(self._sql[name], *values), repeatable=True)
        return [plain(row.items()) for row in rows]

    async def _note(self, connection: Connection, action: AdminAction, action_id: int | None) -> int:
        values = action_values(action)
        if action_id is None:
            return int(await connection.fetchval(self._sql["note_action"], *values))
        await connection.execute(self._sql["amend_action"], action_id, values[-1])
        return action_id
