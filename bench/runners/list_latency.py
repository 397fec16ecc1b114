"""One idle consumer of a Redis list: Carillon's queue, or a bare BLMOVE; prints how late each message came."""

import asyncio
import json
import sys
import time
from collections.abc import Callable

import uvloop
from redis.asyncio import Redis

from carillon.queues import Job, Queues

Note = Callable[[float], None]


async def ours(url: str, queue: str, note: Note) -> None:
    """A worker with its defaults."""
    async with Queues(url, service="bench") as queues:

        @queues.handler(queue)
        async def job(job: Job) -> None:
            note(float(job.payload["at"]))

        await queues.run(asyncio.Event(), lambda: print(json.dumps({"event": "ready"}), flush=True))


async def bare(url: str, queue: str, note: Note) -> None:
    """The least that a reliable queue can do: one blocked call, and the message is in the processing list."""
    async with Redis.from_url(url) as redis:
        print(json.dumps({"event": "ready"}), flush=True)
        while True:
            raw = await redis.blmove(queue, f"{queue}:processing", 0, "RIGHT", "LEFT")
            note(float(json.loads(raw or "{}")["payload"]["at"]))


async def main(kind: str, url: str, queue: str, count: int) -> None:
    late: list[float] = []
    done = asyncio.Event()

    def note(at: float) -> None:
        late.append((time.perf_counter() - at) * 1000)
        if len(late) == count:
            done.set()

    working = asyncio.create_task((ours if kind == "ours" else bare)(url, queue, note))
    waiting = asyncio.create_task(done.wait())
    await asyncio.wait({working, waiting}, return_when=asyncio.FIRST_COMPLETED)
    if working.done():
        working.result()
    print(json.dumps({"late_ms": late}), flush=True)


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
