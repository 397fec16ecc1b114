"""Waiting for a condition instead of for time."""

import asyncio
import time
from collections.abc import Awaitable, Callable

_SOONEST, _LATEST = 0.01, 0.1


def wait_until(condition: Callable[[], bool], *, timeout: float, what: str) -> None:
    began = time.monotonic()
    while not condition():
        if time.monotonic() > began + timeout:
            raise TimeoutError(f"{what}: not within {timeout} s")
        time.sleep(pause(began))


def pause(began: float) -> float:
    """Seconds until the next look: a twentieth of what the wait took so far, because each look takes processor time."""
    return min(_LATEST, max(_SOONEST, (time.monotonic() - began) / 20))


async def a_moment_later() -> None:
    """What happens within one millisecond cannot be told apart by its time."""
    now = time.time_ns()

    async def passed() -> bool:
        return time.time_ns() > now + 3_000_000

    await until(passed, timeout=10, what="the next millisecond")


async def some_turns(number: int = 3) -> None:
    """Let the loop run what is ready: a connection that was accepted just now gets its task in the next turns."""
    for turn in range(number):
        await asyncio.sleep(0, turn)


async def until(condition: Callable[[], Awaitable[bool]], *, timeout: float, what: str) -> None:  # noqa: ASYNC109 - as above
    """wait_until for conditions that must be awaited, without stopping the loop."""
    began = time.monotonic()
    while not await condition():
        if time.monotonic() > began + timeout:
            raise TimeoutError(f"{what}: not within {timeout} s")
        await asyncio.sleep(pause(began))
