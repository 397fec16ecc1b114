"""The least between being told and telling: INSERT, COMMIT, POST, one after the other."""

import asyncio
import json
import sys
import time

import asyncpg
import uvloop

from bench.runners.fill import MESSAGE, PAYLOAD
from carillon.providers.http import HttpClient, HttpRequest
from carillon.system import new_id

INSERT = """
INSERT INTO records (notification_id, notification_type, producer, audience_kind, payload_json, request_fingerprint,
    accepted_at, updated_at, origin, priority, is_bulk)
VALUES ($1, 'welcome', 'bare', 'user', $2, $3, clock_timestamp(), clock_timestamp(), 'system', 2, false)
"""


async def main(dsn: str, url: str, count: int) -> None:
    connection = await asyncpg.connect(dsn)
    client = HttpClient()
    took: list[float] = []
    for _ in range(count):
        one = new_id()
        began = time.perf_counter()
        await connection.execute(INSERT, one, PAYLOAD, "0" * 64)
        headers = {"Content-Type": "application/json", "webhook-id": one}
        await client.post(HttpRequest(url=url, timeout_seconds=10, body=MESSAGE.encode(), headers=headers))
        took.append((time.perf_counter() - began) * 1000)
        await asyncio.sleep(0.005)
    print(json.dumps({"took_ms": took}))
    await client.aclose()
    await connection.close()


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
