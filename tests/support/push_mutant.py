"""The push worker with exactly one guard switched off: `python -m tests.support.push_mutant NAME serve …`."""

import asyncio
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress

from carillon import cli
from carillon.compose.push_worker import PushWorker
from carillon.ledger.rabbitmq.connection import GONE, Delivery
from carillon.ledger.rabbitmq.deliveries import DeliveryEnds, dead_letter
from carillon.ledger.rabbitmq.marks import MarkAnswer, Marks, MarkStep
from carillon.outbound.shutdown import Deadline
from tests.support.ending import LATE
from tests.support.mutant import answered, nothing_is_paused, vars_of


def no_marks() -> None:
    async def go(_self: Marks, steps: Sequence[MarkStep]) -> list[MarkAnswer]:
        return [MarkAnswer("go" if step.verb == "take" else "done", step.claim) for step in steps]

    vars_of(Marks, run=go)


def ack_before_confirm() -> None:
    async def hasty(self: DeliveryEnds, message: Delivery, reason: str) -> None:
        message.ack()
        with suppress(*GONE):
            await self._connection.publish_failed(dead_letter(message.body, reason, self._clock.wall()))

    vars_of(DeliveryEnds, _dead_lettered=hasty)


def left_late() -> None:
    """At its end a process waits for a silent PostgreSQL longer than it may."""
    leave = PushWorker.leave

    async def late(self: PushWorker, deadline: Deadline) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(answered(self.backlog._audit), LATE)  # noqa: SLF001 - its ledger
        await leave(self, deadline)

    vars_of(PushWorker, leave=late)


MUTANTS: dict[str, Callable[[], None]] = {
    each.__name__: each for each in (no_marks, ack_before_confirm, left_late, nothing_is_paused)
}

if __name__ == "__main__":
    MUTANTS[sys.argv.pop(1)]()
    cli.main()
