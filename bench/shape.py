"""What the queue's tables cost: log, many groups, an old snapshot, a million waiting, two processes."""

import asyncio
import os
import statistics
import time
from collections.abc import Callable
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import asyncpg

from bench.backlog import lay
from bench.measure import Figure, Outcome, Ratio, interleaved
from bench.ours import QUIET, WIDE, drain, plain
from bench.stage import carillon, run
from tests.support.daemon import children_of
from tests.support.servers import Postgres

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

PART = "shape"
ROUNDS = 3
JOBS = 20_000
GROUPS, WAITING = 100_000, 200_000
SECONDS = 5.0
CHURNED = 1_000_000
CHURN_SECONDS, CHURN_STEP_SECONDS = 240.0, 20.0
"""Beside an open snapshot each route costs more than the one before: a slow machine churns fewer, and says so."""
MILLION, FEW = 1_000_000, 1_000

Say = Callable[[str], None]


def measure(postgres: Postgres, progress: Say) -> Outcome:
    outcome = Outcome()
    for what in (_log, _groups, _snapshot, _memory, _processes):
        progress(f"{PART}: {what.__name__[1:]}")
        outcome.add(what(postgres, progress))
    return outcome


def _log(postgres: Postgres, progress: Say) -> Outcome:
    """Write-ahead log from acceptance to the end, of a success at the first attempt."""
    del progress
    values = []
    for _ in range(ROUNDS):
        dsn = postgres.database()
        run("fill", dsn, "1", "push", "sandbox", "device-1")
        before = _ask(dsn, "SELECT pg_current_wal_lsn() - '0/0'")
        drain(dsn, JOBS)
        values.append((_ask(dsn, "SELECT pg_current_wal_lsn() - '0/0'") - before) / JOBS / 1000)
    figure = Figure(PART, "write-ahead log of a delivered notification", "kB", values)
    return Outcome([figure], [Ratio("shape/log-kB", figure.median, 1.8, at_most=True)])


def _groups(postgres: Postgres, progress: Say) -> Outcome:
    """Claims from a backlog of one group, and from one of a hundred thousand."""
    one, many = (_filled(postgres, WAITING, groups)[0] for groups in (1, GROUPS))
    subjects: dict[str, Callable[[], float]] = {
        "claims, one group": lambda: float(run("churn", one, str(SECONDS))["claims"]),
        f"claims, {GROUPS:,} groups": lambda: float(run("churn", many, str(SECONDS))["claims"]),
    }
    outcome = Outcome(interleaved(PART, "routes/s", subjects, ROUNDS, progress))
    single, spread = (figure.median for figure in outcome.figures)
    outcome.ratios = [Ratio("shape/100k-groups-to-1", spread / single, 0.5)]
    return outcome


def _snapshot(postgres: Postgres, progress: Say) -> Outcome:
    """The same work before a long transaction begins, and after a million routes went by while it was open."""
    dsn, _ = _filled(postgres, JOBS, 1)
    before = [float(run("churn", dsn, str(SECONDS))["rate"]) for _ in range(ROUNDS)]

    async def churn() -> tuple[int, list[float]]:
        async with _old_snapshot(dsn):
            gone, until = 0, time.monotonic() + CHURN_SECONDS
            while gone < CHURNED and time.monotonic() < until:
                progress(f"{PART}: {gone:,} of {CHURNED:,} routes beside an open snapshot")
                found = await asyncio.to_thread(run, "churn", dsn, str(CHURN_STEP_SECONDS))
                gone += sum(found["per_second"])
            rates = [float((await asyncio.to_thread(run, "churn", dsn, str(SECONDS)))["rate"]) for _ in range(ROUNDS)]
            return gone, rates

    gone, during = asyncio.run(churn())
    figures = [
        Figure(PART, "enrol, claim and settle, before the snapshot", "routes/s", before),
        Figure(PART, f"the same, snapshot open, {gone:,} churned", "routes/s", during),
    ]
    said = f"{gone:,} of {CHURNED:,} routes went by in the {CHURN_SECONDS:g} s that it may take"
    share = statistics.median(during) / statistics.median(before)
    ratio = Ratio("shape/open-snapshot", share, 0.7, measured=gone / CHURNED)
    return Outcome(figures, [ratio], {f"{PART}, open snapshot": said})


def _memory(postgres: Postgres, progress: Say) -> Outcome:
    """The program beside a thousand routes that wait, and beside a million."""
    figures = []
    for most in (FEW, MILLION):
        dsn, waiting = _filled(postgres, most, 1)
        progress(f"{PART}: memory beside {waiting:,} waiting")
        env = {"DATABASE_URL": dsn, **QUIET, "CARILLON_PROVIDERS__SANDBOX__DELAY_SECONDS": "2"}
        with carillon(env) as (process, _):
            time.sleep(SECONDS)
            figures.append(Figure(PART, f"memory, {waiting:,} waiting", "MB", [_megabytes(process.pid)]))
    few, million = (figure.median for figure in figures)
    return Outcome(
        figures, [Ratio("shape/memory-1M-to-1k", million / few, 1.2, at_most=True, measured=waiting / MILLION)]
    )


def _processes(postgres: Postgres, progress: Say) -> Outcome:
    """Two processes against one: on all cores together, and with PostgreSQL and Carillon on cores of their own."""
    outcome = _one_and_two(postgres, progress, "not pinned")
    with _apart(postgres) as (theirs, ours):
        if ours:
            outcome.add(_one_and_two(postgres, progress, "pinned"))
    cores = f"{os.cpu_count()} cores"
    words = f"PostgreSQL on {len(theirs)}, Carillon on {len(ours)} of {cores}" if ours else f"{cores}: nothing to pin"
    outcome.settings = {
        PART: f"drains and log with {plain({**QUIET, **WIDE})}; not pinned: both on {cores}; pinned: {words}"
    }
    return outcome


def _one_and_two(postgres: Postgres, progress: Say, how: str) -> Outcome:
    subjects: dict[str, Callable[[], float]] = {
        f"drained by {many}, {how}": lambda many=many: drain(postgres.database(), JOBS * 2, processes=many)  # type: ignore[misc]
        for many in (1, 2)
    }
    outcome = Outcome(interleaved(PART, "routes/s", subjects, ROUNDS, progress))
    one, two = (figure.median for figure in outcome.figures)
    outcome.ratios = [Ratio(f"shape/two-processes-to-one, {how}", two / one, 1.5)]
    return outcome


@contextmanager
def _apart(postgres: Postgres) -> "Iterator[tuple[list[int], list[int]]]":
    """Keep PostgreSQL on one half of the cores, and this process and what it starts on the other."""
    cores = sorted(os.sched_getaffinity(0))
    theirs, ours = cores[: len(cores) // 2], cores[len(cores) // 2 :] if len(cores) > 1 else []
    if ours:
        _pin(postgres, theirs)
        os.sched_setaffinity(0, ours)
    try:
        yield theirs, ours
    finally:
        os.sched_setaffinity(0, cores)
        _pin(postgres, cores)


def _pin(postgres: Postgres, cores: list[int]) -> None:
    for pid in (postgres.pid, *children_of(postgres.pid)):
        with suppress(ProcessLookupError):
            os.sched_setaffinity(pid, cores)


def _filled(postgres: Postgres, waiting: int, groups: int) -> tuple[str, int]:
    """A database with so many routes in the turns of so many groups, and how many they are in truth."""
    dsn = postgres.database()
    run("fill", dsn, "1", "push", "sandbox", "device-1")

    async def fill() -> int:
        connection = await asyncpg.connect(dsn)
        try:
            await connection.execute("TRUNCATE due")
            return await lay(connection, waiting, groups)
        finally:
            await connection.close()

    return dsn, asyncio.run(fill())


@asynccontextmanager
async def _old_snapshot(dsn: str) -> "AsyncIterator[None]":
    connection = await asyncpg.connect(dsn)
    try:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            await connection.fetchval("SELECT count(*) FROM schema_migrations")
            yield
    finally:
        await connection.close()


def _ask(dsn: str, question: str) -> float:
    async def ask() -> float:
        connection = await asyncpg.connect(dsn)
        try:
            return float(await connection.fetchval(question))
        finally:
            await connection.close()

    return asyncio.run(ask())


def _megabytes(pid: int) -> float:
    words = Path(f"/proc/{pid}/smaps_rollup").read_text().split()
    return int(words[words.index("Pss:") + 1]) / 1024
