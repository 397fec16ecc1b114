"""One timer for all calls under way: a provider that ignores its deadline is cut off a moment after it."""

import asyncio

TICK_SECONDS = 0.25


class Backstop:
    """Remembers when each task's call must have ended; a timer for each would cost more than most calls need."""

    def __init__(self) -> None:
        self._until: dict[asyncio.Task[object], float] = {}
        self._cut: set[asyncio.Task[object]] = set()
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, task: "asyncio.Task[object]", seconds: float) -> None:
        """From now on the task has this long; a tick more or less does not matter to a backstop."""
        loop = task.get_loop()
        self._until[task] = loop.time() + seconds
        if self._timer is None:
            self._timer = loop.call_later(TICK_SECONDS, self._look)

    def let_go(self, task: "asyncio.Task[object]") -> bool:
        """The call has ended; True when it was cut off, and then the task is no longer being cancelled."""
        self._until.pop(task, None)
        if task not in self._cut:
            return False
        self._cut.discard(task)
        task.uncancel()
        return True

    def _look(self) -> None:
        self._timer = None
        if not self._until:
            return
        loop = asyncio.get_running_loop()
        now = loop.time()
        for task in [task for task, until in self._until.items() if until <= now]:
            del self._until[task]
            self._cut.add(task)
            task.cancel()
        self._timer = loop.call_later(TICK_SECONDS, self._look)
