"""What stands between claim and push of a live stream, in SQLite."""

import json
import sqlite3
from collections.abc import Mapping, Sequence

from carillon.domain.claims import Claim
from carillon.domain.streams import Entry, log_of_claim
from carillon.ledger.sqlite.file import SqliteFile
from carillon.ledger.streams import appended


class SqliteStreams:
    """The hot part of StreamLedger."""

    _file: SqliteFile
    _sql: Mapping[str, str]

    async def ahead(self, claims: Sequence[Claim]) -> set[tuple[str, str]]:
        together = json.dumps([claim.notification_id for claim in claims])

        def work(connection: sqlite3.Connection, now: int) -> set[tuple[str, str]]:
            asked = [(claim.key, {**_asked(claim), "now": now, "together": together}) for claim in claims]
            return {key for key, values in asked if connection.execute(self._sql["ahead"], values).fetchone()}

        return await self._file.read(work) if claims else set()

    async def append(self, claims: Sequence[Claim]) -> list[Entry]:
        if not claims:
            return []
        return await self._file.write(lambda connection, now: [self._append(connection, now, c) for c in claims])

    async def acknowledge(self, user_id: str, notification_id: str) -> bool:
        def work(connection: sqlite3.Connection, now: int) -> bool:
            named = {"user_id": user_id, "notification_id": notification_id, "now": now}
            found = connection.execute(self._sql["acknowledge"], named).fetchall()
            for (route_id,) in found:
                connection.execute(self._sql["acknowledge_route"], {**named, "route_id": route_id})
            return bool(found)

        return await self._file.write(work)

    def _append(self, connection: sqlite3.Connection, now: int, claim: Claim) -> Entry:
        user_id = log_of_claim(claim)
        line = {"user_id": user_id, "notification_id": claim.notification_id, "route_id": claim.route_id, "now": now}
        row = connection.execute(self._sql["pushed"], line).fetchone()
        if row is None:
            (seq,) = connection.execute(self._sql["append_number"], line).fetchone()
            connection.execute(self._sql["append"], {**line, "seq": seq})
            row = connection.execute(self._sql["pushed"], line).fetchone()
        return appended(claim, user_id, row)


def _asked(claim: Claim) -> dict[str, object]:
    return {
        "recipient_ref": claim.recipient_ref,
        "lane": claim.lane,
        "notification_id": claim.notification_id,
        "tenant_id": claim.tenant_id,
    }
