"""Measured without a target: memory, bytes, redelivery after a kill, start-up, SQLite, several processes."""

import asyncio
import os
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import asyncpg

from bench.measure import Figure, Outcome
from bench.ours import drain, drain_sqlite
from bench.stage import carillon, run, wrk
from tests.support.servers import Postgres

PART = "extras"
JOBS = 20_000
LEASE_SECONDS = 3.0
SIZE = """
SELECT sum(pg_total_relation_size(oid)) FROM pg_class
WHERE relname IN ('records', 'routes', 'attempts') AND relkind = 'r'
"""


def measure(postgres: Postgres, progress: Callable[[str], None]) -> Outcome:
    figures: list[Figure] = []

    def note(name: str, unit: str, value: float) -> None:
        figures.append(Figure(PART, name, unit, [value]))

    for what in (_starting, _bytes, _killed):
        progress(f"{PART}: {what.__name__[1:]}")
        what(postgres, note)
    progress(f"{PART}: SQLite")
    with tempfile.TemporaryDirectory() as folder:
        enrolled, drained = drain_sqlite(Path(folder), JOBS)
        note("SQLite, enrolled in batches", "routes/s", enrolled)
        note("SQLite, drained", "routes/s", drained)
        with carillon({"DATABASE_URL": f"sqlite:///{folder}/accept.db"}, "--roles", "doors") as (_, address):
            note("SQLite, accepted over HTTP", "requests/s", wrk(address, 4.0)["rate"])
    for processes in (1, 2, 4):
        progress(f"{PART}: {processes} processes")
        note(f"drained by {processes} processes", "routes/s", drain(postgres.database(), JOBS * 2, processes=processes))
    return Outcome(figures)


def _starting(postgres: Postgres, note: Callable[[str, str, float], None]) -> None:
    dsn = postgres.database()
    began = time.perf_counter()
    with carillon({"DATABASE_URL": dsn}) as (process, address):
        note("start to ready, empty database", "s", time.perf_counter() - began)
        note("memory at rest", "MB", _memory(process.pid))
        wrk(address, 4.0)
        note("memory after 4 s of accepting and delivering", "MB", _memory(process.pid))
    began = time.perf_counter()
    with carillon({"DATABASE_URL": dsn}):
        note("start to ready, tables there", "s", time.perf_counter() - began)


def _bytes(postgres: Postgres, note: Callable[[str, str, float], None]) -> None:
    async def size(dsn: str) -> tuple[int, int]:
        connection = await asyncpg.connect(dsn)
        found = await connection.fetchval(SIZE), await connection.fetchval("SELECT pg_current_wal_lsn() - '0/0'")
        await connection.close()
        return int(found[0]), int(found[1])

    dsn = postgres.database()
    run("fill", dsn, "1", "push", "sandbox", "device-1")
    tables, log = asyncio.run(size(dsn))
    drain(dsn, JOBS)
    grown, written = asyncio.run(size(dsn))
    note("rows written for a notification sent at once", "rows", 2)
    note("tables grown by, with dead rows", "bytes", (grown - tables) / JOBS)
    note("write-ahead log written", "bytes", (written - log) / JOBS)


def _killed(postgres: Postgres, note: Callable[[str, str, float], None]) -> None:
    """A worker dies holding what it claimed; another one waits beside it."""
    dsn = postgres.database()
    run("fill", dsn, "200", "push", "sandbox", "device-1")
    env = {
        "DATABASE_URL": dsn,
        "CARILLON_LEDGER__LEASE_SECONDS": str(LEASE_SECONDS),
        "CARILLON_CONFIG": _short_calls(),
    }
    slow = {**env, "CARILLON_PROVIDERS__SANDBOX__DELAY_SECONDS": "1.5"}
    with carillon(slow, "--roles", "outbound") as (victim, _), carillon(env, "--roles", "doors"):
        asyncio.run(_until(dsn, "SELECT count(*) > 0 FROM routes_held"))
        os.kill(victim.pid, signal.SIGKILL)
        killed = time.perf_counter()
    with carillon(env, "--roles", "outbound"):
        asyncio.run(_until(dsn, "SELECT count(*) = 0 FROM routes WHERE next_attempt_at IS NOT NULL"))
        note(f"kill to last redelivery, lease {LEASE_SECONDS:g} s", "s", time.perf_counter() - killed)


def _short_calls() -> str:
    config = Path(tempfile.mkdtemp(prefix="cb-")) / "bench.toml"
    short = "".join(f'[policy.retry."{name}"]\ntimeout_seconds = 2\n' for name in ("*/*", "*/webhook"))
    config.write_text(f'extends = "local"\n{short}')
    return str(config)


async def _until(dsn: str, question: str) -> None:
    connection = await asyncpg.connect(dsn)
    limit = time.monotonic() + 60
    while not await connection.fetchval(question):
        if time.monotonic() > limit:
            raise RuntimeError(f"not within a minute: {question}")
        await asyncio.sleep(0.02)
    await connection.close()


def _memory(pid: int) -> float:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    return 0.0
