"""Live streams in PostgreSQL: everybody's log, and who reads it where."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from carillon.domain.claims import Claim
from carillon.domain.ports import Signal
from carillon.domain.streams import Bounds, Entry, Held, log_of_claim
from carillon.ledger.postgres.pools import Connection, Pools
from carillon.ledger.postgres.tickets import PostgresTickets
from carillon.ledger.stream_rows import FORGOTTEN_SECONDS, appended, each_once, entries, places, recipients


class PostgresStreams(PostgresTickets):
    """Satisfies StreamLedger, Presence and TicketLedger; what stands between claim and push waits for no reader."""

    _pools: Pools
    _sql: Mapping[str, str]
    signal: Signal

    async def ahead(self, claims: Sequence[Claim]) -> set[tuple[str, str]]:
        if not claims:
            return set()
        columns = [
            [claim.notification_id for claim in claims],
            [claim.route_id for claim in claims],
            [claim.recipient_ref for claim in claims],
            [claim.lane for claim in claims],
            [claim.tenant_id for claim in claims],
        ]
        rows = await self._pools.claims.run(lambda c: c.fetch(self._sql["ahead"], *columns), repeatable=True)
        return {(row[0], row[1]) for row in rows}

    async def append(self, claims: Sequence[Claim]) -> list[Entry]:
        if not claims:
            return []
        found = await self._pools.claims.run(lambda c: self._append(c, each_once(claims)), repeatable=True)
        return [appended(claim, log_of_claim(claim), found[claim.key]) for claim in claims]

    async def read(self, user_id: str, after: int, limit: int) -> list[Entry]:
        rows = await self._pools.reads.run(lambda c: c.fetch(self._sql["read"], user_id, after, limit), repeatable=True)
        return entries([tuple(row) for row in rows])

    async def bounds(self, user_ids: Collection[str]) -> dict[str, Bounds]:
        rows = await self._pools.reads.run(lambda c: c.fetch(self._sql["bounds"], list(user_ids)), repeatable=True)
        found = {user_id: Bounds(*rest) for user_id, *rest in rows}
        return {user_id: found.get(user_id, Bounds()) for user_id in user_ids}

    async def newest_first(self, user_id: str, limit: int, before: int | None = None) -> list[Entry]:
        rows = await self._pools.reads.run(
            lambda c: c.fetch(self._sql["newest_first"], user_id, before, limit), repeatable=True
        )
        return entries([tuple(row) for row in rows])

    async def waiting(self, user_id: str, limit: int) -> list[Entry]:
        (first, tenant_id), (second, _) = recipients([user_id])
        rows = await self._pools.reads.run(
            lambda c: c.fetch(self._sql["waiting"], user_id, [first, second], tenant_id, limit), repeatable=True
        )
        return entries([tuple(row) for row in rows])

    async def held(self, user_id: str) -> Held:
        (row,) = await self._pools.reads.run(lambda c: c.fetch(self._sql["held"], user_id), repeatable=True)
        return Held(*row)

    async def acknowledge(self, user_id: str, notification_id: str) -> bool:
        return bool(
            await self._pools.reads.run(
                lambda c: c.fetchval(self._sql["acknowledge"], user_id, notification_id), repeatable=True
            )
        )

    async def mark_read(self, user_id: str, notification_ids: Sequence[str] | None) -> int:
        named = None if notification_ids is None else list(notification_ids)
        return await self._changed(self._sql["mark_read"], user_id, named)

    async def wake(self, user_ids: Collection[str]) -> int:
        people = recipients(user_ids)
        if not people:
            return 0
        woken = await self._changed(self._sql["wake"], [each[0] for each in people], [each[1] for each in people])
        if woken:
            self.signal.ring()
        return woken

    async def arrive(self, replica: str, user_ids: Collection[str]) -> None:
        people = sorted(set(user_ids))
        await self._pools.claims.run(lambda c: c.execute(self._sql["arrive"], people, replica), repeatable=True)

    async def leave(self, replica: str, user_ids: Collection[str]) -> None:
        people = sorted(set(user_ids))
        await self._pools.claims.run(lambda c: c.execute(self._sql["leave"], people, replica), repeatable=True)

    async def renew(self, replica: str, seconds: float) -> bool:
        known = await self._pools.settlements.run(
            lambda c: c.fetchval(self._sql["renew"], replica, seconds), repeatable=False
        )
        await self._pools.reads.run(
            lambda c: c.execute(self._sql["forget_replicas"], FORGOTTEN_SECONDS), repeatable=True
        )
        return bool(known)

    async def where(self, user_ids: Collection[str]) -> dict[str, frozenset[str]]:
        rows = await self._pools.claims.run(lambda c: c.fetch(self._sql["where"], list(user_ids)), repeatable=True)
        return places((row[0], row[1]) for row in rows)

    async def _append(self, connection: Connection, claims: list[Claim]) -> dict[tuple[str, str], Any]:
        columns = ([log_of_claim(c) for c in claims], [c.notification_id for c in claims], [c.route_id for c in claims])
        rows = await connection.fetch(self._sql["append"], *columns)
        found = {(row["notification_id"], row["route_id"]): row for row in rows}
        if len(found) < len(claims):
            rest = [claim.key for claim in claims if claim.key not in found]
            rows = await connection.fetch(self._sql["pushed"], [key[0] for key in rest], [key[1] for key in rest])
            found |= {(row["notification_id"], row["route_id"]): row for row in rows}
        return found

    async def _changed(self, statement: str, *values: object) -> int:
        said = await self._pools.reads.run(lambda c: c.execute(statement, *values), repeatable=True)
        return int(said.rpartition(" ")[2])
