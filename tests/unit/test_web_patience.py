"""Waiting under a limit: who runs out of patience, who is asked to leave, and who is done in time."""

import asyncio

import pytest

from carillon.web.patience import Patience

LONG = 3600.0


async def waiting(seconds: float, begun: asyncio.Event) -> None:
    with Patience(seconds):
        begun.set()
        await asyncio.Event().wait()


async def test_what_does_not_come_is_a_timeout_and_the_task_goes_on() -> None:
    with pytest.raises(TimeoutError):
        await waiting(0.0, asyncio.Event())
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_who_is_cancelled_meanwhile_is_cancelled() -> None:
    begun = asyncio.Event()
    task = asyncio.create_task(waiting(LONG, begun))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelling() == 1


async def test_both_at_once_is_a_cancellation() -> None:
    async def run() -> None:
        task = asyncio.current_task()
        assert task is not None
        with Patience(0.0):
            # Due right behind the timer: both have asked before the task runs again.
            asyncio.get_running_loop().call_later(0.0, task.cancel)
            await asyncio.Event().wait()

    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(run())


async def test_what_comes_in_time_leaves_nothing_behind() -> None:
    with Patience(0.0):
        pass
    # The timer would have been due in this turn of the loop.
    await asyncio.sleep(0)
    await asyncio.sleep(0)


async def test_another_error_stays_what_it_is() -> None:
    with pytest.raises(KeyError), Patience(LONG):
        raise KeyError("x")
