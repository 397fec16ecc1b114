"""One call of a webhook: it waits for a slot of its endpoint, sends the request and reports the outcome."""

import asyncio
from collections import deque
from collections.abc import Callable

import msgspec

from carillon.domain.outcomes import Outcome, Throttled, Unknown
from carillon.domain.ports import Clock
from carillon.providers.http import Call, HttpClient, HttpRequest, NotSent, Reply, unanswered


class SlotWait:
    """The place of one call in an endpoint's queue; `turn` is None once the call has left it."""

    __slots__ = ("late", "turn", "until")

    def __init__(self, until: float, turn: Callable[[], None], late: Callable[[], None]) -> None:
        self.until = until
        self.turn: Callable[[], None] | None = turn
        self.late = late

    def cancel(self) -> None:
        """Leave the queue; neither callback is called."""
        self.turn = None


class Slots:
    """Keeps one slow endpoint from using all slots of a worker; forgets an endpoint without calls."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._taken: dict[str, int] = {}
        self._queues: dict[str, deque[SlotWait]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        """Kept from the first wait: asking asyncio for it costs a system call each time."""
        self._timer: asyncio.TimerHandle | None = None
        """One timer for all waiting calls: it fires when the first of them is late, or earlier."""

    def take(self, endpoint: str) -> bool:
        """Take a slot if one is free; the caller must give it back."""
        taken = self._taken.get(endpoint, 0)
        if taken >= self._limit:
            return False
        self._taken[endpoint] = taken + 1
        return True

    def wait(self, endpoint: str, seconds: float, turn: Callable[[], None], late: Callable[[], None]) -> SlotWait:
        """Queue for a slot: calls `turn` when there is one, or `late` when the time is over."""
        loop = self._loop = self._loop or asyncio.get_running_loop()
        place = SlotWait(loop.time() + seconds, turn, late)
        self._queues.setdefault(endpoint, deque()).append(place)
        if self._timer is None or place.until < self._timer.when():
            self._arm(loop, place.until)
        return place

    def give_back(self, endpoint: str) -> None:
        """Give the slot to the call that has waited longest, or free it."""
        queue = self._queues.get(endpoint)
        while queue:
            place = queue.popleft()
            turn, place.turn = place.turn, None
            if turn is not None:
                turn()
                return
        self._queues.pop(endpoint, None)
        if self._taken[endpoint] > 1:
            self._taken[endpoint] -= 1
        else:
            del self._taken[endpoint]

    def _arm(self, loop: asyncio.AbstractEventLoop, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_at(when, self._end_late)

    def _end_late(self) -> None:
        """Call `late` for every call whose time is over."""
        self._timer = None
        loop = asyncio.get_running_loop()
        now = loop.time()
        over: list[SlotWait] = []
        first: float | None = None
        for queue in self._queues.values():
            for place in queue:
                if place.turn is None:
                    continue
                if place.until <= now:
                    over.append(place)
                    place.turn = None
                elif first is None or place.until < first:
                    first = place.until
        if first is not None:
            self._arm(loop, first)
        for place in over:
            place.late()


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
        self._tell(Throttled("the endpoint is busy with other calls", self._rules.wait_seconds, "busy"))

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
