"""One time for the whole end of a process: who is slow to stop takes it from those who come after."""

import asyncio
from typing import Protocol

from carillon.domain.ports import Clock
from carillon.outbound.shutdown import CANCEL_SECONDS, SHORTEST_DRAIN

LAST_SECONDS = 1.5
"""Kept for closing, also on a busy machine: by then a silent ledger has been left, and leases bring back its share."""
STEP_SECONDS = 1.0
"""What one step of closing gets when the time is over: whoever answers needs less, whoever is silent gets no more."""


class Silent(Protocol):
    """What may be waited for in vain."""

    def cut_off(self) -> None: ...


class Deadline:
    """Begins with the word to stop."""

    def __init__(self, clock: Clock, seconds: float, ledger: Silent) -> None:
        self._clock = clock
        # Calls are cut off before the ledger is: what became of them is worth writing down.
        cut_off = max(seconds, SHORTEST_DRAIN + CANCEL_SECONDS) - LAST_SECONDS
        self._doors_until = clock.monotonic() + min(seconds, cut_off)
        asyncio.get_running_loop().call_later(cut_off, ledger.cut_off)

    def left(self) -> float:
        """How long what is being accepted may still take."""
        return max(0.0, self._doors_until - self._clock.monotonic())

    def step(self) -> float:
        """How long one step of closing may take."""
        return max(STEP_SECONDS, self.left())


def calls_within(seconds: float) -> float:
    """How long calls may take where they are cut off, and that written down, within so many seconds."""
    return max(seconds - CANCEL_SECONDS, SHORTEST_DRAIN)
