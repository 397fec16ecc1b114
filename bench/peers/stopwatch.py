"""What the Python runners share: their arguments, the clock and the line they print."""

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from itertools import count
from typing import Any

POLL_SECONDS = 0.02


@dataclass(frozen=True)
class Order:
    """One phase of a drain: <runner> fill|work <dsn or url> <jobs> <settings as JSON>."""

    target: str
    jobs: int
    settings: dict[str, Any]


class Stopwatch:
    """Starts with the first job's execution and knows when the last one ran."""

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        self.ran_all = False
        self._started = 0.0
        # Drawing a number is one step for the interpreter, so threads need no lock.
        self._numbers = count(1)

    def tick(self) -> None:
        number = next(self._numbers)
        if number == 1:
            self._started = time.perf_counter()
        if number == self.jobs:
            self.ran_all = True

    def stop(self) -> float:
        seconds = time.perf_counter() - self._started
        surplus = next(self._numbers) - 1 - self.jobs
        if surplus:
            raise RuntimeError(f"{surplus} jobs ran more than once")
        return seconds


def main(package: str, fill: Callable[[Order], None], work: Callable[[Order], float]) -> None:
    phase, target, jobs, settings = sys.argv[1:5]
    order = Order(target, int(jobs), json.loads(settings))
    if phase == "fill":
        fill(order)
        return
    finish(package, order, work(order))


def finish(package: str, order: Order, seconds: float) -> None:
    """Print the result and leave at once: the work is committed, and an orderly shutdown proves nothing more."""
    print(json.dumps({"jobs": order.jobs, "seconds": seconds, "version": version(package)}), flush=True)
    os._exit(0)
