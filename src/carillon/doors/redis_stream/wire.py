"""The reader's side of Redis: the connection that reads the stream, and the lease of the one active reader."""

import asyncio
import math
from collections.abc import Mapping
from contextlib import suppress
from importlib.resources import files
from typing import Any

import hiredis
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError, ResponseError

from carillon.domain.ports import Clock
from carillon.doors.redis_stream.offset import START, EntryId, StreamState, id_text, parse_id

Entry = tuple[str, dict[str, str]]
_PATIENCE_SECONDS = 5.0
_NO_STREAM = "no such key"
_pack: Any = hiredis.pack_command
"""Its type stub accepts commands of one word only."""
_SCRIPT = (files("carillon.doors.redis_stream") / "lease.lua").read_text()
_SHORTEST_WAIT = 0.01


class StreamConnection:
    """The one connection of a reading session: it reads the stream, and loads and stores the offset."""

    def __init__(self, redis: Redis, stream: str, *, block_seconds: float, batch: int) -> None:
        self._pool: Any = redis.connection_pool
        self._stream = stream
        self._seconds = block_seconds
        self._info = _pack(("XINFO", "STREAM", stream))
        block = str(max(1, round(block_seconds * 1000)))
        self._head = ("XREAD", "COUNT", str(batch), "BLOCK", block, "STREAMS", stream)
        self._connection: Any = None

    async def read(self, offset: EntryId) -> tuple[StreamState | None, list[Entry]]:
        """The state of the stream, and the entries after `offset`; waits for the first one."""
        # Not the client's timeout, which a blocking read would exceed; this one detects a dead connection.
        async with asyncio.timeout(self._seconds + _PATIENCE_SECONDS):
            packed = _pack((*self._head, id_text(offset)))
            await self._send(self._info + packed)
            seen, found = await self._answer(), await self._answer()
        if isinstance(found, ResponseError):
            raise found
        if isinstance(seen, ResponseError):
            if _NO_STREAM not in str(seen):
                raise seen
            return None, _entries(found)
        return _state(seen), _entries(found)

    async def ask(self, *words: str) -> Any:  # noqa: ANN401 - as hiredis parsed it
        """Send one command, and give its answer; raises its error."""
        await self._send(_pack(words))
        answer = await self._answer()
        if isinstance(answer, ResponseError):
            raise answer
        return answer

    async def _send(self, packed: bytes) -> None:
        if self._connection is None:
            self._connection = await self._pool.get_connection()
        elif not self._connection.is_connected:
            # The client would connect again by itself, and perhaps to another server.
            raise RedisConnectionError("the connection that reads the stream was closed")
        await self._connection.send_packed_command(packed)

    async def _answer(self) -> object:
        try:
            return await self._connection.read_response(disable_decoding=True, timeout=math.inf)
        except ResponseError as error:
            # Returned and not raised, so that the second answer is read as well.
            return error

    async def aclose(self) -> None:
        """Give the connection back; disconnect first, as an answer may still be due on it."""
        if self._connection is not None:
            connection, self._connection = self._connection, None
            await connection.disconnect(nowait=True)
            await self._pool.release(connection)


def _state(answer: Any) -> StreamState:  # noqa: ANN401 - as hiredis parsed it
    seen: Mapping[bytes, Any] = (
        answer if isinstance(answer, dict) else dict(zip(answer[::2], answer[1::2], strict=True))
    )
    first = seen[b"first-entry"]
    return StreamState(
        added=seen.get(b"entries-added"),
        length=seen[b"length"],
        first=None if first is None else _id(first[0]),
        last=_id(seen[b"last-generated-id"]),
    )


def _entries(answer: Any) -> list[Entry]:  # noqa: ANN401 - as above
    if not answer:
        return []
    # The answer for one stream: a map in the newer protocol, a list of pairs in the older.
    ((_, entries),) = answer.items() if isinstance(answer, dict) else answer
    return [
        (entry_id.decode(), dict(zip(map(_text, fields[::2]), map(_text, fields[1::2]), strict=True)))
        for entry_id, fields in entries
    ]


def _text(raw: bytes) -> str:
    # Replace invalid bytes, so that the ledger can store every entry.
    return raw.decode("utf-8", "replace")


def _id(raw: bytes) -> EntryId:
    return parse_id(raw.decode()) or START


AWAY = (RedisError, OSError)
"""The exceptions of a Redis that is away or refuses a command; a timeout is an OSError."""


class ReaderLease:
    """Held by token; its time counts on the local monotonic clock, from just before the request."""

    def __init__(self, redis: Redis, key: str, *, token: str, seconds: float, clock: Clock) -> None:
        self._script = redis.register_script(_SCRIPT)
        self._key = key
        self._token = token
        self._seconds = seconds
        self._clock = clock
        self._until = 0.0

    @property
    def alive(self) -> bool:
        """Whether this process holds the lease; a process that was suspended sees here that it has expired."""
        return self._clock.monotonic() < self._until

    async def take(self) -> float | None:
        """Take or renew the lease; None on success, otherwise the seconds until the next attempt makes sense."""
        asked_at = self._clock.monotonic()
        left: int | None = await self._run("take")
        if left is None:
            self._until = asked_at + self._seconds
            return None
        self._until = 0.0
        third = self._seconds / 3
        return third if left < 0 else min(third, max(_SHORTEST_WAIT, left / 1000))

    async def keep(self) -> None:
        """Renew every third of the lease; return when it is lost."""
        # An absent Redis does not end the lease: its time does.
        while self.alive:
            await asyncio.sleep(self._seconds / 3)
            with suppress(*AWAY):
                await self.take()

    async def release(self) -> None:
        """Release the lease if this process holds it; if Redis is away, the lease expires."""
        self._until = 0.0
        with suppress(*AWAY):
            await self._run("release")

    async def _run(self, verb: str) -> Any:  # noqa: ANN401 - a script's answer
        async with asyncio.timeout(self._seconds / 3):
            return await self._script(keys=[self._key], args=[verb, self._token, round(self._seconds * 1000)])
