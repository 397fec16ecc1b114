"""One reader's place in a person's log: what to write next, what to look up, and when there is too much."""

from collections import deque
from collections.abc import Sequence

from carillon.domain.streams import Bounds, Entry


class Tail:
    """Entries come in any order and more than once; they leave in the log's order, each once, without a gap."""

    __slots__ = ("_kept", "_limit", "cursor", "last", "overflowed", "told")

    def __init__(self, limit: int) -> None:
        """Nothing is taken before the place is known: until `begin`, entries are only counted."""
        self._limit = limit
        self._kept: deque[Entry] = deque()
        self.told = 0
        """The highest number anybody spoke of."""
        self.cursor = -1
        """The number up to which the reader has everything; below 0 nobody knows yet."""
        self.last = -1
        """The number up to which everything is written or kept."""
        self.overflowed = False
        """More came than may be kept: the reader must come again and resume."""

    def begin(self, after: int) -> None:
        """The reader has everything up to here, or does not ask for it."""
        self.cursor = self.last = after

    @property
    def behind(self) -> bool:
        """The log holds more than was kept here."""
        return 0 <= self.last < self.told

    def offer(self, entry: Entry) -> None:
        """An entry that was appended just now: kept if it is the next, else only known to exist."""
        if entry.seq == self.last + 1 and self.last >= 0:
            if len(self._kept) >= self._limit:
                self.overflowed = True
                return
            self._kept.append(entry)
            self.last = entry.seq
        self.grown(entry.seq)

    def grown(self, newest: int) -> None:
        """The log holds entries up to this number."""
        self.told = max(self.told, newest)

    def looked_up(self, entries: Sequence[Entry], told: int) -> None:
        """What the log holds after `last`, asked when `told` was what it is given as."""
        if not entries and self.told == told:
            # What was told of is not there any more; had more been told of since, that would have to be looked up.
            self.told = self.last
        for entry in entries:
            if entry.seq > self.last:
                self._kept.append(entry)
                self.last = entry.seq

    def take(self) -> list[Entry]:
        """What is to be written now, in order."""
        entries = list(self._kept)
        self._kept.clear()
        return entries

    def wrote(self, seq: int) -> None:
        """The reader has everything up to here."""
        self.cursor = max(self.cursor, seq)


def place(bounds: Bounds, resume: int | None) -> tuple[int, int | None]:
    """After which number a reader begins, and from which on it has missed something, if it has.

    Who names no number begins where something still waits to be pushed, else at the end. Who names one that was never
    given out comes from another log and has missed everything.
    """
    if resume is None:
        return (bounds.unsettled - 1 if bounds.unsettled else bounds.newest), None
    if resume > bounds.newest:
        return max(0, bounds.oldest - 1), 0
    if resume < bounds.oldest - 1:
        return bounds.oldest - 1, resume
    return resume, None
