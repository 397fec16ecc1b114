"""Everything that a fault of a fleet can reach, and the time in which it strikes."""

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.fleet.crews import Crew, Vendors
from tests.fleet.topology import Servers, SmallDisk
from tests.support.process import Program
from tests.support.waiting import wait_until

READY = 240.0


@dataclass
class World:
    """Everything that a fault can reach."""

    servers: Servers
    vendors: Vendors
    crews: list[Crew]
    disk: SmallDisk
    dice: random.Random
    older: Path | None = None
    struck: float = 0.0
    until: float = 0.0

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
        return [(crew, *self.dice.choice(alive)) for crew in self.crews if (alive := crew.alive())]

    def until_ready(self) -> None:
        """Every process runs and is ready."""

        def ready() -> bool:
            return all(
                program is not None and program.returncode is None and bool(program.events("ready"))
                for crew in self.crews
                for program in crew.programs
            )

        wait_until(ready, timeout=READY, what="every process ready again")
