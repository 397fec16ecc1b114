"""Which keys seal this ledger, and rows that are sealed anew, in PostgreSQL."""

from collections.abc import Mapping

from carillon.domain.errors import ConfigurationError
from carillon.ledger.postgres.pools import Connection, Pools
from carillon.ledger.seal_rows import Again


class PostgresSeals:
    """Satisfies what a sealing ledger asks of its engine."""

    _pools: Pools
    _sql: Mapping[str, str]

    async def seal_keys(self) -> set[str]:
        """The ids of all keys that something may be sealed with."""
        rows = await self._pools.reads.run(lambda c: c.fetch(self._sql["seal_keys"]), repeatable=True)
        return {row["key_id"] for row in rows}

    async def note_seal_key(self, key_id: str) -> None:
        await self._pools.reads.run(lambda c: c.execute(self._sql["note_seal_key"], key_id), repeatable=True)

    async def forget_seal_keys(self, but: str) -> None:
        await self._pools.reads.run(lambda c: c.execute(self._sql["forget_seal_keys"], but), repeatable=True)

    async def reseal(self, table: str, pattern: str, again: Again, limit: int) -> int:
        """Seal up to so many rows anew that are not sealed with the first key; answers how many there were."""

        async def work(connection: Connection) -> int:
            async with connection.transaction():
                rows = await connection.fetch(self._sql[f"unsealed_{table}"], pattern, limit)
                anew = [again(row["one"], row["two"]) for row in rows]
                places = [row["place"] for row in rows]
                columns = (places, [one for one, _ in anew], [two for _, two in anew])
                await connection.execute(self._sql[f"reseal_{table}"], *columns)
                return len(rows)

        return await self._pools.reads.run(work, repeatable=True)

    async def _know_keys(self) -> None:
        refuse_sealed(await self.seal_keys())


def refuse_sealed(key_ids: set[str]) -> None:
    """A ledger without keys must not work on seals."""
    if key_ids:
        raise ConfigurationError(
            f"ledger.seal_keys: this ledger is sealed with the key {', '.join(sorted(key_ids))}; give that key"
        )
