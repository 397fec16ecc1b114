"""A million notifications of the sse blueprint: what claims, resets, wakes and reads look at stays small."""

import re

import asyncpg
import pytest

from carillon.ledger.postgres.pools import _BY_INDEX, _PER_QUESTION
from carillon.ledger.rows import RECOVERY_HINT
from carillon.ledger.statements import numbered
from tests.support.ledger_engines import PostgresEngine
from tests.support.ledger_postgres import claim_values, connected, fill

pytestmark = pytest.mark.slow

# Half a million that are over, half a million that wait, some in a picker's hands. Few of them need a record, for it is
# routes and logs that are looked for; the planner is told that there are as many records.
MILLION = """
SET session_replication_role = replica;
ALTER TABLE routes DROP CONSTRAINT routes_pkey CASCADE;
INSERT INTO routes (notification_id, route_id, channel, recipient_ref, status, max_attempts, next_attempt_at,
                    created_at, updated_at, lane, provider, policy, budget_since, claim_token,
                    last_error_classification, grp, turn)
SELECT 'n-' || n, 'sse:user:' || n % 5000, 'sse', 'user:' || n % 5000,
       CASE WHEN n % 2 = 0 THEN 'published' ELSE 'pending' END, 3,
       CASE WHEN n % 2 = 0 THEN NULL WHEN n % 1000 = 1 THEN now() + interval '1 hour'
            WHEN n % 10 = 3 THEN now() + interval '1 hour' ELSE now() - n * interval '1 ms' END,
       now(), now(), n % 3 + 1, 'sse', '*/sse', now(), CASE WHEN n % 1000 IN (1, 7) THEN n END,
       CASE WHEN n % 10 = 3 THEN 'throttled' END, n % 5000 + 1,
       CASE WHEN n % 2 = 1 AND n % 10 <> 3 AND n % 1000 NOT IN (1, 7) THEN n % 5000 + 1 END
FROM generate_series(1, 1000000) AS n;
ALTER TABLE routes ADD CONSTRAINT routes_pkey PRIMARY KEY (notification_id, route_id);
INSERT INTO streams SELECT 'u' || n, 100, 0 FROM generate_series(1, 2000) AS n;
INSERT INTO stream_entries (user_id, seq, notification_id, route_id, pushed_at)
SELECT 'u' || n / 100 + 1, n % 100 + 1, 'e-' || n, 'r', now() FROM generate_series(0, 199999) AS n;
INSERT INTO records (notification_id, notification_type, producer, audience_kind, payload_json, request_fingerprint,
                     accepted_at, updated_at, origin, priority, is_bulk)
SELECT 'n-' || n, 't', 'p', 'user', '{}', 'f', now(), now(), 'system', 2, FALSE FROM generate_series(1, 2000) AS n;
"""
TOLD = "UPDATE pg_class SET reltuples = 1000000 WHERE relname = 'records'"
MOST_PAGES = 3500
"""The table of routes has six times as many, and nothing may need what grows with it."""
CLAIM = claim_values([1, 2, 3], "sse", 100, 100)
HOT: list[tuple[str, tuple[object, ...], str]] = [
    ("claim_live", CLAIM, "routes_live_turns_idx"),
    ("reset_expired", (100, RECOVERY_HINT, None), "routes_leased_idx"),
    ("wake", (["user:3", "3"], [None, None]), "routes_held_idx"),
    ("append", (["u7", "u8"], ["x", "y"], ["r", "r"]), "stream_entries_route"),
]
READ: list[tuple[str, tuple[object, ...], str]] = [
    ("read", ("u7", 90, 100), "stream_entries_pkey"),
    ("newest_first", ("u7", None, False, 20), "stream_entries_pkey"),
    ("bounds", (["u7"],), "streams_pkey"),
    ("inbox_counts", (["7", "user:7"], None, "u7"), "stream_entries_pkey"),
    ("waiting", ("3", ["3", "user:3"], None, None, 10), "routes_held_idx"),
    ("waiting", ("3", ["3", "user:3"], None, "n-3", 10), "routes_held_idx"),
    ("acknowledge", ("u7", "e-601"), "stream_entries_route"),
]


@pytest.mark.req("S4-13")
async def test_nothing_looks_at_a_million(postgres_dsn: str) -> None:
    engine = PostgresEngine(postgres_dsn)
    async with engine.ledger():
        pass
    sql = engine.statements()
    async with connected(engine.dsn) as connection:
        await fill(connection, MILLION, "routes", "streams", "stream_entries", "records")
        await connection.execute(TOLD)
    for questions, settings in ((HOT, _BY_INDEX), (READ, _PER_QUESTION)):
        async with connected(engine.dsn, jit="off", **settings) as connection:
            for name, arguments, index in questions:
                plan = await looked_at(connection, numbered(sql[name]).text, *arguments)
                assert index in plan, f"{name}\n{plan}"
                assert "Seq Scan on routes" not in plan, f"{name}\n{plan}"
                assert "Seq Scan on stream_entries" not in plan, f"{name}\n{plan}"
                assert pages_of(plan) <= MOST_PAGES, f"{name}\n{plan}"


# Everybody came at once, and nobody has counted them yet.
CROWD = """
SET session_replication_role = replica;
INSERT INTO routes (notification_id, route_id, channel, recipient_ref, status, max_attempts, next_attempt_at,
                    created_at, updated_at, lane, provider, policy, budget_since)
SELECT 'n-' || n, 'sse:user:' || n % 5000, 'sse', 'user:' || n % 5000, 'pending', 3, now() + interval '1 hour',
       now(), now(), 2, 'sse', '*/sse', now()
FROM generate_series(1, 50000) AS n;
INSERT INTO records (notification_id, notification_type, producer, audience_kind, payload_json, request_fingerprint,
                     accepted_at, updated_at, origin, priority, is_bulk)
SELECT 'n-' || n, 't', 'p', 'user', '{}', 'f', now(), now(), 'system', 2, FALSE FROM generate_series(1, 50000) AS n;
INSERT INTO replicas SELECT 'r' || n, now() + interval '1 hour' FROM generate_series(1, 3) AS n;
INSERT INTO presence SELECT 'user:' || n, 'r' || n % 3 + 1 FROM generate_series(1, 50000) AS n;
"""
FRESH: list[tuple[str, tuple[object, ...], str]] = [
    ("in_turn", (["n-9999"], ["sse:user:4999"], ["user:4999"], [2], [None]), "routes_held_idx"),
    ("where", (["user:7", "user:8"],), "presence_pkey"),
]
FEW_PAGES = 100


@pytest.mark.parametrize("counted", [False, True])
async def test_a_crowd_is_not_looked_at_whole(postgres_dsn: str, *, counted: bool) -> None:
    engine = PostgresEngine(postgres_dsn)
    async with engine.ledger():
        pass
    sql = engine.statements()
    async with connected(engine.dsn) as connection:
        await connection.execute(CROWD + ("ANALYZE;" if counted else ""))
    async with connected(engine.dsn, jit="off", **_BY_INDEX) as connection:
        for name, arguments, index in FRESH:
            plan = await looked_at(connection, numbered(sql[name]).text, *arguments)
            assert index in plan, f"{name}\n{plan}"
            assert pages_of(plan) <= FEW_PAGES, f"{name}\n{plan}"


def pages_of(plan: str) -> int:
    (whole,) = re.findall(r"Buffers: shared (.*)", plan)[:1]
    return sum(int(number) for number in re.findall(r"(?:hit|read)=(\d+)", whole))


async def looked_at(connection: "asyncpg.Connection[asyncpg.Record]", statement: str, *arguments: object) -> str:
    """The plan with the pages it touched; the statement is not executed for good."""
    transaction = connection.transaction()
    await transaction.start()
    try:
        rows = await connection.fetch("EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, BUFFERS) " + statement, *arguments)
    finally:
        await transaction.rollback()
    return "\n".join(row[0] for row in rows)
