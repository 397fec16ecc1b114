"""The claim in SQLite: what is due, in turns over groups, inside one transaction."""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from carillon.domain.claims import Claim, Want
from carillon.ledger.turns import LOWEST, RIPE, ClaimTurns


class SqliteClaim:
    """Picks routes for one claim and leases them."""

    def __init__(
        self, sql: Mapping[str, str], connection: sqlite3.Connection, now: int, turns: ClaimTurns, lease: dict[str, Any]
    ) -> None:
        """`lease` names the owner and the end of the leases."""
        self._sql = sql
        self._connection = connection
        self._now = now
        self._turns = turns
        self._lease = {**lease, "now": now}

    def run(self, wants: Sequence[Want], total: int) -> list[Claim]:
        for lane, provider in {(want.lane, want.provider) for want in wants}:
            waiting = {"lane": lane, "provider": provider, "now": self._now, "most": RIPE}
            self._connection.execute(self._sql["ripen"], waiting)
        claims: list[Claim] = []
        for asked in self._turns.rounds(wants):
            for want in asked:
                found = self._take(want, min(want.limit, total - len(claims)))
                self._turns.record([want], found)
                claims += found
        self._turns.finished(claims, total)
        return claims

    def _take(self, want: Want, most: int) -> list[Claim]:
        if most <= 0:
            return []
        ring = list(self._ring(want, most))
        weights = sum(weight for _, weight, _ in ring)
        each = max(most // max(weights, 1), 1)
        claims: list[Claim] = []
        left: list[tuple[int, int | None]] = []
        for number, weight, free in ring:
            share = min(each * weight, most - len(claims))
            found = self._claim(want, number, share, free)
            claims += found
            if len(found) >= share and free != len(found):
                left.append((number, None if free is None else free - len(found)))
        # What the groups left unused goes to those that have more than their share.
        for place, (number, free) in enumerate(left):
            lacking = most - len(claims)
            share = -(-lacking // (len(left) - place))
            claims += self._claim(want, number, share, free)
        return claims

    def _ring(self, want: Want, most: int) -> Iterator[tuple[int, int, int | None]]:
        """Up to `most` groups with something due and a free place: number, weight, and free places if it has a cap."""
        served, found = self._turns.served(want), 0
        for number in self._heads(want, served):
            rule, cap = want.turns.special.get(abs(number)), self._cap(want, number)
            free = None if cap is None or number >= 0 else self._free(want, number, cap)
            if abs(number) in want.turns.excluded or (free is not None and free <= 0):
                continue
            yield number, 1 if rule is None else rule.weight, free
            found += 1
            if found == most:
                return

    def _heads(self, want: Want, served: int) -> Iterator[int]:
        """The groups with something due: those behind the one served last, then those up to it."""
        for after, until in ((served, None), (LOWEST, served)):
            asked = {"lane": want.lane, "provider": want.provider, "now": self._now, "after": after}
            while (row := self._connection.execute(self._sql["next_group"], asked).fetchone()) is not None:
                if until is not None and row["grp"] > until:
                    break
                asked["after"] = row["grp"]
                if row["due"]:
                    yield row["grp"]

    def _free(self, want: Want, number: int, cap: int) -> int:
        """How many claims the group may get; a process that calls it already gets as many again ahead."""
        most = cap + self._ahead(want, number, cap)
        (taken,) = self._connection.execute(self._sql["places_taken"], {"grp": number, "most": most}).fetchone()
        return most - int(taken)

    def _ahead(self, want: Want, number: int, cap: int) -> int:
        return cap if abs(number) in want.turns.busy else 0

    def _claim(self, want: Want, number: int, most: int, free: int | None) -> list[Claim]:
        most = most if free is None else min(most, free)
        if most <= 0:
            return []
        asked = {"now": self._now, "lane": want.lane, "provider": want.provider, "grp": number, "most": most}
        found = self._connection.execute(self._sql["claim_candidates"], asked).fetchall()
        if not found:
            return []
        (last,) = self._connection.execute(self._sql["claim_tokens"], (len(found),)).fetchone()
        rows = [{**dict(row), "token": token} for token, row in enumerate(found, last - len(found) + 1)]
        self._connection.executemany(
            self._sql["claim"], [{**self._lease, "token": row["token"], "place": row.pop("place")} for row in rows]
        )
        claims = [Claim(**{**row, "abandoned": bool(row["abandoned"])}) for row in rows]
        if free is not None:
            cap = self._cap(want, number) or 0
            places = free - self._ahead(want, number, cap)
            for claim in claims[max(places, 0) :]:
                claim.ahead = True
        return claims

    def _cap(self, want: Want, number: int) -> int | None:
        rule = want.turns.special.get(abs(number))
        return want.turns.cap if rule is None or rule.cap is None else rule.cap
