"""The end of a process and of its worker: claim no more, stop when told, cancel what still runs at the deadline."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from carillon.domain.ports import Clock

LAST_SECONDS = 1.5
"""Kept for closing, on a busy machine too: by then the process has left a silent ledger, and its leases run out."""
STEP_SECONDS = 1.0
"""The time of one step of closing after the deadline: a server that answers needs less."""
SHORTEST_DRAIN, CANCEL_SECONDS = 1.0, 2.5
"""The least time for draining, and the time kept back to cancel calls and settle them."""


class Deadline:
    """One deadline for all parts, from the signal to stop: a slow part takes the time of the parts after it."""

    def __init__(self, clock: Clock, seconds: float, cut_off: Callable[[], None]) -> None:
        self._clock = clock
        # Cancel calls before the process leaves the ledger, so that the ledger still stores their outcomes.
        cut_at = max(seconds, SHORTEST_DRAIN + CANCEL_SECONDS) - LAST_SECONDS
        self._doors_until = clock.monotonic() + min(seconds, cut_at)
        asyncio.get_running_loop().call_later(cut_at, cut_off)

    def left(self) -> float:
        """How long doors may still finish what they have begun to accept."""
        return max(0.0, self._doors_until - self._clock.monotonic())

    def step(self) -> float:
        """How long one step of closing may take."""
        return max(STEP_SECONDS, self.left())


def calls_within(seconds: float) -> float:
    """How long calls may run so that the worker can cancel and settle them within `seconds`."""
    return max(seconds - CANCEL_SECONDS, SHORTEST_DRAIN)


class Shutdown:
    """The drain time counts from begin(): a claim that a slow ledger delays uses up part of it."""

    def __init__(self, clock: Clock, drain_seconds: float) -> None:
        self._clock = clock
        self._drain_seconds = drain_seconds
        self._cancel_at: float | None = None
        self._begun = asyncio.Event()
        self._stopped = asyncio.Event()

    @property
    def begun(self) -> bool:
        """The worker claims nothing more."""
        return self._begun.is_set()

    def begin(self, within_seconds: float | None) -> None:
        """Begin the shutdown; `within_seconds` includes the time to cancel calls."""
        seconds = self._drain_seconds
        if within_seconds is not None:
            seconds = calls_within(within_seconds)
        self._cancel_at = self._clock.monotonic() + seconds
        self._begun.set()

    def stop(self) -> None:
        """No door will hand anything over."""
        if not self.begun:
            self.begin(None)
        self._stopped.set()

    def seconds_left(self) -> float:
        """How long calls may still run; the whole drain time if the shutdown has not begun."""
        return self._drain_seconds if self._cancel_at is None else max(0.0, self._cancel_at - self._clock.monotonic())

    async def wait_for_stop(self) -> None:
        """Wait for stop(), at most until calls are cancelled."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self.seconds_left()):
                await self._stopped.wait()

    async def pause(self, seconds: float) -> None:
        """Sleep until the time is over or the shutdown begins."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._begun.wait()
