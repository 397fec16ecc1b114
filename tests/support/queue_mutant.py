"""The program on queues with exactly one guard switched off: `python -m tests.support.queue_mutant NAME`."""

import asyncio
import sys
from collections.abc import Callable

from carillon.domain.jobs import with_attempts
from carillon.ledger.redis import lists_upkeep as redis_lists_beat
from carillon.ledger.redis.scripts import RedisEffects
from carillon.outbound.leases import Leases
from carillon.providers.handlers import Handlers
from tests.support import queue_program
from tests.support.mutant import vars_of


def no_renewal() -> None:
    async def idle(_self: Leases) -> None:
        await asyncio.Event().wait()

    vars_of(Leases, run=idle)


def no_cancelling() -> None:
    vars_of(Handlers, lose=lambda _self, _claim: None)


def no_effects() -> None:
    async def begun(_self: RedisEffects, _key: str, _holder: str, _seconds: float) -> str:
        return "begun"

    vars_of(RedisEffects, begin_effect=begun)


def crashes_are_free() -> None:
    vars(redis_lists_beat)["with_attempts"] = lambda raw, attempts: with_attempts(raw, attempts - 1)


MUTANTS: dict[str, Callable[[], None]] = {
    each.__name__: each for each in (no_renewal, no_cancelling, no_effects, crashes_are_free)
}

if __name__ == "__main__":
    MUTANTS[sys.argv.pop(1)]()
    asyncio.run(queue_program.main())
