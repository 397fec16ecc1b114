"""One SSE connection: catch up with the log, follow it, send heartbeats; reads of many connections are coalesced."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from carillon.coalesce import Coalescer
from carillon.domain.errors import CarillonError, LedgerUnavailable
from carillon.domain.ports import Clock
from carillon.domain.streams import Bounds, Entry, Seat, StreamLedger, Tail
from carillon.live import wire
from carillon.live.hub import Hub
from carillon.web import Outlet, PeerGone

AT_ONCE = 500
MOST_WAITING = 20_000
READS = 3
"""Concurrent reads; the rest of the pool is for other work."""


class Lookups:
    """A request that arrives while another one runs joins the next one."""

    def __init__(self, ledger: StreamLedger) -> None:
        self._ledger = ledger
        self._bounds: Coalescer[str, Bounds] = Coalescer(self._ask, max_batch=AT_ONCE, max_pending=MOST_WAITING)
        self._reading = asyncio.Semaphore(READS)
        self._to_read: dict[tuple[str, int, int], asyncio.Task[list[Entry]]] = {}
        """Reads that have not started yet."""

    async def bounds(self, user_id: str) -> Bounds:
        """The bounds of a log; raises LedgerUnavailable, or Overloaded when too many requests wait."""
        return await self._bounds.add(user_id)

    async def read(self, user_id: str, after: int, limit: int) -> list[Entry]:
        """The next entries; raises LedgerUnavailable."""
        asked = (user_id, after, limit)
        reading = self._to_read.get(asked)
        if reading is None:
            reading = self._to_read[asked] = asyncio.create_task(self._read(asked))
        # Several readers share this task: one that leaves must not cancel it.
        return await asyncio.shield(reading)

    async def _read(self, asked: tuple[str, int, int]) -> list[Entry]:
        async with self._reading:
            # From here on the read may miss new entries: a later request needs a read of its own.
            del self._to_read[asked]
            return await self._ledger.read(*asked)

    async def _ask(self, user_ids: Sequence[str]) -> list[Bounds]:
        found = await self._ledger.bounds(set(user_ids))
        return [found[user_id] for user_id in user_ids]


READ_AT_ONCE = 100
LEDGER_PAUSE_SECONDS = 1.0


class StreamRules(msgspec.Struct, frozen=True, kw_only=True):
    """The limits and intervals of a stream."""

    heartbeat_seconds: float = 30.0
    lifetime_seconds: float = 3600.0
    recheck_seconds: float = 60.0
    """How often the token of a reader is checked again."""
    retry_ms: int = 3000
    buffer: int = 100


class SseConnection:
    """The body of a reply: called with an outlet, it writes until the reader leaves or the connection must end."""

    def __init__(
        self,
        *,
        user_id: str,
        key: str,
        seats: Hub,
        lookups: Lookups,
        rules: StreamRules,
        clock: Clock,
        prove: Callable[[], Awaitable[object]],
    ) -> None:
        """`prove` raises when the token of the reader is no longer valid."""
        self._seats = seats
        self._lookups = lookups
        self._rules = rules
        self._clock = clock
        self._prove = prove
        self._woken = asyncio.Event()
        self._outlet: Outlet | None = None
        self._missed: bytes = b""
        self.idle = False
        """Everything is written: `_wake` may write directly."""
        self._owed = 0
        """The number of the last entry in the buffer that the kernel has not taken yet; 0 when it is empty."""
        self.tail = Tail(rules.buffer)
        self.seat = Seat(user_id, key, self.tail, self._wake)

    def begin(self, after: int, missed: bytes = b"") -> None:
        """Set the reader's position, and the frame that reports missed entries."""
        self.tail.begin(after)
        self._missed = missed

    def part(self) -> None:
        """Give the seat back without reading."""
        self._seats.part(self.seat)

    async def __call__(self, outlet: Outlet) -> None:
        self._outlet = outlet
        outlet.when_gone(self._woken.set)
        try:
            await outlet.write(wire.connected(self.tail.cursor, self._rules.retry_ms) + self._missed)
            # A reader that resumed after an entry has it already.
            self._seats.wrote(self.seat)
            await self._serve(outlet)
        finally:
            self._seats.part(self.seat)

    def _wake(self) -> None:
        if self.tail.overflowed and self._outlet is not None:
            # A write may be waiting for a reader that does not read.
            self._outlet.cut()
        elif self.idle and not self.tail.behind and not self._asked() and self._outlet is not None:
            self._write_at_once(self._outlet)
            return
        self._woken.set()

    def _asked(self) -> bool:
        """Whether the connection has something else to write than entries."""
        return self.seat.closing or self.seat.changed

    def _write_at_once(self, outlet: Outlet) -> None:
        """Write without waking the connection's task, which matters for thousands of readers."""
        entries = self.tail.take()
        if not entries:
            return
        try:
            taken = outlet.put(wire.notifications(entries))
        except PeerGone:
            return
        if taken:
            self._written(entries[-1].seq)
        else:
            self._owed, self.idle = entries[-1].seq, False
            self._woken.set()

    def _written(self, seq: int) -> None:
        self.tail.wrote(seq)
        self._seats.wrote(self.seat)

    async def _serve(self, outlet: Outlet) -> None:
        now = self._clock.monotonic()
        ends_at, beats_at = now + self._rules.lifetime_seconds, now + self._rules.heartbeat_seconds
        checks_at = now + self._rules.recheck_seconds
        while not outlet.gone.is_set():
            if self._owed:
                await outlet.drained()
                self._written(self._owed)
                self._owed = 0
            if self.seat.closing:
                await outlet.write(wire.closing("shutdown"))
                return
            await self._write_new(outlet)
            if self.seat.changed:
                self.seat.changed = False
                await outlet.write(wire.changed())
            now = self._clock.monotonic()
            if now >= ends_at:
                await outlet.write(wire.closing("lifetime"))
                return
            if now >= checks_at:
                checks_at = now + self._rules.recheck_seconds
                if not await self._token_valid():
                    await outlet.write(wire.closing("token"))
                    return
            if now >= beats_at:
                beats_at = now + self._rules.heartbeat_seconds
                await outlet.write(wire.heartbeat(self._clock.wall() * 1000))
            await self._wait(min(ends_at, beats_at, checks_at) - now)

    async def _write_new(self, outlet: Outlet) -> None:
        while True:
            if self.tail.behind and not await self._look_up():
                return
            entries = self.tail.take()
            if not entries:
                return
            await outlet.write(wire.notifications(entries))
            self._written(entries[-1].seq)

    async def _look_up(self) -> bool:
        announced = self.tail.told
        try:
            found = await self._lookups.read(self.seat.user_id, self.tail.last, READ_AT_ONCE)
        except LedgerUnavailable:
            await self._clock.sleep(LEDGER_PAUSE_SECONDS)
            self._woken.set()
            return False
        self.tail.looked_up(found, announced)
        return True

    async def _token_valid(self) -> bool:
        try:
            await self._prove()
        except LedgerUnavailable:
            # Whether the token was revoked is unknown now; the next check will tell.
            return True
        except CarillonError:
            return False
        return True

    async def _wait(self, seconds: float) -> None:
        # Not idle if it was woken meanwhile: the new entries may have to be read from the ledger first.
        self.idle = not self._woken.is_set()
        # A timer that sets the event costs less than a timeout, which cancels and raises: thousands wait at once.
        timer = asyncio.get_running_loop().call_later(max(0.0, seconds), self._woken.set)
        try:
            await self._woken.wait()
        finally:
            timer.cancel()
        self.idle = False
        self._woken.clear()
