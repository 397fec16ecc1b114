"""Breakers of a fleet, in PostgreSQL."""

from collections.abc import Mapping

from carillon.domain.breaker import BreakerPolicy, BreakerVerb, Step, step
from carillon.ledger.breaker_rows import columns, read, unlocked
from carillon.ledger.postgres.pools import Connection, Pools


class PostgresBreakers:
    """Satisfies BreakerLedger."""

    _pools: Pools
    _sql: Mapping[str, str]

    async def breaker_step(self, service: str, provider: str, verb: BreakerVerb, policy: BreakerPolicy) -> Step:
        rows = await self._pools.reads.run(
            lambda c: c.fetch(self._sql["breaker_look"], service, provider), repeatable=True
        )
        said = unlocked(dict(rows[0]) if rows else None, policy, verb)
        if said is not None:
            return said
        # A repeat after a lost answer could count a failure twice: a missing count is the smaller harm.
        return await self._pools.settlements.run(
            lambda c: self._locked(c, service, provider, verb, policy), repeatable=False
        )

    async def _locked(
        self, connection: Connection, service: str, provider: str, verb: BreakerVerb, policy: BreakerPolicy
    ) -> Step:
        async with connection.transaction():
            (locked,) = await connection.fetch(self._sql["breaker_lock"], service, provider)
            row = dict(locked)
            before = read(row)
            after, said = step(before, policy, verb, row["now"])
            if after != before:
                await connection.execute(self._sql["breaker_keep"], service, provider, *columns(after).values())
        return said
