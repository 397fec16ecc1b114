"""A process that reads a Redis stream into a journal; run as a program, so that tests can kill it."""

import asyncio
import json
import os
import signal
import sqlite3
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
from redis.asyncio import Redis

from carillon.compose.program import supervise
from carillon.domain.events import Event, event_word
from carillon.domain.intents import Arrival, Progress
from carillon.doors.redis_stream.door import RedisStreamDoor
from carillon.faultpoint import faultpoint
from tests.support.dispatches import LoopClock
from tests.support.stream_door import FAST, client, decode

_ROWS = "CREATE TABLE IF NOT EXISTS entries (place INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE)"


class Journal:
    """Writes a batch in one commit, each entry once."""

    def __init__(self, path: Path) -> None:
        self._file = sqlite3.connect(path, timeout=10.0)
        with self._file:
            self._file.execute(_ROWS)

    async def accept_in_order(self, arrivals: Sequence[Arrival]) -> Progress:
        with self._file:
            self._file.executemany(
                "INSERT INTO entries (id) VALUES (?) ON CONFLICT (id) DO NOTHING",
                [(arrival.stream_entry_id,) for arrival in arrivals],
            )
        faultpoint("after_accept_commit")
        return Progress(len(arrivals))

    def ids(self) -> list[str]:
        return [row[0] for row in self._file.execute("SELECT id FROM entries ORDER BY place")]

    def close(self) -> None:
        self._file.close()


def tell(event: Event) -> None:
    print(json.dumps({"event": event_word(event), **msgspec.to_builtins(event)}), flush=True)  # noqa: T201 - what the test watches


async def read(redis: Redis, path: Path) -> None:
    door = RedisStreamDoor(
        redis=redis,
        acceptor=Journal(path),
        decode=decode,
        rules=FAST,
        clock=LoopClock(),
        observer=tell,
        owner=f"pid-{os.getpid()}",
    )
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, door.stop)
    print(json.dumps({"event": "ready"}), flush=True)  # noqa: T201 - as above
    await supervise("redis_stream", door.run, tell)
    await door.aclose()


async def main(port: int, path: Path) -> None:
    async with client(port) as redis:
        await read(redis, path)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), Path(sys.argv[2])))
