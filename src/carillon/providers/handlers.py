"""The provider that calls registered functions: a return is sent, an exception unavailable, Permanent refused."""

import asyncio
import contextvars
import inspect
import queue
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import Any, TypeAlias

import msgspec

from carillon.domain.claims import Claim, Dispatch
from carillon.domain.errors import CarillonError, Overloaded
from carillon.domain.jobs import Effects, JobMessage, Permanent
from carillon.domain.outcomes import Outcome, Refused, Sent, Throttled, Unavailable

IDLE_SECONDS = 30.0
MOST_STUCK = 100
"""Hanging threads that one process tolerates; each keeps its memory."""
LONGEST_ERROR = 2000
AGAIN_SECONDS = 1.0
_SENT = Sent()


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


class EffectBusy(CarillonError):
    """Another message runs this effect at the moment: this run fails and is retried."""


class Job:
    """The message that a handler gets."""

    __slots__ = ("_effects", "_hold_seconds", "_loop", "_message", "max_attempts", "queue", "raw")

    def __init__(
        self,
        queue: str,
        message: JobMessage,
        raw: bytes,
        max_attempts: int,
        *,
        effects: Effects,
        hold_seconds: float,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.queue = queue
        self.raw = raw
        """The exact bytes of the message."""
        self.max_attempts = max_attempts
        """The number of retries: the message's own, otherwise the policy's."""
        self._message = message
        self._effects = effects
        self._hold_seconds = hold_seconds
        self._loop = loop

    @property
    def id(self) -> str:
        return self._message.id

    @property
    def action(self) -> str:
        return self._message.action

    @property
    def correlation_id(self) -> str | None:
        return self._message.correlation_id

    @property
    def idempotency_key(self) -> str | None:
        return self._message.idempotency_key

    @property
    def created_at(self) -> str | None:
        return self._message.created_at

    @property
    def attempts(self) -> int:
        """How many runs failed before this one."""
        return self._message.attempts

    @property
    def payload(self) -> dict[str, Any]:
        """The payload of an envelope, or the whole of a raw dict."""
        return self._message.payload

    def once(self, key: str) -> "Once":
        """`async with job.once(key) as first:` (or `with` in a plain function): False when the effect was done before.

        The block runs at least once, and never again after it has ended without an exception. If the process dies
        inside the block, the next run repeats it.
        """
        return Once(self._effects, key, f"{self.queue}/{self.id}", self._hold_seconds, self._loop)


class Once:
    """The context manager of one effect that must happen once."""

    def __init__(
        self, effects: Effects, key: str, holder: str, hold_seconds: float, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._effects = effects
        self._key = key
        self._holder = holder
        self._hold_seconds = hold_seconds
        self._loop = loop
        self._first = False

    async def __aenter__(self) -> bool:
        answer = await self._effects.begin_effect(self._key, self._holder, self._hold_seconds)
        if answer == "busy":
            raise EffectBusy(f"{self._key}: another message runs this effect; this one will be retried")
        self._first = answer == "begun"
        return self._first

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._first and kind is None:
            await self._effects.finish_effect(self._key, self._holder)
        elif self._first:
            # Release the key; another job may run the effect.
            await self._effects.abandon_effect(self._key, self._holder)

    def __enter__(self) -> bool:
        return bool(self._wait(self.__aenter__()))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._wait(self.__aexit__(kind, error, trace))

    def _wait(self, work: Coroutine[Any, Any, Any]) -> Any:  # noqa: ANN401 - what the work returns
        future: Future[Any] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return future.result()


Function: TypeAlias = Callable[[Job], Awaitable[None] | None]


class Handler(msgspec.Struct, frozen=True):
    """The function that handles the messages of a queue."""

    function: Function
    action: str
    """The action of messages that name none."""
    hold_seconds: float
    """How long the key of an effect is reserved for the message that runs it."""

    @property
    def name(self) -> str:
        return getattr(self.function, "__name__", type(self.function).__name__)

    @property
    def waits(self) -> bool:
        """Whether the function is a coroutine and runs in the event loop; a plain function runs in a thread."""
        called = getattr(self.function, "__call__", None)  # noqa: B004 - an object may have an async one
        return inspect.iscoroutinefunction(self.function) or inspect.iscoroutinefunction(called)


class Handlers:
    """Satisfies Provider: calls the function registered for the claim's queue."""

    def __init__(self, handlers: Mapping[str, Handler], effects: Effects, threads: Threads) -> None:
        self._handlers = handlers
        self._waits = {queue: handler.waits for queue, handler in handlers.items()}
        self._effects = effects
        self._threads = threads
        self._running: dict[int, asyncio.Task[Any]] = {}
        self._lost: set[int] = set()

    async def send(self, dispatch: Dispatch) -> Outcome:
        claim, loop = dispatch.claim, asyncio.get_running_loop()
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a handler needs a running task")
        handler, place = self._handlers[claim.provider], claim.place
        job = Job(
            claim.provider,
            place.message,
            place.raw,
            claim.max_attempts - 1,
            effects=self._effects,
            hold_seconds=handler.hold_seconds,
            loop=loop,
        )
        self._running[claim.token] = task
        try:
            if self._waits[claim.provider]:
                await handler.function(job)  # type: ignore[misc]
            else:
                await self._threads.run(lambda: _called(handler.function, job))
        except Permanent as error:
            return Refused(_said(error), "permanent")
        except Overloaded as error:
            return Throttled(_said(error))
        except asyncio.CancelledError:
            return self._cancelled(claim, task)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - any exception of a handler is a failed run
            return Unavailable(_said(error), "handler_error")
        finally:
            del self._running[claim.token]
            self._lost.discard(claim.token)
        return _SENT

    def lose(self, claim: Claim) -> None:
        """Cancel the handler of a message whose lock is lost: another worker may run it now."""
        task = self._running.get(claim.token)
        if task is not None:
            self._lost.add(claim.token)
            task.cancel()
            # Again after a while: a library that the handler uses may swallow a cancellation.
            task.get_loop().call_later(AGAIN_SECONDS, self.lose, claim)

    async def aclose(self) -> None:
        """Nothing is open."""

    def _cancelled(self, claim: Claim, task: "asyncio.Task[Any]") -> Outcome:
        if claim.token in self._lost:
            while task.cancelling():
                task.uncancel()
            return Unavailable("the lock was lost while the handler ran", "lock_lost")
        if task.cancelling():
            raise asyncio.CancelledError
        # This task was not cancelled: something inside the handler was, and the handler passed it on.
        return Unavailable("the handler was cancelled from within", "handler_error")


def _called(function: Function, job: Job) -> None:
    answer = function(job)
    if inspect.isawaitable(answer):
        # A plain function that returns a coroutine expects us to run it.
        asyncio.run(_awaited(answer))


async def _awaited(answer: Awaitable[None]) -> None:
    await answer


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:LONGEST_ERROR]
