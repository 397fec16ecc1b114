"""Loops that should never end by themselves are started again when they do."""

import asyncio
from collections.abc import Awaitable, Callable

from carillon.domain.events import Trouble
from carillon.domain.ports import Observer

FIRST_WAIT, LONGEST_WAIT = 0.1, 5.0


async def supervise(name: str, loop: Callable[[], Awaitable[None]], observe: Observer) -> None:
    """Run a loop until it returns; a bug in one loop must not end the process."""
    wait = FIRST_WAIT
    while True:
        try:
            await loop()
        except Exception as error:  # noqa: BLE001 - as said
            observe(Trouble(where=name, error=f"{type(error).__name__}: {error}", retry_in_seconds=wait))
            await asyncio.sleep(wait)
            wait = min(wait * 2, LONGEST_WAIT)
        else:
            return
