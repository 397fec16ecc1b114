"""Everything that a fault of a fleet can reach, the time in which it strikes, and how an operator would mend it."""

import random
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.fleet.crews import Crew, Vendors
from tests.fleet.topology import Servers, SmallDisk
from tests.support.process import Program
from tests.support.vendor import Answer, Vendor
from tests.support.waiting import wait_until

READY = 120.0


class NotStruckError(Exception):
    """A fault that could not be made: it says nothing about Carillon."""


@dataclass
class World:
    """Everything that a fault can reach."""

    servers: Servers
    vendors: Vendors
    crews: list[Crew]
    disk: SmallDisk
    dice: random.Random
    older: Path | None = None
    spared: int | None = None
    """The number of a process that no fault chooses."""
    struck: float = 0.0
    until: float = 0.0
    usual: dict[Vendor, Answer] = field(default_factory=dict)
    """How each vendor answers when nothing is wrong with it."""

    def __post_init__(self) -> None:
        self.usual = {each: each.default for each in self.vendors.senders}

    @contextmanager
    def striking(self) -> Iterator[None]:
        """The time in which the fault can meet work in flight."""
        self.struck = time.time()
        try:
            yield
        finally:
            self.until = time.time()

    def victims(self) -> list[tuple[Crew, int, Program]]:
        """One living process of each crew."""
        return [(crew, *self.dice.choice(found)) for crew in self.crews if (found := self._choice(crew))]

    def _choice(self, crew: Crew) -> list[tuple[int, Program]]:
        return [(number, program) for number, program in crew.alive() if number != self.spared]

    def until_ready(self) -> None:
        """Every process runs and is ready."""
        try:
            wait_until(lambda: not self._missing(), timeout=READY, what="every process ready again")
        except TimeoutError as error:
            raise TimeoutError(f"{error}: {', '.join(self._missing())}") from None

    def _missing(self) -> list[str]:
        return [
            f"{crew.name} {number}"
            for crew in self.crews
            for number, program in enumerate(crew.programs)
            if program is None or program.returncode is not None or not program.is_ready
        ]

    def heal(self) -> None:
        """As an operator does after a fault that did not heal: everything is put right, and what hangs is killed."""
        steps: list[Callable[[], None]] = [
            *(relay.heal for relay in self.servers.ways.all()),
            self.disk.heal,
            self._heal_vendors,
            self._heal_processes,
            self.servers.heal,
        ]
        wrong: list[str] = []
        for step in steps:
            try:
                step()
            except Exception as error:  # noqa: BLE001 - the others are needed all the more
                wrong.append(f"{type(error).__name__}: {error}")
        if wrong:
            raise RuntimeError("; ".join(wrong))
        self.until_ready()

    def _heal_vendors(self) -> None:
        for each, answer in self.usual.items():
            each.default = answer

    def _heal_processes(self) -> None:
        for crew in self.crews:
            changed = [bool(crew.extra[number] or crew.older[number]) for number in range(crew.size)]
            crew.extra, crew.older = [{} for _ in range(crew.size)], [None] * crew.size
            for number, program in crew.alive():
                program.cont()
                for limit in (resource.RLIMIT_NOFILE, resource.RLIMIT_AS):
                    set_limit(program, limit, None)
                if changed[number] or not program.is_ready:
                    program.kill()


def set_limit(program: Program, limit: int, value: int | None) -> None:
    """The soft limit of a process that may have ended meanwhile; None is as much as it may have."""
    try:
        _, most = resource.prlimit(program.pid, limit)
        resource.prlimit(program.pid, limit, (most if value is None else value, most))
    except ProcessLookupError:
        return
