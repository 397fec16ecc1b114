"""The claim in SQLite: what is due, in turns over groups, inside one transaction."""

import json
import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from carillon.domain.claims import Claim, Want
from carillon.ledger.turns import LOWEST, RIPE, ClaimTurns


class SqliteClaim:
    """Picks routes for one claim and leases them."""

    def __init__(
        self,
        sql: Mapping[str, str],
        connection: sqlite3.Connection,
        now: int,
        turns: ClaimTurns,
        lease: dict[str, Any],
        *,
        live: Collection[str],
    ) -> None:
        """`lease` names the owner and the end of the leases, `live` the providers of live streams."""
        self._live = live
        self._sql = sql
        self._connection = connection
        self._now = now
        self._turns = turns
        self._lease = {**lease, "now": now}
        self._batch: list[Claim] = []
        self._empty: set[tuple[int, str]] = set()
        """Lanes and providers of which no group has anything due and a free place."""
        self._last: int | None = None
        """The last number before this claim drew its first."""

    def run(self, wants: Sequence[Want], total: int) -> list[Claim]:
        self._queue(wants)
        claims: list[Claim] = []
        for asked in self._turns.rounds(wants):
            for want in asked:
                most = min(want.limit, total - len(claims))
                # A later round asks for what shares have left: where nothing was due, nothing is.
                if most <= 0 or (want.lane, want.provider) in self._empty:
                    continue
                found = self._take(want, most)
                self._turns.record([want], found)
                claims += found
        self._turns.finished(claims, total)
        self._hold(self._batch, None)
        return claims

    def _queue(self, wants: Sequence[Want]) -> None:
        """Give tickets to what has become due since, and to what a lease that ran out has left open."""
        for lease in self._connection.execute(self._sql["expired"], {"now": self._now}).fetchall():
            held = json.loads(lease["tickets"])
            first = self._draw(len(held)) - len(held) + 1
            lapsed = {"due_at": lease["expires_at"], "owner": lease["owner"], "now": self._now}
            rows = [{**lapsed, "ticket": ticket, "held": each} for ticket, each in enumerate(held, first)]
            self._connection.executemany(self._sql["lapse"], rows)
            self._connection.execute(self._sql["end_leases"], {"leases": json.dumps([lease["lease_id"]])})
        for lane, provider in dict.fromkeys((want.lane, want.provider) for want in wants):
            waiting = {"lane": lane, "provider": provider, "now": self._now, "most": RIPE}
            if provider in self._live:
                self._connection.execute(self._sql["ripen_live"], waiting)
                continue
            ripe = self._connection.execute(self._sql["ripe"], waiting).fetchall()
            if ripe:
                first = self._draw(len(ripe)) - len(ripe) + 1
                rows = [{"ticket": ticket, "place": row["place"]} for ticket, row in enumerate(ripe, first)]
                self._connection.executemany(self._sql["ripen"], rows)
        if self._last is not None:
            self._connection.execute(self._sql["queue_tickets"], {"last": self._last})

    def _draw(self, numbers: int) -> int:
        """Draw that many numbers; returns the last one."""
        drawn = int(self._connection.execute(self._sql["claim_tokens"], (numbers,)).fetchone()[0])
        if self._last is None:
            self._last = drawn - numbers
        return drawn

    def _hold(self, claims: Sequence[Claim], group: int | None) -> None:
        """Write one lease for these claims."""
        if claims:
            lease_id = self._draw(1)
            for claim in claims:
                claim.lease = lease_id
            held = {"lease_id": lease_id, "grp": group, "tickets": json.dumps([claim.token for claim in claims])}
            self._connection.execute(self._sql["lease"], {**self._lease, **held})

    def _take(self, want: Want, most: int) -> list[Claim]:
        ring = list(self._ring(want, most))
        if not ring:
            self._empty.add((want.lane, want.provider))
            return []
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
        statement = self._sql["next_group_live" if want.provider in self._live else "next_group"]
        asked = {"lane": want.lane, "provider": want.provider, "now": self._now}

        def head(after: int) -> Any:  # noqa: ANN401 - a row
            return self._connection.execute(statement, {**asked, "after": after}).fetchone()

        # One look says that there is nothing, as in most lanes most of the time.
        lowest = head(LOWEST)
        if lowest is None:
            return
        row = lowest if served == LOWEST else head(served)
        while row is not None:
            if row["due"]:
                yield row["grp"]
            row = head(row["grp"])
        row = lowest
        while row is not None and row["grp"] <= served:
            if row["due"]:
                yield row["grp"]
            row = head(row["grp"]) if row["grp"] < served else None

    def _free(self, want: Want, number: int, cap: int) -> int:
        """How many claims the group may get; a process that calls it already gets some more ahead."""
        most = cap + want.turns.ahead.get(abs(number), 0)
        (taken,) = self._connection.execute(self._sql["places_taken"], {"grp": number}).fetchone()
        return most - int(taken)

    def _claim(self, want: Want, number: int, most: int, free: int | None) -> list[Claim]:
        most = most if free is None else min(most, free)
        if most <= 0:
            return []
        asked = {"now": self._now, "lane": want.lane, "provider": want.provider, "grp": number, "most": most}
        claims = self._claim_live(asked) if want.provider in self._live else self._claim_due(asked)
        if free is not None:
            places = free - want.turns.ahead.get(abs(number), 0)
            for claim in claims[max(places, 0) :]:
                claim.ahead = True
        if want.provider not in self._live:
            if free is None:
                self._batch += claims
            else:
                self._hold(claims, number)
        return claims

    def _claim_due(self, asked: dict[str, Any]) -> list[Claim]:
        found = [dict(row) for row in self._connection.execute(self._sql["claim_candidates"], asked)]
        if not found:
            return []
        last = {**asked, "due_at": found[-1]["due_at"], "ticket": found[-1]["token"]}
        self._connection.execute(self._sql["claim"], last)
        return [_claim_of(row) for row in found]

    def _claim_live(self, asked: dict[str, Any]) -> list[Claim]:
        found = self._connection.execute(self._sql["claim_candidates_live"], asked).fetchall()
        if not found:
            return []
        rows = [
            {**dict(row), "token": token} for token, row in enumerate(found, self._draw(len(found)) - len(found) + 1)
        ]
        self._connection.executemany(
            self._sql["claim_live"], [{**self._lease, "token": row["token"], "place": row.pop("place")} for row in rows]
        )
        return [_claim_of(row) for row in rows]

    def _cap(self, want: Want, number: int) -> int | None:
        rule = want.turns.special.get(abs(number))
        return want.turns.cap if rule is None or rule.cap is None else rule.cap


def _claim_of(row: dict[str, Any]) -> Claim:
    row.pop("due_at", None)
    row["abandoned"] = bool(row["abandoned"])
    return Claim(**row)
