"""The change of the seal key: every row is sealed again with the first key of the ring."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from carillon.domain.errors import ConfigurationError
from carillon.domain.store import Ask, Engine, Steps
from carillon.ledger.columns import Way, resealed
from carillon.ledger.sealing import Codec, Seals, changed_contacts, changed_person

Again: TypeAlias = Callable[[str | None, str | None], tuple[str | None, str | None]]
"""Seals the first and the second sealed column of a row again."""

TABLES = ("suppressions", "erasures", "receipts", "routes", "records", "preferences", "digests")
"""The order of resealing: suppressions first, so that a suppressed address is found again at once."""
OF_THE_API = ("receipts", "preferences", "digests")
"""Of these, the tables that a ledger without the part `api` does not have."""
_BATCH = 500


def again(seals: Seals, table: str) -> Again:
    """The function that reseals rows of this table; for a table with one sealed column, the second is None."""
    ways: Mapping[Way, Callable[[str | None], str | None]] = {
        Way.ADDRESS: lambda text: seals.address(seals.open(text)),
        Way.CONTENT: lambda text: seals.content(seals.open(text)),
        Way.CONTACTS: lambda text: changed_contacts(text or "{}", lambda value: seals.content(seals.open(value))),
        Way.PERSON: lambda text: changed_person(text or "", lambda value: seals.address(seals.open(value))),
    }
    first, second = (ways[way] for way in (*resealed(table), Way.CONTENT)[:2])
    return lambda one, two: (first(one), second(two))


class SealKeyStore:
    """The seal keys of the ledger, and resealing."""

    engine: Engine
    _codec: Codec

    async def seal_keys(self) -> set[str]:
        """The ids of all keys that may have sealed a value."""
        return {row["key_id"] for row in await self.engine.rows("seal_keys")}

    async def note_seal_key(self, key_id: str) -> None:
        await self.engine.write("note_seal_key", {"key_id": key_id}, repeatable=True)

    async def forget_seal_keys(self, but: str) -> None:
        await self.engine.write("forget_seal_keys", {"key_id": but}, repeatable=True)

    async def reseal(self, table: str, pattern: str, again: Again, limit: int) -> int:
        """Reseal up to `limit` rows that are not sealed with the first key; returns their number."""

        def steps() -> Steps[int]:
            rows = yield Ask(f"unsealed_{table}", {"pattern": pattern, "limit": limit})
            anew = [(row["place"], *again(row["one"], row["two"])) for row in rows]
            yield Ask(f"reseal_{table}", each=[{"place": place, "one": one, "two": two} for place, one, two in anew])
            return len(rows)

        return await self.engine.change(steps, repeatable=True)

    async def _know_keys(self) -> None:
        """Refuse a ring that lacks a key in use; seal unsealed rows and rows of other keys with the first key."""
        seals, used = self._codec.seals, await self.seal_keys()
        if seals is None:
            _refuse_sealed(used)
            return
        _refuse_missing(seals, used)
        if used == {seals.first}:
            return
        await self.note_seal_key(seals.first)
        changed = 0
        parts = {row["part"] for row in await self.engine.rows("parts_applied")}
        for table in (each for each in TABLES if each not in OF_THE_API or "api" in parts):
            while (count := await self.reseal(table, seals.pattern, again(seals, table), _BATCH)) > 0:
                changed += count
        # Another process may still seal with the old key: forget the key only after a run that found no row.
        if not changed:
            await self.forget_seal_keys(seals.first)


def _refuse_sealed(used: set[str]) -> None:
    """Refuse to open a sealed ledger without keys."""
    if used:
        raise ConfigurationError(
            f"ledger.seal_keys: this ledger is sealed with the key {', '.join(sorted(used))}; add that key"
        )


def _refuse_missing(seals: Seals, used: set[str]) -> None:
    missing = sorted(used - seals.key_ids)
    if missing:
        raise ConfigurationError(
            f"ledger.seal_keys: this ledger is sealed with the key {missing[0]}, and the keys given are "
            f"{', '.join(sorted(seals.key_ids))}; add the missing key after the first one, which seals"
        )
