"""Drains Celery on Redis of jobs that do nothing."""

import time
from threading import Thread

import redis
from celery import Celery  # type: ignore[import-not-found]

from bench.peers.stopwatch import POLL_SECONDS, Order, Stopwatch, finish, main

PACKAGE = "celery"


def _app(order: Order) -> Celery:
    app = Celery("bench", broker=order.target)
    # The result is printed from inside the worker, which would otherwise take it for a log line.
    app.conf.update(order.settings["conf"], worker_redirect_stdouts=False)
    return app


def _fill(order: Order) -> None:
    app = _app(order)
    with app.producer_pool.acquire(block=True) as producer:
        for number in range(order.jobs):
            app.send_task("job", (number,), producer=producer, ignore_result=True)


def _work(order: Order) -> float:
    """Celery wants the main thread, so the queue is watched from another one, which ends the process."""
    watch = Stopwatch(order.jobs)

    def job(number: int) -> None:  # noqa: ARG001 - the caller decides what a job carries
        watch.tick()

    def watching() -> None:
        client = redis.Redis.from_url(order.target)
        while not watch.ran_all or client.llen("celery") or client.hlen("unacked"):
            time.sleep(POLL_SECONDS)
        finish(PACKAGE, order, watch.stop())

    app = _app(order)
    app.task(name="job", ignore_result=True)(job)
    Thread(target=watching, daemon=True).start()
    app.worker_main(["worker", "--loglevel=WARNING", *order.settings["worker"]])
    raise RuntimeError("Celery's worker stopped before its queue was empty")


if __name__ == "__main__":
    main(PACKAGE, _fill, _work)
