"""Calls of a provider: one message, a batch in one call, or many concurrent calls; each ends in an outcome."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from carillon.domain.claims import Dispatch
from carillon.domain.outcomes import Outcome, Throttled, Unknown
from carillon.domain.ports import BatchProvider, Provider, StartingProvider
from carillon.faultpoint import faultpoint

EXTRA_SECONDS = 1.0
"""A provider enforces its own deadline; the timer here cancels a call that is this much later."""
TICK_SECONDS = 0.25

EndedCall = tuple[Dispatch, Outcome]
_TOO_LATE = Throttled("the lease ran out before the call", 0.0, "claim_lost")


class Calls:
    """Calls providers; an exception of a provider becomes an outcome."""

    def __init__(self, *, give_back: bool) -> None:
        self._give_back = give_back
        """True gives a call that the shutdown cancels back to the backlog; False makes it an unknown outcome."""
        self.cutting_off = False
        self._deadlines = DeadlineTimer()

    async def one(self, provider: Provider, dispatch: Dispatch) -> Outcome:
        """Send one message."""
        faultpoint("before_send")
        task = _task()
        self._deadlines.watch(task, dispatch.timeout_seconds + EXTRA_SECONDS)
        outcome: Outcome | None = None
        try:
            outcome = await provider.send(dispatch)
        except TimeoutError:
            outcome = _late()
        except asyncio.CancelledError:
            pass
        except Exception as error:  # noqa: BLE001 - a provider's bug must end in its own route's history
            outcome = _bug(error)
        late = self._deadlines.release(task)
        if outcome is None:
            outcome = _late() if late else self._cut_off()
        faultpoint("after_provider_ok")
        return outcome

    async def batch(self, provider: Provider, ready: Sequence[Dispatch]) -> list[Outcome]:
        """Send many messages in one call; one call each where the provider has no batches."""
        if not isinstance(provider, BatchProvider):
            return [await self.one(provider, dispatch) for dispatch in ready]
        faultpoint("before_send")
        try:
            async with asyncio.timeout(_longest(ready)):
                outcomes = await provider.send_many(ready)
        except TimeoutError:
            outcomes = [_late() for _ in ready]
        except asyncio.CancelledError:
            outcomes = [self._cut_off() for _ in ready]
        except Exception as error:  # noqa: BLE001 - a provider's bug must end in its own routes' history
            outcomes = [_bug(error) for _ in ready]
        if len(outcomes) != len(ready):
            said = f"provider gave {len(outcomes)} outcomes for {len(ready)} messages"
            outcomes = [Unknown(said, "provider_error") for _ in ready]
        faultpoint("after_provider_ok")
        return outcomes

    async def concurrent(
        self,
        provider: StartingProvider,
        ready: Sequence[Dispatch],
        on_ended: Callable[[list[EndedCall]], None],
    ) -> None:
        """Make many concurrent calls in one task; `on_ended` gets every ended call once, several at a time.

        Raises CancelledError when cancelled calls go back to the backlog; `on_ended` does not get those.
        """
        task = _task()
        calls = _ConcurrentCalls(on_ended)
        self._deadlines.watch(task, _longest(ready))
        try:
            calls.start(provider, ready)
            await calls.all_ended.wait()
        except asyncio.CancelledError:
            calls.cancel()
            late = self._deadlines.release(task)
            calls.end_all(_late() if late else self._cut_off())
        finally:
            self._deadlines.release(task)
            calls.close()

    async def afterwards(self, telling: Awaitable[None]) -> None:
        """Wait for what follows an ended call; the shutdown cuts that short, and the outcome stays known."""
        try:
            await telling
        except asyncio.CancelledError:
            if not self.cutting_off:
                raise
            _task().uncancel()

    def _cut_off(self) -> Outcome:
        task = asyncio.current_task()
        if not self.cutting_off or task is None or self._give_back:
            raise asyncio.CancelledError
        task.uncancel()
        return Unknown("cut off by shutdown", "shutdown")


class _ConcurrentCalls:
    """Calls in flight, and the ended ones that `on_ended` has not got yet."""

    def __init__(self, on_ended: Callable[[list[EndedCall]], None]) -> None:
        self._on_ended = on_ended
        self._loop = asyncio.get_running_loop()
        self._began = 0.0
        self._open: dict[int, tuple[Dispatch, Callable[[], None] | None]] = {}
        self._ended: list[EndedCall] = []
        self.all_ended = asyncio.Event()

    def start(self, provider: StartingProvider, ready: Sequence[Dispatch]) -> None:
        """Start all calls, each at its time."""
        self._began = self._loop.time()
        for dispatch in ready:
            self._open[dispatch.claim.token] = (dispatch, None)
        for dispatch in ready:
            if dispatch.starts_in > 0.0:
                timer = self._loop.call_later(dispatch.starts_in, self._start, provider, dispatch)
                self._open[dispatch.claim.token] = (dispatch, timer.cancel)
            else:
                self._start(provider, dispatch)

    def _start(self, provider: StartingProvider, dispatch: Dispatch) -> None:
        """Start one call; a provider's bug ends in its own route's history."""
        token = dispatch.claim.token
        if token not in self._open:
            return
        try:
            faultpoint("before_send")
            if self._loop.time() - self._began > dispatch.starts_in + dispatch.timeout_seconds:
                # This process stood still after it looked at its leases: of a whole batch, one call may be too late.
                self._end(token, _TOO_LATE)
                return
            cancel = provider.start(dispatch, partial(self._end, token))
        except Exception as error:  # noqa: BLE001 - as above
            self._end(token, _bug(error))
        else:
            # The call may have ended already.
            if token in self._open:
                self._open[token] = (dispatch, cancel)

    def cancel(self) -> None:
        """Cancel the calls in flight, and report those that have ended."""
        for _, cancel in list(self._open.values()):
            if cancel is not None:
                cancel()
        self._report()

    def end_all(self, outcome: Outcome) -> None:
        """End every call in flight with this outcome."""
        for token in list(self._open):
            self._end(token, outcome)
        self._report()

    def close(self) -> None:
        """Ignore later outcomes: their calls went back to the backlog."""
        self._open.clear()

    def _end(self, token: int, outcome: Outcome) -> None:
        found = self._open.pop(token, None)
        if found is None:
            return
        if not self._ended:
            self._loop.call_soon(self._report)
        self._ended.append((found[0], outcome))

    def _report(self) -> None:
        ended, self._ended = self._ended, []
        for _ in ended:
            faultpoint("after_provider_ok")
        if ended:
            self._on_ended(ended)
        if not self._open:
            self.all_ended.set()


class DeadlineTimer:
    """Cancels tasks whose call is late, with one timer for all: a timer for each would cost more than most calls."""

    def __init__(self) -> None:
        self._until: dict[asyncio.Task[object], float] = {}
        self._cancelled: set[asyncio.Task[object]] = set()
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, task: "asyncio.Task[object]", seconds: float) -> None:
        """Give the task this long; the timer may be a tick late."""
        loop = task.get_loop()
        self._until[task] = loop.time() + seconds
        if self._timer is None:
            self._timer = loop.call_later(TICK_SECONDS, self._tick)

    def release(self, task: "asyncio.Task[object]") -> bool:
        """Stop watching a task whose call ended; True, and the cancellation withdrawn, if this timer cancelled it."""
        self._until.pop(task, None)
        if task not in self._cancelled:
            return False
        self._cancelled.discard(task)
        task.uncancel()
        return True

    def _tick(self) -> None:
        self._timer = None
        if not self._until:
            return
        loop = asyncio.get_running_loop()
        now = loop.time()
        for task in [task for task, until in self._until.items() if until <= now]:
            del self._until[task]
            self._cancelled.add(task)
            task.cancel()
        self._timer = loop.call_later(TICK_SECONDS, self._tick)


def _task() -> "asyncio.Task[object]":
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("a call needs a running task")
    return task


def _longest(ready: Sequence[Dispatch]) -> float:
    return max(dispatch.starts_in + dispatch.timeout_seconds for dispatch in ready) + EXTRA_SECONDS


def _late() -> Outcome:
    return Unknown("the call outlived its deadline", "timeout")


def _bug(error: Exception) -> Outcome:
    return Unknown(f"provider raised {type(error).__name__}: {error}", "provider_error")
