"""API keys."""

import msgspec

from carillon.domain.keys import ApiKey, NewKey
from carillon.domain.store import Ask, Engine, Row, Steps


class KeyStore:
    """Satisfies KeyLedger."""

    engine: Engine

    async def api_key(self, key_id: str) -> ApiKey | None:
        row = await self.engine.one("api_key", {"key_id": key_id})
        return None if row is None else msgspec.convert(row, ApiKey)

    async def api_keys(self) -> list[ApiKey]:
        return [msgspec.convert(row, ApiKey) for row in await self.engine.rows("api_keys")]

    async def add_api_key(self, key: NewKey, most: int) -> ApiKey | None:
        values = {**msgspec.structs.asdict(key), "most": most}

        def steps() -> Steps[list[Row]]:
            yield Ask("lock_api_keys")
            return (yield Ask("add_api_key", values))

        rows = await self.engine.change(steps, repeatable=False)
        return msgspec.convert(rows[0], ApiKey) if rows else None

    async def revoke_api_key(self, key_id: str) -> ApiKey | None:
        rows = await self.engine.write("revoke_api_key", {"key_id": key_id}, repeatable=True)
        return msgspec.convert(rows[0], ApiKey) if rows else None

    async def touch_api_key(self, key_id: str, every_seconds: float) -> None:
        await self.engine.write("touch_api_key", {"key_id": key_id, "every_seconds": every_seconds}, repeatable=True)
