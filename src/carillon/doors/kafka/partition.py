"""One partition: it accepts its records in their order, skips none, and knows which offset may be committed."""

import asyncio
from collections import deque
from collections.abc import Coroutine
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from carillon.domain.errors import DirectoryUnavailable, LedgerUnavailable, Overloaded
from carillon.domain.intents import Arrival
from carillon.domain.ports import OrderedAcceptor
from carillon.doors.backoff import DoorBackoff
from carillon.doors.kafka.wire import INTERNAL, Record, malformed

STRANGE_TRIES = 5
"""After so many unexpected errors a record is stored as malformed: otherwise it would block its partition forever."""
MOST_BYTES = 8 * 1024 * 1024
"""How much one partition may hold that is not accepted yet."""
_LATER = (LedgerUnavailable, Overloaded, DirectoryUnavailable)


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


class PartitionTools(msgspec.Struct, frozen=True):
    """What all partitions share."""

    acceptor: OrderedAcceptor
    backoff: DoorBackoff
    batch: int


class PendingRecord(NamedTuple):
    """A record that is not accepted yet."""

    tracker: OffsetTracker
    offset: int
    size: int
    written_ms: int | None
    arrival: Arrival


class Partition:
    """Queues records, accepts them, and knows which offset may be committed."""

    def __init__(self, tools: PartitionTools, start: int | None) -> None:
        """`start` is the committed offset; None if nothing was ever committed."""
        self._tools = tools
        self._ending = False
        self._tracker = OffsetTracker()
        self._start = start
        self._waiting: deque[PendingRecord] = deque()
        self._bytes = 0
        self._some = asyncio.Event()
        self._width, self._strange = tools.batch, 0
        self._cancellable = False
        self.committed = start
        self.paused = False
        self.fresh = True
        """Not resumed yet: the client may remember a pause from an earlier assignment of this partition."""
        self.unsure = True
        """Whether records before the next one may be deleted: nothing was read for a while."""
        self._accepting = asyncio.create_task(self._run())

    @property
    def expected(self) -> int | None:
        """The offset that should come next."""
        return self._start if self._tracker.expected is None else self._tracker.expected

    @property
    def resume(self) -> int | None:
        """The offset that may be committed; None when nothing is accepted yet."""
        return self._tracker.resume

    @property
    def full(self) -> bool:
        """Whether reading must pause."""
        return len(self._waiting) >= 2 * self._tools.batch or self._bytes >= MOST_BYTES

    @property
    def roomy(self) -> bool:
        """Whether reading may resume."""
        return len(self._waiting) <= self._tools.batch and self._bytes < MOST_BYTES // 2

    @property
    def oldest_ms(self) -> int | None:
        """The timestamp of the first waiting record; None when none waits, or it has no timestamp."""
        return self._waiting[0].written_ms if self._waiting else None

    def take(self, record: Record, arrival: Arrival) -> None:
        """Queue the next record of this partition."""
        offset, size = record.offset, len(record.value or b"")
        if self._tracker.expected is not None and offset < self._tracker.expected:
            # The partition was created anew; waiting records of the old one are still accepted.
            self._tracker = OffsetTracker()
        self._tracker.take(offset)
        self._waiting.append(PendingRecord(self._tracker, offset, size, record.written_ms, arrival))
        self._bytes += size
        self._some.set()

    async def end(self) -> None:
        """Accept nothing new, and wait for the batch that is being accepted."""
        self._ending = True
        if self._cancellable:
            self._accepting.cancel()
        await asyncio.wait({self._accepting})

    def abandon(self) -> None:
        """End at once; the next owner of the partition reads the waiting records again."""
        self._accepting.cancel()

    async def _run(self) -> None:
        while not self._ending:
            if self._waiting:
                await self._offer(list(islice(self._waiting, self._width)))
            else:
                self._some.clear()
                await self._idle(self._some.wait())

    async def _idle(self, until: Coroutine[Any, Any, Any]) -> None:
        """Wait with nothing in flight: end() may cancel this wait."""
        self._cancellable = True
        await until
        self._cancellable = False

    async def _offer(self, chunk: list[PendingRecord]) -> None:
        try:
            progress = await self._tools.acceptor.accept_in_order([each.arrival for each in chunk])
        except _LATER as error:
            await self._idle(self._tools.backoff.failed(error))
        except Exception as error:  # noqa: BLE001 - nothing was committed, so the chunk is offered again
            self._suspect(chunk, error)
            await self._idle(self._tools.backoff.failed(error))
        else:
            self._finish(progress.done)
            if progress.done < len(chunk):
                why = DirectoryUnavailable(progress.stopped_by or "nothing was accepted")
                await self._idle(self._tools.backoff.failed(why))

    def _finish(self, many: int) -> None:
        for _ in range(many):
            done = self._waiting.popleft()
            self._bytes -= done.size
            done.tracker.finish(done.offset)
        if many:
            self._tools.backoff.reset()
            if self._width == 1 and self._strange:
                self._width = self._tools.batch
            self._strange = 0

    def _suspect(self, chunk: list[PendingRecord], error: Exception) -> None:
        """Find the record that raises by offering one at a time, then store it as malformed for an operator."""
        self._strange += 1
        if self._strange < STRANGE_TRIES:
            return
        if len(chunk) > 1:
            self._width, self._strange = 1, 0
        else:
            said = f"{type(error).__name__}: {error}"
            culprit = chunk[0]
            self._waiting[0] = culprit._replace(arrival=malformed(culprit.arrival, INTERNAL, said))
