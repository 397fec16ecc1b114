"""Delivery while the caller waits, in SQLite: routes that are leased in the commit that writes them down."""

import sqlite3
from collections.abc import Sequence

from carillon.domain.claims import held_claim
from carillon.domain.notifications import Accepted, Enrolment
from carillon.domain.synchronous import HeldEnrolment
from carillon.ledger.sqlite.intake import SqliteIntake


class SqliteHolding(SqliteIntake):
    """Satisfies HoldingLedger."""

    async def enrol_held(self, batch: Sequence[Enrolment], owner: str, seconds: float) -> list[HeldEnrolment]:
        if not batch:
            return []
        named = self._codec.named(batch)

        def work(connection: sqlite3.Connection, now: int) -> list[HeldEnrolment]:
            until = now + round(seconds * 1000)
            return [self._enrol_one(connection, now, until, each, owner) for each in named]

        return await self._file.write(work)

    async def queue_unheld(self, lane: int, instead: int) -> int:
        moved = await self._file.write_if(
            lambda connection, _: bool(connection.execute(self._sql["waits_unheld"], (lane,)).fetchone()[0]),
            lambda connection, now: connection.execute(self._sql["queue_unheld"], (lane, instead, now)).rowcount,
        )
        return moved or 0

    def _enrol_one(
        self, connection: sqlite3.Connection, now: int, until: int, enrolment: Enrolment, owner: str
    ) -> HeldEnrolment:
        enrolled = self._enrol(connection, now, enrolment)
        if not isinstance(enrolled, Accepted):
            return HeldEnrolment(enrolled)
        (last,) = connection.execute(self._sql["claim_tokens"], (len(enrolment.routes),)).fetchone()
        claims = []
        for token, route in enumerate(enrolment.routes, last - len(enrolment.routes) + 1):
            lease = {"token": token, "owner": owner, "lease_until": until, "now": now}
            key = {"notification_id": enrolled.notification_id, "route_id": route.route_id}
            if connection.execute(self._sql["hold"], lease | key).rowcount:
                claims.append(held_claim(enrolment, route.route_id, token, now))
        return HeldEnrolment(enrolled, tuple(claims))
