"""Reads of logs, coalesced for many readers: a storm of reconnects must not exhaust the ledger's pool."""

import asyncio
from collections.abc import Sequence

from carillon.coalesce import Coalescer
from carillon.domain.streams import Bounds, Entry, StreamLedger

AT_ONCE = 500
MOST_WAITING = 20_000
READS = 3
"""Concurrent reads; the rest of the pool is for other work."""


class Lookups:
    """A request that arrives while another one runs joins the next one."""

    def __init__(self, ledger: StreamLedger) -> None:
        self._ledger = ledger
        self._bounds: Coalescer[str, Bounds] = Coalescer(self._ask, max_batch=AT_ONCE, max_pending=MOST_WAITING)
        self._reading = asyncio.Semaphore(READS)
        self._to_read: dict[tuple[str, int, int], asyncio.Task[list[Entry]]] = {}
        """Reads that have not started yet."""

    async def bounds(self, user_id: str) -> Bounds:
        """The bounds of a log; raises LedgerUnavailable, or Overloaded when too many requests wait."""
        return await self._bounds.add(user_id)

    async def read(self, user_id: str, after: int, limit: int) -> list[Entry]:
        """The next entries; raises LedgerUnavailable."""
        asked = (user_id, after, limit)
        reading = self._to_read.get(asked)
        if reading is None:
            reading = self._to_read[asked] = asyncio.create_task(self._read(asked))
        # Several readers share this task: one that leaves must not cancel it.
        return await asyncio.shield(reading)

    async def _read(self, asked: tuple[str, int, int]) -> list[Entry]:
        async with self._reading:
            # From here on the read may miss new entries: a later request needs a read of its own.
            del self._to_read[asked]
            return await self._ledger.read(*asked)

    async def _ask(self, user_ids: Sequence[str]) -> list[Bounds]:
        found = await self._ledger.bounds(set(user_ids))
        return [found[user_id] for user_id in user_ids]
