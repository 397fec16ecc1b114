"""The least that can be done with the same tables: claim 1,000, settle 1,000, nothing sent and nothing noted."""

import asyncio
import json
import sys
import time

import asyncpg
import uvloop

BATCH = 1000
CLAIM = """
UPDATE routes r
SET claim_token = nextval('claim_tokens'), attempt_count = attempt_count + 1,
    next_attempt_at = clock_timestamp() + interval '30 seconds', updated_at = clock_timestamp()
WHERE r.ctid = ANY (ARRAY(
    SELECT ctid FROM routes
    WHERE lane = 2 AND provider = $1 AND next_attempt_at IS NOT NULL AND next_attempt_at <= now()
    ORDER BY next_attempt_at LIMIT $2 FOR UPDATE SKIP LOCKED))
RETURNING r.notification_id, r.route_id, r.claim_token
"""
SETTLE = """
UPDATE routes r
SET status = 'published', next_attempt_at = NULL, claim_token = NULL, published_at = clock_timestamp(),
    updated_at = clock_timestamp()
FROM unnest($1::text[], $2::text[], $3::bigint[]) AS s (notification_id, route_id, token)
WHERE r.notification_id = s.notification_id AND r.route_id = s.route_id AND r.claim_token = s.token
"""


async def main(dsn: str, provider: str) -> None:
    claims, settles = await asyncpg.connect(dsn), await asyncpg.connect(dsn)
    for connection in (claims, settles):
        await connection.execute("SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off")
    done, settling = 0, None
    began = time.perf_counter()
    while True:
        rows = await claims.fetch(CLAIM, provider, BATCH)
        if settling is not None:
            await settling
        if not rows:
            break
        done += len(rows)
        settling = asyncio.ensure_future(settles.execute(SETTLE, *[list(column) for column in zip(*rows, strict=True)]))
    seconds = time.perf_counter() - began
    print(json.dumps({"jobs": done, "seconds": seconds, "rate": done / seconds}))
    await claims.close()
    await settles.close()


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], sys.argv[2]))
