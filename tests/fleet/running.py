"""One run: a fleet under steady load and one fault after another, then quiet, then the checker's figures."""

import asyncio
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from tests.fleet import checker, crews, doors, faults
from tests.fleet.ordeal import CALM, LONGER, Aside, Ordeal, Suffered
from tests.fleet.topology import Servers, SmallDisk
from tests.fleet.world import World
from tests.support.process import Program

ROOT = Path(__file__).parents[2]
PRIORITY = -10
LONGEST_REST = 120.0
QUIET = 60.0
"""Seconds after the last fault in which everything must have ended."""
LONGEST_QUIET = 180.0
"""So long it is waited for, to say how late it was."""
LONGEST_CHECK = 600.0


@dataclass(frozen=True)
class Plan:
    """What a run does; `seconds` of faults, `rate` a second over all doors."""

    seconds: float
    rate: float
    size: int = 3
    seed: int = 1
    short: bool = False
    names: tuple[str, ...] = tuple(crews.EVERY)
    only: str = ""
    """Parts of the names of faults, between commas: each of these strikes at least once."""
    forked: bool = True
    """Whether processes are forked, which is quick; otherwise all the memory of each is its own."""
    older: str = "HEAD"
    least: int = 0
    """The load goes on after the time until so many were accepted."""
    ends_on_signals: bool = False
    """Whether SIGINT and SIGTERM end the faults early, and the figures follow."""
    keep: str = ""
    """A folder that gets the journals, ledgers, windows and logs of the run."""


@dataclass
class Outcome:
    """What a run has shown."""

    plan: Plan
    figures: dict[str, checker.Figures]
    seconds: float
    quiet_seconds: float
    """How long after the end of the load everything was terminal."""
    suffered: Suffered
    restarts: int = 0
    exits: list[int | None] = field(default_factory=list)
    """None is a process that did not end."""

    @property
    def faults(self) -> list[str]:
        return self.suffered.faults

    @property
    def accepted(self) -> int:
        return sum(each.accepted for each in self.figures.values())

    @property
    def sound(self) -> bool:
        return not self.wrong()

    def wrong(self) -> str:
        """What does not hold and what did not heal by itself, in words."""
        return "\n".join([*self.broken(), *self.suffered.troubles])

    @property
    def verdict(self) -> str:
        return "something does not hold" if self.broken() else "everything holds"

    def broken(self) -> list[str]:
        """The promises that Carillon did not keep; a server that does not come back is none of them."""
        said = [
            f"{crew}: {name} {len(found)}: {found[:3]}"
            for crew, each in self.figures.items()
            for name in (*checker.WRONGS, "gone")
            if (found := getattr(each, name))
        ]
        if self.quiet_seconds > QUIET:
            said.append(f"everything was terminal only after {self.quiet_seconds:.0f} s")
        if None in self.exits:
            said.append(f"{self.exits.count(None)} processes did not end within a minute")
        return said


class Fleet:
    """Servers, vendors, crews and producers; `folder` holds everything that the checker reads."""

    def __init__(self, servers: Callable[[], Servers], plan: Plan, say: Callable[[str], None]) -> None:
        self.plan, self.say = plan, say
        self.folder = Path(tempfile.mkdtemp(prefix="cn-fleet-"))
        self.folder.chmod(0o755)
        self._make = servers
        self._stack = AsyncExitStack()
        self.dice = random.Random(plan.seed)
        self._aside = Aside()
        self.doors: list[doors.Door] = []
        self.crews: list[crews.Crew] = []
        self.world: World
        self.supervisor: crews.Supervisor
        self.ordeal: Ordeal

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _start(self) -> None:
        stack, plan = self._stack, self.plan
        stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
        began = time.monotonic()
        disk = SmallDisk(self.folder)
        stack.callback(disk.close)
        servers = stack.enter_context(self._make())
        self.say(f"servers ready after {time.monotonic() - began:.0f} s")
        vendors = stack.enter_context(crews.Vendors(self.folder))
        shares = sum(doors.EVERY[name].share for name in plan.names)
        for name in plan.names:
            crew = crews.EVERY[name](self.folder, servers, vendors, plan.size)
            crew.forked = plan.forked
            stack.callback(crew.close)
            self.crews.append(crew)
            rate = plan.rate * doors.EVERY[name].share / shares
            door = doors.EVERY[name](crew, self.folder, rate, self.dice)
            self.doors.append(door)
        for door in self.doors:
            await door.open()
            stack.push_async_callback(door.aclose)
        # The first process of each crew makes its tables before the others look for them.
        for number in range(plan.size):
            for crew in self.crews:
                crew.start(number)
            await asyncio.gather(*(asyncio.to_thread(crew.wait_ready) for crew in self.crews))
        self.supervisor = stack.enter_context(crews.Supervisor(self.crews))
        older = None if plan.older == "HEAD" else faults.source_of(plan.older, self.folder)
        self.world = World(servers, vendors, self.crews, disk, self.dice, older)
        self.ordeal = Ordeal(self.world, self._aside, self.folder / "windows.jsonl", self._say_with_count)
        self._describe(servers)
        _come_first(self._aside.thread_id, self.supervisor.thread_id)
        for number in (signal.SIGINT, signal.SIGTERM) if plan.ends_on_signals else ():
            asyncio.get_running_loop().add_signal_handler(number, self._told_to_end)
        self.say(f"{len(self.crews) * plan.size} processes ready after {time.monotonic() - began:.0f} s")

    def _say_with_count(self, text: str) -> None:
        self.say(f"{text}; {self.accepted} accepted")

    def _told_to_end(self) -> None:
        """The first time the fault under way ends and the figures follow; the second time everything ends at once."""
        self.say("ending after this fault; once more ends at once")
        self.ordeal.end("it was told to end")
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().remove_signal_handler(number)
            signal.signal(number, signal.default_int_handler)

    def _describe(self, servers: Servers) -> None:
        stores = {
            crew.name: {"url": crew.url, "schema": crew.schema, "redis": servers.redis_url(1)} for crew in self.crews
        }
        (self.folder / "stores.json").write_text(json.dumps(stores))

    async def settle(self) -> tuple[dict[str, checker.Figures], float]:
        """Wait until nothing is open any more; the figures, and how long that took."""
        began, at = time.monotonic(), time.time()
        while True:
            took = time.monotonic() - began
            figures = await self._checked()
            # What a broker still holds has no row yet: it is lost only if none comes.
            left = sum(len(each.lost) + len(each.unfinished) + len(each.never_sent) for each in figures.values())
            if not left or took > LONGEST_QUIET:
                # A look at two million rows takes minutes: what ended meanwhile had ended before.
                last = max((each.last_ended for each in figures.values()), default=0.0)
                return figures, took if left else min(took, max(0.0, last - at))
            self.say(f"         {left} not yet at their end after {took:.0f} s")
            await asyncio.sleep(1)

    async def _checked(self) -> dict[str, checker.Figures]:
        """In a process of its own: reading everything here would hold up vendors and relays, which others wait for."""
        command = ("nice", "-n", str(-PRIORITY), sys.executable, "-m", "tests.fleet.checker", str(self.folder))
        pipe = asyncio.subprocess.PIPE
        child = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=pipe, stderr=pipe)
        try:
            text, errors = await asyncio.wait_for(child.communicate(), LONGEST_CHECK)
        finally:
            if child.returncode is None:
                child.kill()
        if not text:
            raise RuntimeError(f"the checker: {errors.decode()[-500:]}")
        return checker.read(text.decode())

    @property
    def accepted(self) -> int:
        return sum(door.journal.accepted for door in self.doors)

    def keep(self, folder: Path) -> None:
        """What explains the figures: everything that the checker read, and what the processes said last."""
        folder.mkdir(parents=True, exist_ok=True)
        for file in self.folder.glob("*.json*"):
            shutil.copy(file, folder)
        for crew in self.crews:
            for number, program in enumerate(crew.programs):
                if program is not None:
                    (folder / f"log-{crew.name}-{number}.jsonl").write_text(program.tail(100_000))

    async def end(self) -> list[int | None]:
        """Every process is told to stop; their exit codes, None for one that does not end."""
        programs = []
        for crew in self.crews:
            crew.absent |= set(range(crew.size))
            programs += [program for _, program in crew.alive()]
        for program in programs:
            program.terminate()

        def code(program: Program) -> int | None:
            with suppress(subprocess.TimeoutExpired):
                return program.wait(60)
            return None

        return list(await asyncio.gather(*(asyncio.to_thread(code, program) for program in programs)))


def _come_first(*others: int | None) -> None:
    """Producers, relays and vendors come before what is measured: where the machine is full, they must not be late.

    The threads that start processes and servers do not: what they start would have their priority.
    """
    for task in Path("/proc/self/task").iterdir():
        if int(task.name) not in others:
            with suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, int(task.name), PRIORITY)


def _more(fleet: Fleet, chosen: int) -> Callable[[int, float], bool]:
    """Whether another fault follows."""
    plan = fleet.plan
    least = chosen if plan.only else 1

    def more(turn: int, seconds: float) -> bool:
        short = fleet.accepted < plan.least and seconds < plan.seconds * LONGER
        return turn < least or seconds < plan.seconds or short

    return more


async def run(servers: Callable[[], Servers], plan: Plan, say: Callable[[str], None] = print) -> Outcome:
    async with Fleet(servers, plan, say) as fleet:
        over = asyncio.Event()
        began = time.monotonic()
        load = [asyncio.create_task(door.run(over.is_set)) for door in fleet.doors]
        chosen = faults.applicable(fleet.world, short=plan.short, only=plan.only)
        await asyncio.sleep(CALM)
        await fleet.ordeal.suffer(chosen, _more(fleet, len(chosen)))
        await asyncio.sleep(CALM)
        patience = time.monotonic() + LONGEST_REST
        suffered = fleet.ordeal.suffered
        while not suffered.ended_early and fleet.accepted < plan.least and time.monotonic() < patience:  # noqa: ASYNC110 - journals tell nobody
            await asyncio.sleep(0.5)
        over.set()
        await asyncio.gather(*load)
        return await concluded(fleet, time.monotonic() - began)


async def concluded(fleet: Fleet, seconds: float) -> Outcome:
    """What the checker says after the load has ended; whatever fails here is a trouble among others."""
    suffered = fleet.ordeal.suffered
    figures: dict[str, checker.Figures] = {}
    quiet = 0.0
    try:
        figures, quiet = await fleet.settle()
    except (OSError, RuntimeError, TimeoutError) as error:
        suffered.troubles.append(f"not checked: {type(error).__name__}: {error}")
    exits = await fleet.end()
    suffered.troubles += fleet.supervisor.troubles
    if fleet.plan.keep:
        fleet.keep(Path(fleet.plan.keep))
    restarts = sum(crew.restarts for crew in fleet.crews)
    return Outcome(fleet.plan, figures, seconds, quiet, suffered, restarts, exits)
