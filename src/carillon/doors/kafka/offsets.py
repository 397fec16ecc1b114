"""Where reading a partition may resume: never above a record that is not written down."""

from collections import deque

import msgspec


class Marks:
    """The records of one partition that are in hand, in the order they were taken."""

    def __init__(self) -> None:
        self._open: deque[int] = deque()
        self._finished: set[int] = set()
        self._next: int | None = None
        self._resume: int | None = None

    def take(self, offset: int) -> None:
        """A record came; offsets only grow, and may leave holes."""
        if self._next is not None and offset < self._next:
            raise ValueError(f"offset {offset} came after {self._next - 1}")
        self._open.append(offset)
        self._next = offset + 1

    def finish(self, offset: int) -> None:
        """A record is written down, in whatever order."""
        self._finished.add(offset)
        while self._open and self._open[0] in self._finished:
            self._finished.remove(self._open.popleft())
            self._resume = self._open[0] if self._open else self._next

    @property
    def expected(self) -> int | None:
        """The offset after the last one taken; None before the first."""
        return self._next

    @property
    def resume(self) -> int | None:
        """The lowest offset not written down, which is what may be committed; None before the first one is."""
        return self._resume


class Gap(msgspec.Struct, frozen=True):
    """Records are missing between where reading stopped and where it goes on; `lost` is their number where known."""

    lost: int | None


def judge(expected: int | None, offset: int, oldest: int | None) -> Gap | None:
    """What it means that `offset` came where `expected` was due and the partition's oldest record is `oldest`."""
    if expected is None or offset == expected:
        return None
    if offset < expected:
        # The partition begins anew: what stood between its end and our offset is gone, if it ever was.
        return Gap(None)
    if oldest is None:
        return Gap(None)
    # Compacted records and the marks of transactions leave holes too, above the oldest record.
    return Gap(oldest - expected) if oldest > expected else None
