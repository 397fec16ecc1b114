"""A virtual loop that a seed schedules: every await is a point where anything else may run, or its process may die."""

import asyncio
import random
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from heapq import heappop, heappush
from typing import Any, TypeVar

from carillon.rehearsal.virtual_time import NothingLeft, VirtualLoop

T = TypeVar("T")
MOST_TURNS = 10_000_000
"""A world that goes round in circles at one moment would never end."""
_MOST_CLOSES = 10
"""A coroutine that awaits in its `finally` must be closed more than once."""


class Mortal:
    """Everything that one simulated process has under way; what it scheduled runs only while it lives."""

    def __init__(self) -> None:
        self.dead = False
        self.stopped: list[Step] | None = None
        """While the process is stopped, as by SIGSTOP: what would have run meanwhile."""
        self.steps = 0
        self.dies_at: int | None = None
        """The number of the step at which it dies, which then does not happen."""
        self.tasks: list[asyncio.Task[Any]] = []
        self._most_tasks = 64
        self.busy_until: dict[object, float] = {}
        """By executor: its thread does one thing after the other."""
        self.context: Context = copy_context()
        self.context.run(OWNER.set, self)

    def began(self, task: "asyncio.Task[Any]") -> None:
        self.tasks.append(task)
        if len(self.tasks) > self._most_tasks:
            self.tasks = [one for one in self.tasks if not one.done()]
            self._most_tasks = max(64, 2 * len(self.tasks))

    def die(self) -> None:
        """Nothing of it runs any more, no `finally` either: its tasks stay as they are until the world has ended."""
        self.dead = True
        self.stopped = None

    def clear(self) -> None:
        """After the loop has ended, when no `finally` can do anything."""
        for task in self.tasks:
            if not task.done():
                _close(task.get_coro())
        self.tasks.clear()


OWNER: ContextVar[Mortal | None] = ContextVar("owner", default=None)


def _close(coroutine: Any) -> None:
    for _ in range(_MOST_CLOSES):
        try:
            coroutine.close()
        except Exception:  # noqa: BLE001, S112 - its `finally` awaited or failed: nobody is there to hear it
            continue
        return


class Step:
    """One callback that is ready or waits for its time: what asyncio's own handles are, without names for debuggers."""

    __slots__ = ("_args", "_callback", "_cancelled", "_context", "_when")

    def __init__(self, callback: Callable[..., object], args: Any, context: Context | None, when: float = 0.0) -> None:
        self._callback = callback
        self._args = args
        self._context = copy_context() if context is None else context
        self._when = when
        self._cancelled = False

    def cancel(self) -> None:
        # What it holds is let go at once, as by asyncio's own.
        self._cancelled, self._callback, self._args = True, _nothing, ()

    def cancelled(self) -> bool:
        return self._cancelled

    def when(self) -> float:
        return self._when


def _nothing() -> None:
    """What is left of a step that was cancelled."""


class SeededLoop(VirtualLoop):
    """Runs what is ready in an order that the seed draws, and work of threads after a time that the seed draws."""

    def __init__(self, dice: random.Random, *, thread_seconds: float, dies: Callable[[Mortal], None]) -> None:
        super().__init__()
        self._dice = dice
        self._thread_seconds = thread_seconds
        self._dies = dies
        self._timers: list[tuple[float, int, Step]] = []
        """By time, and those of one time in their order."""
        self._numbers = 0
        self.turns = 0
        self.most_turns = MOST_TURNS
        self.set_task_factory(_task)  # type: ignore[arg-type] # its type knows nothing of contexts

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> Step:  # type: ignore[override]
        step = Step(callback, args, context)
        self._ready.append(step)  # type: ignore[attr-defined] # of asyncio's own loop
        return step

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Step:
        step = Step(callback, args, context, when)
        self._numbers += 1
        heappush(self._timers, (when, self._numbers, step))
        return step

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Step:
        return self.call_at(self._at + delay, callback, *args, context=context)

    def _run_once(self) -> None:
        """One turn of the loop: what is ready now, each unless its process is dead or stopped."""
        ready, timers = self._ready, self._timers  # type: ignore[attr-defined] # of asyncio's own loop
        if not ready:
            while timers and timers[0][2]._cancelled:  # noqa: SLF001 - the loop's own
                heappop(timers)
            if not timers:
                raise NothingLeft("nothing is left to happen: every task waits for another one")
            self._at = max(self._at, timers[0][0])
        while timers and timers[0][0] <= self._at:
            ready.append(heappop(timers)[2])
        batch = list(ready)
        ready.clear()
        if len(batch) > 1:
            shuffle(batch, self._dice.getrandbits)
        self.turns += 1
        if self.turns > self.most_turns:
            raise NothingLeft(f"{self.turns} turns, and no end")
        for step in batch:
            if not step._cancelled:  # noqa: SLF001 - the loop's own
                self._run(step)

    def _run(self, step: Step) -> None:
        """Run one step, unless its process is dead or stopped, or dies before it."""
        context = step._context  # noqa: SLF001 - the loop's own
        owner = context.get(OWNER)
        if owner is not None:
            if owner.dead:
                return
            if owner.stopped is not None:
                owner.stopped.append(step)
                return
            owner.steps += 1
            if owner.dies_at is not None and owner.steps >= owner.dies_at:
                self._dies(owner)
                return
        try:
            context.run(step._callback, *step._args)  # noqa: SLF001 - the loop's own
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001 - as asyncio's own loop does
            self.call_exception_handler({"message": "a step failed", "exception": error})

    def resume(self, owner: Mortal) -> None:
        """Let a stopped process go on where it was."""
        held, owner.stopped = owner.stopped, None
        self._ready.extend(held or ())  # type: ignore[attr-defined] # of asyncio's own loop

    def run_in_executor(  # type: ignore[override]
        self,
        executor: object,
        func: Callable[..., T],
        *args: Any,
    ) -> "asyncio.Future[T]":
        done: asyncio.Future[T] = self.create_future()
        owner, delay = OWNER.get(), self._dice.random() * self._thread_seconds
        if owner is None:
            self.call_later(delay, self._work, done, func, args)
        elif not owner.dead:
            at = owner.busy_until[executor] = max(self._at, owner.busy_until.get(executor, 0.0) + 1e-6) + delay
            self.call_at(at, self._work, done, func, args)
        return done

    def _work(self, done: "asyncio.Future[Any]", func: Callable[..., Any], args: tuple[Any, ...]) -> None:
        """Between this turn and the next one its process may die: the work is done, and nobody hears of it."""
        try:
            result = func(*args)
        except Exception as error:  # noqa: BLE001 - the future carries it to the caller
            self.call_soon(_tell, done.set_exception, done, error)
        else:
            self.call_soon(_tell, done.set_result, done, result)


def shuffle(batch: list[Any], bits: Callable[[int], int]) -> None:
    """As `random.shuffle` does, in the same order for the same dice, without a call for each place."""
    for place in range(len(batch) - 1, 0, -1):
        size = (place + 1).bit_length()
        other = bits(size)
        while other > place:
            other = bits(size)
        batch[place], batch[other] = batch[other], batch[place]


def _tell(give: Callable[[Any], None], done: "asyncio.Future[Any]", answer: Any) -> None:
    if not done.done():
        give(answer)


def _task(
    loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T], *, context: Context | None = None
) -> "asyncio.Task[T]":
    task: asyncio.Task[T] = asyncio.Task(work, loop=loop, context=context)
    # The dead leave tasks behind that never end.
    task._log_destroy_pending = False  # type: ignore[attr-defined] # noqa: SLF001 - as above
    owner = OWNER.get() if context is None else context.get(OWNER)
    if owner is not None:
        owner.began(task)
    return task
