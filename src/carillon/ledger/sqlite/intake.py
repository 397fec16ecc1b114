"""Acceptance in SQLite: records and their routes, queued or claimed at once, and malformed intents."""

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any

from msgspec.structs import replace

from carillon.domain.claims import first_claim
from carillon.domain.errors import LedgerUnavailable
from carillon.domain.intents import Malformed
from carillon.domain.notifications import Accepted, Enrolled, Enrolment, Notification, is_due_now
from carillon.domain.suppressions import SuppressedRoute
from carillon.domain.synchronous import ClaimedEnrolment
from carillon.ledger.leases import LIVE, LeaseBook
from carillon.ledger.rows import (
    LAID_FIELDS,
    RECORD_FIELDS,
    answer_for_loser,
    malformed_values,
    record_values,
    route_rows,
    suppressed_route,
)
from carillon.ledger.sealing import Codec
from carillon.ledger.sqlite.engine import SqliteEngine
from carillon.ledger.sqlite.file import SqliteFile
from carillon.ledger.throttles import counted
from carillon.ledger.timing import has_timing, stored, with_timing

_ROUTE_NAMES = (*LAID_FIELDS, "now", "ticket")
_RECORD_NAMES = (*RECORD_FIELDS, "now")


class SqliteIntake:
    """Satisfies IntakeLedger, LookupLedger and SynchronousLedger."""

    _file: SqliteFile
    _engine: SqliteEngine
    _sql: Mapping[str, str]
    _codec: Codec
    _leases: LeaseBook

    async def enrol(self, batch: Sequence[Enrolment]) -> list[Enrolled]:
        if not batch:
            return []
        batch = self._codec.named(batch)
        return await self._file.write(lambda connection, now: self._enrol_all(connection, now, batch))

    async def look_up_earlier(self, notification: Notification) -> Enrolled | None:
        """The answer of `enrol` if the idempotency key was used before; None if it would be accepted."""
        if notification.idempotency_key is None:
            return None
        asked = {
            "notification_id": notification.notification_id,
            "producer": notification.producer,
            "idempotency_key": notification.idempotency_key,
        }

        def look(connection: sqlite3.Connection, now: int) -> Enrolled | None:
            row = connection.execute(self._sql["winners"], asked | {"now": now}).fetchone()
            answer = answer_for_loser(notification, dict(row)) if row else None
            return None if isinstance(answer, Accepted) else answer

        return await self._file.read(look)

    async def keep_malformed(self, malformed: Sequence[Malformed]) -> None:
        if not malformed:
            return
        rows = [malformed_values(entry, self._codec) for entry in malformed]
        await self._file.write(
            lambda connection, now: connection.executemany(self._sql["keep_malformed"], [(*row, now) for row in rows])
        )

    def _enrol_all(self, connection: sqlite3.Connection, now: int, batch: Sequence[Enrolment]) -> list[Enrolled]:
        (last,) = connection.execute(self._sql["last_route"]).fetchone()
        written: set[str] = set()
        timed = any(map(has_timing, batch))
        throttles = self._engine.drive(connection, now, counted(batch)) if timed else None
        judged = batch if throttles is None else [throttles.judged(each) for each in batch]
        routes = sum(len(each.routes) for each in judged)
        (drawn,) = connection.execute(self._sql["claim_tokens"], (routes,)).fetchone()
        tickets = count(drawn - routes + 1)
        answers = [self._enrol(connection, now, enrolment, written, tickets) for enrolment in judged]
        connection.execute(self._sql["queue_tickets"], {"last": drawn - routes})
        if throttles is not None:
            gone = self._engine.drive(connection, now, stored(judged, written, throttles))
            answers = list(with_timing(dict(enumerate(answers)), gone, throttles).values())
        skipped: dict[str, tuple[SuppressedRoute, ...]] = {}
        for row in connection.execute(self._sql["enrol_suppressed"], {"last_route": last}):
            key = row["notification_id"]
            skipped[key] = (*skipped.get(key, ()), suppressed_route(row))
        if not skipped:
            return answers
        return [
            replace(answer, suppressed=skipped.get(answer.notification_id, answer.suppressed))
            if isinstance(answer, Accepted)
            else answer
            for answer in answers
        ]

    def _enrol(
        self, connection: sqlite3.Connection, now: int, enrolment: Enrolment, written: set[str], tickets: Iterator[int]
    ) -> Enrolled:
        notification = enrolment.notification
        values = dict(zip(_RECORD_NAMES, (*record_values(notification, self._codec), now), strict=True))
        if connection.execute(self._sql["enrol"], values).rowcount == 0:
            winner = connection.execute(self._sql["winners"], values).fetchone()
            if winner is None:
                raise LedgerUnavailable("the record that uses this idempotency key cannot be read")
            return answer_for_loser(notification, dict(winner))
        rows = route_rows(enrolment, self._codec)
        routes = [dict(zip(_ROUTE_NAMES, (*row, now, next(tickets)), strict=True)) for row in rows]
        connection.executemany(self._sql["enrol_route"], routes)
        written.add(notification.notification_id)
        return Accepted(notification.notification_id)

    async def enrol_claimed(
        self, batch: Sequence[Enrolment], owner: str, seconds: float, caps: Mapping[int, int] | None = None
    ) -> list[ClaimedEnrolment]:
        if not batch:
            return []
        named = self._codec.named(batch)

        def work(connection: sqlite3.Connection, now: int) -> list[ClaimedEnrolment]:
            lease = {"owner": owner, "lease_until": now + round(seconds * 1000), "now": now}
            return [
                self._claim_enrolled(connection, lease, enrolment, enrolled, caps or {})
                for enrolment, enrolled in zip(named, self._enrol_all(connection, now, named), strict=True)
            ]

        claimed = await self._file.write(work)
        self._leases.took(claim for each in claimed for claim in each.claims)
        return claimed

    async def queue_unclaimed(self, lane: int, instead: int) -> int:
        moved = await self._file.write_if(
            lambda connection, _: bool(connection.execute(self._sql["waits_unclaimed"], (lane,)).fetchone()[0]),
            lambda connection, now: connection.execute(self._sql["queue_unclaimed"], (lane, instead, now)).rowcount,
        )
        return moved or 0

    def _claim_enrolled(
        self,
        connection: sqlite3.Connection,
        lease: Mapping[str, Any],
        enrolment: Enrolment,
        enrolled: Enrolled,
        caps: Mapping[int, int],
    ) -> ClaimedEnrolment:
        if not isinstance(enrolled, Accepted):
            return ClaimedEnrolment(enrolled)
        claims = []
        for route in enrolment.routes:
            key = {**lease, "notification_id": enrolled.notification_id, "route_id": route.route_id}
            if not is_due_now(enrolment, route) or self._is_full(connection, route.group, caps.get(route.group)):
                continue
            held = (self._take_live if route.channel == LIVE else self._take)(connection, key)
            if held is not None:
                token, lease_id = held
                claims.append(first_claim(enrolment, route.route_id, token, lease["now"], lease=lease_id))
        return ClaimedEnrolment(enrolled, tuple(claims))

    def _take_live(self, connection: sqlite3.Connection, key: dict[str, Any]) -> tuple[int, int] | None:
        (token,) = connection.execute(self._sql["claim_tokens"], (1,)).fetchone()
        return (token, 0) if connection.execute(self._sql["claim_enrolled"], {**key, "token": token}).rowcount else None

    def _take(self, connection: sqlite3.Connection, key: dict[str, Any]) -> tuple[int, int] | None:
        """The ticket of a route that is due, under a lease of its own; none if it is not due."""
        row = connection.execute(self._sql["enrolled_ticket"], key).fetchone()
        if row is None:
            return None
        place = dict(row)
        ticket = place["ticket"]
        if not connection.execute(self._sql["take_due"], place).rowcount:
            own = connection.execute(self._sql["own_lease"], {**key, "ticket": ticket}).fetchone()
            if own is None or own[0] in self._leases.known():
                # Somebody else's, or the answer has come and the message is being sent: a second claim would repeat it.
                return None
            (anew,) = connection.execute(self._sql["claim_tokens"], (1,)).fetchone()
            connection.execute(self._sql["ticket_anew"], {**key, "ticket": ticket, "anew": anew})
            freed = {"leases": json.dumps([own[0]]), "tokens": json.dumps([ticket])}
            connection.execute(self._sql["free_places"], freed)
            ticket = anew
        group = place["grp"] if place["grp"] < 0 else None
        lease = {"lease_id": ticket, "grp": group, "tickets": json.dumps([ticket])}
        connection.execute(self._sql["lease"], {**key, **lease})
        return ticket, ticket

    def _is_full(self, connection: sqlite3.Connection, group: int, cap: int | None) -> bool:
        if cap is None:
            return False
        (taken,) = connection.execute(self._sql["places_taken"], {"grp": group}).fetchone()
        return int(taken) >= cap
