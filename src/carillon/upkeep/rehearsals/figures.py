"""What a rehearsal showed: who was told late, by whom, at what price, and how the backlog grew and went."""

import msgspec


class Slice(msgspec.Struct, kw_only=True, rename="camel"):
    """One part of the time."""

    begins: float
    """Virtual seconds since the beginning."""
    accepted: int = 0
    delivered: int = 0
    late: int = 0
    """Delivered later than the lane's `max_latency_seconds`."""
    given_up: int = 0
    """Messages that became dead letters."""
    failed_calls: int = 0
    """Calls that failed."""
    waiting: int = 0
    """Accepted and not ended at the end of the slice."""


class Lateness(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """Seconds from acceptance to delivery."""

    p50: float
    """The half that came first took at most so long."""
    p90: float
    """Nine of ten took at most so long."""
    p99: float
    """All but one of a hundred took at most so long."""
    longest: float
    """The longest time."""


class BreakerTime(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """A time during which a provider's breaker was not closed."""

    provider: str
    begins: float
    """Virtual seconds since the beginning."""
    ends: float | None
    """The same; null if it was not closed at the end."""


class Figures(msgspec.Struct, kw_only=True, rename="camel"):
    """The result; counts are of the whole load, also where one notification stands for several."""

    scale: int
    """How many notifications one that was played stands for."""
    seconds: float
    """Virtual time until everything was settled."""
    accepted: int
    delivered: int
    late: int
    """Delivered later than the lane's `max_latency_seconds`."""
    failed_over: int
    """Delivered by another provider than the first of the channel."""
    given_up: int
    """Messages that became dead letters."""
    skipped: int
    waiting: int
    """Still not ended when the rehearsal ended."""
    repeated: int
    """Messages that a vendor accepted more than once."""
    calls: int
    lateness: Lateness | None
    """How long deliveries took; null if nothing was delivered."""
    reasons: dict[str, int]
    """Why messages were given up."""
    by_provider: dict[str, int]
    """Accepted calls."""
    cost: float
    """What all accepted calls cost, by the prices of the question."""
    costs: dict[str, float]
    """The same by provider; those without a price are missing."""
    peak: int
    """The most that waited at once."""
    caught_up: float | None
    """When nothing was late any more after the last outage, in seconds after its end; None if never."""
    breakers: list[BreakerTime]
    """The times during which a breaker was not closed, the earliest first."""
    slices: list[Slice]
    """Equal parts of the time, the earliest first."""
