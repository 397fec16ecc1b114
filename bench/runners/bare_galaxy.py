"""The least that the galaxy blueprint needs of Redis and PostgreSQL: the same reads, rows and entries, no logic."""

import asyncio
import json
import signal
import sys
from collections.abc import Sequence
from typing import Any

import asyncpg
import uvloop
from redis.asyncio import Redis

from carillon.ledger.opening import open_ledger

BATCH, KEPT = 500, 1024
INTENTS, OFFSET = "notification:intents", "bare:offset"
STREAMS = {"gateway": "gateway:client-events", "mail": "mail:delivery_commands"}
RECORDS = """
INSERT INTO records (notification_id, notification_type, producer, audience_kind, recipient_user_ids, payload_json,
    idempotency_key, request_fingerprint, occurred_at, accepted_at, updated_at, idempotency_expires_at, origin,
    priority, is_bulk)
SELECT n.notification_id, n.notification_type, n.producer, 'user', n.users::jsonb, n.payload, n.key, n.fingerprint,
    now(), now(), now(), now() + interval '168 hours', n.producer, 2, false
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[])
    AS n (notification_id, notification_type, producer, users, payload, key, fingerprint)
ON CONFLICT DO NOTHING
"""
ROUTES = """
INSERT INTO routes (notification_id, route_id, channel, recipient_ref, status, max_attempts, next_attempt_at,
    resolved_locale, created_at, updated_at, address, lane, provider, policy, budget_since)
SELECT r.notification_id, r.route_id, r.channel, r.recipient_ref, 'pending', 3, now(), 'en', now(), now(), r.address, 2,
    r.provider, '*/' || r.channel, now()
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[])
    AS r (notification_id, route_id, channel, recipient_ref, address, provider)
"""
CLAIM = """
UPDATE routes r
SET claim_token = nextval('claim_tokens'), attempt_count = attempt_count + 1, lease_owner = 'bare',
    next_attempt_at = clock_timestamp() + interval '5 seconds', updated_at = clock_timestamp()
FROM records n
WHERE n.notification_id = r.notification_id AND r.ctid = ANY (ARRAY(
    SELECT ctid FROM routes
    WHERE lane = 2 AND provider = $1 AND next_attempt_at IS NOT NULL AND next_attempt_at <= now()
    ORDER BY next_attempt_at LIMIT $2 FOR UPDATE SKIP LOCKED))
RETURNING r.notification_id, r.route_id, r.claim_token, n.notification_type, n.payload_json, r.recipient_ref, r.address
"""
SETTLE = """
UPDATE routes r
SET status = 'published', next_attempt_at = NULL, claim_token = NULL, lease_owner = NULL,
    published_at = clock_timestamp(), updated_at = clock_timestamp()
FROM unnest($1::text[], $2::text[], $3::bigint[]) AS s (notification_id, route_id, token)
WHERE r.notification_id = s.notification_id AND r.route_id = s.route_id AND r.claim_token = s.token
"""
BY_INDEX = (
    "SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off; SET search_path = notification"
)


async def connected(dsn: str) -> "asyncpg.Connection[asyncpg.Record]":
    connection = await asyncpg.connect(dsn)
    await connection.execute(BY_INDEX)
    return connection


async def door(redis: Redis, dsn: str) -> None:
    """Read, insert, move the offset."""
    connection, offset = await connected(dsn), "0-0"
    while True:
        found: Any = await redis.xread({INTENTS: offset}, count=BATCH, block=2000)
        if not found:
            continue
        entries = found[0][1]
        async with connection.transaction():
            await connection.execute(RECORDS, *_columns([_record(one, fields) for one, fields in entries]))
            rows = [
                row for one, fields in entries for row in _routes(one, json.loads(fields["recipient_user_ids_json"]))
            ]
            await connection.execute(ROUTES, *_columns(rows))
        offset = entries[-1][0]
        await redis.set(OFFSET, offset)


def _record(one: str, fields: dict[str, str]) -> tuple[str, ...]:
    words = ("notification_type", "producer", "recipient_user_ids_json", "payload_json", "idempotency_key")
    return (one, *(fields[word] for word in words), "0" * 64)


def _routes(one: str, users: Sequence[str]) -> Sequence[tuple[str, ...]]:
    push = [(one, f"push:user:{user}", "push", f"user:{user}", user, "gateway") for user in users]
    mail = [(one, f"email:user:{user}", "email", f"user:{user}", f"{user}@example.com", "mail") for user in users]
    return push + mail


async def publisher(redis: Redis, dsn: str, provider: str) -> None:
    """Claim, XADD, and settle while the next are claimed."""
    claims, settles = await connected(dsn), await connected(dsn)
    settling: asyncio.Future[Any] | None = None
    while True:
        rows = await claims.fetch(CLAIM, provider, BATCH)
        if not rows:
            await asyncio.sleep(0.02)
            continue
        async with redis.pipeline(transaction=False) as pipeline:
            for row in rows:
                pipeline.xadd(STREAMS[provider], _fields(row), maxlen=KEPT if provider == "gateway" else None)
            await pipeline.execute()
        if settling is not None:
            await settling
        settling = asyncio.ensure_future(settles.execute(SETTLE, *_columns([tuple(row)[:3] for row in rows])))


def _fields(row: Any) -> dict[Any, Any]:  # noqa: ANN401 - a row
    one = f"{row['notification_id']}/{row['route_id']}"
    if row["route_id"].startswith("push"):
        return {
            "user_id": row["address"],
            "event_type": row["notification_type"],
            "event_id": one,
            "payload_bytes": row["payload_json"],
        }
    return {
        "delivery_id": one,
        "source": "notification",
        "payload_mode": "template",
        "idempotency_key": f"notification:{one}",
        "requested_at_ms": "1775121700123",
        "payload_json": f'{{"to":["{row["address"]}"],"variables":{row["payload_json"]}}}',
    }


def _columns(rows: Sequence[tuple[Any, ...]]) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)]


async def main(dsn: str, redis_url: str) -> None:
    ledger = await open_ledger(f"{dsn}?search_path=notification")
    await ledger.migrate()
    await ledger.aclose()
    redis = Redis.from_url(redis_url, decode_responses=True)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    work = [door(redis, dsn), *(publisher(redis, dsn, provider) for provider in STREAMS)]
    tasks = [asyncio.create_task(one) for one in work]
    ending = asyncio.create_task(ended.wait())
    print(json.dumps({"event": "ready"}), flush=True)
    await asyncio.wait([*tasks, ending], return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    failed = [one for one in await asyncio.gather(*tasks, return_exceptions=True) if isinstance(one, Exception)]
    if failed:
        raise failed[0]


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], sys.argv[2]))
