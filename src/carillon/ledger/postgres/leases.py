"""Leases that ran out, in PostgreSQL."""

from collections.abc import Mapping

from carillon.domain.leases import Reset
from carillon.ledger.postgres.pools import Pools


class PostgresLeases:
    """Satisfies LeaseLedger."""

    _pools: Pools
    _sql: Mapping[str, str]
    _recovery_hint: str
    _alert_from: int | None

    async def reset_expired(self, limit: int) -> Reset:
        # Not repeated when the connection breaks: what was reset unheard would be counted as nothing.
        (row,) = await self._pools.settlements.run(
            lambda c: c.fetch(self._sql["reset_expired"], limit, self._recovery_hint, self._alert_from),
            repeatable=False,
        )
        return Reset(*row)
