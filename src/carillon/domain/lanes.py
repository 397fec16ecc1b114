"""Priority lanes: which one a notification takes, and how claims are shared between them."""

import msgspec

from carillon.domain.intents import Priority

SYNCHRONOUS = "synchronous"


class Lane(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One lane; `rank` orders the lanes and is what the ledger stores."""

    rank: int
    queue_name: str
    """Empty where nothing waits: no worker claims from such a lane."""
    weight: int = 1
    timeout_seconds: float | None = None
    max_attempts: int | None = None
    max_latency_seconds: float = 30.0
    poll_seconds: float | None = None
    """How long to leave the lane alone after it was found empty; None looks whenever a worker looks at all."""


class Lanes(msgspec.Struct, frozen=True):
    """All lanes by name, and how a notification finds its own."""

    by_name: dict[str, Lane]
    strict: bool = False
    """True serves a lane only when every lane before it is empty."""

    def name_for(self, priority: Priority, *, bulk: bool, synchronous: bool = False) -> str:
        """Choose: who waits → synchronous; high → priority; bulk or low → bulk; everything else → standard."""
        if synchronous:
            return SYNCHRONOUS
        if priority is Priority.HIGH:
            return "priority"
        if bulk or priority is Priority.LOW:
            return "bulk"
        return "standard"

    def by_rank(self, rank: int) -> Lane:
        """The lane the ledger knows as `rank`; settings that lost it fall back to the first."""
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


def shares(lanes: Lanes, free: int) -> list[tuple[int, int]]:
    """Split `free` slots into (rank, limit) pairs in order of urgency.

    Weighted lanes each keep at least one slot of ten, so that a flood in an urgent lane slows the others without
    starving them; what a lane leaves unused is claimed by a second, unweighted round.
    """
    ordered = lanes.queued()
    if lanes.strict:
        return [(lane.rank, free) for lane in ordered]
    total = sum(lane.weight for lane in ordered)
    return [(lane.rank, max(1, free * lane.weight // total)) for lane in ordered]
