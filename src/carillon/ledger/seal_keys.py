"""Which keys seal this ledger, and rows that are sealed anew."""

from carillon.domain.errors import ConfigurationError
from carillon.domain.store import Ask, Engine, Steps
from carillon.ledger.sealing import TABLES, Again, Codec, again
from carillon.ledger.seals import Seals

_BATCH = 500


class SealKeyStore:
    """What a sealing ledger asks of its engine."""

    engine: Engine
    _codec: Codec

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
        """Refuse a ring that lacks a key in use; bring what is sealed otherwise, or not at all, under the first."""
        seals, used = self._codec.seals, await self.seal_keys()
        if seals is None:
            _refuse_sealed(used)
            return
        _refuse_missing(seals, used)
        if used == {seals.first}:
            return
        await self.note_seal_key(seals.first)
        changed = 0
        for table in TABLES:
            while (count := await self.reseal(table, seals.pattern, again(seals, table), _BATCH)) > 0:
                changed += count
        # Another process may still seal with the old key: it is forgotten only when nothing of it is found any more.
        if not changed:
            await self.forget_seal_keys(seals.first)


def _refuse_sealed(used: set[str]) -> None:
    """A ledger without keys must not work on seals."""
    if used:
        raise ConfigurationError(
            f"ledger.seal_keys: this ledger is sealed with the key {', '.join(sorted(used))}; give that key"
        )


def _refuse_missing(seals: Seals, used: set[str]) -> None:
    missing = sorted(used - seals.key_ids)
    if missing:
        raise ConfigurationError(
            f"ledger.seal_keys: this ledger is sealed with the key {missing[0]}, and the keys given are "
            f"{', '.join(sorted(seals.key_ids))}; add that key behind the one that is to seal"
        )
