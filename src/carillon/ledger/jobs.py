"""Job logs and effects of the queues that are in Redis lists."""

import datetime as dt
from collections.abc import Mapping, Sequence

import msgspec

from carillon.domain.job_rows import Effect, JobRow
from carillon.domain.store import Ask, Engine, Row, Steps

_FILTERS = ("queue", "status", "correlation_id", "idempotency_key")
_TIMES = ("next_retry_at", "created_at", "updated_at")


class JobStore:
    """Satisfies JobLedger and Effects."""

    engine: Engine

    async def write_job_logs(self, rows: Sequence[JobRow]) -> None:
        if rows:
            # The same whether it is done once or twice.
            given = [msgspec.structs.asdict(row) for row in rows]
            await self.engine.write("write_job_logs", each=given, repeatable=True, pool="intake")

    async def job_logs(self, filters: Mapping[str, str | None], limit: int) -> list[Row]:
        values = {**{name: filters.get(name) for name in _FILTERS}, "limit": limit}
        return [_with_times(row) for row in await self.engine.rows("job_logs", values)]

    async def begin_effect(self, key: str, holder: str, seconds: float) -> Effect:
        values = {"key": key, "holder": holder, "seconds": seconds}
        if await self.engine.write("begin_effect", values, repeatable=True, pool="intake"):
            return "begun"
        found = await self.engine.one("effect_done", {"key": key}, pool="intake")
        return "done" if found is not None and found["done"] else "busy"

    async def finish_effect(self, key: str, holder: str) -> None:  # noqa: ARG002 - it was done, by any holder
        await self.engine.write("finish_effect", {"key": key}, repeatable=True, pool="intake")

    async def abandon_effect(self, key: str, holder: str) -> None:
        await self.engine.write("abandon_effect", {"key": key, "holder": holder}, repeatable=True, pool="intake")

    async def prune_jobs(self, older_than_seconds: float, limit: int) -> int:
        values = {"older_than_seconds": older_than_seconds, "limit": limit}

        def steps() -> Steps[int]:
            yield Ask("prune_effects", values)
            return len((yield Ask("prune_jobs", values)))

        return await self.engine.change(steps, repeatable=True)


def _with_times(row: Row) -> Row:
    for name in _TIMES:
        if row[name] is not None:
            row[name] = dt.datetime.fromtimestamp(row[name] / 1000, dt.UTC)
    return row
