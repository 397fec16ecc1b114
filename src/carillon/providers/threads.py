"""Threads for handlers that are plain functions; they are daemons, so that a hanging one does not block the exit."""

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable

from carillon.domain.errors import Overloaded

IDLE_SECONDS = 30.0
MOST_STUCK = 100
"""Hanging threads that one process tolerates; each keeps its memory."""


class _Run:
    def __init__(self, call: Callable[[], object], done: "asyncio.Future[None]") -> None:
        self.call = call
        self.done = done
        self.loop = done.get_loop()
        self.context = contextvars.copy_context()
        self.begun = False
        self.abandoned = False


class Threads:
    """Runs functions in at most `most` threads; a thread whose run was cancelled no longer counts."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: queue.SimpleQueue[_Run] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._idle = 0
        self._stuck = 0

    async def run(self, call: Callable[[], object]) -> None:
        """Run a function and raise what it raises; when cancelled, a new thread replaces the one that still runs it."""
        with self._lock:
            if self._stuck >= MOST_STUCK:
                raise Overloaded(f"{self._stuck} runs hang in threads that cannot be ended; restart this process")
        run = _Run(call, asyncio.get_running_loop().create_future())
        self._waiting.put(run)
        self._start()
        try:
            await run.done
        except asyncio.CancelledError:
            with self._lock:
                run.abandoned = True
                self._stuck += run.begun
            raise

    def _start(self) -> None:
        with self._lock:
            if self._idle >= self._waiting.qsize() or self._threads - self._stuck >= self._most:
                return
            self._threads += 1
        threading.Thread(target=self._work, name="carillon-handler", daemon=True).start()

    def _work(self) -> None:
        while True:
            with self._lock:
                self._idle += 1
            try:
                run = self._waiting.get(timeout=IDLE_SECONDS)
            except queue.Empty:
                run = None
            with self._lock:
                self._idle -= 1
                if run is None and not self._waiting.empty():
                    # A run was queued for this thread just as it stopped waiting.
                    continue
                if run is None or self._threads - self._stuck > self._most:
                    self._threads -= 1
                    if run is not None:
                        self._waiting.put(run)
                    return
                run.begun = not run.abandoned
            if run.begun:
                self._execute(run)

    def _execute(self, run: _Run) -> None:
        error: BaseException | None = None
        try:
            run.context.run(run.call)
        except BaseException as raised:  # noqa: BLE001 - the waiting task gets every exception
            error = raised
        with self._lock:
            self._stuck -= run.abandoned
        try:
            run.loop.call_soon_threadsafe(_finish, run.done, error)
        except RuntimeError:
            # The event loop is closed: nothing waits for the result.
            return


def _finish(done: "asyncio.Future[None]", error: BaseException | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(None)
    elif isinstance(error, Exception):
        done.set_exception(error)
    else:
        # A future cannot hold SystemExit: treat it as a failed run.
        done.set_exception(RuntimeError(f"{type(error).__name__}: {error}"))
