"""The audit log of the push worker."""

from collections.abc import Sequence

import msgspec

from carillon.domain.audit import AuditRow
from carillon.domain.store import Engine


class AuditStore:
    """Satisfies AuditLedger."""

    engine: Engine

    async def write_audit(self, rows: Sequence[AuditRow]) -> None:
        if rows:
            given = [{**msgspec.structs.asdict(row), "metadata": row.metadata_json} for row in rows]
            # The key makes it the same whether it is done once or twice.
            await self.engine.write("write_audit", each=given, repeatable=True, pool="settlements")
