"""The position of a reader in a Redis stream, and how the stream's state changes it."""

import re

import msgspec

EntryId = tuple[int, int]
"""Milliseconds and sequence number; entries are ordered by both, as numbers."""

START: EntryId = (0, 0)
_ID = re.compile(r"([0-9]{1,20})(?:-([0-9]{1,20}))?")


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
