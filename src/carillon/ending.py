"""The end of tasks that are no longer wanted."""

import asyncio
from typing import Any

AGAIN_SECONDS = 0.5


async def ended(*tasks: "asyncio.Task[Any]") -> None:
    """Cancel tasks until they have ended, and drop their exceptions.

    Cancelling once is not enough: `asyncio.wait_for` of Python 3.11, which the Redis client uses, loses a cancellation
    that arrives at the moment at which the awaited call ends.
    """
    pending = {task for task in tasks if not task.done()}
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=AGAIN_SECONDS)
    await asyncio.gather(*tasks, return_exceptions=True)
