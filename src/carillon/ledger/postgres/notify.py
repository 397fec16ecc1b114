"""LISTEN and NOTIFY of PostgreSQL: wake-ups between processes, and messages between replicas."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any
from uuid import uuid4

import asyncpg

from carillon.ending import ended
from carillon.ledger.postgres.pools import UNAVAILABLE, Address

_LONGEST_PAUSE = 5.0
_SHORTEST_PAUSE = 0.1
_BETWEEN_NOTIFIES = 0.005
_CHECK_SECONDS = 15.0


class PostgresSignal:
    """Satisfies Signal: wakes this process at once, and others by NOTIFY, outside of transactions that insert."""

    def __init__(self, address: Address, sql: Mapping[str, str]) -> None:
        self._address = address
        self._sql = sql
        self._channel = ".".join(["carillon", *address.search_path[:1]])
        self._me = uuid4().hex
        self._rung = asyncio.Event()
        self._to_tell = asyncio.Event()
        self._teller: asyncio.Task[None] | None = None
        self._listener: asyncio.Task[None] | None = None
        self._closed = False

    def ring(self) -> None:
        self._rung.set()
        self._to_tell.set()
        if not self._closed and (self._teller is None or self._teller.done()):
            self._teller = asyncio.create_task(self._tell(), name="ledger-notify")

    async def wait(self, timeout_seconds: float) -> None:
        # Only a process that waits for work listens: one that only accepts intents opens no connection for it.
        if not self._closed and (self._listener is None or self._listener.done()):
            self._listener = asyncio.create_task(self._listen(), name="ledger-listen")
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._rung.wait(), timeout_seconds)
        self._rung.clear()

    async def aclose(self) -> None:
        self._closed = True
        tasks = [task for task in (self._teller, self._listener) if task is not None]
        await ended(*tasks)

    async def _tell(self) -> None:
        pause = _SHORTEST_PAUSE
        while True:
            with contextlib.suppress(asyncpg.PostgresError, *UNAVAILABLE):
                async with _connected(self._address, "notify") as connection:
                    pause = _SHORTEST_PAUSE
                    while True:
                        await self._to_tell.wait()
                        # Cleared first, so that rings during this NOTIFY cause one more.
                        self._to_tell.clear()
                        await connection.execute(self._sql["notify"], self._channel, self._me)
                        await asyncio.sleep(_BETWEEN_NOTIFIES)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
            await self._to_tell.wait()

    async def _listen(self) -> None:
        pause = _SHORTEST_PAUSE
        while True:
            with contextlib.suppress(asyncpg.PostgresError, *UNAVAILABLE):
                async with _connected(self._address, "listen") as connection:
                    await connection.add_listener(self._channel, self._heard)
                    pause = _SHORTEST_PAUSE
                    # A NOTIFY from before this LISTEN is lost, so look for work once.
                    self._rung.set()
                    await _until_lost(connection)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _heard(self, _connection: object, _pid: int, _channel: str, sender: object) -> None:
        if sender != self._me:
            self._rung.set()


@contextlib.asynccontextmanager
async def _connected(address: Address, name: str) -> "AsyncIterator[asyncpg.Connection[Any]]":
    connection = await address.connect(name)
    try:
        yield connection
    finally:
        connection.terminate()


class PostgresBus:
    """Satisfies NotifyBus; one connection sends and one receives."""

    def __init__(self, address: Address, sql: Mapping[str, str]) -> None:
        self._address = address
        self._sql = sql
        self._sender: asyncpg.Connection[Any] | None = None

    async def send(self, messages: Mapping[str, Sequence[str]]) -> None:
        pairs = [(_channel(replica), text) for replica, texts in messages.items() for text in texts]
        try:
            if self._sender is None or self._sender.is_closed():
                self._sender = await self._address.connect("stream-post")
            await self._sender.execute(
                self._sql["send_messages"], [channel for channel, _ in pairs], [text for _, text in pairs]
            )
        except (asyncpg.PostgresError, *UNAVAILABLE):
            # The message is lost: a sender that needs an answer has a timeout and sends again on a new connection.
            self._disconnect()

    async def run(self, replica: str, receive: Callable[[str], None]) -> None:
        pause = _SHORTEST_PAUSE
        try:
            while True:
                with contextlib.suppress(asyncpg.PostgresError, *UNAVAILABLE):
                    connection = await self._address.connect("stream-listen")
                    try:
                        await connection.add_listener(_channel(replica), lambda _c, _p, _n, text: receive(str(text)))
                        pause = _SHORTEST_PAUSE
                        await _until_lost(connection)
                    finally:
                        connection.terminate()
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
        finally:
            self._disconnect()

    def _disconnect(self) -> None:
        if self._sender is not None:
            self._sender.terminate()
            self._sender = None


async def _until_lost(connection: "asyncpg.Connection[Any]") -> None:
    lost = asyncio.Event()
    connection.add_termination_listener(lambda _: lost.set())
    while not connection.is_closed():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(lost.wait(), _CHECK_SECONDS)
        # Only a query detects a server that is gone without having closed the connection.
        await connection.fetchval("SELECT 1")


def _channel(replica: str) -> str:
    return f"carillon.streams.{replica}"
