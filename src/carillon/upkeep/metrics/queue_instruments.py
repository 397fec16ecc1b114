"""What is counted of list queues, and under which names it leaves."""

from typing import Final

from carillon.upkeep.metrics.instruments import Instrument

ATTRIBUTES: Final[dict[str, tuple[str, ...]]] = {
    "queue_depth": ("queue", "place"),
    "queue_oldest": ("queue",),
    "queue_runs": ("queue", "result"),
    "queue_failure_rate": ("queue",),
    "queue_swept": ("queue", "verdict"),
    "queue_run_duration": ("queue", "result"),
    "queue_retry_delay": ("queue",),
    "queue_retry_latency": ("queue",),
    "webhook_duration": ("kind", "result"),
}
QUEUES: Final[dict[str, Instrument]] = {
    "queue_depth": Instrument(
        "carillon.queue.depth", "{message}", "Messages in main, processing, delayed and failed, as last looked at"
    ),
    "queue_oldest": Instrument("carillon.queue.oldest_age", "s", "How old the next message of the main list is"),
    "queue_runs": Instrument("carillon.queue.runs", "{run}", "Runs of handlers by what came of them"),
    "queue_failure_rate": Instrument(
        "carillon.queue.failure_rate", "1", "Share of the last five minutes' runs that failed"
    ),
    "queue_swept": Instrument("carillon.queue.swept", "{message}", "Messages whose worker died"),
    "queue_run_duration": Instrument("carillon.queue.run.duration", "s", "How long handlers took"),
    "queue_retry_delay": Instrument("carillon.queue.retry.delay", "s", "How long failed messages are made to wait"),
    "queue_retry_latency": Instrument(
        "carillon.queue.retry.latency", "s", "How long after its time a waiting message was back in its queue"
    ),
    "webhook_duration": Instrument("carillon.webhook.duration", "s", "How long neighbours took to answer webhooks"),
}
