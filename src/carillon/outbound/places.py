"""The places of groups with a cap: which claims call now, and which wait until a call of their group has ended."""

import asyncio
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TypeAlias

from carillon.domain.claims import Claim, Settlement, other_group
from carillon.domain.groups import Groups
from carillon.domain.ports import Clock
from carillon.domain.verdicts import Defer

Key: TypeAlias = tuple[str, int]
KEPT_SECONDS = 0.25
"""How long a settlement waits at most for the claim that takes over the place of its call."""
MOST_AHEAD = 16
"""Claims ahead of a group at most, as a multiple of its cap."""
REVIEW_SECONDS = 1.0
"""How often claims ahead that were too many become fewer."""


class Places:
    """Keeps a group below its cap, and its next claims at hand.

    The ledger gives no more claims than the group has places over all processes, and some ahead to a process that
    calls the group already. Each of those takes over the place of a call of this process that has ended: the cap holds.

    How many are ahead follows the endpoint: as many as the cap at first, twice as many when a call ended and nothing
    was ahead, half of them when a second used up less than a quarter, and what is too many goes back. A call of a
    millisecond ends long before the next claim is answered, and would leave its place empty until then; a slow
    endpoint needs no more than its cap.

    The ledger counts leases, and claims ahead have leases too: a place that this process gives up while it holds claims
    ahead does not come back. So the place of a call that ends while nothing waits is kept until the next claim has been
    answered, and the settlement of that call is sent afterwards: until then the ledger counts the place as taken.
    """

    def __init__(self, groups: Mapping[str, Groups], clock: Clock, most_beyond: int = 0) -> None:
        self._groups = groups
        self._clock = clock
        self._most_beyond = most_beyond
        """Claims ahead beyond the caps of their groups at most, of all groups together."""
        self._capped = {provider for provider, each in groups.items() if each.capped}
        self._calling: Counter[Key] = Counter()
        self._ahead: dict[Key, deque[Claim]] = {}
        self._wanted: dict[Key, int] = {}
        """How many claims ahead a group should have, where its cap is too few."""
        self._followed: Counter[Key] = Counter()
        """How many claims ahead began a call since the last review."""
        self._starved: set[Key] = set()
        """Groups of which a call ended with nothing ahead, since the worker asked last."""
        self._review_at = 0.0
        self._full: set[Key] = set()
        self._kept: dict[Key, dict[int, int]] = {}
        """The places of ended calls: by the token of the call, the number of claims that were asked before its end."""
        self._asked = self._answered = 0
        self._news = asyncio.Event()
        self._closed = False
        self.hungry = asyncio.Event()
        """Set when a group that had more waiting could be claimed from again."""

    def without_strays(self, claims: Sequence[Claim]) -> tuple[Sequence[Claim], list[Settlement]]:
        """The claims whose groups are those of their provider, and settlements that give the others their group.

        A route keeps its group when it moves to another provider, or when the settings change: it would be called
        beside the cap. A route that another worker may have sent is called: giving it back would forget that.
        """
        if not any(claim.group < 0 or claim.provider in self._capped for claim in claims):
            return claims, []
        own: list[Claim] = []
        strays: list[Settlement] = []
        for claim in claims:
            number = other_group(self._groups, claim.provider, claim)
            if number is None:
                own.append(claim)
            else:
                strays.append(Settlement(claim=claim, verdict=Defer(0.0), group=number))
        return own, strays

    def admit(self, claims: Sequence[Claim]) -> tuple[Sequence[Claim], list[Claim]]:
        """The claims that call now, and those that have to go back, because the call they wait for has ended."""
        if not any(claim.group < 0 for claim in claims):
            return claims, []
        calling = [claim for claim in claims if not claim.ahead]
        self._count(calling)
        back: list[Claim] = []
        for claim in claims:
            if claim.ahead:
                key = _key(claim)
                if self._take_over(key):
                    calling.append(claim)
                elif self._calling[key]:
                    self._ahead.setdefault(key, deque()).append(claim)
                else:
                    back.append(claim)
        for key in {_key(claim) for claim in claims if claim.group < 0}:
            if self._ahead.get(key) or self._calling[key] >= self._cap(key):
                self._full.add(key)
        return calling, back

    def ended(self, claims: Iterable[Claim]) -> list[Claim]:
        """Calls have ended: the claims that take their places."""
        following: list[Claim] = []
        for claim in claims:
            if claim.group >= 0:
                continue
            key = _key(claim)
            waiting = self._ahead.get(key)
            if waiting:
                following.append(waiting.popleft())
                self._followed[key] += 1
                continue
            self._ahead.pop(key, None)
            if key in self._full and not self._closed:
                self._kept.setdefault(key, {})[claim.token] = self._asked
                self._starved.add(key)
                self.hungry.set()
            else:
                self._lose(key)
        return following

    def asking(self) -> None:
        """The worker asks for claims."""
        self._asked += 1
        for key in self._starved:
            cap = self._cap(key)
            self._wanted[key] = min(2 * self._wanted.get(key, cap), MOST_AHEAD * cap)
        self._starved.clear()

    def review(self) -> list[Claim]:
        """Once a second, want fewer claims ahead of groups that have become slow; gives those that are too many now."""
        surplus: list[Claim] = []
        if self._clock.monotonic() < self._review_at:
            return surplus
        for key, wanted in list(self._wanted.items()):
            if 4 * self._followed[key] >= wanted:
                continue
            cap = self._cap(key)
            fewer = max(wanted // 2, cap) if self._followed[key] else cap
            self._wanted[key] = fewer
            if fewer == cap:
                del self._wanted[key]
            waiting = self._ahead.get(key) or deque()
            surplus += [waiting.pop() for _ in range(len(waiting) - fewer)]
        self._followed.clear()
        self._review_at = self._clock.monotonic() + REVIEW_SECONDS
        return surplus

    def answered(self) -> None:
        """The worker was answered, and has admitted the claims."""
        self._answered = self._asked
        self._tell()

    async def may_settle(self, claims: Sequence[Claim]) -> None:
        """Wait while the places of these calls are kept for the next claim; a place that nobody took is free then."""
        with suppress(TimeoutError):
            if self._keeps(claims):
                async with asyncio.timeout(KEPT_SECONDS):
                    while self._keeps(claims):
                        await self._news.wait()
        self.free(claims)

    def free(self, claims: Iterable[Claim]) -> None:
        """Give up the kept places of these calls, before their settlement is sent."""
        for claim in claims:
            if self._kept and claim.group < 0 and claim.token in self._kept.get(key := _key(claim), ()):
                self._forget(key, claim.token)
                self._lose(key)

    def settled(self, claims: Iterable[Claim]) -> None:
        """Claims have ended in the ledger too: a group that had more waiting can be claimed from again."""
        for claim in claims:
            if claim.group < 0 and (key := _key(claim)) in self._full:
                if self._wants(key):
                    self.hungry.set()
                if not self._calling[key]:
                    self._full.discard(key)

    @property
    def watching(self) -> bool:
        """Whether a group is at its cap, so that the end of a call may be reason to claim."""
        return bool(self._full) or self.hungry.is_set()

    def ahead(self, provider: str) -> dict[int, int]:
        """How many claims ahead this process wants of each group that it calls, by number without its sign.

        A group below its cap whose claims ahead are not used up is left out: with more claims ahead, their leases would
        keep the free places taken for ever.
        """
        beyond = self._most_beyond - sum(self._beyond(key) for key in self._wanted)
        found: dict[int, int] = {}
        for key, calls in self._calling.items():
            cap = self._cap(key)
            if key[0] == provider and (calls >= cap or not self._ahead.get(key)):
                more = min(self._wanted.get(key, cap) - cap, beyond + self._beyond(key))
                found[abs(key[1])] = cap + max(more, 0)
                beyond -= max(more - self._beyond(key), 0)
        return found

    def full(self) -> Counter[str]:
        """How many groups of each provider are at their cap and have more waiting, as this process sees it."""
        return Counter(provider for provider, _ in self._full)

    def give_up(self) -> list[Claim]:
        """The end of the process: all claims that wait."""
        left = [claim for waiting in self._ahead.values() for claim in waiting]
        self._ahead.clear()
        self._closed = True
        self._tell()
        return left

    def _keeps(self, claims: Sequence[Claim]) -> bool:
        """Whether a place of these calls waits for the answer to a claim that was asked after the call's end."""
        if not self._kept or self._closed:
            return False
        found = (self._kept.get(_key(claim), {}).get(claim.token) for claim in claims if claim.group < 0)
        return any(asked is not None and asked >= self._answered for asked in found)

    def _take_over(self, key: Key) -> bool:
        if key not in self._kept:
            return False
        self._forget(key, next(iter(self._kept[key])))
        return True

    def _forget(self, key: Key, token: int) -> None:
        del self._kept[key][token]
        if not self._kept[key]:
            del self._kept[key]

    def _lose(self, key: Key) -> None:
        self._calling[key] -= 1
        if self._calling[key] <= 0:
            del self._calling[key]

    def _wants(self, key: Key) -> bool:
        """Whether it is time to claim: half of the claims ahead are used up, or all of them below the cap."""
        ahead, cap = len(self._ahead.get(key, ())), self._cap(key)
        return 2 * ahead <= self._wanted.get(key, cap) if self._calling[key] >= cap else not ahead

    def _beyond(self, key: Key) -> int:
        """How many claims of this group are ahead beyond its cap."""
        return max(len(self._ahead.get(key, ())) - self._cap(key), 0)

    def _tell(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    def _count(self, claims: Iterable[Claim]) -> None:
        self._calling.update(_key(claim) for claim in claims if claim.group < 0)

    def _cap(self, key: Key) -> int:
        provider, number = key
        groups = self._groups.get(provider)
        cap = None if groups is None else groups.cap_of(number)
        return cap or 1


def _key(claim: Claim) -> Key:
    return (claim.provider, claim.group)
