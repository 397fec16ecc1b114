"""How a worker comes to its end: it rests, it is told to leave, and at its time what still lasts is cut off."""

import asyncio
from contextlib import suppress

from carillon.domain.ports import Clock

SHORTEST_DRAIN, CUT_SECONDS = 1.0, 2.5


class Leaving:
    """The time to drain counts from the first word: a claim that a silent ledger holds up is taken from it."""

    def __init__(self, clock: Clock, drain_seconds: float) -> None:
        self._clock = clock
        self._drain_seconds = drain_seconds
        self._cut_at: float | None = None
        self._resting = asyncio.Event()
        self._told = asyncio.Event()

    @property
    def resting(self) -> bool:
        """Nothing more is claimed."""
        return self._resting.is_set()

    def rest(self, within_seconds: float | None) -> None:
        """Begin the end; the cut is included in `within_seconds`."""
        seconds = self._drain_seconds
        if within_seconds is not None:
            seconds = max(within_seconds - CUT_SECONDS, SHORTEST_DRAIN)
        self._cut_at = self._clock.monotonic() + seconds
        self._resting.set()

    def leave(self) -> None:
        """Nothing more will be handed over."""
        if not self.resting:
            self.rest(None)
        self._told.set()

    def left(self) -> float:
        """How long calls may still take; all of the usual time where nobody began the end."""
        return self._drain_seconds if self._cut_at is None else max(0.0, self._cut_at - self._clock.monotonic())

    async def told(self) -> None:
        """Wait for the word to leave, but not beyond the time of the cut."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self.left()):
                await self._told.wait()

    async def pause(self, seconds: float) -> None:
        """Sleep, unless the end has begun."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._resting.wait()
