"""The ledger in one SQLite file."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from carillon.domain.errors import ConfigurationError
from carillon.ledger.local_signal import LocalSignal
from carillon.ledger.migrate import migrate_sqlite
from carillon.ledger.sqlite_backlog import SqliteBacklog
from carillon.ledger.sqlite_file import SqliteFile
from carillon.ledger.sqlite_intake import SqliteIntake
from carillon.ledger.sqlite_upkeep import SqliteUpkeep
from carillon.ledger.statements import load


class SqliteLedger(SqliteIntake, SqliteBacklog, SqliteUpkeep):
    """Satisfies IntakeLedger, Backlog and UpkeepLedger; `signal` wakes claimers in this process."""

    def __init__(self, file: SqliteFile, sql: Mapping[str, str], lease_seconds: float) -> None:
        self._file = file
        self._sql = sql
        self._lease_seconds = lease_seconds
        self.signal = LocalSignal()

    @classmethod
    async def open(
        cls, path: str | Path, *, lease_seconds: float = 30.0, statements: Mapping[str, str] | None = None
    ) -> "SqliteLedger":
        """Open the file, or make a new one."""
        if str(path) == ":memory:":
            raise ConfigurationError("a ledger in memory forgets what it has confirmed; name a file")
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        sql = statements or load("sqlite")
        file = SqliteFile(Path(path), sql)
        try:
            await file.open()
        except BaseException:
            await file.aclose()
            raise
        return cls(file, sql, lease_seconds)

    async def migrate(self) -> list[str]:
        """Bring the schema up to date; returns the names of the steps taken by this process."""
        return await self._file.alone(partial(migrate_sqlite, sql=self._sql))

    async def aclose(self) -> None:
        """Give everything back; safe to call twice."""
        await self._file.aclose()
