"""The ledger in one SQLite file."""

import sqlite3
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path

from carillon.domain.errors import ConfigurationError
from carillon.ledger.adoption import ChunkPlan
from carillon.ledger.leases import LeaseBook
from carillon.ledger.local_signal import LocalSignal
from carillon.ledger.migrate import PARTS, applied_sqlite, migrate_sqlite, missing, plan_sqlite, refuse_newer
from carillon.ledger.rows import ALERT_FROM, RECOVERY_HINT
from carillon.ledger.sealing import Codec, Seals
from carillon.ledger.sqlite.backlog import SqliteBacklog, SqliteStreams
from carillon.ledger.sqlite.engine import SqliteEngine
from carillon.ledger.sqlite.file import SqliteFile, refuse_unfit
from carillon.ledger.sqlite.intake import SqliteIntake
from carillon.ledger.sqlite.receipts import SqliteReceipts
from carillon.ledger.statements import fixed, load
from carillon.ledger.stores import Stores
from carillon.ledger.turns import ClaimTurns


class SqliteLedger(SqliteIntake, SqliteBacklog, SqliteReceipts, SqliteStreams, Stores):
    """Satisfies IntakeLedger, Backlog and UpkeepLedger; `signal` wakes the workers of this process."""

    def __init__(
        self,
        file: SqliteFile,
        sql: Mapping[str, str],
        lease_seconds: float,
        *,
        record_attempts: bool = True,
        recovery_hint: str = RECOVERY_HINT,
        alerts: bool = False,
        alert_from: int = ALERT_FROM,
        allow_migration: int = 0,
        parts: Collection[str] = PARTS,
        seals: Seals | None = None,
    ) -> None:
        self._file = file
        self._sql = sql
        self._codec = Codec(seals)
        self._engine = SqliteEngine(file, sql, self._codec)
        self.engine = self._engine
        self._lease_seconds = lease_seconds
        self._record_attempts = record_attempts
        self._recovery_hint = recovery_hint
        self._alerts = alerts
        self._alert_from = alert_from if alerts else None
        self._allow_migration = allow_migration
        self._parts = parts
        self._turns = ClaimTurns()
        self._leases = LeaseBook()
        self.signal = LocalSignal()

    @classmethod
    async def open(
        cls,
        path: str | Path,
        *,
        lease_seconds: float = 30.0,
        record_attempts: bool = True,
        recovery_hint: str = RECOVERY_HINT,
        alerts: bool = False,
        alert_from: int = ALERT_FROM,
        allow_migration: int = 0,
        parts: Collection[str] = PARTS,
        statements: Mapping[str, str] | None = None,
        seals: Seals | None = None,
        clock: Callable[[], float] | None = None,
    ) -> "SqliteLedger":
        """Open the file, or make a new one; `clock` is that of a rehearsal."""
        if str(path) == ":memory:":
            raise ConfigurationError("a ledger in memory loses confirmed notifications; name a file")
        refuse_unfit(Path(path))
        sql = {name: fixed(text) for name, text in (statements or load("sqlite", frozenset(parts))).items()}
        file = SqliteFile(Path(path), sql, clock)
        try:
            await file.open()
        except BaseException:
            await file.aclose()
            raise
        return cls(
            file,
            sql,
            lease_seconds,
            record_attempts=record_attempts,
            recovery_hint=recovery_hint,
            alerts=alerts,
            alert_from=alert_from,
            allow_migration=allow_migration,
            parts=parts,
            seals=seals,
        )

    async def migrate(self) -> list[str]:
        """Bring the schema up to date; returns the names of the steps taken by this process."""
        work = partial(migrate_sqlite, sql=self._sql, allowed=self._allow_migration, parts=self._parts)
        steps = await self._file.alone(work)
        await self._know_keys()
        return steps

    async def refuse_newer(self) -> None:
        """Raise LedgerNewer if `migrate` would raise it; changes nothing."""

        def applied(connection: sqlite3.Connection, _now: int) -> list[int]:
            begun = connection.execute(self._sql["migrations_begun"]).fetchone()[0]
            return [row[0] for row in connection.execute(self._sql["migrations_applied"])] if begun else []

        refuse_newer("sqlite", await self._file.read(applied), self._allow_migration)

    async def foreseen(self) -> list[ChunkPlan]:
        """What `migrate` would do with tables that are there; raises what it would raise, and changes nothing."""

        def look(connection: sqlite3.Connection, _now: int) -> list[ChunkPlan]:
            steps = missing("sqlite", applied_sqlite(connection, self._sql), self._parts)
            return list(plan_sqlite(connection, self._sql, steps).values())

        return await self._file.read(look)

    def cut_off(self) -> None:
        """Does nothing: a file always answers."""

    async def aclose(self) -> None:
        """Close everything; safe to call twice."""
        await self._file.aclose()
