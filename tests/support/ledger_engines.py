"""The same ledger on every engine, with a side entrance for tests to look and to move time."""

import asyncio
import inspect
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, TypeAlias, cast

import asyncpg
import pytest
import pytest_asyncio
from redis.asyncio import Redis

from carillon.ledger.migrate import PARTS
from carillon.ledger.opening import Ledger
from carillon.ledger.postgres.engine import plain
from carillon.ledger.postgres.ledger import PostgresLedger
from carillon.ledger.postgres.pools import Address, PoolRules, Pools
from carillon.ledger.redis.leases import RedisLeases
from carillon.ledger.rows import as_held
from carillon.ledger.sqlite.ledger import SqliteLedger
from carillon.ledger.statements import load
from tests.support.databases import Databases, Prepared
from tests.support.tables import ROUTES

Rows: TypeAlias = list[dict[str, Any]]

LEASES = "postgres+leases"

TABLES = (
    *("records", "routes", "attempts", "dead_letters", "malformed_intents", "suppressions", "receipts", "outbox"),
    *("streams", "stream_entries", "presence", "replicas", "due", "leases"),
)
_EVERYTHING = {table: f"SELECT * FROM {table}" for table in (*TABLES, "attempts_told")}  # noqa: S608 - the names above
_EMPTY = [f"DELETE FROM {table}" for table in reversed(TABLES)]  # noqa: S608 - the names above


class Engine:
    """One empty database."""

    dialect: str

    def statements(self, changes: Mapping[str, tuple[str, str]] | None = None) -> dict[str, str]:
        """All statements, some with a piece of their text replaced."""
        statements = dict(load(self.dialect))
        for name, (old, new) in (changes or {}).items():
            assert old in statements[name], f"{name} does not contain {old!r}"
            statements[name] = statements[name].replace(old, new)
        return statements

    async def open(self, **options: Any) -> Ledger:
        """Open a ledger; the options are those of both engines."""
        raise NotImplementedError

    async def execute(self, statement: str) -> Rows:
        raise NotImplementedError

    @asynccontextmanager
    async def ledger(self, **options: Any) -> AsyncIterator[Ledger]:
        ledger = await self.open(**options)
        try:
            await self.prepare(ledger)
            yield ledger
        finally:
            await ledger.aclose()

    async def prepare(self, ledger: Ledger) -> None:
        await ledger.migrate()

    async def rows(self, table: str) -> Rows:
        if table == "routes":
            return [as_held(row) for row in await self.execute(ROUTES)]
        return await self.execute(_EVERYTHING[table])

    async def only(self, table: str) -> dict[str, Any]:
        (row,) = await self.rows(table)
        return row

    async def empty(self) -> None:
        for statement in _EMPTY:
            await self.execute(statement)

    async def expire_leases(self) -> None:
        """Let every lease end now."""
        await self.execute(self.PAST.replace("WHERE", "WHERE claim_token IS NOT NULL AND"))
        await self.execute(self.OVER)

    async def make_due(self) -> None:
        """Let everything that waits be due now, leases included."""
        await self.execute(self.PAST)
        await self.execute(self.OVER)

    async def grow_old(self, table: str, column: str, seconds: int) -> None:
        """Move a time into the past."""
        await self.execute(self.OLDER.format(table=table, column=column, seconds=seconds))

    PAST: str
    OVER: str
    OLDER: str


class PostgresEngine(Engine):
    dialect = "postgres"
    PAST = (
        "UPDATE routes SET next_attempt_at = clock_timestamp() - interval '1 ms'"
        " WHERE next_attempt_at IS NOT NULL AND ticket IS NULL"
    )
    OVER = "UPDATE leases SET expires_at = clock_timestamp() - interval '1 ms'"
    OLDER = "UPDATE {table} SET {column} = {column} - {seconds} * interval '1 second'"

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self._open = 0
        self._idle: list[asyncpg.Connection[Any]] = []

    async def open(self, **options: Any) -> Ledger:
        return await PostgresLedger.open(self.dsn, allow_unsafe=True, **options)

    @asynccontextmanager
    async def ledger(self, **options: Any) -> AsyncIterator[Ledger]:
        async with super().ledger(**options) as ledger, self._beside():
            yield ledger

    async def prepare(self, ledger: Ledger) -> None:
        if not isinstance(self.dsn, Prepared):
            await super().prepare(ledger)

    async def empty(self) -> None:
        async with self._connected() as connection:
            await connection.execute(";".join(_EMPTY))

    async def execute(self, statement: str) -> Rows:
        async with self._connected() as connection:
            return [plain(row.items()) for row in await connection.fetch(statement)]

    @asynccontextmanager
    async def _beside(self) -> AsyncIterator[None]:
        """Keep the connections of the side entrance while a ledger is open."""
        self._open += 1
        try:
            yield
        finally:
            self._open -= 1
            if not self._open:
                await self._part()

    async def _part(self) -> None:
        await asyncio.gather(*(each.close() for each in self._idle))
        self._idle.clear()

    @asynccontextmanager
    async def _connected(self) -> "AsyncIterator[asyncpg.Connection[Any]]":
        connection = self._idle.pop() if self._idle else await asyncpg.connect(self.dsn)
        try:
            yield connection
        except BaseException:
            await connection.close()
            raise
        if self._open:
            self._idle.append(connection)
        else:
            await connection.close()


class _Lent(Pools, kw_only=True):
    """Pools that are given back where a ledger closes them, once."""

    give_back: Callable[[Pools], Awaitable[None]]
    is_lent: bool = True

    async def aclose(self) -> None:
        if self.is_lent:
            self.is_lent = False
            await self.give_back(Pools(self.intake, self.claims, self.settlements, self.reads))


class WarmPostgresEngine(PostgresEngine):
    """For many ledgers in one loop: its connections outlive them.

    Most of what a short test costs the server is what a new connection reads of the catalogue, and plans.
    """

    def __init__(self, dsn: str) -> None:
        super().__init__(dsn)
        self._free: list[Pools] = []
        # The side entrance is open as long as the engine is.
        self._open = 1

    async def open(self, **options: Any) -> Ledger:
        if options.keys() & {"intake_connections", "read_connections", "rules"}:
            return await super().open(**options)
        address = Address.parse(self.dsn)
        pools = self._free.pop() if self._free else await Pools.open(address, intake=4, reads=4, rules=PoolRules())
        lent = _Lent(pools.intake, pools.claims, pools.settlements, pools.reads, give_back=self._back)
        statements = options.pop("statements", None) or load("postgres", frozenset(options.get("parts", PARTS)))
        return PostgresLedger(address, lent, statements, options.pop("lease_seconds", 30.0), **options)

    async def _back(self, pools: Pools) -> None:
        """What a ledger has left unfinished ends with its connections."""
        if all(_waits(pool) for pool in pools.each()):
            self._free.append(pools)
        else:
            await pools.aclose()

    async def aclose(self) -> None:
        await self._part()
        await asyncio.gather(*(pools.aclose() for pools in self._free))
        self._free.clear()


def _waits(pool: Any) -> bool:
    connections = pool._pool  # noqa: SLF001 - nobody else asks
    return not connections.is_closing() and connections.get_idle_size() == connections.get_size()


class SqliteEngine(Engine):
    dialect = "sqlite"
    PAST = (
        "UPDATE routes SET next_attempt_at = next_attempt_at - 10000000000000"
        " WHERE next_attempt_at IS NOT NULL AND ticket IS NULL"
    )
    OVER = "UPDATE leases SET expires_at = expires_at - 10000000000000"
    OLDER = "UPDATE {table} SET {column} = {column} - {seconds} * 1000"

    def __init__(self, path: Path, *, prepared: bool = False) -> None:
        """A prepared file is copied from one that has the ledger's tables."""
        self.path = path
        self._prepared = prepared

    async def open(self, **options: Any) -> Ledger:
        if self._prepared and not self.path.exists():
            self.path.write_bytes(await _migrated_file())
        return await SqliteLedger.open(self.path, **options)

    async def prepare(self, ledger: Ledger) -> None:
        if not self._prepared:
            await super().prepare(ledger)

    async def execute(self, statement: str) -> Rows:
        def work() -> Rows:
            connection = sqlite3.connect(self.path, timeout=40.0)
            connection.row_factory = sqlite3.Row
            connection.execute("PRAGMA foreign_keys = ON")
            try:
                with connection:
                    return [dict(row) for row in connection.execute(statement)]
            finally:
                connection.close()

        return await asyncio.to_thread(work)


_files: list[bytes] = []


async def _migrated_file() -> bytes:
    if not _files:
        with TemporaryDirectory() as folder:
            engine = SqliteEngine(Path(folder, "ledger.db"))
            async with engine.ledger():
                pass
            _files.append(await asyncio.to_thread(engine.path.read_bytes))
    return _files[0]


class LeasedEngine(WarmPostgresEngine):
    """PostgreSQL with the leases of its claims in Redis as well."""

    def __init__(self, dsn: str, redis_url: str) -> None:
        super().__init__(dsn)
        self._redis_url = redis_url
        self._owners = count(1)

    async def open(self, **options: Any) -> Ledger:
        ledger = await super().open(**options)
        redis = Redis.from_url(self._redis_url)
        seconds = options.get("lease_seconds", 30.0)
        leases = RedisLeases(ledger, redis, lease_seconds=seconds, owner=f"process-{next(self._owners)}")
        leased: Any = _Leased(ledger, leases, redis)
        return cast("Ledger", leased)

    async def expire_leases(self) -> None:
        await super().expire_leases()
        await self._forget()

    async def make_due(self) -> None:
        await super().make_due()
        await self._forget()

    async def _forget(self) -> None:
        async with Redis.from_url(self._redis_url) as redis:
            await redis.flushdb()


class _Leased:
    """A ledger whose backlog goes through RedisLeases, and nothing else does."""

    def __init__(self, ledger: Ledger, leases: RedisLeases, redis: Redis) -> None:
        self._ledger = ledger
        self._leases = leases
        self._redis = redis
        self.claim, self.extend, self.settle = leases.claim, leases.extend, leases.settle

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)

    async def aclose(self) -> None:
        await self._leases.aclose()
        await self._redis.aclose()
        await self._ledger.aclose()


class WarmEngines:
    """The engines of a worker's loop: a database that a test gives back is the next one's, with its connections."""

    def __init__(self, databases: Databases) -> None:
        self._databases = databases
        self._engines: dict[tuple[str, str], WarmPostgresEngine] = {}

    def take(self, kind: str, request: pytest.FixtureRequest) -> Engine:
        dsn, give_back = self._databases.take(warm=True)
        request.addfinalizer(give_back)
        if (kind, dsn) not in self._engines:
            leased = kind == LEASES
            self._engines[kind, dsn] = (
                LeasedEngine(dsn, request.getfixturevalue("redis_server").url()) if leased else WarmPostgresEngine(dsn)
            )
        if kind == LEASES:
            request.getfixturevalue("redis_url")
        return self._engines[kind, dsn]

    async def aclose(self) -> None:
        for engine in self._engines.values():
            await engine.aclose()


def _engine(request: pytest.FixtureRequest) -> Engine:
    if request.param == "sqlite":
        return SqliteEngine(request.getfixturevalue("tmp_path") / "ledger.db", prepared=True)
    if inspect.iscoroutinefunction(request.function):
        warm: WarmEngines = request.getfixturevalue("warm_engines")
        return warm.take(request.param, request)
    # It runs loops of its own.
    return PostgresEngine(request.getfixturevalue("ledger_dsn"))


def _bare_engine(request: pytest.FixtureRequest) -> Engine:
    if request.param == "sqlite":
        return SqliteEngine(request.getfixturevalue("tmp_path") / "ledger.db")
    return PostgresEngine(request.getfixturevalue("postgres_dsn"))


_made: list[Any] = []


def engine_fixture(*more: str) -> Any:
    """Assigned to `engine`, it runs a module's tests once on each engine; asynchronous ones in the worker's loop."""
    made = pytest.fixture(params=["postgres", "sqlite", *more], name="engine")(_engine)
    _made.append(made)
    return made


def in_the_workers_loop(item: pytest.Item) -> bool:
    """Whether a test asks for an engine of `engine_fixture`: then it and its fixtures share a loop with the others."""
    engine = getattr(getattr(item, "module", None), "engine", None)
    asks = "engine" in getattr(item, "fixturenames", ()) and any(engine is made for made in _made)
    return asks and inspect.iscoroutinefunction(getattr(item, "function", None))


def bare_engine_fixture() -> Any:
    """As `engine_fixture`, on databases that have no tables."""
    return pytest.fixture(params=["postgres", "sqlite"], name="engine")(_bare_engine)


def ledger_fixture(loop_scope: Literal["session", "function"] = "session") -> Any:
    """Assigned to `ledger`, it gives a module's tests a migrated ledger on `engine`; "function" if that is its own."""

    @pytest_asyncio.fixture(name="ledger", loop_scope=loop_scope)
    async def opened(engine: Engine) -> AsyncIterator[Ledger]:
        async with engine.ledger() as ledger:
            yield ledger

    return opened
