"""One partition: its records are written down in their order, and none is passed over."""

import asyncio
from collections import deque
from collections.abc import Coroutine
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from carillon.domain.errors import DirectoryUnavailable, LedgerUnavailable, Overloaded
from carillon.domain.intents import Arrival
from carillon.domain.ports import OrderedAcceptor
from carillon.doors.backoff import Patience
from carillon.doors.kafka.offsets import Marks
from carillon.doors.kafka.wire import INTERNAL, Record, malformed

STRANGE_TRIES = 5
"""A record that an unexpected error met so often is parked: it would keep its partition for ever."""
MOST_BYTES = 8 * 1024 * 1024
"""What one partition may hold that is not written down."""
_LATER = (LedgerUnavailable, Overloaded, DirectoryUnavailable)


class Tools(msgspec.Struct, frozen=True):
    """What every partition uses."""

    acceptor: OrderedAcceptor
    patience: Patience
    batch: int


class InHand(NamedTuple):
    """A record that is not written down yet."""

    marks: Marks
    offset: int
    size: int
    written_ms: int | None
    arrival: Arrival


class Partition:
    """Takes records, writes them down, and knows from where reading it may resume."""

    def __init__(self, tools: Tools, start: int | None) -> None:
        """`start` is the committed offset; None where nothing was ever committed."""
        self._tools = tools
        self._ending = False
        self._marks = Marks()
        self._start = start
        self._waiting: deque[InHand] = deque()
        self._bytes = 0
        self._some = asyncio.Event()
        self._width, self._strange = tools.batch, 0
        self._at_rest = False
        self.committed = start
        self.paused = False
        self.fresh = True
        """Not resumed yet, which undoes what the client may remember from an earlier time with this partition."""
        self.unsure = True
        """Whether records may be gone between the last one and the next: nothing was read for a while."""
        self._writing = asyncio.create_task(self._run())

    @property
    def expected(self) -> int | None:
        """The offset that should come next."""
        return self._start if self._marks.expected is None else self._marks.expected

    @property
    def resume(self) -> int | None:
        """What may be committed; None when nothing is written down."""
        return self._marks.resume

    @property
    def full(self) -> bool:
        """No more may be taken now."""
        return len(self._waiting) >= 2 * self._tools.batch or self._bytes >= MOST_BYTES

    @property
    def roomy(self) -> bool:
        """More may be taken again."""
        return len(self._waiting) <= self._tools.batch and self._bytes < MOST_BYTES // 2

    @property
    def oldest_ms(self) -> int | None:
        """When the first record was written that waits here; None when none does, or nobody says."""
        return self._waiting[0].written_ms if self._waiting else None

    def take(self, record: Record, arrival: Arrival) -> None:
        """A record came, the next of this partition."""
        offset, size = record.offset, len(record.value or b"")
        if self._marks.expected is not None and offset < self._marks.expected:
            # The partition began anew under us; what is in hand of the old one is still written down.
            self._marks = Marks()
        self._marks.take(offset)
        self._waiting.append(InHand(self._marks, offset, size, record.written_ms, arrival))
        self._bytes += size
        self._some.set()

    async def end(self) -> None:
        """Begin nothing more; what is being written is waited for."""
        self._ending = True
        if self._at_rest:
            self._writing.cancel()
        await asyncio.wait({self._writing})

    def abandon(self) -> None:
        """Out of patience: what is not written yet is read again by whoever comes next."""
        self._writing.cancel()

    async def _run(self) -> None:
        while not self._ending:
            if self._waiting:
                await self._offer(list(islice(self._waiting, self._width)))
            else:
                self._some.clear()
                await self._rest(self._some.wait())

    async def _rest(self, until: Coroutine[Any, Any, Any]) -> None:
        """Wait with nothing under way: whoever ends the partition need not wait too."""
        self._at_rest = True
        await until
        self._at_rest = False

    async def _offer(self, chunk: list[InHand]) -> None:
        try:
            progress = await self._tools.acceptor.accept_in_order([each.arrival for each in chunk])
        except _LATER as error:
            await self._rest(self._tools.patience.trouble(error))
        except Exception as error:  # noqa: BLE001 - nothing was acknowledged, so it is simply offered again
            self._suspect(chunk, error)
            await self._rest(self._tools.patience.trouble(error))
        else:
            self._finish(progress.done)
            if progress.done < len(chunk):
                why = DirectoryUnavailable(progress.stopped_by or "nothing was accepted")
                await self._rest(self._tools.patience.trouble(why))

    def _finish(self, many: int) -> None:
        for _ in range(many):
            done = self._waiting.popleft()
            self._bytes -= done.size
            done.marks.finish(done.offset)
        if many:
            self._tools.patience.reset()
            if self._width == 1 and self._strange:
                self._width = self._tools.batch
            self._strange = 0

    def _suspect(self, chunk: list[InHand], error: Exception) -> None:
        """One of them breaks the code: find it by offering one at a time, then keep it for an operator."""
        self._strange += 1
        if self._strange < STRANGE_TRIES:
            return
        if len(chunk) > 1:
            self._width, self._strange = 1, 0
        else:
            said = f"{type(error).__name__}: {error}"
            guilty = chunk[0]
            self._waiting[0] = guilty._replace(arrival=malformed(guilty.arrival, INTERNAL, said))
