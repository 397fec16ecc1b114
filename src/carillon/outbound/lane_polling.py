"""How often each lane is looked into, where a lane has a pace of its own."""

from collections.abc import Iterable

from carillon.domain.claims import Claim
from carillon.domain.lanes import Lanes
from carillon.domain.ports import Clock


class Tempo:
    """Leaves out lanes that were found empty a moment ago; one that had work is looked into again at once."""

    def __init__(self, lanes: Lanes, clock: Clock) -> None:
        self._lanes = lanes
        self._clock = clock
        self._next = {lane.rank: 0.0 for lane in lanes.queued() if lane.poll_seconds is not None}

    def due(self) -> Lanes:
        """The lanes whose time has come."""
        if not self._next:
            return self._lanes
        now = self._clock.monotonic()
        ready = {name: lane for name, lane in self._lanes.by_name.items() if self._next.get(lane.rank, now) <= now}
        return Lanes(ready, self._lanes.strict)

    def looked(self, lanes: Lanes, claims: Iterable[Claim]) -> None:
        """Remember which of them had work."""
        if not self._next:
            return
        now, busy = self._clock.monotonic(), {claim.lane for claim in claims}
        for lane in lanes.queued():
            if lane.poll_seconds is not None and lane.rank not in busy:
                self._next[lane.rank] = now + lane.poll_seconds
