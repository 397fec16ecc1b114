"""The one timer over all calls: late ones are cut off, others never notice it."""

import asyncio

from carillon.outbound.calls import DeadlineTimer


async def call(timer: DeadlineTimer, seconds: float, work: "asyncio.Future[str]") -> str:
    task = asyncio.current_task()
    assert task is not None
    timer.watch(task, seconds)
    try:
        return await work
    except asyncio.CancelledError:
        if timer.release(task):
            assert task.cancelling() == 0
            return "cut off"
        raise
    finally:
        timer.release(task)


async def test_a_late_call_is_cut_off_and_its_task_goes_on() -> None:
    timer, never = DeadlineTimer(), asyncio.get_running_loop().create_future()
    assert await asyncio.wait_for(asyncio.create_task(call(timer, 0.01, never)), 30) == "cut off"


async def test_a_call_in_time_is_left_alone_and_so_is_what_its_task_does_next() -> None:
    timer, work = DeadlineTimer(), asyncio.get_running_loop().create_future()
    task = asyncio.create_task(call(timer, 60.0, work))
    await asyncio.sleep(0)
    work.set_result("sent")
    assert await task == "sent"


async def test_only_the_late_one_is_cut_off() -> None:
    loop = asyncio.get_running_loop()
    timer, slow, late = DeadlineTimer(), loop.create_future(), loop.create_future()
    waiting = asyncio.create_task(call(timer, 60.0, slow))
    assert await asyncio.wait_for(asyncio.create_task(call(timer, 0.0, late)), 30) == "cut off"
    assert not waiting.done()
    slow.set_result("sent")
    assert await waiting == "sent"


async def test_a_cancelled_task_stays_cancelled() -> None:
    timer, never = DeadlineTimer(), asyncio.get_running_loop().create_future()
    task = asyncio.create_task(call(timer, 60.0, never))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
