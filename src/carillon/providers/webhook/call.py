"""One call of a webhook: it waits for a slot of its endpoint, sends the request and reports the outcome."""

import asyncio
from collections.abc import Callable

import msgspec

from carillon.domain.outcomes import Outcome, Throttled, Unknown
from carillon.domain.ports import Clock
from carillon.providers.http import Call, HttpClient, HttpRequest, NotSent, Reply, unanswered
from carillon.providers.webhook.slots import Slots, SlotWait


class CallRules(msgspec.Struct, frozen=True):
    """What all calls of one webhook provider share."""

    clock: Clock
    http: HttpClient
    slots: Slots
    wait_seconds: float
    """How long a call waits for a slot of a busy endpoint."""
    judge: Callable[[Reply], Outcome]


class WebhookCall:
    """Runs without a task of its own; `tell` gets the outcome once, unless the call is cancelled before."""

    __slots__ = ("_began", "_request", "_rules", "_seconds", "_step", "_tell", "_url")

    def __init__(
        self,
        rules: CallRules,
        url: str,
        seconds: float,
        request: Callable[[float], HttpRequest],
        tell: Callable[[Outcome], None],
    ) -> None:
        self._rules = rules
        self._url = url
        self._seconds = seconds
        self._request = request
        """Builds the request at the moment of sending, as its timestamp is signed; takes the seconds left."""
        self._tell = tell
        self._began = rules.clock.monotonic()
        self._step: SlotWait | Call | asyncio.Task[Reply] | asyncio.Handle | None = None
        """What the call waits for; None before and after."""

    def begin(self) -> None:
        rules = self._rules
        if rules.slots.take(self._url):
            self._send()
        else:
            seconds = min(rules.wait_seconds, self._seconds)
            self._step = rules.slots.wait(self._url, seconds, self._send, self._late)

    def cancel(self) -> None:
        """End the call without an outcome; the next call in line gets its slot."""
        step, self._step = self._step, None
        if isinstance(step, SlotWait):
            step.cancel()
        elif step is not None:
            step.cancel()
            self._rules.slots.give_back(self._url)

    def _late(self) -> None:
        self._step = None
        self._tell(Throttled("the endpoint is busy with other calls", retry_after=self._rules.wait_seconds))

    def _send(self) -> None:
        rules = self._rules
        left = max(0.0, self._seconds - (rules.clock.monotonic() - self._began))
        try:
            request = self._request(left)
            step = rules.http.start(request, self._ended)
        except Exception as error:  # noqa: BLE001 - the slot must be given back, whatever error a message provokes
            self._conclude_soon(_bug(error))
            return
        if isinstance(step, NotSent):
            self._conclude_soon(unanswered(step))
        elif step is not None:
            self._step = step
        else:
            # The name needs a DNS look-up, and that needs a task.
            self._step = asyncio.create_task(rules.http.post(request))
            self._step.add_done_callback(self._posted)

    def _conclude_soon(self, outcome: Outcome) -> None:
        # Not at once: the next call in line may fail as quickly, and each would recurse into the one after it.
        self._step = asyncio.get_running_loop().call_soon(self._conclude, outcome)

    def _posted(self, post: asyncio.Task[Reply]) -> None:
        if self._step is not post:
            return
        error = asyncio.CancelledError() if post.cancelled() else post.exception()
        if error is None:
            self._ended(post.result())
        else:
            self._conclude(_bug(error))

    def _ended(self, reply: Reply) -> None:
        try:
            outcome = self._rules.judge(reply)
        except Exception as error:  # noqa: BLE001 - the HTTP client that calls this has other replies to report
            outcome = _bug(error)
        self._conclude(outcome)

    def _conclude(self, outcome: Outcome) -> None:
        self._step = None
        self._rules.slots.give_back(self._url)
        self._tell(outcome)


def _bug(error: BaseException) -> Unknown:
    return Unknown(f"provider raised {type(error).__name__}: {error}", "provider_error")
