"""Connections to PostgreSQL: one pool per kind of work, and the translation of their errors."""

import asyncio
import math
import random
import re
import time
from collections.abc import Awaitable, Callable
from typing import TypeAlias, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import asyncpg
import msgspec
from asyncpg.connect_utils import SessionAttribute
from asyncpg.pool import PoolConnectionProxy

from carillon.domain.errors import ConfigurationError, LedgerUnavailable
from carillon.ledger.statements import no_table

T = TypeVar("T")
Connection: TypeAlias = "PoolConnectionProxy[asyncpg.Record]"
Work: TypeAlias = Callable[[Connection], Awaitable[T]]

_SCHEMA = re.compile(r"[A-Za-z_][A-Za-z0-9_$]{0,62}")
_ACQUIRE_SECONDS = 2.0
_FAREWELL_SECONDS = 1.0
"""How long the end of the process waits for a server that does not answer; committed work stays committed."""
_BROKEN_REPEATS = 2
_CLASH_REPEATS = 3
_IDLE_SECONDS, _SURPLUS_SECONDS = 300.0, 5.0
_OUTSIDE_POOLS = 3
"""Listening, notifying and vacuuming use a connection each."""
_KINDS_OF_WORK = 4
ANY_LENGTH = 0
"""Keep prepared statements of any length. By default asyncpg prepares one of more than 15 kB anew at each call, and
PostgreSQL takes four times as long to plan a claim as to make it."""

BROKEN = (
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    OSError,
)
"""The connection is gone: whether the last statement took effect is unknown."""

CLASH = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)
"""Two transactions conflicted, and this one was rolled back."""

REFUSED = (asyncpg.InvalidAuthorizationSpecificationError, asyncpg.InvalidCatalogNameError)
"""The server does not know the role or the database: a wrong setting at the start, an outage later."""

UNAVAILABLE = (
    *BROKEN,
    *CLASH,
    *REFUSED,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.InsufficientResourcesError,
    asyncpg.LockNotAvailableError,
    asyncpg.PostgresSystemError,
    asyncpg.ReadOnlySQLTransactionError,
    TimeoutError,
)

# The hot statements have one good plan each, by index. A plan that was made while the tables were still empty would be
# kept and would scan them when they are full, so these connections are not offered any other kind. Nor are they planned
# anew: with a million scheduled routes the planner takes the general plan for the dearer one, and planning a claim
# takes longer than the claim.
_BY_INDEX = {
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "plan_cache_mode": "force_generic_plan",
}

# Most filters of a search are NULL; only a plan for the given filters can use an index.
_PER_QUESTION = {"plan_cache_mode": "force_custom_plan"}


class Address(msgspec.Struct, frozen=True):
    """Where the database is, and the schema that every connection works in."""

    dsn: str
    search_path: tuple[str, ...] = ()

    @classmethod
    def parse(cls, dsn: str) -> "Address":
        """Take `search_path` out of the query: it is ours to set, drivers know it under other names."""
        parts = urlsplit(dsn)
        query = parse_qsl(parts.query, keep_blank_values=True)
        schemas = [name.strip() for key, value in query if key == "search_path" for name in value.split(",")]
        for name in schemas:
            if not _SCHEMA.fullmatch(name):
                raise ConfigurationError(f"search_path in the database URL names no schema: {name!r}")
        rest = urlencode([(key, value) for key, value in query if key != "search_path"])
        return cls(urlunsplit(parts._replace(query=rest)), tuple(schemas))

    def settings(self, name: str, more: dict[str, str] | None = None) -> dict[str, str]:
        """The session settings of a new connection."""
        settings = {
            "application_name": f"carillon-{name}",
            "idle_in_transaction_session_timeout": "10s",
            "timezone": "UTC",
            # The planner gives switched-off plan types a huge cost, and would compile such plans.
            "jit": "off",
        }
        if self.search_path:
            settings["search_path"] = ",".join(f'"{name}"' for name in self.search_path)
        return settings | (more or {})

    async def connect(self, name: str, command_timeout: float | None = 10.0) -> "asyncpg.Connection[asyncpg.Record]":
        """One connection outside any pool."""
        return await asyncpg.connect(
            self.dsn,
            timeout=5.0,
            command_timeout=command_timeout,
            server_settings=self.settings(name),
            target_session_attrs=SessionAttribute.read_write,
        )


class PoolRules(msgspec.Struct, frozen=True, kw_only=True):
    """How many connections one process may hold in all, for how long, and their timeouts."""

    operation_timeout_seconds: float = 10.0
    max_connections: int | None = None
    max_idle_connections: int | None = None
    connection_lifetime_seconds: float | None = None

    @property
    def scarce(self) -> bool:
        """Whether the limit is too low for a pool per kind of work and for connections outside of pools."""
        return self.max_connections is not None and self.max_connections < _OUTSIDE_POOLS + _KINDS_OF_WORK


async def _nothing_to_reset(_connection: object) -> None:
    """Skip asyncpg's reset: our statements leave no setting, lock or listener, and a reset is one more round trip.

    The driver rolls back an open transaction before it calls this.
    """


class Pool:
    """Connections for one kind of work; errors of the network or the server raise LedgerUnavailable."""

    def __init__(
        self,
        address: Address,
        name: str,
        size: int,
        rules: PoolRules,
        *,
        idle_seconds: float = _IDLE_SECONDS,
        **settings: str,
    ) -> None:
        self._lifetime = rules.connection_lifetime_seconds or math.inf
        self._expire_at = time.monotonic() + self._lifetime
        self._patience: set[asyncio.Timeout] = set()
        """One timeout for each piece of work in flight; without a deadline until the pool is cut off."""
        self._cut_off = False
        self._pool = asyncpg.create_pool(
            address.dsn,
            min_size=0,
            max_size=size,
            timeout=5.0,
            command_timeout=rules.operation_timeout_seconds,
            max_inactive_connection_lifetime=idle_seconds,
            max_cacheable_statement_size=ANY_LENGTH,
            server_settings=address.settings(name, settings),
            target_session_attrs=SessionAttribute.read_write,
            reset=_nothing_to_reset,
        )

    async def open(self) -> None:
        await self._pool

    async def aclose(self) -> None:
        try:
            await asyncio.wait_for(self._pool.close(), _FAREWELL_SECONDS)
        except UNAVAILABLE:
            self._pool.terminate()

    def cut_off(self) -> None:
        """Stop waiting: work in flight, or waiting for a connection, fails now."""
        self._cut_off = True
        self._pool.terminate()
        for patience in self._patience:
            patience.reschedule(asyncio.get_running_loop().time())
        self._patience.clear()

    async def run(self, work: Work[T], *, repeatable: bool) -> T:
        """Do the work on one connection; only repeatable work is repeated after a broken connection."""
        if self._cut_off:
            raise LedgerUnavailable("PostgreSQL does not answer, and this process ends without waiting for it")
        broken = clashed = 0
        if time.monotonic() >= self._expire_at:
            self._expire_at = time.monotonic() + self._lifetime
            await self._pool.expire_connections()
        while True:
            try:
                return await self._work(work)
            except CLASH as error:
                clashed += 1
                if clashed > _CLASH_REPEATS:
                    raise LedgerUnavailable(_sentence(error)) from error
                await asyncio.sleep(random.uniform(0.002, 0.02) * clashed)  # noqa: S311 - spreads rivals, guards nothing
            except asyncpg.UndefinedTableError as error:
                raise ConfigurationError(no_table(str(error).partition('"')[2].partition('"')[0])) from error
            except UNAVAILABLE as error:
                broken += 1
                if not _is_broken(error) or not repeatable or broken > _BROKEN_REPEATS:
                    await self._renew(error)
                    raise LedgerUnavailable(_sentence(error)) from error

    async def _work(self, work: Work[T]) -> T:
        async with asyncio.timeout(None) as patience:
            self._patience.add(patience)
            try:
                async with self._pool.acquire(timeout=_ACQUIRE_SECONDS) as connection:
                    return await work(connection)
            finally:
                self._patience.discard(patience)

    async def _renew(self, error: BaseException) -> None:
        # A primary that became a standby keeps its connections open: new connections find the new primary.
        if isinstance(error, asyncpg.ReadOnlySQLTransactionError):
            await self._pool.expire_connections()


class Pools(msgspec.Struct):
    """Separate pools, so that a flood of one kind of work never starves another."""

    intake: Pool
    claims: Pool
    settlements: Pool
    """Settling and renewing have their own pool, because a lease that expires in a full pool sends a message twice."""
    reads: Pool

    @classmethod
    async def open(cls, address: Address, *, intake: int, reads: int, rules: PoolRules) -> "Pools":
        pools = cls._shared(address, rules) if rules.scarce else cls._separate(address, rules, intake, reads)
        for pool in pools.each():
            await pool.open()
        return pools

    @classmethod
    def _separate(cls, address: Address, rules: PoolRules, intake: int, reads: int) -> "Pools":
        sizes = _sizes({"settle": 2, "claim": 2, "intake": intake, "reads": reads}, rules.max_connections)
        idle = rules.max_idle_connections
        built: dict[str, Pool] = {}
        for name, size in sizes.items():
            # A pool beyond the limit of idle connections closes them soon after use.
            kept = idle is None or size <= idle
            idle = idle if idle is None or not kept else idle - size
            plans = _PER_QUESTION if name == "reads" else _BY_INDEX
            seconds = _IDLE_SECONDS if kept else _SURPLUS_SECONDS
            built[name] = Pool(address, name, size, rules, idle_seconds=seconds, **plans)
        return cls(built["intake"], built["claim"], built["settle"], built["reads"])

    @classmethod
    def _shared(cls, address: Address, rules: PoolRules) -> "Pools":
        size = (rules.max_connections or 0) - 1
        if size < 1:
            raise ConfigurationError("ledger.max_connections: at least 2 are needed, one of them for migrations")
        surplus = rules.max_idle_connections is not None and size > rules.max_idle_connections
        seconds = _SURPLUS_SECONDS if surplus else _IDLE_SECONDS
        # Searches come here too.
        plans = {**_BY_INDEX, "plan_cache_mode": "auto"}
        one = Pool(address, "shared", size, rules, idle_seconds=seconds, **plans)
        return cls(one, one, one, one)

    def each(self) -> list[Pool]:
        return list(dict.fromkeys((self.intake, self.claims, self.settlements, self.reads)))

    def cut_off(self) -> None:
        for pool in self.each():
            pool.cut_off()

    async def aclose(self) -> None:
        await asyncio.gather(*(pool.aclose() for pool in self.each()))


def _sizes(wished: dict[str, int], most: int | None) -> dict[str, int]:
    """The wanted sizes, the largest reduced until the pools and the connections outside of pools fit into `most`."""
    sizes = dict(wished)
    while most is not None and sum(sizes.values()) > most - _OUTSIDE_POOLS:
        sizes[max(sizes, key=lambda name: sizes[name])] -= 1
    return sizes


async def guarded(work: Awaitable[T]) -> T:
    """Translates errors of work at the start and outside the pools, as the pools do."""
    try:
        return await work
    except LedgerUnavailable as error:
        if isinstance(error.__cause__, REFUSED):
            raise ConfigurationError(f"PostgreSQL refuses the connection: {error.__cause__}") from error
        raise
    except UNAVAILABLE as error:
        raise LedgerUnavailable(_sentence(error)) from error


def _is_broken(error: BaseException) -> bool:
    if isinstance(error, TimeoutError):
        # Since Python 3.11 an asyncio timeout is an OSError too; repeating a slow statement would only add load.
        return False
    return isinstance(error, (*BROKEN, asyncpg.InterfaceError))


def _sentence(error: BaseException) -> str:
    return f"PostgreSQL is not available: {type(error).__name__}: {error}"
