"""The pauses of a door after failures: each twice as long as the one before, until something succeeds."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from carillon.domain.errors import LedgerUnavailable
from carillon.domain.events import DoorStopped, Trouble
from carillon.domain.ports import Clock, Observer

FIRST_WAIT, LONGEST_WAIT = 0.1, 5.0


class DoorBackoff:
    """Reports a failure and waits; concurrent failures share one report and one pause."""

    def __init__(self, door: str, stopping: asyncio.Event, observer: Observer) -> None:
        """`stopping` ends a pause early."""
        self._door = door
        self._stopping = stopping
        self._observe = observer
        self._next = FIRST_WAIT
        self._waiting: asyncio.Task[None] | None = None

    def reset(self) -> None:
        """Something succeeded: the next pause is the shortest one again."""
        self._next = FIRST_WAIT

    async def failed(self, error: Exception) -> None:
        """Report the error and wait; during a pause, wait for its end without a report."""
        if self._waiting is None or self._waiting.done():
            said = str(error) if isinstance(error, LedgerUnavailable) else f"{type(error).__name__}: {error}"
            self._observe(Trouble(where=self._door, error=said, retry_in_seconds=self._next))
            self._waiting = asyncio.create_task(self._pause())
        await asyncio.shield(self._waiting)

    async def stopped(self, entry_id: str, reason: str) -> None:
        """Report that the door cannot pass an entry now, and wait."""
        self._observe(
            DoorStopped(door=self._door, stream_entry_id=entry_id, reason=reason, retry_in_seconds=self._next)
        )
        await self._pause()

    async def _pause(self) -> None:
        seconds, self._next = self._next, min(self._next * 2, LONGEST_WAIT)
        await pause(self._stopping, seconds)


async def pause(stopping: asyncio.Event, seconds: float) -> None:
    """Wait for `seconds`, or until `stopping` is set."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stopping.wait()


async def read_until_stopped(
    read: Callable[[], Awaitable[None]], backoff: DoorBackoff, clock: Clock, stopping: asyncio.Event
) -> None:
    """Open one session after the other until the door stops; a session that lived long makes the pauses short again."""
    while not stopping.is_set():
        began = clock.monotonic()
        try:
            await read()
        except Exception as error:  # noqa: BLE001 - if the door ended, the queue would grow unread
            if clock.monotonic() - began > LONGEST_WAIT:
                backoff.reset()
            await backoff.failed(error)
