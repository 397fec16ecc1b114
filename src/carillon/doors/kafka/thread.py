"""A thread of one's own for a client that blocks: its calls are made one after the other, and awaited."""

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")
Call = Callable[[], None]


class OwnThread:
    """Runs what it is given, in order."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._calls: queue.SimpleQueue[Call | None] = queue.SimpleQueue()
        # In its starter's context: what is said from here is said for that blueprint, not for the process's first.
        run = partial(contextvars.copy_context().run, self._run)
        # A client that hangs must not keep the process from ending.
        threading.Thread(target=run, name=name, daemon=True).start()

    async def call(self, work: Callable[[], T]) -> T:
        """What the work returns or raises; whoever stops waiting does not stop the work."""
        answer: asyncio.Future[T] = self._loop.create_future()
        self._calls.put(partial(self._answer, work, answer))
        return await answer

    def start(self, work: Callable[[], None]) -> None:
        """Nobody waits for it."""
        self._calls.put(partial(self._answer, work, self._loop.create_future()))

    def wait_for(self, asked: Coroutine[Any, Any, T], seconds: float) -> T:
        """From inside the thread: what the event loop answers; raises TimeoutError."""
        answer = asyncio.run_coroutine_threadsafe(asked, self._loop)
        try:
            return answer.result(seconds)
        except TimeoutError:
            answer.cancel()
            raise

    def end(self) -> None:
        """End the thread behind the calls that were made."""
        self._calls.put(None)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call()

    def _answer(self, work: Callable[[], T], answer: "asyncio.Future[T]") -> None:
        try:
            told = partial(_tell, answer, work())
        except Exception as error:  # noqa: BLE001 - it belongs to whoever asked
            told = partial(_tell_error, answer, error)
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(told)


def _tell(answer: "asyncio.Future[T]", value: T) -> None:
    if not answer.done():
        answer.set_result(value)


def _tell_error(answer: "asyncio.Future[T]", error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)
