"""Drains SAQ of jobs that do nothing."""

import asyncio
from typing import Any

import uvloop
from saq import Queue, Worker  # type: ignore[import-not-found]

from bench.peers.stopwatch import POLL_SECONDS, Order, Stopwatch, finish, main

PACKAGE = "saq"
CHUNK = 500


def _queue(order: Order) -> Any:  # noqa: ANN401 - SAQ's factory answers by the address
    return Queue.from_url(order.target, **order.settings["queue"])


def _fill(order: Order) -> None:
    async def fill() -> None:
        queue = _queue(order)
        await queue.connect()
        for first in range(0, order.jobs, CHUNK):
            numbers = range(first, min(first + CHUNK, order.jobs))
            await asyncio.gather(
                *(queue.enqueue("job", number=number, ttl=order.settings["ttl"]) for number in numbers)
            )
        await queue.disconnect()

    uvloop.run(fill())


def _work(order: Order) -> float:
    uvloop.run(_drain(order))
    raise RuntimeError("SAQ's worker stopped before its queue was empty")


async def _drain(order: Order) -> None:
    watch = Stopwatch(order.jobs)

    async def job(_ctx: Any, *, number: int) -> None:  # noqa: ANN401, ARG001 - the caller decides what a job carries
        watch.tick()

    worker = Worker(_queue(order), functions=[("job", job)], **order.settings["worker"])
    # It would take the signals of the whole process.
    worker.SIGNALS = []
    running = asyncio.create_task(worker.start())
    looking = _queue(order)
    await looking.connect()
    while not watch.ran_all or await looking.count("queued") or await looking.count("active"):
        if running.done():
            running.result()
        await asyncio.sleep(POLL_SECONDS)
    finish(PACKAGE, order, watch.stop())


if __name__ == "__main__":
    main(PACKAGE, _fill, _work)
