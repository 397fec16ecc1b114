"""The next calls of a provider with few slots: claims that wait for a moment, so that no slot stays empty."""

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping

from carillon.domain.claims import Claim
from carillon.domain.lanes import Lanes, kept_free
from carillon.domain.ports import Clock

AHEAD_SECONDS = 0.05
"""Claims ahead are as many as calls end in this time: none waits longer, and a slow vendor's are left to others."""
WINDOW_SECONDS = 0.25
"""How long the ends of calls are counted before their rate is believed."""


class NextCalls:
    """Begins the most urgent claim whenever a slot of its provider is free; a claim ahead has not begun its time.

    A claim of a few routes costs nearly as much as one of many, and a slot that waits for the next claim does nothing.

    A lane with fewer calls than its share of the slots goes before those that have theirs, and needs to leave no more
    slots free than the lane before it: where slots become free one by one, a flood would take each of them.
    """

    def __init__(self, most: Mapping[str, int], lanes: Lanes, clock: Clock) -> None:
        self._most = most
        self._kept = {provider: kept_free(lanes, slots) for provider, slots in most.items()}
        self._ranks = [lane.rank for lane in lanes.queued()]
        self._weights = {lane.rank: 0 if lanes.strict else lane.weight for lane in lanes.queued()}
        self._all_weights = max(1, sum(self._weights.values()))
        self._clock = clock
        self._waiting: dict[str, dict[int, deque[Claim]]] = {provider: {} for provider in most}
        """By provider and lane."""
        self._calling: Counter[tuple[str, int]] = Counter()
        """Calls by the provider and the lane of their claims."""
        self._goes: Mapping[str, str] = {}
        """Which provider the claims of each call now; those of one that is not here call their own."""
        self._ended: Counter[str] = Counter()
        self._since = dict.fromkeys(most, clock.monotonic())
        self._rate: dict[str, float] = {}
        """Calls that end in a second, by provider."""

    def waiting(self, provider: str) -> int:
        """How many claims wait for a slot."""
        return sum(map(len, self._waiting.get(provider, {}).values()))

    def ahead(self, provider: str) -> int:
        """How many claims may wait: never more than the provider has slots."""
        if provider not in self._most:
            return 0
        now = self._clock.monotonic()
        took = now - self._since[provider]
        if took >= WINDOW_SECONDS:
            self._rate[provider] = self._ended.pop(provider, 0) / took
            self._since[provider] = now
        return min(self._most[provider], int(self._rate.get(provider, 0.0) * AHEAD_SECONDS))

    def follow(self, goes: Mapping[str, str]) -> None:
        """Where the claims of each provider are called now: while its breaker is open, at the next of its chain."""
        self._goes = goes

    def lacks(self, provider: str, rank: int) -> int:
        """How many calls a lane has too few for its share of the provider's slots; not positive if it has enough."""
        weight = self._weights.get(rank, 0)
        if provider not in self._most or not weight:
            return 0
        share = max(1, self._most[provider] * weight // self._all_weights)
        return share - sum(self._calling[name, rank] for name in self._callers(provider))

    def bound(self, provider: str, rank: int, free: int) -> int:
        """How many of so many free slots a lane may take now; the others are kept for the lanes before it."""
        kept = self._kept.get(provider, {})
        usual = free - kept.get(rank, 0)
        lacking = self.lacks(provider, rank)
        if lacking <= 0:
            return usual
        before = max((kept.get(each, 0) for each in self._ranks if each < rank), default=0)
        return max(usual, min(lacking, free - before))

    def admit(self, claims: Iterable[Claim], calls: Mapping[str, int]) -> list[Claim]:
        """The claims that begin now, the most urgent first; the others wait until a call of their provider ends.

        Those that another provider is called for begin at once: they were claimed for its slots.
        """
        begin: list[Claim] = []
        limited: set[str] = set()
        for claim in claims:
            provider = claim.provider
            if provider in self._most and self._called(provider) == provider:
                self._waiting[provider].setdefault(claim.lane, deque()).append(claim)
                limited.add(provider)
            else:
                begin.append(claim)
                self._calling[provider, claim.lane] += 1
        beside = Counter(self._called(claim.provider) for claim in begin)
        for provider in limited:
            begin += self._fitting(provider, self._busy(provider, calls) + beside[provider])
        return begin

    def ended(self, claims: Iterable[Claim], calls: Mapping[str, int]) -> list[Claim]:
        """Calls of these claims, all of one provider, have ended: the claims that take their slots."""
        number, provider = 0, ""
        for claim in claims:
            number, provider = number + 1, claim.provider
            self._calling[provider, claim.lane] -= 1
        return self.freed(provider, number, calls) if number else []

    def freed(self, provider: str, number: int, calls: Mapping[str, int]) -> list[Claim]:
        """So many calls of this provider's claims have left their slots: the claims that take them."""
        called = self._called(provider)
        if called not in self._most:
            return []
        self._ended[called] += number
        return self._fitting(called, self._busy(called, calls)) if self.waiting(called) else []

    def give_up(self, providers: Iterable[str] | None = None) -> list[Claim]:
        """The claims that wait for these providers, or for any: they are not called."""
        left: list[Claim] = []
        for provider in self._most if providers is None else providers:
            waiting = self._waiting.get(provider, {})
            left += [claim for _, claims in sorted(waiting.items()) for claim in claims]
            waiting.clear()
        return left

    def _busy(self, provider: str, calls: Mapping[str, int]) -> int:
        """How many of the provider's slots are taken, by claims of any provider."""
        return sum(calls[name] for name in self._callers(provider))

    def _callers(self, provider: str) -> Iterator[str]:
        """The providers whose claims call this one now."""
        if provider not in self._goes:
            yield provider
        for name, to in self._goes.items():
            if to == provider:
                yield name

    def _called(self, provider: str) -> str:
        return self._goes.get(provider, provider)

    def _fitting(self, provider: str, busy: int) -> list[Claim]:
        waiting, found = self._waiting[provider], list[Claim]()
        free = self._most[provider] - busy
        while waiting:
            rank, most = self._next_lane(provider, free)
            if most <= 0 and (found or busy > 0):
                break
            # A provider without a call always begins one.
            claims = waiting[rank]
            taken = [claims.popleft() for _ in range(min(max(most, 1), len(claims)))]
            found += taken
            free -= len(taken)
            self._calling[provider, rank] += len(taken)
            if not claims:
                del waiting[rank]
        return found

    def _next_lane(self, provider: str, free: int) -> tuple[int, int]:
        """The lane whose claims begin next, and how many of them; none if no lane that waits may take a slot."""
        lacking = {rank: self.lacks(provider, rank) for rank in self._waiting[provider]}
        ranks = sorted(lacking, key=lambda rank: (lacking[rank] <= 0, rank))
        for rank in ranks:
            most = self.bound(provider, rank, free)
            if most > 0:
                return rank, most if lacking[rank] <= 0 else min(most, lacking[rank])
        return ranks[0], 0
