"""Claiming from a short backlog and from a long one, and for a whole minute under churn."""

import asyncio
import statistics
import time
from collections.abc import Callable

import asyncpg

from bench.measure import Figure, Outcome, Ratio, interleaved
from bench.stage import run
from tests.support.servers import Postgres

PART = "backlog"
SHORT, LONG = 20_000, 2_000_000
SECONDS, CHURN_SECONDS = 5.0, 60.0
FILL_SECONDS, FILLED_AT_ONCE = 300.0, 50_000
LENGTHEN = """
WITH written AS (
    INSERT INTO records (notification_id, notification_type, producer, audience_kind, payload_json, request_fingerprint,
        accepted_at, updated_at, origin, priority, is_bulk)
    SELECT 'bulk-' || lpad(n::text, 12, '0'), 'welcome', 'system', 'user', '{}', repeat('0', 64),
        now(), now(), 'system', 2, false
    FROM generate_series($1::bigint, $2::bigint) AS n
    RETURNING notification_id
), laid AS (
    INSERT INTO routes (notification_id, route_id, channel, recipient_ref, status, max_attempts, next_attempt_at,
        created_at, updated_at, address, lane, provider, policy, budget_since, message_json, grp, ticket)
    SELECT notification_id, 'push:token:device-1', 'push', 'token:device-1', 'pending', 6, now(),
        now(), now(), 'device-1', 2, 'sandbox', '*/*', now(), '{"text":"Hi Ada"}',
        coalesce(1 + hashtext(notification_id) & $3::int, 0), nextval('claim_tokens')
    FROM written
    RETURNING lane, provider, grp, next_attempt_at, ticket)
INSERT INTO due SELECT * FROM laid
"""


def measure(postgres: Postgres, progress: Callable[[str], None]) -> Outcome:
    """The same enrol, claim and settle each time; only what waits behind it differs."""
    progress(f"{PART}: laying {SHORT:,} and {LONG:,} routes")
    short, few = _filled(postgres, SHORT)
    long, many = _filled(postgres, LONG)
    subjects: dict[str, Callable[[], float]] = {
        f"claims, {few:,} waiting": lambda: float(run("churn", short, str(SECONDS))["claims"]),
        f"claims, {many:,} waiting": lambda: float(run("churn", long, str(SECONDS))["claims"]),
    }
    claims = interleaved(PART, "routes/s", subjects, 3, progress)
    progress(f"{PART}: {CHURN_SECONDS:g} s of churn")
    churn = run("churn", long, str(CHURN_SECONDS))["per_second"]
    first, last = statistics.mean(churn[:5]), statistics.mean(churn[-10:])
    figures = [
        *claims,
        Figure(PART, "enrol, claim and settle, first 5 s", "routes/s", [first]),
        Figure(PART, "enrol, claim and settle, last 10 of 60 s", "routes/s", [last]),
    ]
    ratios = [
        Ratio("backlog/2M-to-20k", claims[1].median / claims[0].median, 0.9, measured=many / LONG),
        Ratio("backlog/churn-60s", last / first, 0.7),
    ]
    return Outcome(figures, ratios, {"backlog": "batches of 500; what is claimed is enrolled anew, so the depth stays"})


def _filled(postgres: Postgres, count: int) -> tuple[str, int]:
    """A database with so many routes that wait, and how many they are in truth."""
    dsn = postgres.database()
    run("fill", dsn, "1", "push", "sandbox", "device-1")
    return dsn, asyncio.run(_lengthen(dsn, count))


async def _lengthen(dsn: str, count: int) -> int:
    connection = await asyncpg.connect(dsn)
    try:
        return await lay(connection, count)
    finally:
        await connection.close()


async def lay(connection: asyncpg.Connection, count: int, groups: int | None = None) -> int:
    """Lay so many more routes into so many groups (rounded up to a power of two); without groups, nobody's.

    Returns how many wait now: fewer where the machine does not lay that many in the time that this may take.
    """
    start = at = await connection.fetchval("SELECT count(*) FROM records WHERE notification_id LIKE 'bulk-%'")
    mask = None if groups is None else (1 << (groups - 1).bit_length()) - 1
    until = time.monotonic() + FILL_SECONDS
    while at < start + count and time.monotonic() < until:
        end = min(at + FILLED_AT_ONCE, start + count)
        await connection.execute(LENGTHEN, at, end - 1, mask)
        at = end
    await connection.execute("VACUUM ANALYZE routes, due")
    await connection.execute("CHECKPOINT")
    return int(at)
