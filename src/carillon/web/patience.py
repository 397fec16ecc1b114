"""Waiting for so long and no longer, as `asyncio.timeout` does at four times the price: every request waits once."""

import asyncio
from types import TracebackType
from typing import Self


class Patience:
    """Ends what is awaited inside after so many seconds, with TimeoutError."""

    __slots__ = ("_asked_before", "_over", "_task", "_timer")

    def __init__(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        if task is None:
            raise RuntimeError("only a task can lose its patience")
        self._task = task
        self._asked_before = task.cancelling()
        self._over = False
        self._timer = loop.call_later(seconds, self._end)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        # Whoever else asked the task to end is heard: then it is no lack of patience.
        if self._over and self._task.uncancel() <= self._asked_before and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def _end(self) -> None:
        self._over = True
        self._task.cancel()
