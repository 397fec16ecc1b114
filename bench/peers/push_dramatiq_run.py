"""Pushes messages with Dramatiq on RabbitMQ: acknowledged late, persistent, on threads of one process."""

import json
import sys
import threading

from dramatiq import Message, Worker, actor  # type: ignore[import-not-found,unused-ignore]
from dramatiq.brokers.rabbitmq import RabbitmqBroker  # type: ignore[import-not-found,unused-ignore]

from bench.peers.push_job import PushJob, PushOrder

QUEUE = "dramatiq-push"


def _broker(order: PushOrder) -> RabbitmqBroker:
    # Without middleware Dramatiq is at its fastest, and knows no retries.
    return RabbitmqBroker(url=order.rabbitmq, middleware=[], confirm_delivery=True)


def fill(order: PushOrder) -> None:
    broker = _broker(order)
    broker.declare_queue(QUEUE, ensure=True)
    for number in range(order.messages):
        message = Message(queue_name=QUEUE, actor_name="push", args=(order.message(number),), kwargs={}, options={})
        broker.enqueue(message)
    broker.close()


def work(order: PushOrder) -> None:
    broker = _broker(order)
    actor(PushJob(order).run, actor_name="push", queue_name=QUEUE, broker=broker)
    Worker(broker, worker_threads=order.threads).start()
    threading.Event().wait()


if __name__ == "__main__":
    {"fill": fill, "work": work}[sys.argv[1]](PushOrder(**json.loads(sys.argv[2])))
