"""A loop whose ledger is away says how long it waits, and waits that long, longer each time up to a limit."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn

import pytest

from carillon.domain.errors import LedgerUnavailable
from carillon.domain.events import Event, Trouble
from carillon.domain.lanes import Lane
from carillon.intake.digests import DigestCloser
from carillon.outbound.synchronous import SynchronousSweep
from tests.support.clocks import ManualClock

TRIES = 5
Run = Callable[[], Coroutine[Any, Any, None]]


class AbsentLedger:
    """Whatever it is asked for: it is away."""

    def __getattr__(self, _: str) -> Callable[..., Coroutine[Any, Any, NoReturn]]:
        async def away(*_: object, **__: object) -> NoReturn:
            raise LedgerUnavailable("the ledger is away")

        return away


class EndingClock(ManualClock):
    """Ends the loop after some tries."""

    def __init__(self) -> None:
        super().__init__()
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        if len(self.slept) == TRIES:
            raise asyncio.CancelledError


def sweep(clock: EndingClock, told: list[Event]) -> Run:
    absent: Any = AbsentLedger()
    lane = Lane(rank=0, queue_name="", timeout_seconds=2.0)
    return SynchronousSweep(
        ledger=absent,
        backlog=absent,
        settler=absent,
        lane=lane,
        instead=lane,
        providers=["sandbox"],
        clock=clock,
        observer=told.append,
        owner="here",
    ).run


def digests(clock: EndingClock, told: list[Event]) -> Run:
    absent: Any = AbsentLedger()
    return DigestCloser(absent, absent.accept, clock, told.append, lease_seconds=30.0).run


@pytest.mark.req("P-1021")
@pytest.mark.parametrize("made", [sweep, digests])
async def test_what_is_announced_is_waited(made: Callable[[EndingClock, list[Event]], Run]) -> None:
    clock, told = EndingClock(), list[Event]()
    with pytest.raises(asyncio.CancelledError):
        await made(clock, told)()
    announced = [event.retry_in_seconds for event in told if isinstance(event, Trouble)]
    assert announced == clock.slept == [1.0, 2.0, 4.0, 5.0, 5.0]
