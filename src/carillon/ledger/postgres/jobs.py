"""Job logs and effects in PostgreSQL."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from carillon.domain.job_rows import Effect, JobRow
from carillon.ledger.postgres.pools import Pools


class PostgresJobs:
    """Satisfies JobLedger and Effects."""

    _pools: Pools
    _sql: Mapping[str, str]

    async def write_job_logs(self, rows: Sequence[JobRow]) -> None:
        columns = [list(column) for column in zip(*(msgspec.structs.astuple(row) for row in rows), strict=True)]
        if columns:
            # The same whether it is done once or twice.
            await self._pools.intake.run(lambda c: c.execute(self._sql["write_job_logs"], *columns), repeatable=True)

    async def job_logs(self, filters: Mapping[str, str | None], limit: int) -> list[dict[str, Any]]:
        given = [filters.get(name) for name in ("queue", "status", "correlation_id", "idempotency_key")]
        rows = await self._pools.reads.run(lambda c: c.fetch(self._sql["job_logs"], *given, limit), repeatable=True)
        return [dict(row) for row in rows]

    async def begin_effect(self, key: str, holder: str, seconds: float) -> Effect:
        statement = self._sql["begin_effect"]
        begun = await self._pools.intake.run(lambda c: c.fetchval(statement, key, holder, seconds), repeatable=True)
        if begun:
            return "begun"
        done = await self._pools.intake.run(lambda c: c.fetchval(self._sql["effect_done"], key), repeatable=True)
        return "done" if done else "busy"

    async def finish_effect(self, key: str, holder: str) -> None:  # noqa: ARG002 - it was done, whoever says so
        await self._pools.intake.run(lambda c: c.execute(self._sql["finish_effect"], key), repeatable=True)

    async def abandon_effect(self, key: str, holder: str) -> None:
        await self._pools.intake.run(lambda c: c.execute(self._sql["abandon_effect"], key, holder), repeatable=True)

    async def prune_jobs(self, older_than_seconds: float, limit: int) -> int:
        statement = self._sql["prune_jobs"]
        rows = await self._pools.reads.run(lambda c: c.fetch(statement, older_than_seconds, limit), repeatable=True)
        return len(rows)
