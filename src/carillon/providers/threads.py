"""Plain functions run beside the loop: daemon threads, so that one that hangs keeps nobody from leaving."""

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable

from carillon.domain.errors import Overloaded

IDLE_SECONDS = 30.0
MOST_STUCK = 100
"""Threads given up on; each keeps its memory, so there must be an end."""


class _Run:
    def __init__(self, call: Callable[[], object], done: "asyncio.Future[None]") -> None:
        self.call = call
        self.done = done
        self.loop = done.get_loop()
        self.context = contextvars.copy_context()
        self.begun = False
        self.abandoned = False


class Threads:
    """At most `most` threads that somebody still waits for."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: queue.SimpleQueue[_Run] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._idle = 0
        self._stuck = 0

    async def run(self, call: Callable[[], object]) -> None:
        """Run it to its end, and raise what it raised; cancelled, its thread is given up and replaced."""
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
                    # Somebody put it there counting on us, in the moment in which we gave up waiting.
                    continue
                if run is None or self._threads - self._stuck > self._most:
                    self._threads -= 1
                    if run is not None:
                        self._waiting.put(run)
                    return
                run.begun = not run.abandoned
            if run.begun:
                self._carry_out(run)

    def _carry_out(self, run: _Run) -> None:
        error: BaseException | None = None
        try:
            run.context.run(run.call)
        except BaseException as raised:  # noqa: BLE001 - told to whoever waits, whatever it is
            error = raised
        with self._lock:
            self._stuck -= run.abandoned
        try:
            run.loop.call_soon_threadsafe(_tell, run.done, error)
        except RuntimeError:
            # The loop has gone, and with it everybody who could want to know.
            return


def _tell(done: "asyncio.Future[None]", error: BaseException | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(None)
    elif isinstance(error, Exception):
        done.set_exception(error)
    else:
        # A future cannot carry an exit: it is a failed run like any other.
        done.set_exception(RuntimeError(f"{type(error).__name__}: {error}"))
