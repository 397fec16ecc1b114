"""The ledger in PostgreSQL."""

from collections.abc import Collection, Mapping
from typing import Any

from carillon.domain.errors import ConfigurationError
from carillon.domain.ports import Signal
from carillon.ledger.adoption import ChunkPlan
from carillon.ledger.leases import LeaseBook
from carillon.ledger.local_signal import LocalSignal
from carillon.ledger.migrate import PARTS, applied_postgres, migrate_postgres, missing, plan_postgres, refuse_newer
from carillon.ledger.postgres.backlog import PostgresBacklog, PostgresStreams, Vacuum
from carillon.ledger.postgres.engine import PostgresEngine, unsafe_settings
from carillon.ledger.postgres.floors import Floors
from carillon.ledger.postgres.intake import PostgresIntake
from carillon.ledger.postgres.notify import PostgresSignal
from carillon.ledger.postgres.pools import Address, PoolRules, Pools, guarded
from carillon.ledger.postgres.receipts import PostgresReceipts
from carillon.ledger.rows import ALERT_FROM, RECOVERY_HINT
from carillon.ledger.sealing import Codec, Seals
from carillon.ledger.statements import load
from carillon.ledger.stores import Stores
from carillon.ledger.turns import ClaimTurns


class PostgresLedger(PostgresIntake, PostgresBacklog, PostgresReceipts, PostgresStreams, Stores):
    """Satisfies IntakeLedger, Backlog and UpkeepLedger; `signal` wakes the workers of every process."""

    def __init__(
        self,
        address: Address,
        pools: Pools,
        sql: Mapping[str, str],
        lease_seconds: float,
        *,
        record_attempts: bool = True,
        recovery_hint: str = RECOVERY_HINT,
        alerts: bool = False,
        alert_from: int = ALERT_FROM,
        allow_migration: int = 0,
        parts: Collection[str] = PARTS,
        alone: bool = False,
        seals: Seals | None = None,
    ) -> None:
        """With `alone`, the process opens no connections outside the pools: it polls, and autovacuum vacuums."""
        self._address = address
        self._pools = pools
        self._sql = sql
        self._codec = Codec(seals)
        self._engine = PostgresEngine(pools, sql, self._codec)
        self.engine = self._engine
        self._lease_seconds = lease_seconds
        self._record_attempts = record_attempts
        self._recovery_hint = recovery_hint
        self._alerts = alerts
        self._alert_from = alert_from if alerts else None
        self._allow_migration = allow_migration
        self._parts = parts
        self._turns = ClaimTurns()
        self._floors = Floors()
        self._leases = LeaseBook()
        self._vacuum = Vacuum(address, sql, allowed=not alone)
        self._signal = None if alone else PostgresSignal(address, sql)
        self.signal: Signal = self._signal or LocalSignal()

    @classmethod
    async def open(
        cls,
        dsn: str,
        *,
        lease_seconds: float = 30.0,
        record_attempts: bool = True,
        recovery_hint: str = RECOVERY_HINT,
        alerts: bool = False,
        alert_from: int = ALERT_FROM,
        allow_migration: int = 0,
        parts: Collection[str] = PARTS,
        allow_unsafe: bool = False,
        intake_connections: int = 4,
        read_connections: int = 4,
        rules: PoolRules | None = None,
        statements: Mapping[str, str] | None = None,
        seals: Seals | None = None,
    ) -> "PostgresLedger":
        """Connect; refuses a server that may lose confirmed commits."""
        address, rules = Address.parse(dsn), rules or PoolRules()
        pools = await guarded(Pools.open(address, intake=intake_connections, reads=read_connections, rules=rules))
        ledger = cls(
            address,
            pools,
            statements or load("postgres", frozenset(parts)),
            lease_seconds,
            record_attempts=record_attempts,
            recovery_hint=recovery_hint,
            alerts=alerts,
            alert_from=alert_from,
            allow_migration=allow_migration,
            parts=parts,
            seals=seals,
            alone=rules.scarce,
        )
        return await ledger._unless_unsafe(allow_unsafe=allow_unsafe)

    async def _unless_unsafe(self, *, allow_unsafe: bool) -> "PostgresLedger":
        try:
            await guarded(self._refuse_unsafe(allow_unsafe=allow_unsafe))
        except BaseException:
            await self.aclose()
            raise
        return self

    async def migrate(self) -> list[str]:
        """Bring the schema up to date; returns the names of the steps taken by this process."""
        steps = await guarded(self._migrate())
        await self._know_keys()
        return steps

    async def refuse_newer(self) -> None:
        """Raise LedgerNewer if `migrate` would raise it; changes nothing."""
        reads = self._pools.reads
        if await reads.run(lambda c: c.fetchval(self._sql["migrations_begun"]), repeatable=True):
            rows = await reads.run(lambda c: c.fetch(self._sql["migrations_applied"]), repeatable=True)
            refuse_newer("postgres", [row["version"] for row in rows], self._allow_migration)

    async def foreseen(self) -> list[ChunkPlan]:
        """What `migrate` would do with tables that are there; raises what it would raise, and changes nothing."""
        return await self._pools.reads.run(self._foreseen, repeatable=True)

    async def _foreseen(self, connection: Any) -> list[ChunkPlan]:  # noqa: ANN401 - of the pool or not
        steps = missing("postgres", await applied_postgres(connection, self._sql), self._parts)
        return list((await plan_postgres(connection, self._sql, steps)).values())

    def cut_off(self) -> None:
        """At the end of the process: stop waiting for a server that does not answer, and send no new statements."""
        self._pools.cut_off()

    async def prune(self, records_older_than: float, malformed_older_than: float, limit: int) -> tuple[int, int]:
        """Prune as every ledger does, and at the end of it the fences of groups that nobody calls any more."""
        records, malformed = await super().prune(records_older_than, malformed_older_than, limit)
        if records < limit:
            await self._engine.write("prune_slots", {"limit": limit}, repeatable=True)
        return records, malformed

    async def aclose(self) -> None:
        """Close everything; safe to call twice."""
        if self._signal is not None:
            await self._signal.aclose()
        await self._vacuum.aclose()
        await self._pools.aclose()

    async def _migrate(self) -> list[str]:
        connection = await self._address.connect("migrate", command_timeout=None)
        try:
            return await migrate_postgres(
                connection, self._sql, self._address.search_path, self._allow_migration, self._parts
            )
        finally:
            connection.terminate()

    async def _refuse_unsafe(self, *, allow_unsafe: bool) -> None:
        settings = (await self.check())["settings"]
        unsafe = unsafe_settings(settings)
        if unsafe and not allow_unsafe:
            found = ", ".join(f"{name}=off" for name in unsafe)
            raise ConfigurationError(
                f"PostgreSQL runs with {found} and may lose confirmed commits; switch it on, or set ledger.allow_unsafe"
            )
