"""A galaxy to be broken: processes with faults or one guard missing, intents by the hundred, locked tables."""

import asyncio
import sys
from collections.abc import Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import asyncpg
from redis.exceptions import RedisError

from tests.support import tables
from tests.support.galaxy import fields_for
from tests.support.galaxy_stand import INTENTS, Galaxy
from tests.support.process import Program
from tests.support.servers import Redis
from tests.support.waiting import until

ROOT = Path(__file__).parents[2]
READER_LEASE = "notification:stream_leases:bm90aWZpY2F0aW9uOmludGVudHM"
ROUTE_LEASES = "notification:route_leases:"
# Short enough for a test to outwait them; and no stream is trimmed, so that every entry can be counted.
RULES = {
    "NOTIFICATION_ROUTE_LEASE_TTL": "5s",
    "NOTIFICATION_ROUTE_BACKOFF_MIN": "50ms",
    "NOTIFICATION_GATEWAY_CLIENT_EVENTS_STREAM_MAX_LEN": "1000000",
    "NOTIFICATION_INTENTS_READ_BLOCK_TIMEOUT": "300ms",
    # A start among many others may be slow; what a start without its servers does is not told here.
    "CARILLON_WORK__START_SECONDS": "60",
}


class FaultyGalaxy(Galaxy):
    """`keys` are the intents that Redis took: what must not be lost."""

    def __init__(self, folder: Path, dsn: str, redis: Redis, **environment: str) -> None:
        super().__init__(folder, dsn, redis, **(RULES | environment))
        self.keys: list[str] = []
        self._one_question = asyncio.Lock()

    async def run(
        self,
        *,
        roles: str = "doors,outbound,upkeep",
        mutant: str | None = None,
        faults: str = "",
        env: Mapping[str, str] | None = None,
    ) -> Program:
        """A process that is ready, with `name=action[@hit]` armed, or with one guard switched off."""
        program = self.begin(roles=roles, mutant=mutant, faults=faults, env=env)
        await program.until("ready", timeout=60)
        return program

    def begin(
        self,
        *,
        roles: str = "doors,outbound,upkeep",
        mutant: str | None = None,
        faults: str = "",
        env: Mapping[str, str] | None = None,
    ) -> Program:
        """The same, which may end before it is ready."""
        command = None if mutant is None else [sys.executable, "-m", "tests.support.galaxy_mutant", mutant]
        given = self.environment(CARILLON_FAULTPOINTS=faults, PYTHONPATH=str(ROOT) if mutant else "", **(env or {}))
        program = Program(
            "serve", "--blueprint", "galaxy", "--roles", roles, env=given, cwd=self.folder, command=command
        )
        self.programs.append(program)
        return program

    async def intents(self, names: Iterable[object], kind: str = "game.turn.ready") -> list[str]:
        """XADD one intent of this type for each name, a thousand at a time; returns their ids."""
        keys = [f"intent-{name}" for name in names]
        ids: list[str] = []
        for start in range(0, len(keys), 1000):
            async with self.redis.pipeline(transaction=False) as pipeline:
                for key in keys[start : start + 1000]:
                    pipeline.xadd(INTENTS, _fields(key, kind))
                ids += [entry_id.decode() for entry_id in await pipeline.execute()]
        self.keys += keys
        return ids

    async def insist(self, names: Iterable[object]) -> None:
        """XADD one after the other as a producer does: under the same key until Redis says that it has it."""
        for name in names:
            while True:
                try:
                    await self.redis.xadd(INTENTS, _fields(f"intent-{name}"))
                except (RedisError, OSError):
                    await asyncio.sleep(0.05)
                else:
                    break
            self.keys.append(f"intent-{name}")

    async def flowed(self, records: int, routes: int | None = None, *, within: float = 60) -> None:
        """Once there are that many records, and every route of theirs has come to its end."""
        query = (
            "SELECT (SELECT count(*) FROM records) AS records, count(*) AS routes,"
            " count(*) FILTER (WHERE next_attempt_at IS NOT NULL) AS waiting FROM routes"
        )

        async def there() -> bool:
            (row,) = await self.rows(query)
            enough = row["records"] >= records and row["routes"] >= (4 * records if routes is None else routes)
            return bool(enough and row["waiting"] == 0)

        await until(there, timeout=within, what=f"{records} records through")

    async def rows(self, query: str, *values: Any) -> list[dict[str, Any]]:
        """From any number of tasks, and also after PostgreSQL was gone for a while."""
        async with self._one_question:
            if self._database is None or self._database.is_closed():
                address, _, _ = self.dsn.partition("?")
                self._database = await asyncpg.connect(address, server_settings={"search_path": "notification"})
            return await super().rows(query, *values)

    async def number(self, query: str, *values: Any) -> int:
        (row,) = await self.rows(query, *values)
        return int(next(iter(row.values())))

    async def has(self, query: str, at_least: int, *, within: float = 60) -> None:
        """Once a counting SELECT says that many."""

        async def there() -> bool:
            return await self.number(query) >= at_least

        await until(there, timeout=within, what=f"{at_least} by {query}")

    async def leases(self) -> dict[str, str]:
        """The routes that somebody holds in Redis."""
        found = {}
        async for key in self.redis.scan_iter(f"{ROUTE_LEASES}*", count=1000):
            value = await self.redis.get(key)
            if value is not None:
                found[key.decode()] = value.decode()
        return found

    async def reader(self) -> str | None:
        """Who holds the reader's lease."""
        value = await self.redis.get(READER_LEASE)
        return None if value is None else value.decode()

    async def active(self) -> Program:
        """The process that reads the stream, once one does."""
        found: list[Program] = []

        async def there() -> bool:
            holder = await self.reader() or ""
            found[:] = [program for program in self.programs if f"/{program.pid}" in holder]
            return bool(found)

        await until(there, timeout=60, what="an active reader")
        return found[0]

    async def redis_returns(self) -> None:
        """Start Redis again; connections to the one that is gone are forgotten."""
        await asyncio.to_thread(self.server.start)
        await self.redis.connection_pool.disconnect(inuse_connections=False)

    def locked(self, table: str) -> AbstractAsyncContextManager[None]:
        """Nobody writes this table meanwhile: who wants to is seen waiting."""
        address, _, _ = self.dsn.partition("?")
        return tables.locked(address, f"notification.{table}")

    async def somebody_waits(self) -> None:
        await self.has(tables.WAITING, 1)


def _fields(key: str, kind: str = "game.turn.ready") -> Any:
    return fields_for(kind, idempotency_key=key)
