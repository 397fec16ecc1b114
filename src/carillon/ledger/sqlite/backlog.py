"""Delivery in SQLite: leasing routes, renewing leases, writing verdicts, appending to logs."""

import json
import sqlite3
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from carillon.domain.claims import Claim, Reset, Settled, Settlement, Want
from carillon.domain.ports import Signal
from carillon.domain.store import Ask
from carillon.domain.streams import Entry, log_of_claim
from carillon.ledger.chains import changes_more, settled_beside
from carillon.ledger.leases import LIVE, Ended, LeaseBook
from carillon.ledger.people import suppression_rows
from carillon.ledger.rows import SETTLEMENT_FIELDS, caused_suppressions, settlement_values
from carillon.ledger.sealing import Codec
from carillon.ledger.sqlite.claiming import SqliteClaim
from carillon.ledger.sqlite.engine import SqliteEngine
from carillon.ledger.sqlite.file import SqliteFile
from carillon.ledger.streams import appended, each_once, in_order
from carillon.ledger.turns import ClaimTurns

_EXPIRED = {"error_classification": "lease_expired", "error_message": "Lease expired"}


class SqliteBacklog:
    """Satisfies Backlog and LeaseLedger."""

    _engine: SqliteEngine
    _file: SqliteFile
    _sql: Mapping[str, str]
    _codec: Codec
    _lease_seconds: float
    _record_attempts: bool
    _recovery_hint: str
    _alert_from: int | None
    _turns: ClaimTurns
    _leases: LeaseBook
    signal: Signal
    receipt_deadlines: Mapping[str, float] = MappingProxyType({})
    """For each provider with a deadline, how many seconds its delivery report may take."""
    live: frozenset[str] = frozenset({LIVE})
    """The providers of live streams."""

    async def claim(self, wants: Sequence[Want], total: int, owner: str) -> list[Claim]:
        if total <= 0 or not wants:
            return []
        claims = await self._file.write_if(
            lambda connection, now: self._is_due(connection, now, wants),
            lambda connection, now: self._claim(connection, now, wants, total, owner),
        )
        self._leases.took(claims or [])
        return self._codec.claims(claims or [])

    async def extend(self, claims: Sequence[Claim]) -> list[Claim]:
        if not claims:
            return []

        def work(connection: sqlite3.Connection, now: int) -> list[Claim]:
            until = now + round(self._lease_seconds * 1000)
            return [claim for claim in claims if not self._extend(connection, now, until, claim)]

        return await self._file.write(work)

    async def reset_expired(self, limit: int) -> Reset:
        reset = await self._file.write_if(
            lambda connection, now: bool(self._expired(connection, now, 1)),
            lambda connection, now: self._reset(connection, now, limit),
        )
        return reset or Reset()

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        if not settlements:
            return []
        values = [settlement_values(each, self._codec, noted=self._record_attempts) for each in settlements]
        rows = [dict(zip(SETTLEMENT_FIELDS, row, strict=True)) for row in values]
        claims = [one.claim for one in settlements]
        ended = self._leases.ended_by(claims)
        more = changes_more(settlements, self.receipt_deadlines)

        def work(connection: sqlite3.Connection, now: int) -> tuple[list[Settled], bool]:
            settled = [self._settle(connection, now, row) for row in rows]
            self._end(connection, ended)
            suppressed = suppression_rows(caused_suppressions(settlements, settled))
            self._engine.ask(connection, now, Ask("suppress", each=suppressed))
            steps = settled_beside(settlements, settled, self.receipt_deadlines)
            return settled, self._engine.drive(connection, now, steps) if more else False

        settled, released = await self._file.write(work)
        self._leases.settled(claims, ended)
        if released:
            self.signal.ring()
        return settled

    def _end(self, connection: sqlite3.Connection, ended: Ended) -> None:
        if ended.leases:
            connection.execute(self._sql["end_leases"], {"leases": json.dumps(ended.leases)})
        if ended.capped:
            freed = {"leases": json.dumps(ended.capped), "tokens": json.dumps(ended.tokens)}
            connection.execute(self._sql["free_places"], freed)

    def _expired(self, connection: sqlite3.Connection, now: int, most: int) -> list[sqlite3.Row]:
        return connection.execute(self._sql["expired_leases"], {"now": now, "most": most}).fetchall()

    def _reset(self, connection: sqlite3.Connection, now: int, limit: int) -> Reset:
        expired = self._expired(connection, now, limit)
        failed = 0
        for row in expired:
            route = {**dict(row), **_EXPIRED, "now": now, "recovery_hint": self._recovery_hint}
            connection.execute(self._sql["reset_expired"], route)
            if row["spent"]:
                failed += 1
                connection.execute(self._sql["settle_bury"], route)
                connection.execute(self._sql["settle_alert"], {**route, "alert_from": self._alert_from})
        return Reset(len(expired), failed)

    def _is_due(self, connection: sqlite3.Connection, now: int, wants: Sequence[Want]) -> bool:
        pairs = {(want.lane, want.provider) for want in wants if want.limit > 0}
        return any(
            connection.execute(
                self._sql["claimable_live" if provider in self.live else "claimable"],
                {"lane": lane, "provider": provider, "now": now},
            ).fetchone()[0]
            for lane, provider in pairs
        )

    def _claim(
        self, connection: sqlite3.Connection, now: int, wants: Sequence[Want], total: int, owner: str
    ) -> list[Claim]:
        lease = {"owner": owner, "lease_until": now + round(self._lease_seconds * 1000)}
        return SqliteClaim(self._sql, connection, now, self._turns, lease, live=self.live).run(wants, total)

    def _extend(self, connection: sqlite3.Connection, now: int, until: int, claim: Claim) -> bool:
        values = {
            "notification_id": claim.notification_id,
            "route_id": claim.route_id,
            "token": claim.token,
            "lease": claim.lease,
            "lease_until": until,
            "now": now,
        }
        return connection.execute(self._sql["extend" if claim.lease else "extend_live"], values).rowcount > 0

    def _settle(self, connection: sqlite3.Connection, now: int, row: dict[str, Any]) -> Settled:
        # Almost every settlement is a success of the holder, and changes one row and nothing else.
        plain = row["verdict"] == "finish" and row["next_provider"] is not None and row["suppression_json"] is None
        if plain and connection.execute(self._sql["settle_finished"], {**row, "now": now}).rowcount:
            return Settled.APPLIED
        judged = connection.execute(self._sql["settle_judge"], row).fetchone()
        if judged is None:
            return Settled.STALE
        settled = Settled(judged[0])
        row = {**row, "now": now, "settled": str(settled), "recovery_hint": self._recovery_hint}
        answered = None
        if settled is Settled.STALE:
            answered = connection.execute(self._sql["settle_answered"], row).fetchone()
        else:
            self._change(connection, row)
        if row["outcome"] is not None:
            connection.execute(self._sql["settle_note"], row)
        return Settled(answered[0]) if answered else settled

    def _change(self, connection: sqlite3.Connection, row: dict[str, Any]) -> None:
        connection.execute(self._sql["settle"], row)
        if row["verdict"] == "bury":
            connection.execute(self._sql["settle_bury"], row)
            connection.execute(self._sql["settle_alert"], {**row, "alert_from": self._alert_from})


class SqliteStreams:
    """The hot part of StreamLedger."""

    _file: SqliteFile
    _sql: Mapping[str, str]

    async def in_turn(self, claims: Sequence[Claim]) -> list[Claim]:
        people: dict[tuple[int, str, str | None], list[tuple[str, str]]] = {}
        for claim in claims:
            people.setdefault((claim.lane, claim.recipient_ref, claim.tenant_id), []).append(claim.key)

        def work(connection: sqlite3.Connection, now: int) -> list[tuple[str, str]]:
            del now
            found: list[tuple[int, int, int, tuple[str, str]]] = []
            for (lane, recipient_ref, tenant_id), keys in people.items():
                person = {"recipient_ref": recipient_ref, "lane": lane, "tenant_id": tenant_id}
                rows = connection.execute(self._sql["in_turn"], {**person, "claims": json.dumps(keys)})
                found += [(lane, row[2], row[3], (row[0], row[1])) for row in rows]
            return [key for *_, key in sorted(found)]

        return in_order(claims, await self._file.read(work)) if claims else []

    async def append(self, claims: Sequence[Claim]) -> list[Entry]:
        if not claims:
            return []
        return await self._file.write(lambda connection, now: self._append(connection, now, claims))

    async def acknowledge(self, user_id: str, notification_id: str) -> bool:
        def work(connection: sqlite3.Connection, now: int) -> bool:
            named = {"user_id": user_id, "notification_id": notification_id, "now": now}
            found = connection.execute(self._sql["acknowledge"], named).fetchall()
            for (route_id,) in found:
                connection.execute(self._sql["acknowledge_route"], {**named, "route_id": route_id})
            return bool(found)

        return await self._file.write(work)

    def _append(self, connection: sqlite3.Connection, now: int, claims: Sequence[Claim]) -> list[Entry]:
        lines: dict[tuple[str, str], dict[str, Any]] = {}
        new: dict[str, list[dict[str, Any]]] = {}
        for claim in each_once(claims):
            user_id = log_of_claim(claim)
            line = {
                "user_id": user_id,
                "notification_id": claim.notification_id,
                "route_id": claim.route_id,
                "now": now,
            }
            line |= dict(connection.execute(self._sql["pushed"], line).fetchone())
            lines[claim.key] = line
            if line["seq"] is None:
                new.setdefault(user_id, []).append(line)
        for user_id, drawing in new.items():
            drawn = {"user_id": user_id, "drawn": len(drawing)}
            (last,) = connection.execute(self._sql["append_number"], drawn).fetchone()
            for seq, line in enumerate(drawing, last - len(drawing) + 1):
                line["seq"] = seq
            connection.executemany(self._sql["append"], drawing)
        return [appended(claim, log_of_claim(claim), lines[claim.key]) for claim in claims]
