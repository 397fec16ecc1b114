"""The last of the job logs: a silent Redis keeps nothing from the ledger, and neither keeps a process from its end."""

import asyncio
from collections.abc import Sequence
from typing import Any

from carillon.domain.events import Event, Trouble
from carillon.domain.job_rows import JobRow
from carillon.domain.jobs import JobMessage
from carillon.ledger.job_logs import JobLogs
from carillon.system import SystemClock

PATIENCE = 20.0
MESSAGE = JobMessage(id="m1", action="do", attempts=0, payload={})


class Written:
    """Takes entries and rows, unless it is silent."""

    def __init__(self, *, silent: bool) -> None:
        self.silent = silent
        self.entries: list[str] = []
        self.rows: list[JobRow] = []

    async def logged(self, entries: Sequence[str]) -> None:
        await self._answer()
        self.entries += entries

    async def write_job_logs(self, rows: Sequence[JobRow]) -> None:
        await self._answer()
        self.rows += rows

    async def _answer(self) -> None:
        if self.silent:
            await asyncio.Event().wait()


async def left(sink: Written, ledger: Any, seconds: float) -> list[Event]:
    """What was told while one started message was written down and left."""
    told: list[Event] = []
    logs = JobLogs(service="s", clock=SystemClock(), observer=told.append, sink=sink, ledger=ledger)
    logs.started("q", MESSAGE, 1.0)
    async with asyncio.timeout(PATIENCE):
        await logs.leave(seconds)
    return told


async def test_everything_is_written_where_both_answer() -> None:
    sink, ledger = Written(silent=False), Written(silent=False)
    assert await left(sink, ledger, PATIENCE) == []
    assert (len(sink.entries), [row.message_id for row in ledger.rows]) == (1, ["m1"])


async def test_a_silent_redis_keeps_no_row_from_the_ledger() -> None:
    sink, ledger = Written(silent=True), Written(silent=False)
    (said,) = await left(sink, ledger, 0.05)
    assert isinstance(said, Trouble)
    assert said.where == "job_logs"
    assert [row.message_id for row in ledger.rows] == ["m1"]


async def test_a_silent_ledger_is_left() -> None:
    sink = Written(silent=False)
    (said,) = await left(sink, Written(silent=True), 0.05)
    assert isinstance(said, Trouble)
    assert len(sink.entries) == 1
