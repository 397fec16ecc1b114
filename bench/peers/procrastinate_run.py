"""Drains Procrastinate of jobs that do nothing."""

import asyncio
import logging

import asyncpg
import uvloop
from procrastinate import App, PsycopgConnector  # type: ignore[import-not-found]

from bench.peers.stopwatch import POLL_SECONDS, Order, Stopwatch, main

CHUNK = 1_000
REMAINING = "SELECT EXISTS (SELECT FROM procrastinate_jobs WHERE status IN ('todo', 'doing'))"


def _app(order: Order) -> App:
    size = order.settings["pool_size"]
    return App(connector=PsycopgConnector(conninfo=order.target, min_size=size, max_size=size))


async def _fill(order: Order) -> None:
    app = _app(order)
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        deferrer = app.configure_task("job", allow_unknown=True)
        for first in range(0, order.jobs, CHUNK):
            size = min(CHUNK, order.jobs - first)
            await deferrer.batch_defer_async(*({"number": first + offset} for offset in range(size)))
    connection = await asyncpg.connect(order.target)
    await connection.execute("VACUUM ANALYZE")


async def _work(order: Order) -> float:
    watch = Stopwatch(order.jobs)

    # Procrastinate runs plain functions in threads, which is slower.
    async def job(number: int) -> None:  # noqa: ARG001 - the caller decides what a job carries
        watch.tick()

    app = _app(order)
    app.task(name="job")(job)
    looking = await asyncpg.connect(order.target)
    async with app.open_async():
        running = asyncio.create_task(app.run_worker_async(install_signal_handlers=False, **order.settings["worker"]))
        while not watch.ran_all or await looking.fetchval(REMAINING):
            await asyncio.sleep(POLL_SECONDS)
            if running.done():
                running.result()
        seconds = watch.stop()
        running.cancel()
        return seconds


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    main("procrastinate", lambda order: uvloop.run(_fill(order)), lambda order: uvloop.run(_work(order)))
