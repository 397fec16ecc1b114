"""What must be told outside, in PostgreSQL."""

from collections.abc import Mapping, Sequence
from typing import Any

from carillon.domain.alerts import Postponed, Telling
from carillon.ledger.outbox_rows import joined, known, tellings
from carillon.ledger.postgres.pools import Connection, Pools
from carillon.ledger.questions import plain


class PostgresOutbox:
    """Satisfies Outbox."""

    _pools: Pools
    _sql: Mapping[str, str]

    async def due_alerts(self, limit: int, lease_seconds: float) -> list[Telling]:
        async def work(connection: Connection) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
            taken = [
                plain(row.items()) for row in await connection.fetch(self._sql["due_alerts"], limit, lease_seconds)
            ]
            if not taken:
                return [], []
            ids = sorted({row["notification_id"] for row in taken})
            history = await connection.fetch(self._sql["alert_history"], ids)
            return taken, [plain(row.items()) for row in history]

        # Not repeated when the connection breaks: what was taken unheard comes back by itself when its lease ends.
        taken, history = await self._pools.reads.run(work, repeatable=False)
        rows = known(taken)
        if len(rows) < len(taken):
            await self.told([row["outbox_id"] for row in taken if row not in rows])
        return tellings(rows, history)

    async def told(self, alert_ids: Sequence[int]) -> None:
        ids = sorted(alert_ids)
        await self._pools.reads.run(lambda c: c.execute(self._sql["told_alerts"], ids), repeatable=True)

    async def postpone(self, postponed: Sequence[Postponed]) -> None:
        rows = sorted(postponed, key=lambda each: each.alert_id)
        columns: list[list[Any]] = [
            [each.alert_id for each in rows],
            [each.tries for each in rows],
            [joined(each.told) for each in rows],
            [each.seconds for each in rows],
        ]
        await self._pools.reads.run(lambda c: c.execute(self._sql["postpone_alerts"], *columns), repeatable=True)
