"""One deadline for the whole end of a process: a part that stops slowly takes the time of the parts after it."""

import asyncio
from collections.abc import Callable

from carillon.domain.ports import Clock
from carillon.outbound.shutdown import CANCEL_SECONDS, SHORTEST_DRAIN

LAST_SECONDS = 1.5
"""Kept for closing, also on a busy machine: by then the process has left a silent ledger, and leases bring back its
share."""
STEP_SECONDS = 1.0
"""What one step of closing gets when the time is over: a server that answers needs less."""


class Deadline:
    """Begins with the signal to stop."""

    def __init__(self, clock: Clock, seconds: float, cut_off: Callable[[], None]) -> None:
        self._clock = clock
        # Calls are cut off before the ledger is: the ledger still takes down how they ended.
        cut_at = max(seconds, SHORTEST_DRAIN + CANCEL_SECONDS) - LAST_SECONDS
        self._doors_until = clock.monotonic() + min(seconds, cut_at)
        asyncio.get_running_loop().call_later(cut_at, cut_off)

    def left(self) -> float:
        """How long what is being accepted may still take."""
        return max(0.0, self._doors_until - self._clock.monotonic())

    def step(self) -> float:
        """How long one step of closing may take."""
        return max(STEP_SECONDS, self.left())


def calls_within(seconds: float) -> float:
    """How long calls may take so that within `seconds` they are cut off and that is written down."""
    return max(seconds - CANCEL_SECONDS, SHORTEST_DRAIN)
