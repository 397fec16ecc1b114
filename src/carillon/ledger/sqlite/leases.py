"""Leases that ran out, in SQLite."""

import sqlite3
from collections.abc import Mapping

from carillon.domain.leases import Reset
from carillon.ledger.sqlite.file import SqliteFile

_REASON = {"error_classification": "lease_expired", "error_message": "Lease expired"}


class SqliteLeases:
    """Satisfies LeaseLedger."""

    _file: SqliteFile
    _sql: Mapping[str, str]
    _recovery_hint: str
    _alert_from: int | None

    async def reset_expired(self, limit: int) -> Reset:
        reset = await self._file.write_if(
            lambda connection, now: bool(self._expired(connection, now, 1)),
            lambda connection, now: self._reset(connection, now, limit),
        )
        return reset or Reset()

    def _expired(self, connection: sqlite3.Connection, now: int, most: int) -> list[sqlite3.Row]:
        return connection.execute(self._sql["expired_leases"], {"now": now, "most": most}).fetchall()

    def _reset(self, connection: sqlite3.Connection, now: int, limit: int) -> Reset:
        expired = self._expired(connection, now, limit)
        failed = 0
        for row in expired:
            route = {**dict(row), **_REASON, "now": now, "recovery_hint": self._recovery_hint}
            connection.execute(self._sql["reset_expired"], route)
            if row["spent"]:
                failed += 1
                connection.execute(self._sql["settle_bury"], route)
                connection.execute(self._sql["settle_alert"], {**route, "alert_from": self._alert_from})
        return Reset(len(expired), failed)
