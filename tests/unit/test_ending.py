"""Tasks are ended, even those that forget that they were told to."""

import asyncio
from contextlib import suppress

import pytest

from carillon import ending
from carillon.ending import ended


async def deaf(times: int) -> None:
    """Goes on after so many cancellations."""
    for _ in range(times):
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
    await asyncio.Event().wait()


async def failing() -> None:
    raise ValueError("on its way")


async def test_every_task_is_gone_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "AGAIN_SECONDS", 0.01)
    tasks = [asyncio.create_task(work) for work in (deaf(0), deaf(1), deaf(3), failing())]
    await asyncio.sleep(0)
    async with asyncio.timeout(20):
        await ended(*tasks)
    assert all(task.done() for task in tasks)
    assert [task.cancelled() for task in tasks] == [True, True, True, False]


async def test_nothing_to_end_is_ended() -> None:
    await ended()
    task = asyncio.create_task(asyncio.sleep(0))
    await task
    await ended(task)
