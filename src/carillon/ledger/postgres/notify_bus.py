"""Letters between replicas through LISTEN and NOTIFY, where there is no Redis."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import asyncpg

from carillon.ledger.postgres.pools import UNAVAILABLE, Address

_LONGEST_PAUSE = 5.0
_SHORTEST_PAUSE = 0.1
_CHECK_SECONDS = 15.0


class PostgresPost:
    """Satisfies NotifyBus; one connection sends and one receives."""

    def __init__(self, address: Address, sql: Mapping[str, str]) -> None:
        self._address = address
        self._sql = sql
        self._sender: asyncpg.Connection[Any] | None = None

    async def send(self, letters: Mapping[str, Sequence[str]]) -> None:
        pairs = [(_channel(replica), text) for replica, texts in letters.items() for text in texts]
        try:
            if self._sender is None or self._sender.is_closed():
                self._sender = await self._address.connect("stream-post")
            await self._sender.execute(
                self._sql["post_letters"], [channel for channel, _ in pairs], [text for _, text in pairs]
            )
        except (asyncpg.PostgresError, *UNAVAILABLE):
            # Whoever waits for the answer waits only so long, and then tries again on a fresh connection.
            self._hang_up()

    async def run(self, replica: str, heard: Callable[[str], None]) -> None:
        pause = _SHORTEST_PAUSE
        try:
            while True:
                with contextlib.suppress(asyncpg.PostgresError, *UNAVAILABLE):
                    connection = await self._address.connect("stream-listen")
                    try:
                        await connection.add_listener(_channel(replica), lambda _c, _p, _n, text: heard(str(text)))
                        pause = _SHORTEST_PAUSE
                        await _until_lost(connection)
                    finally:
                        connection.terminate()
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
        finally:
            self._hang_up()

    def _hang_up(self) -> None:
        if self._sender is not None:
            self._sender.terminate()
            self._sender = None


async def _until_lost(connection: "asyncpg.Connection[Any]") -> None:
    lost = asyncio.Event()
    connection.add_termination_listener(lambda _: lost.set())
    while not connection.is_closed():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(lost.wait(), _CHECK_SECONDS)
        # A peer that vanished without a word is noticed only by asking.
        await connection.fetchval("SELECT 1")


def _channel(replica: str) -> str:
    return f"carillon.streams.{replica}"
