"""The places of groups with a cap: which claims call now, and which wait until a call of their group has ended."""

import asyncio
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from carillon.domain.claims import Claim
from carillon.domain.groups import Groups

Key: TypeAlias = tuple[str, int]


class Places:
    """Keeps a group below its cap, and its next claims at hand.

    The ledger gives no more claims than the group has places over all processes, and some ahead to a process that
    calls the group already. Each of those takes over the place of a call of this process that has ended: the cap holds.
    """

    def __init__(self, groups: Mapping[str, Groups]) -> None:
        self._groups = groups
        self._calling: Counter[Key] = Counter()
        self._ahead: dict[Key, deque[Claim]] = {}
        self._full: set[Key] = set()
        self.hungry = asyncio.Event()
        """Set when a group that had more waiting could be claimed from again."""

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
                if self._calling[key]:
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
            else:
                self._ahead.pop(key, None)
                self._calling[key] -= 1
                if self._calling[key] <= 0:
                    del self._calling[key]
        return following

    def settled(self, claims: Iterable[Claim]) -> None:
        """Claims have ended in the ledger too: a group that had more waiting can be claimed from again."""
        for claim in claims:
            if claim.group < 0 and (key := _key(claim)) in self._full:
                if 2 * len(self._ahead.get(key, ())) <= self._calling[key]:
                    self.hungry.set()
                if not self._calling[key]:
                    self._full.discard(key)

    @property
    def watching(self) -> bool:
        """Whether a group is at its cap, so that the end of a call may be reason to claim."""
        return bool(self._full) or self.hungry.is_set()

    def busy(self, provider: str) -> frozenset[int]:
        """The groups of a provider that this process calls now, by their number without its sign."""
        return frozenset(abs(number) for name, number in self._calling if name == provider)

    def give_up(self) -> list[Claim]:
        """The end of the process: all claims that wait."""
        left = [claim for waiting in self._ahead.values() for claim in waiting]
        self._ahead.clear()
        return left

    def _count(self, claims: Iterable[Claim]) -> None:
        self._calling.update(_key(claim) for claim in claims if claim.group < 0)

    def _cap(self, key: Key) -> int:
        provider, number = key
        groups = self._groups.get(provider)
        cap = None if groups is None else groups.cap_of(number)
        return cap or 1


def _key(claim: Claim) -> Key:
    return (claim.provider, claim.group)
