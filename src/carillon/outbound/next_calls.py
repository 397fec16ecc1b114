"""The next calls of a provider with few slots: claims that wait for a moment, so that no slot stays empty."""

from collections import Counter
from collections.abc import Iterable, Mapping
from heapq import heappop, heappush
from itertools import count

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
    """

    def __init__(self, most: Mapping[str, int], lanes: Lanes, clock: Clock) -> None:
        self._most = most
        self._kept = {provider: kept_free(lanes, slots) for provider, slots in most.items()}
        self._clock = clock
        self._waiting: dict[str, list[tuple[int, int, Claim]]] = {provider: [] for provider in most}
        self._goes: Mapping[str, str] = {}
        """Which provider the claims of each call now; those of one that is not here call their own."""
        self._order = count()
        self._ended: Counter[str] = Counter()
        self._since = dict.fromkeys(most, clock.monotonic())
        self._rate: dict[str, float] = {}
        """Calls that end in a second, by provider."""

    def waiting(self, provider: str) -> int:
        """How many claims wait for a slot."""
        return len(self._waiting.get(provider, ()))

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

    def admit(self, claims: Iterable[Claim], calls: Mapping[str, int]) -> list[Claim]:
        """The claims that begin now, the most urgent first; the others wait until a call of their provider ends.

        Those that another provider is called for begin at once: they were claimed for its slots.
        """
        begin: list[Claim] = []
        limited: set[str] = set()
        for claim in claims:
            if claim.provider in self._most and self._called(claim.provider) == claim.provider:
                heappush(self._waiting[claim.provider], (claim.lane, next(self._order), claim))
                limited.add(claim.provider)
            else:
                begin.append(claim)
        beside = Counter(self._called(claim.provider) for claim in begin)
        for provider in limited:
            begin += self._fitting(provider, self._busy(provider, calls) + beside[provider])
        return begin

    def ended(self, provider: str, number: int, calls: Mapping[str, int]) -> list[Claim]:
        """So many calls of a provider's claims have ended: the claims that take their slots."""
        called = self._called(provider)
        if called not in self._most:
            return []
        self._ended[called] += number
        return self._fitting(called, self._busy(called, calls)) if self._waiting[called] else []

    def give_up(self, providers: Iterable[str] | None = None) -> list[Claim]:
        """The claims that wait for these providers, or for any: they are not called."""
        left: list[Claim] = []
        for provider in self._most if providers is None else providers:
            waiting = self._waiting.get(provider, [])
            left += [claim for _, _, claim in waiting]
            waiting.clear()
        return left

    def _busy(self, provider: str, calls: Mapping[str, int]) -> int:
        """How many of the provider's slots are taken, by claims of any provider."""
        others = (calls[name] for name, to in self._goes.items() if to == provider != name)
        return sum(others, calls[provider] if self._called(provider) == provider else 0)

    def _called(self, provider: str) -> str:
        return self._goes.get(provider, provider)

    def _fitting(self, provider: str, calls: int) -> list[Claim]:
        waiting, kept = self._waiting[provider], self._kept[provider]
        free, found = self._most[provider] - calls, list[Claim]()
        # The lane with the most slots kept free waits longest; a provider without a call always begins one.
        while waiting and (free > kept.get(waiting[0][0], 0) or (calls <= 0 and not found)):
            found.append(heappop(waiting)[2])
            free -= 1
        return found
