"""Lanes: which one a notification takes, and how a worker divides its claims between them."""

import msgspec

from carillon.domain.intents import Priority

SYNCHRONOUS = "synchronous"


class Lane(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One lane; `rank` orders the lanes and is what the ledger stores."""

    rank: int
    queue_name: str
    """Empty for the synchronous lane, in which nothing waits and from which no worker claims."""
    weight: int = 1
    timeout_seconds: float | None = None
    max_attempts: int | None = None
    max_latency_seconds: float = 30.0
    poll_seconds: float | None = None
    """How long a worker skips the lane after it found it empty; None looks at every poll."""


class Lanes(msgspec.Struct, frozen=True):
    """All lanes by name, and the choice of a lane for a notification."""

    by_name: dict[str, Lane]
    strict: bool = False
    """True serves a lane only when every lane before it is empty."""

    def name_for(self, priority: Priority, *, bulk: bool, synchronous: bool = False) -> str:
        """The lane: synchronous if the caller waits, priority for high, bulk for bulk or low, otherwise standard."""
        if synchronous:
            return SYNCHRONOUS
        if priority is Priority.HIGH:
            return "priority"
        if bulk or priority is Priority.LOW:
            return "bulk"
        return "standard"

    def by_rank(self, rank: int) -> Lane:
        """The lane with this `rank`, which the ledger stores; the first lane if the settings no longer have it."""
        for lane in self.by_name.values():
            if lane.rank == rank:
                return lane
        return next(iter(self.by_name.values()))

    def ordered(self) -> list[Lane]:
        """Lanes, most urgent first."""
        return sorted(self.by_name.values(), key=lambda lane: lane.rank)

    def queued(self) -> list[Lane]:
        """The lanes that workers claim from, most urgent first."""
        return [lane for lane in self.ordered() if lane.queue_name]


def kept_free(lanes: Lanes, slots: int) -> dict[int, int]:
    """How many of a provider's slots each lane, by rank, leaves to the lanes before it.

    The least urgent lane leaves a tenth, the others less in equal steps: slow calls of a flood in one lane never occupy
    every slot of a provider that an urgent message needs.
    """
    ordered = lanes.queued()
    steps = max(1, len(ordered) - 1)
    return {lane.rank: slots // 10 * place // steps for place, lane in enumerate(ordered)}


def shares(lanes: Lanes, free: int) -> list[tuple[int, int]]:
    """Split `free` slots into (rank, limit) pairs in order of urgency.

    Weighted lanes each keep at least one slot of ten, so that a flood in an urgent lane slows the others without
    starving them; a second, unweighted round claims the slots that a lane leaves unused.
    """
    ordered = lanes.queued()
    if lanes.strict:
        return [(lane.rank, free) for lane in ordered]
    total = sum(lane.weight for lane in ordered)
    return [(lane.rank, max(1, free * lane.weight // total)) for lane in ordered]
