"""The end of job logs: writes in flight are waited for, and a server that does not answer cannot delay the exit."""

import asyncio
from collections.abc import Sequence
from typing import Any

from carillon.domain.events import Event, Trouble
from carillon.domain.jobs import JobMessage, JobRow
from carillon.ledger.jobs import JobLogs
from carillon.system import SystemClock

PATIENCE = 20.0
MESSAGE = JobMessage(id="m1", action="do", attempts=0, payload={})


class Written:
    """Takes entries and rows, unless it is silent; `asked` once there was something for it."""

    def __init__(self, *, silent: bool) -> None:
        self.answers = asyncio.Event()
        if not silent:
            self.answers.set()
        self.asked = asyncio.Event()
        self.entries: list[str] = []
        self.rows: list[JobRow] = []

    async def logged(self, entries: Sequence[str]) -> None:
        await self._answer()
        self.entries += entries

    async def write_job_logs(self, rows: Sequence[JobRow]) -> None:
        await self._answer()
        self.rows += rows

    async def _answer(self) -> None:
        self.asked.set()
        await self.answers.wait()


def logs_of(sink: Written, ledger: Any, told: list[Event]) -> JobLogs:
    """Of one message that was started."""
    logs = JobLogs(service="s", clock=SystemClock(), observer=told.append, sink=sink, ledger=ledger)
    logs.started("q", MESSAGE, 1.0)
    return logs


async def left(sink: Written, ledger: Any, seconds: float) -> list[Event]:
    """What was told while one started message was written down and left."""
    told: list[Event] = []
    logs = logs_of(sink, ledger, told)
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


async def test_what_is_on_its_way_is_waited_for() -> None:
    ledger, told = Written(silent=True), list[Event]()
    logs = logs_of(Written(silent=False), ledger, told)
    async with asyncio.timeout(PATIENCE):
        writing = asyncio.create_task(logs.flush())
        await ledger.asked.wait()
        leaving = asyncio.create_task(logs.leave(PATIENCE))
        await asyncio.wait([leaving], timeout=0.05)
        assert not leaving.done()
        ledger.answers.set()
        await leaving
        assert await writing
    assert [row.message_id for row in ledger.rows] == ["m1"]
    assert not told


async def test_a_row_whose_writing_was_cut_off_is_written_by_the_next() -> None:
    ledger, told = Written(silent=True), list[Event]()
    logs = logs_of(Written(silent=False), ledger, told)
    async with asyncio.timeout(PATIENCE):
        await logs.leave(0.05)
        ledger.answers.set()
        await logs.leave(PATIENCE)
    assert [row.status for row in ledger.rows] == ["processing"]
    assert len(told) == 1


async def test_what_happens_while_a_row_is_written_is_written_too() -> None:
    ledger = Written(silent=True)
    logs = logs_of(Written(silent=False), ledger, [])
    async with asyncio.timeout(PATIENCE):
        writing = asyncio.create_task(logs.flush())
        await ledger.asked.wait()
        logs.gone("q", MESSAGE, 2.0)
        ledger.answers.set()
        assert await writing
    assert [(row.status, row.since) for row in ledger.rows] == [("processing", 1.0), ("dead", 1.0)]
