"""The limit of concurrent calls per endpoint, and the calls that wait for a slot."""

import asyncio
from collections import deque
from collections.abc import Callable


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
