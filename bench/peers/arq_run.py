"""Drains arq of jobs that do nothing."""

import asyncio
from typing import Any

import uvloop
from arq import Worker, create_pool  # type: ignore[import-not-found]
from arq.connections import RedisSettings  # type: ignore[import-not-found]
from arq.constants import default_queue_name, in_progress_key_prefix  # type: ignore[import-not-found]

from bench.peers.stopwatch import POLL_SECONDS, Order, Stopwatch, finish, main

PACKAGE = "arq"
CHUNK = 500


def _fill(order: Order) -> None:
    async def fill() -> None:
        pool = await create_pool(RedisSettings.from_dsn(order.target))
        for first in range(0, order.jobs, CHUNK):
            numbers = range(first, min(first + CHUNK, order.jobs))
            await asyncio.gather(*(pool.enqueue_job("job", number) for number in numbers))

    uvloop.run(fill())


def _work(order: Order) -> float:
    uvloop.run(_drain(order))
    raise RuntimeError("arq's worker stopped before its queue was empty")


async def _drain(order: Order) -> None:
    watch = Stopwatch(order.jobs)

    async def job(_ctx: dict[Any, Any], number: int) -> None:  # noqa: ARG001 - the caller decides what a job carries
        watch.tick()

    worker = Worker(
        functions=[_named(job)],
        redis_settings=RedisSettings.from_dsn(order.target),
        handle_signals=False,
        log_results=False,
        **order.settings["worker"],
    )
    running = asyncio.create_task(worker.async_run())
    looking = await create_pool(RedisSettings.from_dsn(order.target))
    while (
        not watch.ran_all or await looking.zcard(default_queue_name) or await looking.keys(f"{in_progress_key_prefix}*")
    ):
        if running.done():
            running.result()
        await asyncio.sleep(POLL_SECONDS)
    finish(PACKAGE, order, watch.stop())


def _named(job: Any) -> Any:  # noqa: ANN401 - arq ships no types for it
    job.__qualname__ = "job"
    return job


if __name__ == "__main__":
    main(PACKAGE, _fill, _work)
