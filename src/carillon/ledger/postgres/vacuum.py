"""Cleaning up after the queue: PostgreSQL's own vacuum comes once a minute, too late for thousands of rows a second."""

import asyncio
import contextlib
import time
from collections.abc import Mapping

import asyncpg

from carillon.ledger.postgres.pools import UNAVAILABLE, Address

_ROWS = 20_000
_PAUSE_SECONDS = 3.0
_PAUSE_FACTOR = 10
_TIMEOUT_SECONDS = 300.0


class Vacuum:
    """Vacuums `routes` when enough rows died since the last time; never in anybody's way, never twice at once."""

    def __init__(self, address: Address, sql: Mapping[str, str], *, allowed: bool = True) -> None:
        self._allowed = allowed
        self._address = address
        self._sql = sql
        self._rows = 0
        self._not_before = 0.0
        self._task: asyncio.Task[None] | None = None

    def churned(self, rows: int) -> None:
        """Count dead rows; may start a vacuum in the background."""
        self._rows += rows
        busy = self._task is not None and not self._task.done()
        if self._allowed and self._rows >= _ROWS and not busy and time.monotonic() >= self._not_before:
            self._rows = 0
            self._task = asyncio.create_task(self._vacuum(), name="ledger-vacuum")

    async def aclose(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _vacuum(self) -> None:
        began = time.monotonic()
        # Nothing depends on it: a server that is away, or a role that may not, is met by autovacuum as ever.
        with contextlib.suppress(asyncpg.PostgresError, *UNAVAILABLE):
            connection = await self._address.connect("vacuum", _TIMEOUT_SECONDS)
            try:
                await connection.execute(self._sql["vacuum"])
                await connection.close(timeout=1.0)
            finally:
                connection.terminate()
        now = time.monotonic()
        # On a large table each run reads much; it may use a tenth of the time at most.
        self._not_before = now + max(_PAUSE_SECONDS, _PAUSE_FACTOR * (now - began))
