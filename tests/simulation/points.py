"""Crash points met inside a simulated world: a process dies there, hangs past its lease, or meets an error."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

import msgspec

from carillon import faultpoint
from carillon.faultpoint import InjectedFault
from tests.simulation.scheduler import OWNER

if TYPE_CHECKING:
    from tests.simulation.world import World

Harm = Literal["kill", "hang", "error"]
HARMS: tuple[Harm, ...] = ("kill", "hang", "error")
HITS = (1, 2, 10)


class Death(BaseException):
    """Unwinds the step in which a process died; nothing that it does on its way has an effect."""


class Armed(msgspec.Struct):
    """One crash point, what happens there and at which pass."""

    point: str
    harm: Harm
    hit: int
    passes: int = 0
    struck: bool = False


@contextmanager
def armed(world: "World", fault: Armed) -> Iterator[None]:
    """Arm one point of the source for all processes of a world; the passes of all of them count."""

    def strike(name: str) -> None:
        owner = OWNER.get()
        if name != fault.point or owner is None or owner.dead:
            return
        fault.passes += 1
        if fault.passes != fault.hit or fault.struck:
            return
        fault.struck = True
        if fault.harm == "kill":
            world.kill(owner)
            raise Death
        if fault.harm == "hang":
            world.hang(owner)
        else:
            world.blame(owner)
            raise InjectedFault(name)

    before = faultpoint._strike, faultpoint._POINTS  # noqa: SLF001 - the seam for tests
    faultpoint._strike = strike  # noqa: SLF001 - as above
    faultpoint._POINTS = {fault.point: ("simulated", fault.hit)}  # noqa: SLF001 - as above
    try:
        yield
    finally:
        faultpoint._strike, faultpoint._POINTS = before  # noqa: SLF001 - as above


@contextmanager
def suspended() -> Iterator[None]:
    """Leave the running task for a while, in the middle of its step, so that others can run."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    if task is not None:
        asyncio.tasks._leave_task(loop, task)  # noqa: SLF001 - as a stopped thread does
    try:
        yield
    finally:
        if task is not None:
            asyncio.tasks._enter_task(loop, task)  # noqa: SLF001 - as above
