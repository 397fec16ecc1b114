"""API keys in SQLite."""

from collections.abc import Mapping

import msgspec

from carillon.domain.keys import ApiKey, NewKey
from carillon.ledger.sqlite.file import SqliteFile


class SqliteKeys:
    """Satisfies KeyLedger."""

    _file: SqliteFile
    _sql: Mapping[str, str]

    async def api_key(self, key_id: str) -> ApiKey | None:
        row = await self._file.read(
            lambda connection, _: connection.execute(self._sql["api_key"], (key_id,)).fetchone()
        )
        return None if row is None else msgspec.convert(dict(row), ApiKey)

    async def api_keys(self) -> list[ApiKey]:
        rows = await self._file.read(lambda connection, _: connection.execute(self._sql["api_keys"]).fetchall())
        return [msgspec.convert(dict(row), ApiKey) for row in rows]

    async def add_api_key(self, key: NewKey, most: int) -> ApiKey | None:
        values = (key.key_id, key.secret_hash, key.tenant_id, key.role, key.name, key.lives_seconds, most)
        row = await self._file.write(
            lambda connection, now: connection.execute(self._sql["add_api_key"], (*values, now)).fetchone()
        )
        return None if row is None else msgspec.convert(dict(row), ApiKey)

    async def revoke_api_key(self, key_id: str) -> ApiKey | None:
        row = await self._file.write(
            lambda connection, now: connection.execute(self._sql["revoke_api_key"], (key_id, now)).fetchone()
        )
        return None if row is None else msgspec.convert(dict(row), ApiKey)

    async def touch_api_key(self, key_id: str, every_seconds: float) -> None:
        await self._file.write(
            lambda connection, now: connection.execute(self._sql["touch_api_key"], (key_id, every_seconds, now))
        )
