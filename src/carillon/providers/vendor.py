"""Vendors with an HTTP API: one request for each message, alone or side by side without a task for each."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from carillon.domain.claims import Dispatch
from carillon.domain.outcomes import Outcome, Unknown
from carillon.providers.http import Call, HttpClient, HttpRequest, NotSent, Reply, header_lines

Tell = Callable[[Outcome], None]


class HttpVendor:
    """Satisfies StartingProvider for a vendor that says which request a message is and what a reply means."""

    learns_rates = True
    http: HttpClient

    @property
    def calls_at_once(self) -> int:
        return self.http.calls_per_host

    def request(self, dispatch: Dispatch) -> HttpRequest | Outcome:
        """The request that sends the message, or the outcome of a message that cannot be sent."""
        raise NotImplementedError

    def judged(self, dispatch: Dispatch, answer: Reply) -> Outcome:
        """The outcome that the answer, or its absence, means."""
        raise NotImplementedError

    async def send(self, dispatch: Dispatch) -> Outcome:
        request = self.request(dispatch)
        if not isinstance(request, HttpRequest):
            return request
        return self.judged(dispatch, await self.http.post(request))

    def start(self, dispatch: Dispatch, tell: Tell) -> Callable[[], None]:
        request = self.request(dispatch)
        if not isinstance(request, HttpRequest):
            tell(request)
            return nothing
        call = VendorCall(tell)
        call.begin(self.http, request, lambda reply: self.judged(dispatch, reply))
        return call.cancel


class HeaderLines:
    """Header lines, checked once, that hold a credential: nothing but `reveal` shows them."""

    __slots__ = ("_lines",)

    def __init__(self, headers: Mapping[str, str]) -> None:
        self._lines = header_lines(headers)

    def reveal(self) -> tuple[str, ...]:
        return self._lines

    def __repr__(self) -> str:
        return "HeaderLines(***)"


class VendorCall:
    """One request in flight; `tell` gets the outcome once, unless the call is cancelled before."""

    __slots__ = ("_judge", "_step", "_tell")

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._judge: Callable[[Reply], Outcome | Coroutine[Any, Any, Outcome]] | None = None
        self._step: Call | asyncio.Task[Any] | None = None
        """What the call waits for; None before and after."""

    def begin(
        self,
        http: HttpClient,
        request: HttpRequest,
        judge: Callable[[Reply], Outcome | Coroutine[Any, Any, Outcome]],
    ) -> None:
        """Send the request; `judge` gives the outcome of its reply, or the coroutine that finds it."""
        self._judge = judge
        step = http.start(request, self._replied)
        if isinstance(step, NotSent):
            self._replied(step)
        elif step is None:
            self.wait_for(self._posted(http, request))
        else:
            self._step = step

    def wait_for(self, work: Coroutine[Any, Any, Outcome]) -> None:
        """Go on in a task of its own, for what takes more than one request."""
        self._step = asyncio.get_running_loop().create_task(work)
        self._step.add_done_callback(self._worked)

    def cancel(self) -> None:
        """End the call without an outcome."""
        step, self._step = self._step, None
        if step is not None:
            step.cancel()

    async def _posted(self, http: HttpClient, request: HttpRequest) -> Outcome:
        said = self._judged(await http.post(request))
        return said if not isinstance(said, Coroutine) else await said

    def _judged(self, reply: Reply) -> Outcome | Coroutine[Any, Any, Outcome]:
        if self._judge is None:
            raise RuntimeError("a call that has not begun has no reply")
        return self._judge(reply)

    def _replied(self, reply: Reply) -> None:
        self._step = None
        try:
            said = self._judged(reply)
        except Exception as error:  # noqa: BLE001 - the HTTP client that calls this has other replies to report
            said = _bug(error)
        if isinstance(said, Coroutine):
            self.wait_for(said)
        else:
            self._tell(said)

    def _worked(self, task: "asyncio.Task[Outcome]") -> None:
        if self._step is not task:
            return
        self._step = None
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        self._tell(task.result() if error is None else _bug(error))


def nothing() -> None:
    """Cancels a call that has already ended."""


def _bug(error: BaseException) -> Unknown:
    return Unknown(f"provider raised {type(error).__name__}: {error}", "provider_error")
