"""What a worker asks the backlog for: which providers in one claim, and how much of each lane."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import msgspec

from carillon.domain.breaker import State
from carillon.domain.claims import Claim, Want
from carillon.domain.decide import candidates
from carillon.domain.groups import NO_TURNS, Turns
from carillon.domain.lanes import Lanes, shares
from carillon.domain.ports import Clock
from carillon.domain.targets import lane_target


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


def unpaused(lanes: Lanes, paused: Collection[str]) -> Lanes:
    """The lanes that no operator has paused: what waits in the others stays in the backlog."""
    if not paused:
        return lanes
    kept = {name: lane for name, lane in lanes.by_name.items() if lane_target(lane.rank) not in paused}
    return Lanes(kept, lanes.strict)


class CallSlots(msgspec.Struct, frozen=True):
    """The slots of the provider that calls go to."""

    provider: str
    most: int
    free: int


def slots(
    chains: Mapping[str, Sequence[str]],
    states: Mapping[str, State],
    calls: Mapping[str, int],
    most: Callable[[str], int],
) -> dict[str, CallSlots]:
    """Where the calls of each provider's routes go now, and how many more may go there.

    A breaker that is not closed sends them to the next provider, which may have fewer slots, and calls of its own.
    """
    goes: dict[str, str] = {}
    for chain in chains.values():
        for name in chain:
            well = (one for one in candidates(chain, name) if states.get(one, State.CLOSED) is State.CLOSED)
            goes.setdefault(name, next(well, name))
    used: Counter[str] = Counter()
    for name, to in goes.items():
        used[to] += calls.get(name, 0)
    return {name: CallSlots(to, most(to), most(to) - used[to]) for name, to in goes.items()}


def questions(room: Mapping[str, int], free: int) -> list[tuple[list[str], int]]:
    """The claims to make: which providers each one asks for, and how many routes in total.

    Providers with room for all free slots share one claim. A provider with less room gets a claim of its own: only the
    claim's total keeps the provider below its limit, because its routes may wait in several lanes.
    """
    wide = [provider for provider, space in room.items() if space >= free]
    narrow = [([provider], space) for provider, space in room.items() if 0 < space < free]
    return [*([(wide, free)] if wide else []), *narrow]


def wants(
    lanes: Lanes,
    providers: Sequence[str],
    total: int,
    turns: Mapping[str, Turns] | None = None,
    most: Mapping[tuple[int, str], int] | None = None,
    *,
    lacking: Collection[int] = (),
) -> list[Want]:
    """One want per lane and provider, most urgent lane first.

    Weighted lanes get their shares first. A second want for each lane in the same claim gives the unused shares to any
    lane with work. `most` bounds what both wants of a lane take for a provider together. Lanes that are `lacking` calls
    come first: a claim of one route would always be for the most urgent lane with work.
    """
    known, bounds = turns or {}, most or {}
    first: list[Want] = []
    second: list[Want] = []
    for rank, share in sorted(shares(lanes, total), key=lambda pair: pair[0] not in lacking):
        for provider in providers:
            bound = bounds.get((rank, provider), total)
            own = 0 if lanes.strict else min(share, bound)
            rest = total if bound >= total else bound - own
            first.append(Want(rank, provider, own, known.get(provider, NO_TURNS)))
            second.append(Want(rank, provider, rest, known.get(provider, NO_TURNS)))
    return [want for want in [*first, *second] if want.limit > 0]
