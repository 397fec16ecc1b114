"""What stands between claim and push of a live stream, in PostgreSQL; it waits for no reader."""

from collections.abc import Mapping, Sequence
from typing import Any

from carillon.domain.claims import Claim
from carillon.domain.streams import Entry, log_of_claim
from carillon.ledger.postgres.pools import Connection, Pools
from carillon.ledger.streams import appended, each_once


class PostgresStreams:
    """The hot part of StreamLedger."""

    _pools: Pools
    _sql: Mapping[str, str]

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

    async def acknowledge(self, user_id: str, notification_id: str) -> bool:
        return bool(
            await self._pools.reads.run(
                lambda c: c.fetchval(self._sql["acknowledge"], user_id, notification_id), repeatable=True
            )
        )

    async def _append(self, connection: Connection, claims: list[Claim]) -> dict[tuple[str, str], Any]:
        columns = ([log_of_claim(c) for c in claims], [c.notification_id for c in claims], [c.route_id for c in claims])
        rows = await connection.fetch(self._sql["append"], *columns)
        found = {(row["notification_id"], row["route_id"]): row for row in rows}
        if len(found) < len(claims):
            rest = [claim.key for claim in claims if claim.key not in found]
            rows = await connection.fetch(self._sql["pushed"], [key[0] for key in rest], [key[1] for key in rest])
            found |= {(row["notification_id"], row["route_id"]): row for row in rows}
        return found
