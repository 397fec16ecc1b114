"""Where the next claim begins in a group whose first rows were taken long ago and are still there.

Beside a transaction that stays open for long (a backup, a forgotten session) PostgreSQL removes no row of `due` that
the transaction could see. The rows that were taken stay at the head of their group, and each claim reads past all of
them. So a slow claim leaves a floor in each group that it read: the row that it took last. The next claims begin behind
the floor. A row that comes late with an older time lies before the floor, so a floor ends soon, and one claim reads the
whole group.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

import msgspec

from carillon.domain.claims import Claim, Want

SLOW_SECONDS = 0.05
"""A claim that takes longer leaves floors; without an old snapshot, 500 rows take a tenth of it."""
PAUSE_FACTOR = 9
"""Reading a group from its beginning takes at most a tenth of the time."""
LONGEST_SECONDS = 2.0
"""The longest time that a row before a floor can wait."""
LATELY_SECONDS, EVER_SECONDS = 30.0, 1e9
"""How far back a claim looks for leases that ran out: mostly a little, and to the beginning after LONGEST_SECONDS."""
WATCHED_SECONDS = 60.0
"""For so long after a slow claim, claims return the times of their rows."""
MOST = 32
"""A claim looks once into each group with a floor, and through all floors for each group that it finds."""

Group = tuple[int, str, int]
"""Lane, provider and number of the group."""


class FloorColumns(msgspec.Struct, frozen=True):
    """The floors that a claim asks with, a list for each column."""

    lanes: list[int]
    providers: list[str]
    groups: list[int]
    due_at: list[datetime]
    tickets: list[int]
    look_back: float
    """For how many seconds the claim looks back for leases that ran out."""


class Floor(msgspec.Struct):
    """The last row that was taken from a group, and until when claims of the group begin behind it."""

    due_at: datetime
    ticket: int
    until: float


class Floors:
    """The floors of one process."""

    def __init__(self) -> None:
        self._floors: dict[Group, Floor] = {}
        self._watched_until = 0.0
        self._look_back_at = 0.0

    def standing(self, wants: Sequence[Want], now: float) -> FloorColumns | None:
        """The floors that the next claim begins behind; None if no claim was slow for a while."""
        if now >= self._watched_until:
            self._floors.clear()
            return None
        lines = {(want.lane, want.provider) for want in wants}
        found = [(group, each) for group, each in self._floors.items() if each.until > now and group[:2] in lines]
        return FloorColumns(
            [lane for (lane, _, _), _ in found],
            [provider for (_, provider, _), _ in found],
            [number for (_, _, number), _ in found],
            [each.due_at for _, each in found],
            [each.ticket for _, each in found],
            self._look_back(now),
        )

    def claimed(
        self,
        asked: FloorColumns | None,
        taken: Sequence[tuple[Claim, datetime]],
        read_out: Collection[tuple[int, str]],
        took: float,
        now: float,
    ) -> None:
        """Note how far a claim came that took so many seconds; `read_out` are the lanes whose groups it read all."""
        slow = took > SLOW_SECONDS
        if slow:
            self._watched_until = now + WATCHED_SECONDS
        if asked is None:
            return
        behind_floors = set(zip(asked.lanes, asked.providers, asked.groups, strict=True))
        until = now + min(PAUSE_FACTOR * took, LONGEST_SECONDS) if slow else now
        last = _last(taken)
        for group, (at, ticket) in last.items():
            known = self._floors.get(group)
            if group not in behind_floors:
                self._floors[group] = Floor(at, ticket, until)
            elif known is not None:
                self._floors[group] = Floor(at, ticket, known.until)
        for group, floor in self._floors.items():
            # Read from its beginning, and nothing of it was there: what was taken lies before the old floor.
            if group[:2] in read_out and group not in behind_floors and group not in last:
                floor.until = until
        self._forget()

    def _look_back(self, now: float) -> float:
        if now < self._look_back_at:
            return LATELY_SECONDS
        self._look_back_at = now + LONGEST_SECONDS
        return EVER_SECONDS

    def _forget(self) -> None:
        latest = sorted(self._floors.items(), key=lambda item: item[1].until, reverse=True)
        self._floors = dict(latest[:MOST])


def _last(taken: Sequence[tuple[Claim, datetime]]) -> Mapping[Group, tuple[datetime, int]]:
    last: dict[Group, tuple[datetime, int]] = {}
    for claim, at in taken:
        group = (claim.lane, claim.provider, claim.group)
        last[group] = max(last.get(group, (at, claim.token)), (at, claim.token))
    return last
