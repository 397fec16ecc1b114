"""The position of one reader in a person's log: what to write next, what to read, and when the buffer is full."""

from collections import deque
from collections.abc import Sequence

from carillon.domain.streams import Bounds, Entry


class Tail:
    """Takes entries in any order and repeatedly; gives them out in the order of the log, each once, without a gap."""

    __slots__ = ("_kept", "_limit", "cursor", "last", "overflowed", "told")

    def __init__(self, limit: int) -> None:
        """Until `begin` sets the position, entries are counted and not kept."""
        self._limit = limit
        self._kept: deque[Entry] = deque()
        self.told = 0
        """The highest sequence number that was announced."""
        self.cursor = -1
        """The reader has every entry up to this number; negative before `begin`."""
        self.last = -1
        """Every entry up to this number is written or kept."""
        self.overflowed = False
        """The buffer is full: the reader must reconnect and resume."""

    def begin(self, after: int) -> None:
        """Set the position: the reader has every entry up to `after`, or does not want them."""
        self.cursor = self.last = after

    @property
    def behind(self) -> bool:
        """Whether the log has entries that must be read from the ledger."""
        return 0 <= self.last < self.told

    def offer(self, entry: Entry) -> None:
        """Take a new entry: keep it if it is the next one, otherwise only note its number."""
        if entry.seq == self.last + 1 and self.last >= 0:
            if len(self._kept) >= self._limit:
                self.overflowed = True
                return
            self._kept.append(entry)
            self.last = entry.seq
        self.grown(entry.seq)

    def grown(self, newest: int) -> None:
        """The log has entries up to this number."""
        self.told = max(self.told, newest)

    def looked_up(self, entries: Sequence[Entry], told: int) -> None:
        """Take the entries after `last`; `told` is the value of `self.told` before the read."""
        if not entries and self.told == told:
            # The announced entries were pruned; reset `told`. If it has grown since, read again instead.
            self.told = self.last
        for entry in entries:
            if entry.seq > self.last:
                self._kept.append(entry)
                self.last = entry.seq

    def take(self) -> list[Entry]:
        """The entries to write now, in order."""
        entries = list(self._kept)
        self._kept.clear()
        return entries

    def wrote(self, seq: int) -> None:
        """The reader has every entry up to `seq`."""
        self.cursor = max(self.cursor, seq)


def place(bounds: Bounds, resume: int | None) -> tuple[int, int | None]:
    """After which number a reader begins, and after which number it has missed entries; None if it has missed none.

    A reader without a number begins at the first entry that is not delivered yet, otherwise at the end. A number that
    was never given out belongs to another log: that reader has missed everything.
    """
    if resume is None:
        return (bounds.unsettled - 1 if bounds.unsettled else bounds.newest), None
    if resume > bounds.newest:
        return max(0, bounds.oldest - 1), 0
    if resume < bounds.oldest - 1:
        return bounds.oldest - 1, resume
    return resume, None
