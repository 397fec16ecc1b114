"""Reliable queues in Redis for any team's own work: declare a policy, register a handler, enqueue, run.

queues = Queues("redis://127.0.0.1:6379/0", policies={"q:shop:invoice": Policy(max_retries=3)})

@queues.handler("q:shop:invoice")
async def invoice(job: Job) -> None: ...

await queues.enqueue("q:shop:invoice", {"order": 7}, action="write")
await queues.run(stop)
"""

from carillon.domain.jobs import BadMessage, JobMessage, Permanent
from carillon.domain.queue_policy import Beat, Policy
from carillon.domain.queues import Depth, FailedMessage
from carillon.providers.handlers import EffectBusy, Job
from carillon.queues.api import Queues

__all__ = [
    "BadMessage",
    "Beat",
    "Depth",
    "EffectBusy",
    "FailedMessage",
    "Job",
    "JobMessage",
    "Permanent",
    "Policy",
    "Queues",
]
