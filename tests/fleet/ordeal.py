"""One fault after another: each is bounded, says what it did, and is mended by hand where it does not heal."""

import asyncio
import json
import queue
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tests.fleet.faults import Fault
from tests.fleet.world import NotStruckError, World

CALM = 3.0
LONGEST_FAULT = 420.0
"""Seconds after which a fault counts as one that never heals, and the run ends with what it has."""
LONGEST_HEALING = 300.0
LONGER = 1.5
"""A run that is short of acceptances when its time is up goes on for at most so much longer."""


@dataclass
class Suffered:
    """What a run of faults has shown so far."""

    faults: list[str] = field(default_factory=list)
    not_struck: list[str] = field(default_factory=list)
    """Faults that could not be made, and why: they say nothing about Carillon."""
    troubles: list[str] = field(default_factory=list)
    ended_early: str = ""
    """Why not all of the time was used."""


class Aside:
    """One thread for all faults, for which Ctrl-C does not wait: a fault may wait for servers that are ended meanwhile.

    It lives as long as the process: servers that a fault starts again are ended when the thread that started them ends.
    """

    def __init__(self) -> None:
        self._works: queue.SimpleQueue[tuple[Callable[[], None], Callable[[BaseException | None], None]]]
        self._works = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    @property
    def thread_id(self) -> int | None:
        return self._thread.native_id

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


class Ordeal:
    """Lets faults loose on a world and writes down when each of them struck."""

    def __init__(self, world: World, aside: Aside, windows: Path, say: Callable[[str], None]) -> None:
        self._world, self._aside, self._windows, self._say = world, aside, windows, say
        self.suffered = Suffered()
        self._over = asyncio.Event()

    def end(self, why: str) -> None:
        """After the fault that is under way."""
        self.suffered.ended_early = self.suffered.ended_early or why
        self._over.set()

    async def suffer(self, chosen: Sequence[Fault], more: Callable[[int, float], bool]) -> None:
        """In order and then shuffled, as long as `more` says so, given the faults so far and the seconds."""
        began = time.monotonic()
        turn, order = 0, list(chosen)
        while order and not self._over.is_set() and more(turn, time.monotonic() - began):
            if turn and turn % len(order) == 0:
                self._world.dice.shuffle(order)
            await self.strike(order[turn % len(order)], f"{time.monotonic() - began:5.0f} s")
            turn += 1

    async def strike(self, fault: Fault, at: str) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(CALM):
                await self._over.wait()
        if self._over.is_set():
            return
        name, began = f"fault {len(self.suffered.faults) + 1} {fault.name}", time.time()
        self._world.struck = self._world.until = began
        self._say(f"{at}  {name}")
        clock = time.monotonic()
        wrong = await self._bounded(partial(fault.run, self._world), LONGEST_FAULT)
        if wrong is not None:
            # Nobody knows how much of it has struck.
            self._world.struck, self._world.until = began, time.time()
        window = {"fault": fault.name, "began": began, "ended": time.time()}
        window |= {"struck": self._world.struck, "until": self._world.until}
        with self._windows.open("a") as file:
            file.write(json.dumps(window) + "\n")
        self.suffered.faults.append(fault.name)
        self._say(f"{at}  {name}: {time.monotonic() - clock:.0f} s{f', {wrong}' if wrong else ''}")
        if wrong is not None:
            await self._mend(name, wrong)

    async def _bounded(self, work: Callable[[], None], seconds: float) -> str | None:
        """What went wrong."""
        try:
            async with asyncio.timeout(seconds) as limit:
                await self._aside.run(work)
        except NotStruckError as error:
            return f"not struck: {error}"
        except Exception as error:  # noqa: BLE001 - a fault that does not heal is a finding, and the run goes on
            if limit.expired():
                self.end(f"a fault did not end within {seconds:.0f} s")
                return f"did not end within {seconds:.0f} s"
            return f"{type(error).__name__}: {error}"
        return None

    async def _mend(self, name: str, wrong: str) -> None:
        found = self.suffered.not_struck if wrong.startswith("not struck") else self.suffered.troubles
        found.append(f"{name}: {wrong}")
        if self._over.is_set():
            return
        clock = time.monotonic()
        still = await self._bounded(self._world.heal, LONGEST_HEALING)
        if still is None:
            self._say(f"         healed by hand in {time.monotonic() - clock:.0f} s")
        else:
            self.suffered.troubles.append(f"{name}: not healed by hand either: {still}")
            self.end(f"{name} did not heal")
