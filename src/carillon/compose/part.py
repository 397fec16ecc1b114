"""A part of a process: what the program opens, runs, stops, watches and serves, and what `carillon doctor` asks."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias

import msgspec

from carillon.domain.ports import Observer
from carillon.ending import ended
from carillon.outbound.shutdown import Deadline
from carillon.upkeep.health import Check
from carillon.upkeep.metrics.meters import Metrics
from carillon.web import Endpoint

if TYPE_CHECKING:
    from carillon.upkeep.health import Checks

Loop: TypeAlias = Callable[[], Awaitable[None]]
LAST_LOOK_SECONDS = 0.5
"""How long the end of a process waits for a health check or depth query under way."""


class Role(StrEnum):
    """A task of a process; a process has all three by default."""

    DOORS = "doors"
    OUTBOUND = "outbound"
    UPKEEP = "upkeep"


class DoctorFinding(msgspec.Struct, frozen=True):
    """The doctor's finding about one part."""

    part: str
    verdict: Literal["ok", "warn", "ill"]
    words: str

    def plain(self) -> dict[str, str]:
        return {"part": self.part, "verdict": self.verdict, "words": self.words}


class PartEnd:
    """The end of one part: how much time is left, and its loops."""

    def __init__(self, deadline: Deadline, loops: "Mapping[str, asyncio.Task[None]]") -> None:
        self.deadline = deadline
        self._loops = loops

    async def finish(self, *names: str, seconds: float | None = None) -> None:
        """Wait until these loops (all of the part by default) return; cancel what takes longer than `seconds`."""
        tasks = [task for name, task in self._loops.items() if not names or name in names]
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)
            await ended(*tasks)


class Part:
    """A subclass overrides what it has; the program does the rest for every part in the same way."""

    title: ClassVar[str] = ""
    """The part's name in the doctor's findings."""
    role: ClassVar[Role | None] = None
    """A process without this role neither opens nor runs the part; None belongs to every process."""

    def refuse(self) -> None:
        """Raise ConfigurationError when the settings cannot work; called before anything is opened."""

    async def open(self, stack: AsyncExitStack) -> None:
        """Build and connect. Raise Unavailable while a server is away: the program waits and opens the part again."""

    def run(self) -> Mapping[str, Loop]:
        """The part's loops by name; the program starts a loop that fails again and reports it under its name."""
        return {}

    async def begun(self) -> None:
        """Return when the loops are working; the process reports ready after that."""

    def rest(self, seconds: float) -> None:
        """Begin no new work: the process ends within `seconds`. The program calls all parts at once."""

    async def stop(self, ending: PartEnd) -> None:
        """Finish the work in flight. The last part of the list stops first; loops that still run are cancelled last."""

    def cut_off(self) -> None:
        """After the deadline: stop waiting for a server that does not answer."""

    def checks(self) -> Mapping[str, Check]:
        """The servers this part depends on: /health asks them, and /readyz names the ones that are away."""
        return {}

    def facts(self) -> Mapping[str, Check]:
        """What /health shows beside the dependencies."""
        return {}

    def gauges(self, metrics: Metrics) -> None:
        """Register the part's gauges."""

    def observers(self) -> Sequence[Observer]:
        """The part's observers, which see every event of the process."""
        return ()

    def endpoints(self) -> list[Endpoint]:
        """The part's endpoints, served by processes with the role doors."""
        return []

    def pages(self) -> Sequence[str]:
        """The console's pages that show this part."""
        return ()

    def health(self, checks: "Checks") -> Endpoint | None:
        """A /health with a body of the blueprint's own."""
        del checks
        return None

    async def examine(self) -> list[DoctorFinding]:
        """The doctor's question, asked of a part that is not open; an error means that the part is ill."""
        return []
