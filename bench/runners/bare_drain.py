"""The least that can be done with the same tables: claim 1,000 and settle 1,000, without leases, turns or attempts."""

import asyncio
import json
import sys
import time

import asyncpg
import uvloop

BATCH = 1000
CLAIM = """
WITH gone AS (
    DELETE FROM due WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM due WHERE lane = 2 AND provider = $1 AND due_at <= now()
        ORDER BY grp, due_at LIMIT $2 FOR UPDATE SKIP LOCKED))
    RETURNING ticket
)
SELECT r.ctid, r.ticket, r.notification_id, r.address, r.message_json
FROM gone CROSS JOIN LATERAL (
    SELECT r.*, r.ctid FROM routes r WHERE r.ticket = gone.ticket AND r.next_attempt_at IS NOT NULL OFFSET 0) AS r
"""
SETTLE = """
UPDATE routes r
SET status = 'published', next_attempt_at = NULL, ticket = NULL, published_at = clock_timestamp(),
    updated_at = clock_timestamp()
FROM unnest($1::tid[], $2::bigint[]) AS s (place, ticket)
WHERE r.ctid = s.place AND r.ticket = s.ticket
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
        places, tickets = [row[0] for row in rows], [row[1] for row in rows]
        settling = asyncio.ensure_future(settles.execute(SETTLE, places, tickets))
    seconds = time.perf_counter() - began
    print(json.dumps({"jobs": done, "seconds": seconds, "rate": done / seconds}))
    await claims.close()
    await settles.close()


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], sys.argv[2]))
