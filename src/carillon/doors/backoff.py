"""How long a door waits after a failure before it tries again."""

import asyncio
from contextlib import suppress

from carillon.domain.errors import LedgerUnavailable
from carillon.domain.events import Trouble
from carillon.domain.ports import Observer

FIRST_WAIT, LONGEST_WAIT = 0.1, 5.0


class Patience:
    """Twice as long each time, until something goes well."""

    def __init__(self, where: str, stopping: asyncio.Event, observer: Observer) -> None:
        self._where = where
        self._stopping = stopping
        self._observe = observer
        self._next = FIRST_WAIT
        self._waiting: asyncio.Task[None] | None = None

    def reset(self) -> None:
        self._next = FIRST_WAIT

    async def trouble(self, error: Exception) -> None:
        """Whoever comes while another waits for the same is neither told of again nor waits longer."""
        if self._waiting is None or self._waiting.done():
            said = str(error) if isinstance(error, LedgerUnavailable) else f"{type(error).__name__}: {error}"
            self._observe(Trouble(where=self._where, error=said, retry_in_seconds=self._next))
            self._waiting = asyncio.create_task(pause(self._stopping, self._next))
            self._next = min(self._next * 2, LONGEST_WAIT)
        await asyncio.shield(self._waiting)


async def pause(stopping: asyncio.Event, seconds: float) -> None:
    """Wait, unless it is over."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stopping.wait()
