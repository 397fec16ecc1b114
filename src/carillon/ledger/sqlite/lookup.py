"""What SQLite's ledger knows about a request that nobody has written down."""

import sqlite3
from collections.abc import Mapping

from carillon.domain.notifications import Enrolled, Notification
from carillon.ledger.rows import answer_for_loser
from carillon.ledger.sqlite.file import SqliteFile


class SqliteForesight:
    """Satisfies ForesightLedger, with the receipts' list of silences."""

    _file: SqliteFile
    _sql: Mapping[str, str]

    async def foresee(self, notification: Notification) -> Enrolled | None:
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
