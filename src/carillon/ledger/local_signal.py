"""Wake-ups inside one process; other processes on the same file find new work by their poll."""

import asyncio
import contextlib


class LocalSignal:
    """Satisfies Signal."""

    def __init__(self) -> None:
        self._rung = asyncio.Event()

    def ring(self) -> None:
        self._rung.set()

    async def wait(self, timeout_seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._rung.wait(), timeout_seconds)
        self._rung.clear()
