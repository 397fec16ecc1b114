"""Our HTTP client alone, posting to a sink as fast as it goes."""

import asyncio
import json
import sys
import time

import uvloop

from carillon.providers.http import HttpAnswer, HttpClient, HttpRequest

BODY = json.dumps(
    {"type": "welcome", "data": {"notification_id": "0" * 36, "payload": {"name": "Ada", "link": "x" * 25}}}
)


async def main(url: str, calls: int, connections: int) -> None:
    client = HttpClient()
    left = iter(range(calls))
    headers = {"Content-Type": "application/json", "webhook-id": "0" * 36, "webhook-signature": "v1," + "0" * 44}

    async def caller() -> None:
        for _ in left:
            answer = await client.post(HttpRequest(url=url, timeout_seconds=10, body=BODY.encode(), headers=headers))
            if not isinstance(answer, HttpAnswer) or not answer.ok:
                raise RuntimeError(str(answer))

    began = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(connections)))
    seconds = time.perf_counter() - began
    await client.aclose()
    print(json.dumps({"calls": calls, "seconds": seconds, "rate": calls / seconds}))


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
