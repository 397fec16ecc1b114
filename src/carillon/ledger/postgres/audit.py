"""The audit log in PostgreSQL."""

from collections.abc import Mapping, Sequence

import msgspec

from carillon.domain.audit import AuditRow
from carillon.ledger.postgres.pools import Pools


class PostgresAudit:
    """Satisfies AuditLedger."""

    _pools: Pools
    _sql: Mapping[str, str]

    async def write_audit(self, rows: Sequence[AuditRow]) -> None:
        columns = [list(column) for column in zip(*(msgspec.structs.astuple(row) for row in rows), strict=True)]
        if columns:
            # The key makes it the same whether it is done once or twice.
            await self._pools.settlements.run(lambda c: c.execute(self._sql["write_audit"], *columns), repeatable=True)
