"""How a process comes to its end, by the time it waits: what a busy machine withholds from it is not its own."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.process import Program

DRAIN, LEAST, STEPS, LOOK = 3.0, 3.5, 2.0, 0.5
PATIENCE: Any = {"CARILLON_WORK__DRAIN_SECONDS": f"{DRAIN}", "CARILLON_LEDGER__OPERATION_TIMEOUT_SECONDS": "300"}
"""For those who leave step by step: a statement may take far longer than the end."""
MOST = max(DRAIN, LEAST) + STEPS + LOOK
"""What they may wait: where somebody is silent two steps have a second each, and our own look may come late."""
LATE = 7.0
"""How much later those end whose guard is switched off: a slide that wide limits would not see."""
SPINNING_SECONDS = 120.0
"""Who neither waits nor ends."""


class Ending(NamedTuple):
    """`code` is None for a process that was not waited for to its end."""

    code: int | None
    took: float
    waited: float

    def figures(self) -> dict[str, float]:
        return {"ended_after": round(self.took, 1), "waited": round(self.waited, 1)}


def ended(program: Program, most_seconds: float) -> Ending:
    """Tell it to stop and see how it ends, or until it has waited longer than it may."""
    clock = _clock(program.pid)
    program.terminate()
    while True:
        gone = program.has_ended
        took, waited = clock()
        if gone:
            return Ending(program.wait(), took, waited)
        if waited > most_seconds or took > SPINNING_SECONDS:
            return Ending(None, took, waited)
        time.sleep(0.01)


def _clock(pid: int) -> Callable[[], tuple[float, float]]:
    """Seconds since now, and those of them in which the process neither ran nor was kept from running."""
    began, busy = time.monotonic(), _busy(pid)

    def since() -> tuple[float, float]:
        took = time.monotonic() - began
        return took, took - (_busy(pid) - busy)

    return since


def _busy(pid: int) -> float:
    """Of its first thread, which its event loop is in: on a processor, and waiting for one."""
    running, kept_waiting, _ = Path(f"/proc/{pid}/schedstat").read_text().split()
    return (int(running) + int(kept_waiting)) / 1e9
