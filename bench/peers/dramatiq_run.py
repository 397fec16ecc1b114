"""Drains Dramatiq on Redis of jobs that do nothing."""

import time

import redis
from dramatiq import Message, Worker, actor  # type: ignore[import-not-found]
from dramatiq.brokers.redis import RedisBroker  # type: ignore[import-not-found]

from bench.peers.stopwatch import POLL_SECONDS, Order, Stopwatch, main


def _fill(order: Order) -> None:
    broker = RedisBroker(url=order.target, middleware=[])
    broker.declare_queue("default")
    for number in range(order.jobs):
        broker.enqueue(Message(queue_name="default", actor_name="job", args=(number,), kwargs={}, options={}))


def _work(order: Order) -> float:
    watch = Stopwatch(order.jobs)

    def job(number: int) -> None:  # noqa: ARG001 - the caller decides what a job carries
        watch.tick()

    # Without middleware Dramatiq is at its fastest, and knows no retries; its prefetch comes from the environment.
    broker = RedisBroker(url=order.target, middleware=[])
    actor(job, actor_name="job", queue_name="default", broker=broker)
    Worker(broker, worker_threads=order.settings["worker_threads"]).start()
    looking = redis.Redis.from_url(order.target)
    while not watch.ran_all or looking.hlen("dramatiq:default.msgs"):
        time.sleep(POLL_SECONDS)
    return watch.stop()


if __name__ == "__main__":
    main("dramatiq", _fill, _work)
