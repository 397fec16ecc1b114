"""The push worker with exactly one guard switched off: `python -m tests.support.push_mutant NAME serve …`."""

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress

from carillon import cli
from carillon.compose import push
from carillon.ledger.postgres_pools import Pools
from carillon.ledger.rabbitmq_acks import GONE, Delivery
from carillon.ledger.rabbitmq_deliveries import dead_letter
from carillon.ledger.rabbitmq_marks import Marks, Said, Step
from carillon.ledger.rabbitmq_partings import Partings
from tests.support.mutant import answered, vars_of


def no_marks() -> None:
    async def go(_self: Marks, steps: Sequence[Step]) -> list[Said]:
        return [Said("go" if step.verb == "take" else "done", step.claim) for step in steps]

    vars_of(Marks, run=go)


def ack_before_confirm() -> None:
    async def hasty(self: Partings, message: Delivery, reason: str) -> None:
        message.ack()
        with suppress(*GONE):
            await self._line.publish_failed(dead_letter(message.body, reason, self._clock.wall()))

    vars_of(Partings, _parked=hasty)


def silence_waited_out() -> None:
    """At its end a process waits for whatever the silent owe it."""
    vars_of(Pools, cut_off=lambda _self: None)
    vars_of(push.PushProgram, _leave=lambda _self, backlog: answered(backlog._audit))  # noqa: SLF001 - its ledger


MUTANTS: dict[str, Callable[[], None]] = {
    each.__name__: each for each in (no_marks, ack_before_confirm, silence_waited_out)
}

if __name__ == "__main__":
    MUTANTS[sys.argv.pop(1)]()
    cli.main()
