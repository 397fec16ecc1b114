"""The offset that may be committed for a partition: never above a record that the ledger does not hold."""

from collections import deque

import msgspec


class OffsetTracker:
    """The offsets of one partition that are read and not finished yet, in their order."""

    def __init__(self) -> None:
        self._open: deque[int] = deque()
        self._finished: set[int] = set()
        self._next: int | None = None
        self._resume: int | None = None

    def take(self, offset: int) -> None:
        """A record was read; offsets only grow, and may leave holes."""
        if self._next is not None and offset < self._next:
            raise ValueError(f"offset {offset} came after {self._next - 1}")
        self._open.append(offset)
        self._next = offset + 1

    def finish(self, offset: int) -> None:
        """The ledger holds a record; in any order."""
        self._finished.add(offset)
        while self._open and self._open[0] in self._finished:
            self._finished.remove(self._open.popleft())
            self._resume = self._open[0] if self._open else self._next

    @property
    def expected(self) -> int | None:
        """The offset after the last one read; None before the first."""
        return self._next

    @property
    def resume(self) -> int | None:
        """The offset to commit: the lowest one that is not finished; None before the first one is."""
        return self._resume


class OffsetGap(msgspec.Struct, frozen=True):
    """Records were deleted before they were read; `lost` is their number, None when it is unknown."""

    lost: int | None


def find_gap(expected: int | None, offset: int, oldest: int | None) -> OffsetGap | None:
    """The gap when `offset` follows instead of `expected`, and the oldest record of the partition is `oldest`."""
    if expected is None or offset == expected:
        return None
    if offset < expected:
        # The partition was created anew: it is unknown how many records of the old one are lost.
        return OffsetGap(None)
    if oldest is None:
        return OffsetGap(None)
    # Compaction and transaction markers leave holes too, above the oldest record.
    return OffsetGap(oldest - expected) if oldest > expected else None
