"""Acceptance in SQLite: records, their routes, and what could not be accepted."""

import sqlite3
from collections.abc import Mapping, Sequence

from carillon.domain.errors import LedgerUnavailable
from carillon.domain.intents import Malformed
from carillon.domain.notifications import Accepted, Enrolled, Enrolment, Notification
from carillon.ledger.rows import (
    LAID_FIELDS,
    RECORD_FIELDS,
    answer_for_loser,
    malformed_values,
    record_values,
    route_rows,
)
from carillon.ledger.sealing import Codec
from carillon.ledger.sqlite.file import SqliteFile

_ROUTE_NAMES = (*LAID_FIELDS, "now")
_RECORD_NAMES = (*RECORD_FIELDS, "now")


class SqliteIntake:
    """Satisfies IntakeLedger and LookupLedger."""

    _file: SqliteFile
    _sql: Mapping[str, str]
    _codec: Codec

    async def enrol(self, batch: Sequence[Enrolment]) -> list[Enrolled]:
        if not batch:
            return []
        batch = self._codec.named(batch)
        return await self._file.write(
            lambda connection, now: [self._enrol(connection, now, enrolment) for enrolment in batch]
        )

    async def foresee(self, notification: Notification) -> Enrolled | None:
        """What `enrol` would answer by what is written down; None where nothing stands in the way."""
        if notification.idempotency_key is None:
            return None
        asked = {
            "notification_id": notification.notification_id,
            "producer": notification.producer,
            "idempotency_key": notification.idempotency_key,
        }

        def look(connection: sqlite3.Connection, now: int) -> Enrolled | None:
            row = connection.execute(self._sql["winners"], asked | {"now": now}).fetchone()
            return answer_for_loser(notification, dict(row)) if row else None

        return await self._file.read(look)

    async def park(self, malformed: Sequence[Malformed]) -> None:
        if not malformed:
            return
        rows = [malformed_values(entry, self._codec) for entry in malformed]
        await self._file.write(
            lambda connection, now: connection.executemany(self._sql["park"], [(*row, now) for row in rows])
        )

    def _enrol(self, connection: sqlite3.Connection, now: int, enrolment: Enrolment) -> Enrolled:
        notification = enrolment.notification
        values = dict(zip(_RECORD_NAMES, (*record_values(notification, self._codec), now), strict=True))
        if connection.execute(self._sql["enrol"], values).rowcount == 0:
            winner = connection.execute(self._sql["winners"], values).fetchone()
            if winner is None:
                raise LedgerUnavailable("an idempotency key was taken by a record that cannot be read")
            return answer_for_loser(notification, dict(winner)) or Accepted(notification.notification_id)
        routes = [dict(zip(_ROUTE_NAMES, (*row, now), strict=True)) for row in route_rows(enrolment, self._codec)]
        connection.executemany(self._sql["enrol_route"], routes)
        return Accepted(notification.notification_id)
