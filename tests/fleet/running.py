"""One run: a fleet under steady load and one fault after another, then quiet, then the checker's figures."""

import asyncio
import json
import os
import queue
import random
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Self

from tests.fleet import checker, crews, doors, faults
from tests.fleet.topology import Servers, SmallDisk
from tests.fleet.world import World

CALM = 3.0
PRIORITY = -10
LONGEST_REST = 120.0
QUIET = 60.0
"""Seconds after the last fault in which everything must have ended."""


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
    older: str = "HEAD"
    least: int = 0
    """The load goes on after the faults until so many were accepted."""
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
    faults: list[str] = field(default_factory=list)
    restarts: int = 0
    exits: list[int] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)

    @property
    def accepted(self) -> int:
        return sum(each.accepted for each in self.figures.values())

    @property
    def sound(self) -> bool:
        return all(each.sound for each in self.figures.values()) and not self.troubles

    def wrong(self) -> str:
        """What does not hold, in words."""
        lists = ("lost", "split", "unfinished", "given_up", "never_sent", "settled_twice", "renamed", "unexplained")
        said = [
            f"{crew}: {name} {len(found)}: {found[:3]}"
            for crew, each in self.figures.items()
            for name in (*lists, "over_bound")
            if (found := getattr(each, name))
        ]
        return "\n".join([*said, *self.troubles])


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
        for name in plan.names:
            crew = crews.EVERY[name](self.folder, servers, vendors, plan.size)
            stack.callback(crew.close)
            self.crews.append(crew)
            door = doors.EVERY[name](crew, self.folder, plan.rate / len(plan.names), self.dice)
            self.doors.append(door)
        for door in self.doors:
            await door.open()
            stack.push_async_callback(door.aclose)
        # The first process of each crew makes its tables before the others look for them.
        for number in range(plan.size):
            for crew in self.crews:
                crew.start(number)
            await asyncio.gather(*(asyncio.to_thread(crew.wait_ready) for crew in self.crews))
        stack.enter_context(crews.Supervisor(self.crews))
        older = None if plan.older == "HEAD" else faults.source_of(plan.older, self.folder)
        self.world = World(servers, vendors, self.crews, disk, self.dice, older)
        self._describe(servers)
        _come_first()
        self.say(f"{len(self.crews) * plan.size} processes ready after {time.monotonic() - began:.0f} s")

    def _describe(self, servers: Servers) -> None:
        stores = {
            crew.name: {"url": crew.url, "schema": crew.schema, "redis": servers.redis_url(1)} for crew in self.crews
        }
        (self.folder / "stores.json").write_text(json.dumps(stores))

    async def suffer(self, chosen: Sequence[faults.Fault], seconds: float) -> tuple[list[str], list[str]]:
        """One fault after another until the time is up, in order and then shuffled; their names, and what failed."""
        done: list[str] = []
        troubles: list[str] = []
        began = time.monotonic()
        turn = 0
        order = list(chosen)
        while not done or time.monotonic() - began < seconds:
            if turn and turn % len(chosen) == 0:
                self.dice.shuffle(order)
            fault = order[turn % len(chosen)]
            turn += 1
            await asyncio.sleep(CALM)
            self.say(f"{time.monotonic() - began:5.0f} s  {fault.name}")
            window: dict[str, Any] = {"fault": fault.name, "began": time.time()}
            try:
                await self._aside.run(partial(fault.run, self.world))
            except Exception as error:  # noqa: BLE001 - a fault that cannot be healed is a finding, and the run goes on
                troubles.append(f"{fault.name}: {type(error).__name__}: {error}")
                self.say(troubles[-1])
            window |= {"ended": time.time(), "struck": self.world.struck, "until": self.world.until}
            with (self.folder / "windows.jsonl").open("a") as file:
                file.write(json.dumps(window) + "\n")
            done.append(fault.name)
        return done, troubles

    async def settle(self) -> tuple[dict[str, checker.Figures], float]:
        """Wait until nothing is open any more; the figures, and how long that took."""
        began = time.monotonic()
        while True:
            figures = await checker.check(self.folder)
            # What a broker still holds has no row yet: it is lost only if none comes.
            left = sum(len(each.lost) + len(each.unfinished) + len(each.never_sent) for each in figures.values())
            took = time.monotonic() - began
            if not left or took > QUIET:
                return figures, took
            await asyncio.sleep(1)

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

    async def end(self) -> list[int]:
        """Every process is told to stop; their exit codes."""
        programs = []
        for crew in self.crews:
            crew.absent |= set(range(crew.size))
            programs += [program for _, program in crew.alive()]
        for program in programs:
            program.terminate()
        return list(await asyncio.gather(*(asyncio.to_thread(program.wait, 60) for program in programs)))


def _come_first() -> None:
    """Producers, relays and vendors come before what is measured: where the machine is full, they must not be late."""
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, int(task.name), PRIORITY)


class Aside:
    """One thread for all faults, for which Ctrl-C does not wait: a fault may wait for servers that are ended meanwhile.

    It lives as long as the process: servers that a fault starts again are ended when the thread that started them ends.
    """

    def __init__(self) -> None:
        self._works: queue.SimpleQueue[tuple[Callable[[], None], Callable[[BaseException | None], None]]]
        self._works = queue.SimpleQueue()
        threading.Thread(target=self._work, daemon=True).start()

    async def run(self, work: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()

        def told(error: BaseException | None) -> None:
            if done.done():
                return
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)

        def tell(error: BaseException | None) -> None:
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(told, error)

        self._works.put((work, tell))
        await done

    def _work(self) -> None:
        while True:
            work, tell = self._works.get()
            found: BaseException | None = None
            try:
                work()
            except Exception as error:  # noqa: BLE001 - it is raised where it is waited for
                found = error
            tell(found)


async def run(servers: Callable[[], Servers], plan: Plan, say: Callable[[str], None] = print) -> Outcome:
    async with Fleet(servers, plan, say) as fleet:
        over = asyncio.Event()
        began = time.monotonic()
        load = [asyncio.create_task(door.run(over.is_set)) for door in fleet.doors]
        chosen = [fault for fault in faults.applicable(fleet.world, short=plan.short) if plan.only in fault.name]
        await asyncio.sleep(CALM)
        done, troubles = await fleet.suffer(chosen, plan.seconds)
        await asyncio.sleep(CALM)
        patience = time.monotonic() + LONGEST_REST
        while fleet.accepted < plan.least and time.monotonic() < patience:  # noqa: ASYNC110 - journals tell nobody
            await asyncio.sleep(0.5)
        over.set()
        await asyncio.gather(*load)
        seconds = time.monotonic() - began
        figures, quiet = await fleet.settle()
        exits = await fleet.end()
        restarts = sum(crew.restarts for crew in fleet.crews)
        if plan.keep:
            fleet.keep(Path(plan.keep))
        return Outcome(plan, figures, seconds, quiet, done, restarts, exits, troubles)
