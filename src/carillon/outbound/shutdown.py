"""A worker's shutdown: it stops claiming, it is told to stop, and at the deadline it cancels what still runs."""

import asyncio
from contextlib import suppress

from carillon.domain.ports import Clock

SHORTEST_DRAIN, CANCEL_SECONDS = 1.0, 2.5
"""The least time for draining, and the time kept back to cancel calls and settle them."""


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
            seconds = max(within_seconds - CANCEL_SECONDS, SHORTEST_DRAIN)
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
