"""Breakers of several processes, in SQLite."""

import sqlite3
from collections.abc import Mapping

from carillon.domain.breaker import BreakerPolicy, BreakerVerb, Step, step
from carillon.ledger.breaker_rows import columns, read, unlocked
from carillon.ledger.sqlite.file import SqliteFile


class SqliteBreakers:
    """Satisfies BreakerLedger."""

    _file: SqliteFile
    _sql: Mapping[str, str]

    async def breaker_step(self, service: str, provider: str, verb: BreakerVerb, policy: BreakerPolicy) -> Step:
        key = {"service": service, "provider": provider}

        def look(connection: sqlite3.Connection, now: int) -> Step | None:
            row = connection.execute(self._sql["breaker_look"], key | {"now": now}).fetchone()
            return unlocked(row, policy, verb)

        def locked(connection: sqlite3.Connection, now: int) -> Step:
            row = connection.execute(self._sql["breaker_lock"], key | {"now": now}).fetchone()
            before = read(row)
            after, said = step(before, policy, verb, row["now"])
            if after != before:
                connection.execute(self._sql["breaker_keep"], key | columns(after))
            return said

        said = await self._file.read(look)
        return await self._file.write(locked) if said is None else said
