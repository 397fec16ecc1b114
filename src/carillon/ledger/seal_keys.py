"""Which keys seal this ledger, and rows that are sealed anew."""

from carillon.domain.errors import ConfigurationError
from carillon.domain.store import Ask, Engine, Steps
from carillon.ledger.seal_rows import Again


class SealKeyStore:
    """What a sealing ledger asks of its engine."""

    engine: Engine

    async def seal_keys(self) -> set[str]:
        """The ids of all keys that something may be sealed with."""
        return {row["key_id"] for row in await self.engine.rows("seal_keys")}

    async def note_seal_key(self, key_id: str) -> None:
        await self.engine.write("note_seal_key", {"key_id": key_id}, repeatable=True)

    async def forget_seal_keys(self, but: str) -> None:
        await self.engine.write("forget_seal_keys", {"key_id": but}, repeatable=True)

    async def reseal(self, table: str, pattern: str, again: Again, limit: int) -> int:
        """Seal up to so many rows anew that are not sealed with the first key; answers how many there were."""

        def steps() -> Steps[int]:
            rows = yield Ask(f"unsealed_{table}", {"pattern": pattern, "limit": limit})
            anew = [(row["place"], *again(row["one"], row["two"])) for row in rows]
            yield Ask(f"reseal_{table}", each=[{"place": place, "one": one, "two": two} for place, one, two in anew])
            return len(rows)

        return await self.engine.change(steps, repeatable=True)

    async def _know_keys(self) -> None:
        """A ledger without keys must not work on seals."""
        key_ids = await self.seal_keys()
        if key_ids:
            raise ConfigurationError(
                f"ledger.seal_keys: this ledger is sealed with the key {', '.join(sorted(key_ids))}; give that key"
            )
