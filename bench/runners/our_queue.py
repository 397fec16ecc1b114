"""Drains a list queue of Carillon of jobs that do nothing, through its public API."""

import asyncio

import uvloop

from bench.peers.stopwatch import POLL_SECONDS, Order, Stopwatch, finish, main
from carillon.queues import Job, Queues

PACKAGE = "carillon"
QUEUE = "q:bench:job"
CHUNK = 2_000


def _queues(order: Order) -> Queues:
    return Queues(order.target, database_url=order.settings.get("database"), service="bench")


def _fill(order: Order) -> None:
    async def fill() -> None:
        async with _queues(order) as queues:
            for first in range(0, order.jobs, CHUNK):
                numbers = range(first, min(first + CHUNK, order.jobs))
                await asyncio.gather(*(queues.enqueue(QUEUE, {"number": number}, action="job") for number in numbers))

    uvloop.run(fill())


def _work(order: Order) -> float:
    uvloop.run(_drain(order))
    raise RuntimeError("the worker stopped before its queue was empty")


async def _drain(order: Order) -> None:
    watch = Stopwatch(order.jobs)
    async with _queues(order) as queues:

        @queues.handler(QUEUE)
        async def job(job: Job) -> None:  # noqa: ARG001 - it does nothing
            watch.tick()

        running = asyncio.create_task(queues.run(asyncio.Event()))
        while not watch.ran_all or await _left(queues):
            if running.done():
                running.result()
            await asyncio.sleep(POLL_SECONDS)
        finish(PACKAGE, order, watch.stop())


async def _left(queues: Queues) -> int:
    depth = (await queues.inspect([QUEUE]))[QUEUE]
    return depth.main + depth.processing + depth.delayed + depth.failed


if __name__ == "__main__":
    main(PACKAGE, _fill, _work)
