"""What must be told outside, in SQLite."""

import json
import sqlite3
from collections.abc import Mapping, Sequence

from carillon.domain.alerts import Postponed, Telling
from carillon.ledger.outbox_rows import joined, known, tellings
from carillon.ledger.sqlite.file import SqliteFile


class SqliteOutbox:
    """Satisfies Outbox."""

    _file: SqliteFile
    _sql: Mapping[str, str]

    async def due_alerts(self, limit: int, lease_seconds: float) -> list[Telling]:
        def look(connection: sqlite3.Connection, now: int) -> bool:
            return bool(connection.execute(self._sql["alerts_are_due"], {"now": now}).fetchone()[0])

        def work(connection: sqlite3.Connection, now: int) -> list[Telling]:
            taken = connection.execute(self._sql["due_alerts"], {"now": now, "most": limit}).fetchall()
            rows = known([dict(row) for row in taken])
            kept = {row["outbox_id"] for row in rows}
            gone = [(row["outbox_id"],) for row in taken if row["outbox_id"] not in kept]
            connection.executemany(self._sql["told_alerts"], gone)
            until = now + round(lease_seconds * 1000)
            connection.executemany(self._sql["take_alert"], [{"until": until, "outbox_id": one} for one in kept])
            ids = json.dumps(sorted({row["notification_id"] for row in rows}))
            history = [dict(row) for row in connection.execute(self._sql["alert_history"], (ids,))]
            return tellings(sorted(rows, key=lambda row: int(row["outbox_id"])), history)

        return await self._file.write_if(look, work) or []

    async def told(self, alert_ids: Sequence[int]) -> None:
        rows = [(each,) for each in alert_ids]
        await self._file.write(lambda connection, _: connection.executemany(self._sql["told_alerts"], rows))

    async def postpone(self, postponed: Sequence[Postponed]) -> None:
        def work(connection: sqlite3.Connection, now: int) -> None:
            for each in postponed:
                until = now + round(each.seconds * 1000)
                row = {"until": until, "told": joined(each.told), "outbox_id": each.alert_id, "tries": each.tries}
                connection.execute(self._sql["postpone_alerts"], row)

        await self._file.write(work)
