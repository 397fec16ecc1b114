"""The position of a reader in a Redis stream: how the stream's state changes it, and where Redis stores it."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from importlib.resources import files
from typing import Any

import msgspec
from redis.asyncio import Redis

EntryId = tuple[int, int]
"""Milliseconds and sequence number; entries are ordered by both, as numbers."""

START: EntryId = (0, 0)
_ID = re.compile(r"([0-9]{1,20})(?:-([0-9]{1,20}))?")
_OFFSET = (files("carillon.doors.redis_stream") / "offset.lua").read_text()
_AGE = (files("carillon.doors.redis_stream") / "age.lua").read_text()
_PATIENCE_SECONDS = 5.0


class Position(msgspec.Struct, frozen=True):
    """The last finished entry, and how many entries the stream ever had up to it."""

    offset: EntryId
    read: int | None
    """None when it is unknown: an operator or an older release wrote the position."""


class StreamState(msgspec.Struct, frozen=True):
    """A Redis stream at one moment."""

    added: int | None
    """How many entries it ever had; None before Redis 7."""
    length: int
    first: EntryId | None
    last: EntryId
    """The last id that it ever gave; the entry itself may be deleted."""


class EntryGap(msgspec.Struct, frozen=True):
    """Entries were trimmed before they were read; `lost` is their number, None when it is unknown."""

    lost: int | None


def judge(position: Position, state: StreamState | None, *, arriving: bool) -> tuple[Position, EntryGap | None]:
    """The position to continue from, and the gap before it; `arriving` means that others may have read before."""
    if state is None or position.offset > state.last or _too_few(position, state):
        # Not the stream that was read before: it was deleted, emptied or restored from an older copy.
        restarted = Position(START, 0)
        return restarted, None if position.offset == START else EntryGap(None)
    if state.added is None:
        return position, None
    if position.offset == state.last:
        gone = state.added
    elif state.first is None or state.first > position.offset:
        gone = state.added - state.length
    else:
        # Trimming removes the oldest entries first, and some finished ones still exist: nothing unread is lost.
        return position, None
    counted = Position(position.offset, gone)
    if position.read is None:
        unsure = arriving and position.offset != state.last
        return counted, EntryGap(None) if unsure else None
    lost = gone - position.read
    return counted, EntryGap(lost) if lost else None


def _too_few(position: Position, state: StreamState) -> bool:
    if position.read is None or state.added is None:
        return False
    behind = state.length if state.first is None or state.first > position.offset else 0
    return state.added - behind < position.read


def parse_id(text: str) -> EntryId | None:
    found = _ID.fullmatch(text)
    return None if found is None else (int(found[1]), int(found[2] or 0))


def id_text(entry: EntryId) -> str:
    return f"{entry[0]}-{entry[1]}"


Ask = Callable[..., Awaitable[Any]]
"""Sends one command over the connection that reads the stream.

During a failover two servers may take writes, and each gives ids of its own. An offset that was read from one and
stored in the other would leave out what the other got in between: entries and offset belong to one connection.
"""


class StoredOffset:
    """An offset that only advances; a reader that is behind another one learns it from the answer."""

    def __init__(self, redis: Redis, *, offset_key: str, count_key: str, stream: str) -> None:
        self._keys = [offset_key, count_key]
        self._stream = stream
        self._age = redis.register_script(_AGE)

    async def load(self, ask: Ask) -> Position | str | None:
        """The position; None when nothing is stored, the text itself when it is not an entry id."""
        async with asyncio.timeout(_PATIENCE_SECONDS):
            stored, counted = [_text(await ask("GET", key)) for key in self._keys]
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

    async def advance(self, ask: Ask, position: Position) -> bool:
        """Store the position; False when the stored one is further."""
        read = "" if position.read is None else position.read
        return await self._run(ask, "advance", position.offset, read) == position.offset

    async def restart(self, ask: Ask, left: EntryId) -> bool:
        """Set the offset to the start; False when another reader has moved it from `left` meanwhile."""
        return await self._run(ask, "restart", left, "") == START

    async def age_ms(self) -> int:
        """Age of the first entry after the stored offset, by Redis's clock."""
        async with asyncio.timeout(_PATIENCE_SECONDS):
            age: int = await self._age(keys=[self._keys[0], self._stream])
        return age

    async def _run(self, ask: Ask, verb: str, offset: EntryId, read: int | str) -> EntryId | None:
        # A connection that breaks here leaves the offset where it was: the batch is read again, and the ledger has it.
        async with asyncio.timeout(_PATIENCE_SECONDS):
            stored = await ask("EVAL", _OFFSET, str(len(self._keys)), *self._keys, verb, id_text(offset), str(read))
        return parse_id(_text(stored) or "")


def _text(raw: bytes | str | None) -> str | None:
    return raw.decode("utf-8", "replace") if isinstance(raw, bytes) else raw
