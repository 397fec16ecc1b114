"""Virtual time: an event loop whose clock stands still while anything can run and then jumps to the next timer."""

import asyncio
import selectors
from collections.abc import Callable
from contextvars import Context
from typing import Any, TypeVar

from carillon.domain.errors import CarillonError

T = TypeVar("T")


class NothingLeft(CarillonError):
    """Every task waits for another one, and no timer is set: a real program would hang."""


class _Jumping(selectors.SelectSelector):
    """Instead of waiting, it sets the loop's clock forward; nothing in a rehearsal comes from a socket."""

    def __init__(self, jump: Callable[[float], None]) -> None:
        super().__init__()
        self._jump = jump

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise NothingLeft("nothing is left to happen: every task waits for another one")
        if timeout > 0:
            self._jump(timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """Runs hours of timers in seconds; work for other threads is done at once, so that a run can be repeated."""

    def __init__(self, starts_at: float = 0.0) -> None:
        self._at = starts_at
        super().__init__(_Jumping(self._jump))

    def time(self) -> float:
        return self._at

    def run_in_executor(  # type: ignore[override]
        self,
        executor: object,
        func: Callable[..., T],
        *args: Any,  # noqa: ANN401 - whatever the function takes
    ) -> "asyncio.Future[T]":
        del executor
        done: asyncio.Future[T] = self.create_future()
        # The answer comes later, as from a thread: a caller that never had to wait would let nobody else run.
        try:
            result = func(*args)
        except Exception as error:  # noqa: BLE001 - the future carries it to the caller
            self.call_soon(_answer, done.set_exception, done, error)
        else:
            self.call_soon(_answer, done.set_result, done, result)
        return done

    def call_soon_threadsafe(  # type: ignore[override]
        self,
        callback: Callable[..., object],
        *args: Any,  # noqa: ANN401 - whatever the callback takes
        context: Context | None = None,
    ) -> asyncio.Handle:
        # There is one thread; waking it through a socket would cost more than the call.
        return self.call_soon(callback, *args, context=context)

    def _jump(self, seconds: float) -> None:
        self._at += seconds


def _answer(give: Callable[[Any], None], done: "asyncio.Future[Any]", answer: Any) -> None:  # noqa: ANN401 - anything
    if not done.done():
        give(answer)


class VirtualClock:
    """The clock of a virtual loop; its Unix time begins at `wall`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, wall: float) -> None:
        self._loop = loop
        self._wall = wall - loop.time()

    def monotonic(self) -> float:
        return self._loop.time()

    def wall(self) -> float:
        return self._wall + self._loop.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
