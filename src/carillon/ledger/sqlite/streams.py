"""Live streams in SQLite: everybody's log, and who reads it where."""

import json
import sqlite3
from collections.abc import Collection, Mapping, Sequence

from carillon.domain.claims import Claim
from carillon.domain.ports import Signal
from carillon.domain.streams import Bounds, Entry, Held, log_of_claim
from carillon.ledger.sqlite.file import SqliteFile
from carillon.ledger.sqlite.tickets import SqliteTickets
from carillon.ledger.stream_rows import FORGOTTEN_SECONDS, appended, entries, places, recipients


class SqliteStreams(SqliteTickets):
    """Satisfies StreamLedger, Presence and TicketLedger."""

    _file: SqliteFile
    _sql: Mapping[str, str]
    signal: Signal

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

    async def read(self, user_id: str, after: int, limit: int) -> list[Entry]:
        return await self._entries("read", user_id, after, limit)

    async def bounds(self, user_ids: Collection[str]) -> dict[str, Bounds]:
        named = json.dumps(list(user_ids))
        rows = await self._file.read(lambda connection, _: connection.execute(self._sql["bounds"], (named,)).fetchall())
        found = {user_id: Bounds(*rest) for user_id, *rest in rows}
        return {user_id: found.get(user_id, Bounds()) for user_id in user_ids}

    async def newest_first(self, user_id: str, limit: int, before: int | None = None) -> list[Entry]:
        return await self._entries("newest_first", user_id, before, limit)

    async def waiting(self, user_id: str, limit: int) -> list[Entry]:
        (first, tenant_id), (second, _) = recipients([user_id])
        asked = {"user_id": user_id, "first": first, "second": second, "tenant_id": tenant_id, "most": limit}
        rows = await self._file.read(lambda connection, _: connection.execute(self._sql["waiting"], asked).fetchall())
        return entries([tuple(row) for row in rows])

    async def held(self, user_id: str) -> Held:
        row = await self._file.read(lambda connection, _: connection.execute(self._sql["held"], (user_id,)).fetchone())
        return Held(*row)

    async def acknowledge(self, user_id: str, notification_id: str) -> bool:
        def work(connection: sqlite3.Connection, now: int) -> bool:
            named = {"user_id": user_id, "notification_id": notification_id, "now": now}
            found = connection.execute(self._sql["acknowledge"], named).fetchall()
            for (route_id,) in found:
                connection.execute(self._sql["acknowledge_route"], {**named, "route_id": route_id})
            return bool(found)

        return await self._file.write(work)

    async def mark_read(self, user_id: str, notification_ids: Sequence[str] | None) -> int:
        named = {
            "user_id": user_id,
            "notification_ids": None if notification_ids is None else json.dumps(list(notification_ids)),
        }
        return await self._file.write(
            lambda connection, now: connection.execute(self._sql["mark_read"], {**named, "now": now}).rowcount
        )

    async def wake(self, user_ids: Collection[str]) -> int:
        people = recipients(user_ids)

        def work(connection: sqlite3.Connection, now: int) -> int:
            return sum(
                connection.execute(
                    self._sql["wake"], {"recipient_ref": recipient, "tenant_id": tenant_id, "now": now}
                ).rowcount
                for recipient, tenant_id in people
            )

        woken = await self._file.write(work)
        if woken:
            self.signal.ring()
        return woken

    async def arrive(self, replica: str, user_ids: Collection[str]) -> None:
        await self._each("arrive", replica, user_ids)

    async def leave(self, replica: str, user_ids: Collection[str]) -> None:
        await self._each("leave", replica, user_ids)

    async def renew(self, replica: str, seconds: float) -> bool:
        def work(connection: sqlite3.Connection, now: int) -> bool:
            (known,) = connection.execute(self._sql["known_replica"], (replica,)).fetchone()
            connection.execute(self._sql["renew"], (replica, now + round(seconds * 1000)))
            connection.execute(self._sql["forget_replicas"], (now - round(FORGOTTEN_SECONDS * 1000),))
            connection.execute(self._sql["forget_presence"])
            return bool(known)

        return await self._file.write(work)

    async def where(self, user_ids: Collection[str]) -> dict[str, frozenset[str]]:
        named = json.dumps(list(user_ids))
        rows = await self._file.read(
            lambda connection, now: connection.execute(self._sql["where"], (named, now)).fetchall()
        )
        return places((row[0], row[1]) for row in rows)

    def _append(self, connection: sqlite3.Connection, now: int, claim: Claim) -> Entry:
        user_id = log_of_claim(claim)
        line = {"user_id": user_id, "notification_id": claim.notification_id, "route_id": claim.route_id, "now": now}
        row = connection.execute(self._sql["pushed"], line).fetchone()
        if row is None:
            (seq,) = connection.execute(self._sql["append_number"], line).fetchone()
            connection.execute(self._sql["append"], {**line, "seq": seq})
            row = connection.execute(self._sql["pushed"], line).fetchone()
        return appended(claim, user_id, row)

    async def _entries(self, statement: str, *values: object) -> list[Entry]:
        rows = await self._file.read(lambda connection, _: connection.execute(self._sql[statement], values).fetchall())
        return entries([tuple(row) for row in rows])

    async def _each(self, statement: str, replica: str, user_ids: Collection[str]) -> None:
        rows = [(user_id, replica) for user_id in user_ids]
        await self._file.write(lambda connection, _: connection.executemany(self._sql[statement], rows))


def _asked(claim: Claim) -> dict[str, object]:
    return {
        "recipient_ref": claim.recipient_ref,
        "lane": claim.lane,
        "notification_id": claim.notification_id,
        "tenant_id": claim.tenant_id,
    }
