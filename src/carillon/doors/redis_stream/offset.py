"""The stored offset of a Redis stream, and the count of entries up to it."""

import asyncio
from importlib.resources import files

from redis.asyncio import Redis
from redis.exceptions import ConnectionError  # noqa: A004 - this client never raises the built-in one

from carillon.doors.redis_stream.position import START, EntryId, Position, id_text, parse_id

_OFFSET = (files("carillon.doors.redis_stream") / "offset.lua").read_text()
_AGE = (files("carillon.doors.redis_stream") / "age.lua").read_text()
_PATIENCE_SECONDS = 5.0


class StoredOffset:
    """An offset that only advances; a reader that is behind another one learns it from the answer."""

    def __init__(self, redis: Redis, *, offset_key: str, count_key: str, stream: str) -> None:
        self._redis = redis
        self._keys = [offset_key, count_key]
        self._stream = stream
        self._move = redis.register_script(_OFFSET)
        self._age = redis.register_script(_AGE)

    async def load(self) -> Position | str | None:
        """The position; None when nothing is stored, the text itself when it is not an entry id."""
        async with asyncio.timeout(_PATIENCE_SECONDS), self._redis.pipeline(transaction=False) as pipeline:
            for key in self._keys:
                pipeline.get(key)
            stored, counted = map(_text, await pipeline.execute())
        if stored is None:
            return None
        offset = parse_id(stored)
        if offset is None:
            return stored
        if offset == START:
            return Position(START, 0)
        # The count is valid only for the offset it was written with: an operator may have changed the offset.
        of, _, number = (counted or "").partition(" ")
        return Position(offset, int(number) if of == stored and number.isdecimal() else None)

    async def advance(self, position: Position) -> bool:
        """Store the position; False when the stored one is further."""
        read = "" if position.read is None else position.read
        return await self._run("advance", position.offset, read) == position.offset

    async def restart(self, left: EntryId) -> bool:
        """Set the offset to the start; False when another reader has moved it from `left` meanwhile."""
        return await self._run("restart", left, "") == START

    async def age_ms(self) -> int:
        """Age of the first entry after the stored offset, by Redis's clock."""
        async with asyncio.timeout(_PATIENCE_SECONDS):
            age: int = await self._age(keys=[self._keys[0], self._stream])
        return age

    async def _run(self, verb: str, offset: EntryId, read: int | str) -> EntryId | None:
        arguments = [verb, id_text(offset), read]
        async with asyncio.timeout(_PATIENCE_SECONDS):
            try:
                stored = await self._move(keys=self._keys, args=arguments)
            except ConnectionError:
                # An idle connection may be dead after a restart of Redis. Try once more, because a whole batch depends
                # on it; the script is idempotent.
                stored = await self._move(keys=self._keys, args=arguments)
        return parse_id(_text(stored) or "")


def _text(raw: bytes | str | None) -> str | None:
    return raw.decode("utf-8", "replace") if isinstance(raw, bytes) else raw
