"""Carillon's own drains: a filled ledger, the real program, and the ledger's word for how long it took."""

import asyncio
import base64
import tempfile
import time
from pathlib import Path
from typing import Any

import asyncpg

from bench.stage import carillon, run
from tests.support.ports import free_port

LIMIT_SECONDS = 240.0
LEFT = "SELECT EXISTS (SELECT 1 FROM routes WHERE next_attempt_at IS NOT NULL)"
# Not a count: looked at ten times a second, that would take a twentieth of what is being measured.
TOOK = """
SELECT count(*), extract(epoch FROM max(published_at) - min(published_at))::float8
FROM routes WHERE status = 'published'
"""
QUIET = {"CARILLON_PROVIDERS__SANDBOX__KEEP": "0"}
# Peers run in their fastest documented settings, and so do we: with half as much in hand a worker that is alone on its
# machine waits for commits a fifth of the time.
WIDE = {"CARILLON_WORK__CONCURRENCY": "2000", "CARILLON_WORK__BATCH": "1000"}
WEBHOOKS = {"concurrency_per_endpoint": 100}
"""All calls of the bench go to one endpoint; graphile-worker makes as many at once."""
SECRET = "whsec_" + base64.b64encode(b"bench" * 6).decode()


def webhook(url: str, folder: Path) -> Path:
    """Settings that let the webhook provider call a sink on loopback as fast as it can."""
    port = url.rpartition(":")[2].partition("/")[0]
    config = folder / "bench.toml"
    config.write_text(
        'extends = "local"\n'
        "[providers.webhook]\n"
        f'secrets = ["{SECRET}"]\nallow_http = true\nallow_networks = ["127.0.0.0/8"]\nallow_ports = [{port}]\n'
        + "".join(f"{name} = {value}\n" for name, value in WEBHOOKS.items())
    )
    return config


def drain(dsn: str, jobs: int, url: str | None = None, processes: int = 1) -> float:
    """Routes a second, from the first settled to the last."""
    channel, provider, address = ("push", "sandbox", "device-1") if url is None else ("webhook", "webhook", url)
    run("fill", dsn, str(jobs), channel, provider, address)
    args = ["--roles", "outbound"]
    env = {"DATABASE_URL": dsn, **QUIET, **WIDE}
    if processes > 1:
        args += ["--processes", str(processes)]
        env["CARILLON_HTTP__PORT"] = str(free_port())
    with tempfile.TemporaryDirectory() as folder:
        if url is not None:
            args += ["--config", str(webhook(url, Path(folder)))]
        with carillon(env, *args):
            return asyncio.run(finished(dsn, jobs))


async def finished(dsn: str, jobs: int) -> float:
    """Wait for the end of the backlog, or of a slow machine's time; routes a second by the ledger's own times."""
    connection = await asyncpg.connect(dsn)
    until = time.monotonic() + LIMIT_SECONDS
    try:
        while await connection.fetchval(LEFT):
            if time.monotonic() > until:
                break
            await asyncio.sleep(0.1)
        row = await connection.fetchrow(TOOK)
        done, seconds = (0, 0.0) if row is None else (int(row[0]), float(row[1] or 0.0))
        if done < jobs / 10:
            raise RuntimeError(f"{done} of {jobs} routes were drained in {LIMIT_SECONDS:g} s")
        return done / seconds
    finally:
        await connection.close()


def drain_sqlite(folder: Path, jobs: int) -> tuple[float, float]:
    """Enrolments and routes a second on SQLite."""
    import sqlite3  # noqa: PLC0415 - only here

    path = folder / f"bench-{time.monotonic_ns()}.db"
    filled = run("fill", f"sqlite:///{path}", str(jobs), "push", "sandbox", "device-1")
    with carillon({"DATABASE_URL": f"sqlite:///{path}", **QUIET}, "--roles", "outbound"):
        connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        until = time.monotonic() + LIMIT_SECONDS
        while connection.execute(LEFT).fetchone()[0] and time.monotonic() < until:
            time.sleep(0.1)
        done, first, last = connection.execute(
            "SELECT count(published_at), min(published_at), max(published_at) FROM routes"
        ).fetchone()
        connection.close()
    return filled["rate"], done / ((last - first) / 1000)


def plain(value: Any) -> str:  # noqa: ANN401 - settings of peers are whatever they are
    return ", ".join(f"{name}={held}" for name, held in value.items()) if isinstance(value, dict) else str(value)
