"""A galaxy with exactly one guard switched off: `python -m tests.support.galaxy_mutant NAME serve …`."""

import asyncio
import sys
from collections.abc import Callable, Sequence
from typing import Any

from carillon import cli
from carillon.domain.intents import Arrival, Progress
from carillon.doors.redis_stream import door as redis_stream_door
from carillon.doors.redis_stream import offset as redis_stream_offset
from carillon.doors.redis_stream import wire as redis_stream_wire
from carillon.doors.redis_stream.door import ReadSession
from carillon.doors.redis_stream.offset import Position
from carillon.intake.in_order import OrderedIntake
from carillon.ledger.postgres import pools as postgres_pools
from carillon.ledger.redis import leases as redis_leases
from tests.support import mutant
from tests.support.ending import LATE
from tests.support.mutant import vars_of


def offset_before_commit() -> None:
    offer = ReadSession._offer  # noqa: SLF001 - the guard itself

    async def hasty(self: Any, entries: Sequence[Any]) -> None:
        if entries:
            await self._advance(entries[-1][0], len(entries))
        await offer(self, entries)

    vars_of(ReadSession, _offer=hasty)


def release_without_token() -> None:
    """The value of a route's lease, the same for every holder."""
    _reworded(redis_leases, "elseif holder(key) == value then", "else")


def reader_release_without_token() -> None:
    _reworded(redis_stream_wire, "if holder == ARGV[2] then redis.call('DEL'", "if holder then redis.call('DEL'")


def unanswered_passed() -> None:
    """An entry about whose people nobody could be asked is done with."""
    accept = OrderedIntake.accept_in_order

    async def heedless(self: Any, arrivals: Sequence[Arrival]) -> Progress:
        progress = await accept(self, arrivals)
        return Progress(progress.done + 1) if progress.stopped_by is not None else progress

    vars_of(OrderedIntake, accept_in_order=heedless)


def no_trim_alarm() -> None:
    def easy(position: Position, look: Any, *, arriving: bool) -> tuple[Position, None]:
        return redis_stream_offset.judge(position, look, arriving=arriving)[0], None

    vars(redis_stream_door)["judge"] = easy


def budget_spent_without_redis() -> None:
    """An outage of Redis costs every due route an attempt, as a failed XADD does."""

    async def blind(self: Any, *asked: Any) -> Any:
        return await self._backlog.claim(*asked)

    vars_of(redis_leases.RedisLeases, claim=blind)


def leases_kept() -> None:
    """Nothing is given back, neither after a settlement nor at the end."""

    async def keep(*_: Any) -> None:
        return

    vars_of(redis_leases.RedisLeases, _release=keep)


def left_late() -> None:
    """At its end a process waits for a silent PostgreSQL longer than it may."""
    cut_off = postgres_pools.Pools.cut_off
    vars_of(postgres_pools.Pools, cut_off=lambda self: asyncio.get_running_loop().call_later(LATE, cut_off, self))


def _reworded(module: Any, old: str, new: str) -> None:
    """Change a Lua script before its users are built."""
    script: str = module._SCRIPT  # noqa: SLF001 - the guard itself
    if old not in script:
        raise RuntimeError(f"{module.__name__} has no {old!r} any more; mend the mutant")
    module._SCRIPT = script.replace(old, new)  # noqa: SLF001 - as above


MUTANTS: dict[str, Callable[[], None]] = {
    each.__name__: each
    for each in (
        offset_before_commit,
        release_without_token,
        reader_release_without_token,
        unanswered_passed,
        no_trim_alarm,
        budget_spent_without_redis,
        leases_kept,
        left_late,
    )
}
"""Guards of the galaxy alone."""

SHARED = ("settle_without_token", "id_per_attempt", "no_drain")
"""Guards of the engine that a galaxy needs as well."""

if __name__ == "__main__":
    ({name: mutant.MUTANTS[name] for name in SHARED} | MUTANTS)[sys.argv.pop(1)]()
    cli.main()
