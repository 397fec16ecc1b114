"""Records which functions of the package a running program passes, in the order of their first pass."""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from tests.support.process import Program
from tests.support.sources import ROOT
from tests.support.waiting import wait_until

TARGET = "WALK_TRACE"
"""The environment variable that names the file of the trace."""

_LOOK_SECONDS, _SAME_LOOKS = 0.05, 4

Passed = list[tuple[str, str]]
"""Files below src/carillon, each with the qualified name of a function."""

_START = "from tests.support.tracing import record; record()\n"


def traced(folder: Path) -> dict[str, str]:
    """The environment that makes a process record itself."""
    site = folder / "site"
    site.mkdir(exist_ok=True)
    (site / "sitecustomize.py").write_text(_START)
    return {TARGET: str(folder / "trace.json"), "PYTHONPATH": f"{site}{os.pathsep}{ROOT}"}


class Trace:
    """The recording of one process, between two moments."""

    def __init__(self, program: Program, folder: Path) -> None:
        self._program = program
        self._file = folder / "trace.json"

    def begin(self) -> None:
        """Forget everything passed so far: the start of the program is not a step of the way."""
        self._ask(signal.SIGUSR1)

    def end(self) -> Passed:
        """Everything passed since the beginning."""
        return [(file, name) for file, name in json.loads(self._ask(signal.SIGUSR2))]

    def until_silent(self) -> None:
        """Wait until nothing new is passed between some looks: a last log line, for example."""
        known, unchanged = -1, 0
        while unchanged < _SAME_LOOKS:
            time.sleep(_LOOK_SECONDS)
            number = len(self.end())
            known, unchanged = number, unchanged + 1 if number == known else 0

    def _ask(self, number: signal.Signals) -> str:
        self._file.unlink(missing_ok=True)
        os.kill(self._program.pid, number)
        wait_until(self._file.exists, timeout=40, what="the trace")
        return self._file.read_text()


def record() -> None:
    """Watch every call of this process; SIGUSR1 begins anew, SIGUSR2 writes the trace."""
    target = Path(os.environ[TARGET])
    source = str(ROOT / "src" / "carillon") + os.sep
    order: dict[CodeType, None] = {}

    def watch(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code not in order:
            order[frame.f_code] = None

    def write(passed: list[CodeType]) -> None:
        steps = [
            (code.co_filename.removeprefix(source), code.co_qualname)
            for code in passed
            if code.co_filename.startswith(source) and "<" not in code.co_qualname
        ]
        draft = target.with_suffix(f".{time.monotonic_ns()}")
        draft.write_text(json.dumps(steps))
        draft.replace(target)

    def begin(_signum: int, _frame: FrameType | None) -> None:
        order.clear()
        write([])

    def end(_signum: int, _frame: FrameType | None) -> None:
        write(list(order))

    signal.signal(signal.SIGUSR1, begin)
    signal.signal(signal.SIGUSR2, end)
    threading.setprofile(watch)
    sys.setprofile(watch)
