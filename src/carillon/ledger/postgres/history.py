"""History as it is read from PostgreSQL."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from carillon.domain.history import Cursor, Ending, Mark
from carillon.ledger.history_rows import ending
from carillon.ledger.postgres.pools import Connection, Pools

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TICK = timedelta(microseconds=1)


class PostgresHistory:
    """Satisfies HistoryLedger."""

    _pools: Pools
    _sql: Mapping[str, str]

    async def take_history(self, owner: str, lease_seconds: float, lag_seconds: float) -> Cursor | None:
        async def work(connection: Connection) -> Cursor | None:
            row = await connection.fetchrow(self._sql["take_history"], owner, lease_seconds)
            if row is None:
                return None
            until = await connection.fetchval(self._sql["history_horizon"], lag_seconds)
            return Cursor(Mark(_us(row["changed_at"]), row["notification_id"], row["route_id"]), _us(until))

        return await self._pools.reads.run(work, repeatable=True)

    async def endings(self, after: Mark, until_us: int, limit: int) -> list[Ending]:
        values = (_moment(after.changed_us), after.notification_id, after.route_id, _moment(until_us), limit)
        rows = await self._pools.reads.run(lambda c: c.fetch(self._sql["endings"], *values), repeatable=True)
        return [ending(row, _us) for row in rows]

    async def advance_history(self, owner: str, to: Mark) -> bool:
        values = (owner, _moment(to.changed_us), to.notification_id, to.route_id)
        moved: Any = await self._pools.reads.run(
            lambda c: c.fetchval(self._sql["advance_history"], *values), repeatable=True
        )
        return moved is not None

    async def rewind_history(self, to_us: int) -> None:
        at = _moment(to_us)
        await self._pools.reads.run(lambda c: c.execute(self._sql["rewind_history"], at), repeatable=True)


def _us(moment: datetime) -> int:
    return (moment - _EPOCH) // _TICK


def _moment(unix_us: int) -> datetime:
    return _EPOCH + unix_us * _TICK
