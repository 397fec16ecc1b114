"""The ledger in PostgreSQL."""

from collections.abc import Mapping

from carillon.domain.errors import ConfigurationError
from carillon.ledger.migrate import migrate_postgres
from carillon.ledger.postgres_backlog import PostgresBacklog
from carillon.ledger.postgres_intake import PostgresIntake
from carillon.ledger.postgres_pools import Address, Pools, guarded
from carillon.ledger.postgres_signal import PostgresSignal
from carillon.ledger.postgres_upkeep import PostgresUpkeep, unsafe_settings
from carillon.ledger.postgres_vacuum import Vacuum
from carillon.ledger.statements import load


class PostgresLedger(PostgresIntake, PostgresBacklog, PostgresUpkeep):
    """Satisfies IntakeLedger, Backlog and UpkeepLedger; `signal` wakes claimers in every process."""

    def __init__(self, address: Address, pools: Pools, sql: Mapping[str, str], lease_seconds: float) -> None:
        self._address = address
        self._pools = pools
        self._sql = sql
        self._lease_seconds = lease_seconds
        self._vacuum = Vacuum(address, sql)
        self._signal = PostgresSignal(address, sql)
        self.signal = self._signal

    @classmethod
    async def open(
        cls,
        dsn: str,
        *,
        lease_seconds: float = 30.0,
        allow_unsafe: bool = False,
        intake_connections: int = 4,
        read_connections: int = 4,
        statements: Mapping[str, str] | None = None,
    ) -> "PostgresLedger":
        """Connect; refuses a server that may forget what it has confirmed."""
        address = Address.parse(dsn)
        pools = await guarded(Pools.open(address, intake=intake_connections, reads=read_connections))
        ledger = cls(address, pools, statements or load("postgres"), lease_seconds)
        try:
            await guarded(ledger._refuse_unsafe(allow_unsafe=allow_unsafe))
        except BaseException:
            await ledger.aclose()
            raise
        return ledger

    async def migrate(self) -> list[str]:
        """Bring the schema up to date; returns the names of the steps taken by this process."""
        return await guarded(self._migrate())

    async def aclose(self) -> None:
        """Give everything back; safe to call twice."""
        await self._signal.aclose()
        await self._vacuum.aclose()
        await self._pools.aclose()

    async def _migrate(self) -> list[str]:
        connection = await self._address.connect("migrate", command_timeout=None)
        try:
            return await migrate_postgres(connection, self._sql, self._address.search_path)
        finally:
            connection.terminate()

    async def _refuse_unsafe(self, *, allow_unsafe: bool) -> None:
        settings = (await self.check())["settings"]
        unsafe = unsafe_settings(settings)
        if unsafe and not allow_unsafe:
            found = ", ".join(f"{name}=off" for name in unsafe)
            raise ConfigurationError(
                f"PostgreSQL runs with {found} and may lose what it has confirmed; switch it on, or allow it explicitly"
            )
