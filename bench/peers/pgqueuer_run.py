"""Drains PgQueuer of jobs that do nothing."""

import asyncio
from datetime import timedelta

import asyncpg
import uvloop
from pgqueuer import AsyncpgDriver, PgQueuer, Queries  # type: ignore[import-not-found]

from bench.peers.stopwatch import POLL_SECONDS, Order, Stopwatch, main

CHUNK = 5_000


async def _fill(order: Order) -> None:
    connection = await asyncpg.connect(order.target)
    queries = Queries(AsyncpgDriver(connection))
    await queries.install()
    await queries.optimize_autovacuum()
    for first in range(0, order.jobs, CHUNK):
        size = min(CHUNK, order.jobs - first)
        await queries.enqueue(["job"] * size, [b"%d" % (first + offset) for offset in range(size)], [0] * size)
    await connection.execute("VACUUM ANALYZE")


async def _work(order: Order) -> float:
    watch = Stopwatch(order.jobs)

    # PgQueuer runs plain functions in threads, which is slower.
    async def job(_: object) -> None:
        watch.tick()

    workers = []
    for _ in range(order.settings["managers"]):
        worker = PgQueuer(AsyncpgDriver(await asyncpg.connect(order.target)))
        worker.entrypoint("job")(job)
        workers.append(worker)
    batch_size, timeout = order.settings["batch_size"], timedelta(seconds=order.settings["dequeue_timeout"])
    running = [asyncio.create_task(each.run(batch_size=batch_size, dequeue_timeout=timeout)) for each in workers]
    looking = await asyncpg.connect(order.target)
    while not watch.ran_all or await looking.fetchval("SELECT EXISTS (SELECT FROM pgqueuer)"):
        await asyncio.sleep(POLL_SECONDS)
        for task in running:
            if task.done():
                task.result()
    return watch.stop()


if __name__ == "__main__":
    main("pgqueuer", lambda order: uvloop.run(_fill(order)), lambda order: uvloop.run(_work(order)))
