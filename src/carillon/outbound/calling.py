"""The call itself: one, many in one, or many side by side, each bounded and each ending in a value."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from carillon.domain.claims import Dispatch
from carillon.domain.outcomes import Outcome, Unknown
from carillon.domain.ports import BatchProvider, Provider, StartingProvider
from carillon.faultpoint import faultpoint
from carillon.outbound.backstop import Backstop

BACKSTOP_SECONDS = 1.0

Ended = tuple[Dispatch, Outcome]


class Calling:
    """Never raises for what a provider did."""

    def __init__(self, *, give_back: bool) -> None:
        self._give_back = give_back
        """Whether what the end of the process cuts off is given back instead of being an unknown outcome."""
        self.cutting_off = False
        self._backstop = Backstop()

    async def one(self, provider: Provider, dispatch: Dispatch) -> Outcome:
        """Call once."""
        faultpoint("before_send")
        task = _task()
        self._backstop.watch(task, dispatch.timeout_seconds + BACKSTOP_SECONDS)
        outcome: Outcome | None = None
        try:
            outcome = await provider.send(dispatch)
        except TimeoutError:
            outcome = _late()
        except asyncio.CancelledError:
            pass
        except Exception as error:  # noqa: BLE001 - a provider's bug must end in its own route's history
            outcome = _bug(error)
        late = self._backstop.let_go(task)
        if outcome is None:
            outcome = _late() if late else self._cut_off()
        faultpoint("after_provider_ok")
        return outcome

    async def many(self, provider: Provider, ready: Sequence[Dispatch]) -> list[Outcome]:
        """Many messages in one call, where the provider can."""
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

    async def each(
        self, provider: StartingProvider, ready: Sequence[Dispatch], ended: Callable[[list[Ended]], None]
    ) -> None:
        """Many calls side by side without a task for each; `ended` hears of each once, of many at a time.

        Raises CancelledError where what was cut off is to be given back: nobody hears of that.
        """
        task = _task()
        flight = _Flight(ended)
        self._backstop.watch(task, _longest(ready))
        try:
            flight.start(provider, ready)
            await flight.over.wait()
        except asyncio.CancelledError:
            flight.give_up()
            late = self._backstop.let_go(task)
            flight.cut(_late() if late else self._cut_off())
        finally:
            self._backstop.let_go(task)
            flight.close()

    def _cut_off(self) -> Outcome:
        task = asyncio.current_task()
        if not self.cutting_off or task is None or self._give_back:
            raise asyncio.CancelledError
        task.uncancel()
        return Unknown("cut off by shutdown", "shutdown")


class _Flight:
    """Calls under way, and those of them that have ended since anybody was told."""

    def __init__(self, ended: Callable[[list[Ended]], None]) -> None:
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._open: dict[int, tuple[Dispatch, Callable[[], None] | None]] = {}
        self._landed: list[Ended] = []
        self.over = asyncio.Event()

    def start(self, provider: StartingProvider, ready: Sequence[Dispatch]) -> None:
        """Set all of them out; a provider's bug ends in its own route's history."""
        for dispatch in ready:
            self._open[dispatch.claim.token] = (dispatch, None)
        for dispatch in ready:
            token = dispatch.claim.token
            try:
                faultpoint("before_send")
                give_up = provider.start(dispatch, partial(self._tell, token))
            except Exception as error:  # noqa: BLE001 - as above
                self._tell(token, _bug(error))
            else:
                # Its end may have been told already.
                if token in self._open:
                    self._open[token] = (dispatch, give_up)

    def give_up(self) -> None:
        """Nobody waits for those that are still under way; of those that have ended everybody hears now."""
        for _, give_up in list(self._open.values()):
            if give_up is not None:
                give_up()
        self._land()

    def cut(self, outcome: Outcome) -> None:
        """What has not ended ended so."""
        for token in list(self._open):
            self._tell(token, outcome)
        self._land()

    def close(self) -> None:
        """Whatever is told from now on was given back: nobody hears of it."""
        self._open.clear()

    def _tell(self, token: int, outcome: Outcome) -> None:
        found = self._open.pop(token, None)
        if found is None:
            return
        if not self._landed:
            self._loop.call_soon(self._land)
        self._landed.append((found[0], outcome))

    def _land(self) -> None:
        landed, self._landed = self._landed, []
        for _ in landed:
            faultpoint("after_provider_ok")
        if landed:
            self._ended(landed)
        if not self._open:
            self.over.set()


def _task() -> "asyncio.Task[object]":
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("a call is made by a task")
    return task


def _longest(ready: Sequence[Dispatch]) -> float:
    return max(dispatch.timeout_seconds for dispatch in ready) + BACKSTOP_SECONDS


def _late() -> Outcome:
    return Unknown("the call outlived its deadline", "timeout")


def _bug(error: Exception) -> Outcome:
    return Unknown(f"provider raised {type(error).__name__}: {error}", "provider_error")
