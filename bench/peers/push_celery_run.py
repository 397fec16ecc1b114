"""Pushes messages with Celery on RabbitMQ: acknowledged late, persistent, on threads of one process."""

import json
import sys

from celery import Celery  # type: ignore[import-not-found,unused-ignore]

from bench.peers.push_job import PushJob, PushOrder

SETTINGS = {
    "task_acks_late": True,
    "task_default_delivery_mode": 2,
    "worker_prefetch_multiplier": 1,
    "broker_transport_options": {"confirm_publish": True},
    "task_ignore_result": True,
    "worker_hijack_root_logger": False,
}


def _app(order: PushOrder) -> Celery:
    app = Celery("bench", broker=order.rabbitmq)
    app.conf.update(SETTINGS)
    return app


def fill(order: PushOrder) -> None:
    app = _app(order)
    with app.producer_pool.acquire(block=True) as producer:
        for number in range(order.messages):
            app.send_task("push", (order.message(number),), producer=producer, ignore_result=True)


def work(order: PushOrder) -> None:
    app = _app(order)
    app.task(name="push", ignore_result=True)(PushJob(order).run)
    options = ("--pool=threads", f"--concurrency={order.threads}", "--without-gossip", "--without-mingle")
    app.worker_main(["worker", "--loglevel=WARNING", *options])


if __name__ == "__main__":
    {"fill": fill, "work": work}[sys.argv[1]](PushOrder(**json.loads(sys.argv[2])))
