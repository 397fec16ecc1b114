"""Which routes a worker asks for, and which provider a route goes to: pure choices over breaker states."""

from collections.abc import Mapping, Sequence

from carillon.domain.breaker import State
from carillon.domain.claims import Want
from carillon.domain.lanes import Lanes, shares


def questions(room: Mapping[str, int], free: int) -> list[tuple[list[str], int]]:
    """Which providers are asked for together, and for how many routes in all.

    Providers with room for everything we can take share one question. One with less is asked for alone, because only a
    question's total keeps it from getting more calls than it bears, whichever lanes its routes wait in.
    """
    wide = [provider for provider, space in room.items() if space >= free]
    narrow = [([provider], space) for provider, space in room.items() if 0 < space < free]
    return [*([(wide, free)] if wide else []), *narrow]


def wants(lanes: Lanes, providers: Sequence[str], total: int) -> list[Want]:
    """One want per lane and provider, most urgent lane first.

    Weighted lanes are asked for their shares first; what the shares leave unused goes to whoever has work, by a second
    want for each lane in the same question.
    """
    ranks = [lane.rank for lane in lanes.queued()]
    shared = [] if lanes.strict else shares(lanes, total)
    return [
        *(Want(rank, provider, share) for rank, share in shared for provider in providers),
        *(Want(rank, provider, total) for rank in ranks for provider in providers),
    ]


def blocked_providers(chains: Mapping[str, Sequence[str]], states: Mapping[str, State]) -> set[str]:
    """Open providers whose routes have nowhere else to go on any channel: claiming them would only give them back."""
    open_now = {provider for provider, state in states.items() if state is State.OPEN}
    return {
        provider
        for provider in open_now
        if all(set(chain) <= open_now for chain in chains.values() if provider in chain)
    }
