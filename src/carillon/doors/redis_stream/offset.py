"""The stored offset of a stream's reading, and the count that goes with it."""

import asyncio
from importlib.resources import files

from redis.asyncio import Redis
from redis.exceptions import ConnectionError  # noqa: A004 - the built-in one never comes out of this client

from carillon.doors.redis_stream.position import START, EntryId, Position, id_text, parse_id

_OFFSET = (files("carillon.doors.redis_stream") / "offset.lua").read_text()
_AGE = (files("carillon.doors.redis_stream") / "age.lua").read_text()
_PATIENCE_SECONDS = 5.0


class StoredOffset:
    """Advances only; a reader that comes late is told where others are."""

    def __init__(self, redis: Redis, *, offset_key: str, count_key: str, stream: str) -> None:
        self._redis = redis
        self._keys = [offset_key, count_key]
        self._stream = stream
        self._move = redis.register_script(_OFFSET)
        self._age = redis.register_script(_AGE)

    async def load(self) -> Position | str | None:
        """The position, None when there is none, or the text that is no position."""
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
        # The count counts only for the offset it was written with: an operator may have moved that one.
        of, _, number = (counted or "").partition(" ")
        return Position(offset, int(number) if of == stored and number.isdecimal() else None)

    async def advance(self, position: Position) -> bool:
        """Write it down; False when the stored one is further."""
        read = "" if position.read is None else position.read
        return await self._run("advance", position.offset, read) == position.offset

    async def restart(self, left: EntryId) -> bool:
        """Begin again at the start; False when another reader is not where we were when we decided that."""
        return await self._run("restart", left, "") == START

    async def age_ms(self) -> int:
        """Age of the first entry behind the stored offset, by Redis's clock."""
        async with asyncio.timeout(_PATIENCE_SECONDS):
            age: int = await self._age(keys=[self._keys[0], self._stream])
        return age

    async def _run(self, verb: str, offset: EntryId, read: int | str) -> EntryId | None:
        arguments = [verb, id_text(offset), read]
        async with asyncio.timeout(_PATIENCE_SECONDS):
            try:
                stored = await self._move(keys=self._keys, args=arguments)
            except ConnectionError:
                # A connection that was idle while Redis restarted; asked again, because a whole batch depends on it,
                # and what was done unheard is done no differently the second time.
                stored = await self._move(keys=self._keys, args=arguments)
        return parse_id(_text(stored) or "")


def _text(raw: bytes | str | None) -> str | None:
    return raw.decode("utf-8", "replace") if isinstance(raw, bytes) else raw
