"""A thread for a client that blocks: the event loop awaits its calls, which run one after the other."""

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")
Call = Callable[[], None]


class ClientThread:
    """Runs calls in order."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._calls: queue.SimpleQueue[Call | None] = queue.SimpleQueue()
        # In the starter's context, so that its logs carry the right blueprint.
        run = partial(contextvars.copy_context().run, self._run)
        # A daemon: a client that hangs must not block the exit of the process.
        threading.Thread(target=run, name=name, daemon=True).start()

    async def call(self, work: Callable[[], T]) -> T:
        """Run the work and return its result; cancelling the caller does not stop the work."""
        answer: asyncio.Future[T] = self._loop.create_future()
        self._calls.put(partial(self._answer, work, answer))
        return await answer

    def start(self, work: Callable[[], None]) -> None:
        """Run the work without waiting for it."""
        self._calls.put(partial(self._answer, work, self._loop.create_future()))

    def wait_for(self, asked: Coroutine[Any, Any, T], seconds: float) -> T:
        """Called in the thread: run a coroutine in the event loop and wait for it; raises TimeoutError."""
        answer = asyncio.run_coroutine_threadsafe(asked, self._loop)
        try:
            return answer.result(seconds)
        except TimeoutError:
            answer.cancel()
            raise

    def end(self) -> None:
        """End the thread after the queued calls."""
        self._calls.put(None)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call()

    def _answer(self, work: Callable[[], T], answer: "asyncio.Future[T]") -> None:
        try:
            finish = partial(_set_result, answer, work())
        except Exception as error:  # noqa: BLE001 - the caller gets every exception
            finish = partial(_set_error, answer, error)
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(finish)


def _set_result(answer: "asyncio.Future[T]", value: T) -> None:
    if not answer.done():
        answer.set_result(value)


def _set_error(answer: "asyncio.Future[T]", error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)
