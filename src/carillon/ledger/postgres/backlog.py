"""Delivery in PostgreSQL: leasing routes, renewing leases, writing verdicts, appending to logs, and vacuuming."""

import asyncio
import contextlib
import time
from collections.abc import Mapping, Sequence
from operator import attrgetter
from types import MappingProxyType
from typing import Any

import asyncpg
import msgspec

from carillon.domain.claims import Claim, Reset, Settled, Settlement, Want
from carillon.domain.ports import Signal
from carillon.domain.store import Ask
from carillon.domain.streams import Entry, log_of_claim
from carillon.ledger.chains import changes_more, settled_beside
from carillon.ledger.leases import LIVE, NOTHING_ENDED, Ended, LeaseBook
from carillon.ledger.people import suppression_rows
from carillon.ledger.postgres.engine import PostgresEngine
from carillon.ledger.postgres.floors import Floors
from carillon.ledger.postgres.pools import UNAVAILABLE, Address, Connection, Pools
from carillon.ledger.rows import (
    caused_suppressions,
    finished_columns,
    is_plain_success,
    rounds,
    settlement_values,
)
from carillon.ledger.sealing import Codec
from carillon.ledger.statements import without
from carillon.ledger.streams import appended, each_once, in_order
from carillon.ledger.turns import RIPE, ClaimTurns, GroupColumns, filled

_ROWS = 20_000
_PAUSE_SECONDS = 3.0
_PAUSE_FACTOR = 10
_TIMEOUT_SECONDS = 300.0


class Vacuum:
    """Vacuums `routes` when enough rows died since the last run; one run at a time, without blocking statements."""

    def __init__(self, address: Address, sql: Mapping[str, str], *, allowed: bool = True) -> None:
        self._allowed = allowed
        self._address = address
        self._sql = sql
        self._rows = 0
        self._not_before = 0.0
        self._task: asyncio.Task[None] | None = None

    def churned(self, rows: int) -> None:
        """Count dead rows; may start a vacuum in the background."""
        self._rows += rows
        busy = self._task is not None and not self._task.done()
        if self._allowed and self._rows >= _ROWS and not busy and time.monotonic() >= self._not_before:
            self._rows = 0
            self._task = asyncio.create_task(self._vacuum(), name="ledger-vacuum")

    async def aclose(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _vacuum(self) -> None:
        began = time.monotonic()
        # Best effort: without the server or the permission, autovacuum does the work.
        with contextlib.suppress(asyncpg.PostgresError, *UNAVAILABLE):
            connection = await self._address.connect("vacuum", _TIMEOUT_SECONDS)
            try:
                await connection.execute(self._sql["vacuum"])
                await connection.close(timeout=1.0)
            finally:
                connection.terminate()
        now = time.monotonic()
        # A run reads much of a large table, so vacuuming takes at most a tenth of the time.
        self._not_before = now + max(_PAUSE_SECONDS, _PAUSE_FACTOR * (now - began))


_token = attrgetter("token")
_route = attrgetter("claim.notification_id", "claim.route_id")


class PostgresBacklog:
    """Satisfies Backlog and LeaseLedger."""

    _engine: PostgresEngine
    _pools: Pools
    _sql: Mapping[str, str]
    _codec: Codec
    _lease_seconds: float
    _record_attempts: bool
    _recovery_hint: str
    _vacuum: Vacuum
    _alert_from: int | None
    _turns: ClaimTurns
    _floors: Floors
    _leases: LeaseBook
    signal: Signal
    receipt_deadlines: Mapping[str, float] = MappingProxyType({})
    """For each provider with a deadline, how many seconds its delivery report may take."""
    live: frozenset[str] = frozenset({LIVE})
    """The providers of live streams."""

    async def claim(self, wants: Sequence[Want], total: int, owner: str) -> list[Claim]:
        claims: list[Claim] = []
        more: set[tuple[int, str]] | None = None
        for asked in self._turns.rounds(wants):
            # A lane that gave less than its share has nothing left for a later round.
            asking = asked if more is None else [want for want in asked if (want.lane, want.provider) in more]
            found = await self._claim_round(asking, total - len(claims), owner)
            claims += found
            more = filled(asking, found)
        self._turns.finished(claims, total)
        return self._codec.claims(claims)

    async def _claim_round(self, wants: Sequence[Want], total: int, owner: str) -> list[Claim]:
        asking = [want for want in wants if want.limit > 0]
        if not asking or total <= 0:
            return []
        # Nothing found may mean that routes have become due and stand in the turns now, before what came later.
        found: list[Claim] = []
        for statement in ("claim", "claim_live"):
            of_this = [want for want in asking if (want.provider in self.live) is (statement == "claim_live")]
            if of_this and len(found) < total:
                found += await self._claim(statement, of_this, total - len(found), owner)
        self._turns.record(asking, found)
        self._leases.took(found)
        return found

    async def _claim(self, statement: str, wants: Sequence[Want], total: int, owner: str) -> list[Claim]:
        return await self._ask_for(statement, wants, total, owner, unless_ripe=True) or await self._ask_for(
            statement, wants, total, owner, unless_ripe=False
        )

    async def _ask_for(
        self, statement: str, wants: Sequence[Want], total: int, owner: str, *, unless_ripe: bool
    ) -> list[Claim]:
        groups = GroupColumns.of(wants)
        values = (
            [want.lane for want in wants],
            [want.provider for want in wants],
            [want.limit for want in wants],
            [self._turns.served(want) for want in wants],
            [want.turns.cap for want in wants],
            total,
            owner,
            *msgspec.structs.astuple(groups),
            RIPE,
            self._lease_seconds,
            unless_ripe,
        )
        text = self._sql[statement]
        # Not repeated after a broken connection: routes leased without an answer come back when the lease ends.
        # The statements return their columns in the order of the struct's fields: positional arguments cost half.
        if statement == "claim_live":
            rows = await self._pools.claims.run(lambda c: c.fetch(text, *values), repeatable=False)
            # Tokens of live streams are drawn in the order of picking, an UPDATE returns rows in any order.
            return sorted([Claim(*row) for row in rows], key=_token)
        capped = any(want.turns.cap is not None for want in wants) or any(cap is not None for cap in groups.caps)
        began = time.monotonic()
        floors = self._floors.standing(wants, began)
        text = claim_text(text, capped=capped, floors=floors is not None)
        behind = () if floors is None else msgspec.structs.astuple(floors)
        rows = await self._pools.claims.run(lambda c: c.fetch(text, *values, *behind), repeatable=False)
        taken = [(Claim(*row[:-1]), row["due_at"]) for row in rows] if floors is not None else []
        claims = [claim for claim, _ in taken] if floors is not None else [Claim(*row) for row in rows]
        # A full claim, or nothing found beside something ripe: there may be groups that the statement did not read.
        whole = len(claims) < total and (bool(claims) or not unless_ripe)
        read_out = {(want.lane, want.provider) for want in wants} - filled(wants, claims) if whole else set()
        now = time.monotonic()
        self._floors.claimed(floors, taken, read_out, now - began, now)
        return claims

    async def extend(self, claims: Sequence[Claim]) -> list[Claim]:
        if not claims:
            return []
        held = sorted(claims, key=lambda claim: claim.key)
        columns = [[getattr(c, name) for c in held] for name in ("notification_id", "route_id", "token", "lease")]
        rows = await self._pools.settlements.run(
            lambda c: c.fetch(self._sql["extend"], *columns, self._lease_seconds), repeatable=True
        )
        places: dict[int, Any] = dict(map(tuple, rows))
        for claim in claims:
            claim.place = places.get(claim.token)
        return [claim for claim in claims if claim.token not in places]

    async def reset_expired(self, limit: int) -> Reset:
        # Not repeated after a broken connection: the first run's count would be lost.
        (row,) = await self._pools.settlements.run(
            lambda c: c.fetch(self._sql["reset_expired"], limit, self._recovery_hint, self._alert_from),
            repeatable=False,
        )
        return Reset(*row)

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        if not settlements:
            return []
        self._vacuum.churned(2 * len(settlements))
        claims = [one.claim for one in settlements]
        ended = self._leases.ended_by(claims)
        settled = await self._pools.settlements.run(lambda c: self._settle_all(c, settlements, ended), repeatable=True)
        self._leases.settled(claims, ended)
        return settled

    async def _settle_all(
        self, connection: Connection, settlements: Sequence[Settlement], ended: Ended
    ) -> list[Settled]:
        more = changes_more(settlements, self.receipt_deadlines)
        if not more and all(one.suppression is None for one in settlements):
            return await self._settle_plain_first(connection, settlements, ended)
        async with connection.transaction():
            settled = await self._settle_plain_first(connection, settlements, ended)
            rows = suppression_rows(caused_suppressions(settlements, settled))
            await self._engine.ask(connection, Ask("suppress", each=rows))
            steps = settled_beside(settlements, settled, self.receipt_deadlines)
            released = await self._engine.drive(connection, steps) if more else False
        if released:
            self.signal.ring()
        return settled

    async def _settle_plain_first(
        self, connection: Connection, settlements: Sequence[Settlement], ended: Ended
    ) -> list[Settled]:
        plain = [one for one in settlements if is_plain_success(one)]
        # Two settlements of one route are written one after the other, in order.
        if not plain or len(set(map(_route, settlements))) < len(settlements):
            return await self._settle(connection, settlements, ended)
        if len(plain) == len(settlements):
            settled = await self._finish(connection, plain, ended)
            if len(settled) == len(settlements):
                return [Settled.APPLIED] * len(settlements)
            return await self._settle_rest(connection, settlements, settled)
        # The leases end with the first statement: a claim that takes one apart locks it before its routes too.
        async with connection.transaction():
            return await self._settle_rest(connection, settlements, await self._finish(connection, plain, ended))

    async def _finish(self, connection: Connection, plain: list[Settlement], ended: Ended) -> list[int]:
        """Settle plain successes the fast way; returns the tokens of the settled claims."""
        plain.sort(key=_route)
        columns = finished_columns(plain)
        return (
            await connection.fetchval(
                self._sql["settle_finished"], *columns, self._record_attempts, *msgspec.structs.astuple(ended)
            )
            or []
        )

    async def _settle_rest(
        self, connection: Connection, settlements: Sequence[Settlement], done: list[int]
    ) -> list[Settled]:
        tokens = set(done)
        rest = [one for one in settlements if one.claim.token not in tokens]
        answers = iter(await self._settle(connection, rest, NOTHING_ENDED))
        return [Settled.APPLIED if one.claim.token in tokens else next(answers) for one in settlements]

    async def _settle(self, connection: Connection, settlements: Sequence[Settlement], ended: Ended) -> list[Settled]:
        answers = await self._settle_rounds(connection, settlements, ended)
        return [answers.get(place, Settled.STALE) for place in range(len(settlements))]

    async def _settle_rounds(
        self, connection: Connection, settlements: Sequence[Settlement], ended: Ended
    ) -> dict[int, Settled]:
        split = rounds(settlements)
        if len(split) == 1:
            return await self._settle_round(connection, settlements, split[0], ended)
        answers: dict[int, Settled] = {}
        async with connection.transaction():
            for places in split:
                answers |= await self._settle_round(connection, settlements, places, ended)
        return answers

    async def _settle_round(
        self, connection: Connection, settlements: Sequence[Settlement], places: list[int], ended: Ended
    ) -> dict[int, Settled]:
        values = [settlement_values(settlements[place], self._codec, noted=self._record_attempts) for place in places]
        columns: list[list[Any]] = [list(column) for column in zip(*values, strict=True)]
        # The server numbers the rows from 1, in key order, which is the order they are locked in.
        rows = await connection.fetch(
            self._sql["settle"], self._recovery_hint, *columns, self._alert_from, *msgspec.structs.astuple(ended)
        )
        return {places[place - 1]: Settled(settled) for place, settled in rows}


def claim_text(text: str, *, capped: bool, floors: bool) -> str:
    """The claim without the passages that this claim does not need; each of the four texts has a plan of its own."""
    return without(without(text, "no caps" if capped else "caps"), "no floors" if floors else "floors")


class PostgresStreams:
    """The hot part of StreamLedger."""

    _pools: Pools
    _sql: Mapping[str, str]

    async def in_turn(self, claims: Sequence[Claim]) -> list[Claim]:
        if not claims:
            return []
        columns = [
            [claim.notification_id for claim in claims],
            [claim.route_id for claim in claims],
            [claim.recipient_ref for claim in claims],
            [claim.lane for claim in claims],
            [claim.tenant_id for claim in claims],
        ]
        rows = await self._pools.claims.run(lambda c: c.fetch(self._sql["in_turn"], *columns), repeatable=True)
        return in_order(claims, ((row[0], row[1]) for row in rows))

    async def append(self, claims: Sequence[Claim]) -> list[Entry]:
        if not claims:
            return []
        found = await self._pools.claims.run(lambda c: self._append(c, each_once(claims)), repeatable=True)
        return [appended(claim, log_of_claim(claim), found[claim.key]) for claim in claims]

    async def acknowledge(self, user_id: str, notification_id: str) -> bool:
        return bool(
            await self._pools.reads.run(
                lambda c: c.fetchval(self._sql["acknowledge"], user_id, notification_id), repeatable=True
            )
        )

    async def _append(self, connection: Connection, claims: list[Claim]) -> dict[tuple[str, str], Any]:
        columns = ([log_of_claim(c) for c in claims], [c.notification_id for c in claims], [c.route_id for c in claims])
        rows = await connection.fetch(self._sql["append"], *columns)
        found = {(row["notification_id"], row["route_id"]): row for row in rows}
        if len(found) < len(claims):
            rest = [claim.key for claim in claims if claim.key not in found]
            rows = await connection.fetch(self._sql["pushed"], [key[0] for key in rest], [key[1] for key in rest])
            found |= {(row["notification_id"], row["route_id"]): row for row in rows}
        return found
