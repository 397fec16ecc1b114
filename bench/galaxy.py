"""The galaxy blueprint from the first XADD to the last published route, beside a script with the same I/O."""

import asyncio
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import asyncpg
from redis.asyncio import Redis as RedisClient

from bench.measure import Figure, Outcome, Ratio, interleaved
from bench.stage import carillon, nginx, started
from tests.support.servers import Postgres, Redis

PART = "galaxy"
INTENTS, ROUTES = 20_000, 80_000
PASSWORD = "bench"  # noqa: S105 - of a private server
STREAM, MAIL = "notification:intents", "mail:delivery_commands"
LIMIT_SECONDS = 240.0
OURS, BARE = "Carillon", "bare reads, SQL and XADDs"
LEFT = "SELECT EXISTS (SELECT 1 FROM notification.routes WHERE next_attempt_at IS NOT NULL)"
LAST = (
    "SELECT extract(epoch FROM max(published_at) - $1)::float8 AS seconds, count(*) AS routes"
    " FROM notification.routes WHERE status = 'published'"
)
PERSON = '{"email":"somebody@example.com","preferred_language":"en"}'
PAYLOAD = '{"game_id":"game-123","game_name":"Nebula Clash","turn_number":54}'

Start = Callable[[], AbstractContextManager[tuple["subprocess.Popen[str]", Any]]]
"""Carillon, or the bare script."""


def measure(postgres: Postgres, progress: Callable[[str], None], rounds: int = 3) -> Outcome:
    """Routes a second in one process; every intent names two users that nobody has asked about before."""
    spent: dict[str, list[float]] = {OURS: [], BARE: []}
    with Redis(password=PASSWORD) as redis, nginx(PERSON) as people:
        address = f"redis://default:{PASSWORD}@127.0.0.1:{redis.port}/0"

        def bare() -> float:
            dsn = postgres.database()
            command = [sys.executable, "-m", "bench.runners.bare_galaxy", dsn, address]
            return _through(dsn, redis, address, lambda: started(command), spent[BARE])

        def ours() -> float:
            dsn = postgres.database()
            env = _environment(dsn, redis.port, people)
            return _through(dsn, redis, address, lambda: carillon(env, "--blueprint", "galaxy"), spent[OURS])

        outcome = Outcome(interleaved(PART, "routes/s", {OURS: ours, BARE: bare}, rounds, progress))
    outcome.figures += [Figure(PART, f"{name}: processor time", "s", each) for name, each in spent.items()]
    outcome.ratios = [Ratio("galaxy/bare-work", outcome.median(OURS) / outcome.median(BARE), 0.3)]
    outcome.settings = {
        PART: f"{INTENTS:,} intents for two users each, {2 * INTENTS:,} people looked up, batches of 500"
    }
    return outcome


def _environment(dsn: str, port: int, people: str) -> dict[str, str]:
    return {
        "NOTIFICATION_REDIS_MASTER_ADDR": f"127.0.0.1:{port}",
        "NOTIFICATION_REDIS_PASSWORD": PASSWORD,
        "NOTIFICATION_POSTGRES_PRIMARY_DSN": f"{dsn}?search_path=notification",
        "NOTIFICATION_USER_SERVICE_BASE_URL": people.rpartition("/")[0],
        "NOTIFICATION_INTERNAL_HTTP_ADDR": "127.0.0.1:0",
        "NOTIFICATION_LOG_LEVEL": "error",
    }


def _through(dsn: str, redis: Redis, address: str, start: Start, spent: list[float]) -> float:
    redis.flush()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with ExitStack() as stack:
        process = stack.enter_context(start())[0]
        seconds = asyncio.run(_published(dsn, address, process))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return ROUTES / seconds


async def _published(dsn: str, address: str, process: "subprocess.Popen[str]") -> float:
    """Seconds by PostgreSQL's clock from before the first XADD to the last settled route."""
    connection, redis = await asyncpg.connect(dsn), RedisClient.from_url(address)
    until = time.monotonic() + LIMIT_SECONDS
    try:
        began = await connection.fetchval("SELECT clock_timestamp()")
        for start in range(0, INTENTS, 500):
            async with redis.pipeline(transaction=False) as pipeline:
                for number in range(start, start + 500):
                    pipeline.xadd(STREAM, _intent(number))
                await pipeline.execute()
        while await redis.xlen(MAIL) < ROUTES // 2 or await connection.fetchval(LEFT):
            if time.monotonic() > until or process.poll() is not None:
                raise RuntimeError("not everything was published in time")
            await asyncio.sleep(0.1)
        row = await connection.fetchrow(LAST, began)
        if row is None or row["routes"] != ROUTES:
            raise RuntimeError(f"{row} instead of {ROUTES} routes")
        return float(row["seconds"])
    finally:
        await connection.close()
        await redis.aclose()


def _intent(number: int) -> Any:  # noqa: ANN401 - a dict that redis-py would have of wider types
    return {
        "notification_type": "game.turn.ready",
        "producer": "game_master",
        "audience_kind": "user",
        "idempotency_key": f"bench-{number}",
        "occurred_at_ms": "1775121700000",
        "payload_json": PAYLOAD,
        "recipient_user_ids_json": json.dumps([f"user-{number}-a", f"user-{number}-b"]),
    }
