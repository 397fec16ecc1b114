"""The loops beside the workers of list queues, under the names the document's schedules have."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeAlias

from carillon.compose.queue_clients import QueueParts
from carillon.domain.errors import LedgerUnavailable
from carillon.domain.events import PartStarted, Trouble
from carillon.domain.ports import Clock, Observer
from carillon.domain.queue_events import QueueDeep, QueueLooked
from carillon.ledger.redis.lists_beat import ListBeat

FIRST_SECONDS, LONGEST_WAIT = 1.0, 5.0
PRUNE_BATCH = 500
MOST_PRUNES = 1000

Step: TypeAlias = Callable[[], Awaitable[object]]
Loop: TypeAlias = Callable[[], Awaitable[None]]


def loops(parts: QueueParts, beat: ListBeat, queues: Sequence[str]) -> list[tuple[str, Loop]]:
    """Each loop with its name; the subscription service calls its pump by another one."""
    times = parts.settings.beat
    pump = "process_delayed_queues" if parts.settings.service == "subscription" else "pump_delayed_queues"
    steps: list[tuple[str, float, Step]] = [
        (pump, times.pump_seconds, beat.pump),
        ("sweep_processing_queues", times.sweep_seconds, beat.sweep),
        ("cleanup_failed_queues", times.cleanup_seconds, partial(_cleanup, parts, beat)),
        # The document's cleanup looks at depths as well: whoever wants the one often gets the other as often.
        ("monitor_queue_depths", min(times.depth_seconds, times.cleanup_seconds), partial(_look, parts, queues)),
    ]
    clock, observe = parts.tools.clock, parts.tools.observe
    return [(name, partial(_again, name, seconds, step, clock, observe)) for name, seconds, step in steps]


async def _again(name: str, every_seconds: float, step: Step, clock: Clock, observe: Observer) -> None:
    """Do it again and again; what goes wrong is told and tried again soon."""
    observe(PartStarted(part=name, detail=f"every {every_seconds:g} s"))
    # Soon after the start: whoever restarts a worker because of what lies there does not want to wait for a minute.
    wait = min(every_seconds, FIRST_SECONDS)
    while True:
        await clock.sleep(wait)
        try:
            await step()
            wait = every_seconds
        except LedgerUnavailable as error:
            wait = min(max(every_seconds, wait * 2), max(every_seconds, LONGEST_WAIT))
            observe(Trouble(where=name, error=str(error), retry_in_seconds=wait))
        except Exception as error:  # noqa: BLE001 - one strange message must not end the upkeep of all others
            observe(Trouble(where=name, error=f"{type(error).__name__}: {error}", retry_in_seconds=wait))


async def _cleanup(parts: QueueParts, beat: ListBeat) -> None:
    await beat.cleanup()
    if parts.ledger is None:
        return
    for _ in range(MOST_PRUNES):
        if await parts.ledger.prune_jobs(parts.settings.beat.job_log_seconds, PRUNE_BATCH) < PRUNE_BATCH:
            return


async def _look(parts: QueueParts, queues: Sequence[str]) -> None:
    limit, observe = parts.settings.beat.depth_limit, parts.tools.observe
    for queue, depth in (await parts.desk.depths(queues)).items():
        observe(
            QueueLooked(
                queue=queue,
                main=depth.main,
                processing=depth.processing,
                delayed=depth.delayed,
                failed=depth.failed,
                oldest_seconds=depth.oldest_seconds,
            )
        )
        if depth.main > limit:
            observe(QueueDeep(queue=queue, depth=depth.main, limit=limit))
