"""Which routes a worker asks for, and which provider a route goes to: pure choices over breaker states."""

from collections.abc import Mapping, Sequence

from carillon.domain.breaker import State
from carillon.domain.claims import Want
from carillon.domain.lanes import Lanes, shares


def wants(lanes: Lanes, room: Mapping[str, int], free: int) -> list[Want]:
    """One want per lane and provider, most urgent lane first; `room` is how many calls each provider can take now.

    Weighted lanes are asked for their shares first; what the shares leave unused goes to whoever has work, by a second
    want for each lane in the same question. A provider with less room than we have is asked for shares of its own room
    only: a second want could promise it more calls than it bears.
    """
    first: list[Want] = []
    second: list[Want] = []
    for provider, space in room.items():
        if space <= 0:
            continue
        left = min(space, free)
        for rank, share in shares(lanes, left):
            limit = min(share, left)
            if limit > 0:
                first.append(Want(rank, provider, limit))
            if not lanes.strict:
                left -= limit
        if not lanes.strict and space >= free:
            second += [Want(lane.rank, provider, free) for lane in lanes.ordered()]
    return [*sorted(first, key=_lane), *sorted(second, key=_lane)]


def _lane(want: Want) -> int:
    return want.lane


def blocked_providers(chains: Mapping[str, Sequence[str]], states: Mapping[str, State]) -> set[str]:
    """Open providers whose routes have nowhere else to go on any channel: claiming them would only give them back."""
    open_now = {provider for provider, state in states.items() if state is State.OPEN}
    return {
        provider
        for provider in open_now
        if all(set(chain) <= open_now for chain in chains.values() if provider in chain)
    }


def candidates(chain: Sequence[str], current: str) -> list[str]:
    """The providers of a route in the order in which they are tried: the current one, those after it, then the rest."""
    if current not in chain:
        return list(chain)
    at = list(chain).index(current)
    return [*chain[at:], *chain[:at]]


def following(chain: Sequence[str], provider: str) -> str | None:
    """Where failover from `provider` would go; the last one has nowhere to go."""
    if provider not in chain:
        return None
    rest = list(chain)[list(chain).index(provider) + 1 :]
    return rest[0] if rest else None
