"""How many calls an endpoint has at once, and who waits for it to have fewer."""

import asyncio
from collections import deque
from collections.abc import Callable


class Waiting:
    """Somebody's place in an endpoint's queue; without a turn it is nobody's any more."""

    __slots__ = ("late", "turn", "until")

    def __init__(self, until: float, turn: Callable[[], None], late: Callable[[], None]) -> None:
        self.until = until
        self.turn: Callable[[], None] | None = turn
        self.late = late

    def leave(self) -> None:
        """Wait no longer, and hear nothing."""
        self.turn = None


class Slots:
    """Keeps one slow endpoint from taking every worker; knows only endpoints that are being called."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._taken: dict[str, int] = {}
        self._queues: dict[str, deque[Waiting]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        """That of whoever waited first; asking for it costs a system call each time."""
        self._timer: asyncio.TimerHandle | None = None
        """One for everybody who waits: it stands at the first one's end, or before it."""

    def take(self, endpoint: str) -> bool:
        """Take a slot if there is one now; every slot taken is given back."""
        taken = self._taken.get(endpoint, 0)
        if taken >= self._limit:
            return False
        self._taken[endpoint] = taken + 1
        return True

    def wait(self, endpoint: str, seconds: float, turn: Callable[[], None], late: Callable[[], None]) -> Waiting:
        """Queue up for a slot of an endpoint that has none: `turn` comes with one, `late` when the time is over."""
        loop = self._loop = self._loop or asyncio.get_running_loop()
        place = Waiting(loop.time() + seconds, turn, late)
        self._queues.setdefault(endpoint, deque()).append(place)
        if self._timer is None or place.until < self._timer.when():
            self._arm(loop, place.until)
        return place

    def give_back(self, endpoint: str) -> None:
        """Hand the slot to whoever waits longest; the last one out forgets the endpoint."""
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
        self._timer = loop.call_at(when, self._look)

    def _look(self) -> None:
        """Tell everybody whose time is over; the others wait on."""
        self._timer = None
        loop = asyncio.get_running_loop()
        now = loop.time()
        over: list[Waiting] = []
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
