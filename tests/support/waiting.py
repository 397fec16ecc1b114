"""Waiting for a condition instead of for time."""

import asyncio
import time
from collections.abc import Awaitable, Callable


def wait_until(condition: Callable[[], bool], *, timeout: float, what: str) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {timeout} s")
        time.sleep(0.01)


async def a_moment_later() -> None:
    """What happens within one millisecond cannot be told apart by its time."""
    now = time.time_ns()

    async def passed() -> bool:
        return time.time_ns() > now + 3_000_000

    await until(passed, timeout=10, what="the next millisecond")


async def until(condition: Callable[[], Awaitable[bool]], *, timeout: float, what: str) -> None:  # noqa: ASYNC109 - as above
    """wait_until for conditions that must be awaited, without stopping the loop."""
    deadline = time.monotonic() + timeout
    while not await condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {timeout} s")
        await asyncio.sleep(0.05)
