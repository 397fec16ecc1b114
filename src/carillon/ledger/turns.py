"""Whose turn it is: where the claims of a process stopped in each lane, and the rounds in which wants are asked."""

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from carillon.domain.claims import Claim, Want

LOWEST = -(2**63)
"""Before every group: a new process begins with the first one."""
RIPE = 250
"""The most routes that one claim puts into the turns because their time has come."""


class GroupColumns(msgspec.Struct, frozen=True):
    """The groups of all wants that are excluded or have a rule of their own, a list for each column."""

    excluded_providers: list[str]
    excluded: list[int]
    special_providers: list[str]
    special: list[int]
    weights: list[int]
    caps: list[int | None]
    ahead: str
    """JSON: how many claims ahead each group may have, by provider and number; one look finds a group in an object."""

    @classmethod
    def of(cls, wants: Iterable[Want]) -> "GroupColumns":
        turns = {want.provider: want.turns for want in wants}
        out = [(provider, abs(number)) for provider, each in turns.items() for number in each.excluded]
        special = [(provider, *pair) for provider, each in turns.items() for pair in each.special.items()]
        return cls(
            [provider for provider, _ in out],
            [number for _, number in out],
            [provider for provider, _, _ in special],
            [abs(number) for _, number, _ in special],
            [rule.weight for _, _, rule in special],
            [rule.cap for _, _, rule in special],
            msgspec.json.encode({provider: each.ahead for provider, each in turns.items() if each.ahead}).decode(),
        )


class ClaimTurns:
    """Remembers the group that was served last, and the lane that takes what other lanes leave."""

    def __init__(self) -> None:
        self._served: dict[tuple[int, str], int] = {}
        self._busy: int | None = None

    def served(self, want: Want) -> int:
        """The group after which the next claim of this lane and provider begins."""
        return self._served.get((want.lane, want.provider), LOWEST)

    def rounds(self, wants: Sequence[Want]) -> list[list[Want]]:
        """Each lane and provider once in a round: a later round asks for what the shares of the first one left.

        A lane that filled the last claim gets its later want in the first round, behind the shares of the others: one
        statement then does the work of two.
        """
        depth: Counter[tuple[int, str]] = Counter()
        split: list[list[Want]] = []
        for want in wants:
            place = depth[want.lane, want.provider]
            depth[want.lane, want.provider] += 1
            if place == len(split):
                split.append([])
            split[place].append(want)
        if len(split) == 2 and self._busy is not None:  # noqa: PLR2004 - the shares, and what they left
            split = [self._busy_from(*split), self._busy_from(*reversed(split))]
        return split

    def _busy_from(self, others: Sequence[Want], busy: Sequence[Want]) -> list[Want]:
        """The wants of `others`, but those of `busy` for the lane that filled the last claim."""
        kept = [want for want in others if want.lane != self._busy]
        return [*kept, *(want for want in busy if want.lane == self._busy)]

    def record(self, wants: Sequence[Want], claims: Sequence[Claim]) -> None:
        """Note the last group that each lane and provider was served in."""
        if not claims:
            return
        groups: dict[tuple[int, str], set[int]] = {}
        for lane, provider, group in {(claim.lane, claim.provider, claim.group) for claim in claims}:
            groups.setdefault((lane, provider), set()).add(group)
        for want in wants:
            found = groups.get((want.lane, want.provider))
            if found:
                served = self.served(want)
                # In the order of the ring: first the groups behind the one served last, then those up to it.
                self._served[want.lane, want.provider] = max(found, key=lambda group: (group <= served, group))

    def finished(self, claims: Sequence[Claim], total: int) -> None:
        """Note which lane filled the claim, if it was filled."""
        filled_by = Counter([claim.lane for claim in claims]) if len(claims) >= total else None
        self._busy = filled_by.most_common(1)[0][0] if filled_by else None


def filled(wants: Sequence[Want], found: Sequence[Claim]) -> set[tuple[int, str]]:
    """The lanes and providers that gave all that was asked of them: they may have more."""
    had = Counter([(claim.lane, claim.provider) for claim in found])
    return {(want.lane, want.provider) for want in wants if had[want.lane, want.provider] >= want.limit}
