"""The audit log in SQLite."""

from collections.abc import Mapping, Sequence

import msgspec

from carillon.domain.audit import AuditRow
from carillon.ledger.sqlite.file import SqliteFile


class SqliteAudit:
    """Satisfies AuditLedger."""

    _file: SqliteFile
    _sql: Mapping[str, str]

    async def write_audit(self, rows: Sequence[AuditRow]) -> None:
        if rows:
            await self._file.write(
                lambda connection, now: connection.executemany(
                    self._sql["write_audit"], [(*msgspec.structs.astuple(row), now) for row in rows]
                )
            )
