"""Where the reading of a stream stands, and what a look at the stream says about it."""

import re

import msgspec

EntryId = tuple[int, int]
"""Milliseconds and number: entries are ordered by both as numbers."""

START: EntryId = (0, 0)
_ID = re.compile(r"([0-9]{1,20})(?:-([0-9]{1,20}))?")


class Position(msgspec.Struct, frozen=True):
    """The last entry that is dealt with, and how many entries the stream ever had up to it."""

    offset: EntryId
    read: int | None
    """None when nobody counted: a position that an operator wrote, or one of an older release."""


class Look(msgspec.Struct, frozen=True):
    """A stream at one moment."""

    added: int | None
    """Entries it ever had; None before Redis 7."""
    length: int
    first: EntryId | None
    last: EntryId
    """The last id it ever gave; the entry itself may be gone."""


class Gap(msgspec.Struct, frozen=True):
    """Entries are gone that nobody had read; `lost` is their number where it is known."""

    lost: int | None


def judge(position: Position, look: Look | None, *, arriving: bool) -> tuple[Position, Gap | None]:
    """The position to go on from, and the gap in front of it; `arriving` says that others may have read before."""
    if look is None or position.offset > look.last or _too_few(position, look):
        # This is another stream than the one we read: deleted, emptied or restored from an older copy.
        restarted = Position(START, 0)
        return restarted, None if position.offset == START else Gap(None)
    if look.added is None:
        return position, None
    if position.offset == look.last:
        gone = look.added
    elif look.first is None or look.first > position.offset:
        gone = look.added - look.length
    else:
        # Trimming takes the oldest first, and some that we have read are still there.
        return position, None
    counted = Position(position.offset, gone)
    if position.read is None:
        unsure = arriving and position.offset != look.last
        return counted, Gap(None) if unsure else None
    lost = gone - position.read
    return counted, Gap(lost) if lost else None


def _too_few(position: Position, look: Look) -> bool:
    if position.read is None or look.added is None:
        return False
    behind = look.length if look.first is None or look.first > position.offset else 0
    return look.added - behind < position.read


def parse_id(text: str) -> EntryId | None:
    found = _ID.fullmatch(text)
    return None if found is None else (int(found[1]), int(found[2] or 0))


def id_text(entry: EntryId) -> str:
    return f"{entry[0]}-{entry[1]}"
