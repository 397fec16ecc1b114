"""Preferences in PostgreSQL."""

from collections.abc import Mapping, Sequence

from carillon.domain.people import Preferences, Wish
from carillon.ledger.postgres.pools import Pools
from carillon.ledger.preference_rows import in_order, wanted, wish_values
from carillon.ledger.questions import plain


class PostgresPreferences:
    """Satisfies PreferenceLedger."""

    _pools: Pools
    _sql: Mapping[str, str]

    async def preferences(self, people: Sequence[tuple[str | None, str]]) -> list[Preferences | None]:
        asked = sorted({(tenant or "", user_id) for tenant, user_id in people})
        tenants, users = [pair[0] for pair in asked], [pair[1] for pair in asked]
        rows = await self._pools.reads.run(lambda c: c.fetch(self._sql["preferences"], tenants, users), repeatable=True)
        return in_order(people, [plain(row.items()) for row in rows])

    async def wish(self, tenant_id: str | None, user_id: str, wish: Wish) -> Preferences:
        values = wish_values(tenant_id, user_id, wish)
        rows = await self._pools.reads.run(lambda c: c.fetch(self._sql["wish"], *values), repeatable=True)
        return wanted(plain(rows[0].items()))

    async def disable(self, tenant_id: str | None, user_id: str, channel: str) -> None:
        await self.wish(tenant_id, user_id, Wish(channels={channel: False}))
