"""API keys in PostgreSQL."""

from collections.abc import Mapping
from typing import Any

import asyncpg
import msgspec

from carillon.domain.keys import ApiKey, NewKey
from carillon.ledger.postgres.pools import Connection, Pools
from carillon.ledger.questions import plain


class PostgresKeys:
    """Satisfies KeyLedger."""

    _pools: Pools
    _sql: Mapping[str, str]

    async def api_key(self, key_id: str) -> ApiKey | None:
        rows = await self._pools.reads.run(lambda c: c.fetch(self._sql["api_key"], key_id), repeatable=True)
        return _key(rows[0]) if rows else None

    async def api_keys(self) -> list[ApiKey]:
        rows = await self._pools.reads.run(lambda c: c.fetch(self._sql["api_keys"]), repeatable=True)
        return [_key(row) for row in rows]

    async def add_api_key(self, key: NewKey, most: int) -> ApiKey | None:
        values = (key.key_id, key.secret_hash, key.tenant_id, key.role, key.name, key.lives_seconds, most)

        async def work(connection: Connection) -> list[Any]:
            async with connection.transaction():
                await connection.execute(self._sql["lock_api_keys"])
                found: list[Any] = await connection.fetch(self._sql["add_api_key"], *values)
                return found

        rows = await self._pools.reads.run(work, repeatable=False)
        return _key(rows[0]) if rows else None

    async def revoke_api_key(self, key_id: str) -> ApiKey | None:
        rows = await self._pools.reads.run(lambda c: c.fetch(self._sql["revoke_api_key"], key_id), repeatable=True)
        return _key(rows[0]) if rows else None

    async def touch_api_key(self, key_id: str, every_seconds: float) -> None:
        await self._pools.reads.run(
            lambda c: c.execute(self._sql["touch_api_key"], key_id, every_seconds), repeatable=True
        )


def _key(row: asyncpg.Record) -> ApiKey:
    return msgspec.convert(plain(row.items()), ApiKey)
