"""Which routes a worker asks the backlog for: so many of each lane and provider."""

from collections.abc import Iterable, Mapping, Sequence

from carillon.domain.claims import Claim, Want
from carillon.domain.lanes import Lanes, shares
from carillon.domain.ports import Clock


class LanePolling:
    """Skips a lane with its own `poll_seconds` after it was empty; a lane that had work is asked again at once."""

    def __init__(self, lanes: Lanes, clock: Clock) -> None:
        self._lanes = lanes
        self._clock = clock
        self._next = {lane.rank: 0.0 for lane in lanes.queued() if lane.poll_seconds is not None}

    def due(self) -> Lanes:
        """The lanes to ask now."""
        if not self._next:
            return self._lanes
        now = self._clock.monotonic()
        ready = {name: lane for name, lane in self._lanes.by_name.items() if self._next.get(lane.rank, now) <= now}
        return Lanes(ready, self._lanes.strict)

    def record(self, lanes: Lanes, claims: Iterable[Claim]) -> None:
        """Remember which of the asked lanes had work."""
        if not self._next:
            return
        now, busy = self._clock.monotonic(), {claim.lane for claim in claims}
        for lane in lanes.queued():
            if lane.poll_seconds is not None and lane.rank not in busy:
                self._next[lane.rank] = now + lane.poll_seconds


def questions(room: Mapping[str, int], free: int) -> list[tuple[list[str], int]]:
    """The claims to make: which providers each one asks for, and how many routes in total.

    Providers with room for all free slots share one claim. A provider with less room gets a claim of its own: only the
    claim's total keeps the provider below its limit, because its routes may wait in several lanes.
    """
    wide = [provider for provider, space in room.items() if space >= free]
    narrow = [([provider], space) for provider, space in room.items() if 0 < space < free]
    return [*([(wide, free)] if wide else []), *narrow]


def wants(lanes: Lanes, providers: Sequence[str], total: int) -> list[Want]:
    """One want per lane and provider, most urgent lane first.

    Weighted lanes get their shares first. A second want for each lane in the same claim gives the unused shares to any
    lane with work.
    """
    ranks = [lane.rank for lane in lanes.queued()]
    shared = [] if lanes.strict else shares(lanes, total)
    return [
        *(Want(rank, provider, share) for rank, share in shared for provider in providers),
        *(Want(rank, provider, total) for rank in ranks for provider in providers),
    ]
