"""Which keys seal this ledger, and rows that are sealed anew, in SQLite."""

import sqlite3
from collections.abc import Mapping

from carillon.ledger.postgres.seals import refuse_sealed
from carillon.ledger.seal_rows import Again
from carillon.ledger.sqlite.file import SqliteFile


class SqliteSeals:
    """Satisfies what a sealing ledger asks of its engine."""

    _file: SqliteFile
    _sql: Mapping[str, str]

    async def seal_keys(self) -> set[str]:
        """The ids of all keys that something may be sealed with."""
        rows = await self._file.read(lambda connection, _: connection.execute(self._sql["seal_keys"]).fetchall())
        return {row["key_id"] for row in rows}

    async def note_seal_key(self, key_id: str) -> None:
        await self._file.write(lambda connection, now: connection.execute(self._sql["note_seal_key"], (key_id, now)))

    async def forget_seal_keys(self, but: str) -> None:
        await self._file.write(lambda connection, _: connection.execute(self._sql["forget_seal_keys"], (but,)))

    async def reseal(self, table: str, pattern: str, again: Again, limit: int) -> int:
        """Seal up to so many rows anew that are not sealed with the first key; answers how many there were."""

        def work(connection: sqlite3.Connection, _: int) -> int:
            rows = connection.execute(self._sql[f"unsealed_{table}"], (pattern, limit)).fetchall()
            for row in rows:
                one, two = again(row["one"], row["two"])
                connection.execute(self._sql[f"reseal_{table}"], (row["place"], one, two))
            return len(rows)

        return await self._file.write(work)

    async def _know_keys(self) -> None:
        refuse_sealed(await self.seal_keys())
