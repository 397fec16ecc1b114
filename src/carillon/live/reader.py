"""One connection that reads a person's log aloud: catching up, then whatever comes, with a sign of life in between."""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from carillon.domain.errors import CarillonError, LedgerUnavailable
from carillon.domain.live import Seat, Seats
from carillon.domain.ports import Clock
from carillon.domain.tail import Tail
from carillon.live import frames
from carillon.live.lookups import Lookups
from carillon.web import Outlet, PeerGone

READ_AT_ONCE = 100
LEDGER_PAUSE_SECONDS = 1.0


class StreamRules(msgspec.Struct, frozen=True, kw_only=True):
    """How long and how patiently a stream is served."""

    heartbeat_seconds: float = 15.0
    lifetime_seconds: float = 3600.0
    recheck_seconds: float = 60.0
    """How often a reader's token is looked at again."""
    retry_ms: int = 3000
    buffer: int = 100


class Reading:
    """Satisfies what a reply's body must: called with an outlet, it writes until somebody has had enough."""

    def __init__(
        self,
        *,
        user_id: str,
        key: str,
        seats: Seats,
        lookups: Lookups,
        rules: StreamRules,
        clock: Clock,
        prove: Callable[[], Awaitable[object]],
    ) -> None:
        """`prove` raises once the reader may not read any more."""
        self._seats = seats
        self._lookups = lookups
        self._rules = rules
        self._clock = clock
        self._prove = prove
        self._stirred = asyncio.Event()
        self._outlet: Outlet | None = None
        self._missed: bytes = b""
        self.idle = False
        """Everything is written, and whoever wakes may write."""
        self._owed = 0
        """The number up to which all was put; the kernel has yet to take it."""
        self.tail = Tail(rules.buffer)
        self.seat = Seat(user_id, key, self.tail, self._wake)

    def begin(self, after: int, missed: bytes = b"") -> None:
        """Where the reader stands, and the frame that says what it has missed."""
        self.tail.begin(after)
        self._missed = missed

    def part(self) -> None:
        """Give the seat back without having read."""
        self._seats.part(self.seat)

    async def __call__(self, outlet: Outlet) -> None:
        self._outlet = outlet
        outlet.when_gone(self._stirred.set)
        try:
            await outlet.write(frames.connected(self.tail.cursor, self._rules.retry_ms) + self._missed)
            # Who resumed behind something that is being pushed has it already.
            self._seats.wrote(self.seat)
            await self._read_aloud(outlet)
        finally:
            self._seats.part(self.seat)

    def _wake(self) -> None:
        if self.tail.overflowed and self._outlet is not None:
            # It may be in the middle of a write that waits for a reader who does not read.
            self._outlet.cut()
        elif self.idle and not self.tail.behind and not self.seat.closing and self._outlet is not None:
            self._write_at_once(self._outlet)
            return
        self._stirred.set()

    def _write_at_once(self, outlet: Outlet) -> None:
        """A crowd is told without waking each one's task."""
        entries = self.tail.take()
        if not entries:
            return
        try:
            taken = outlet.put(frames.notifications(entries))
        except PeerGone:
            return
        if taken:
            self._say_written(entries[-1].seq)
        else:
            self._owed, self.idle = entries[-1].seq, False
            self._stirred.set()

    def _say_written(self, seq: int) -> None:
        self.tail.wrote(seq)
        self._seats.wrote(self.seat)

    async def _read_aloud(self, outlet: Outlet) -> None:
        now = self._clock.monotonic()
        ends_at, beats_at = now + self._rules.lifetime_seconds, now + self._rules.heartbeat_seconds
        checks_at = now + self._rules.recheck_seconds
        while not outlet.gone.is_set():
            if self._owed:
                await outlet.drained()
                self._say_written(self._owed)
                self._owed = 0
            if self.seat.closing:
                await outlet.write(frames.closing("shutdown"))
                return
            await self._write_what_there_is(outlet)
            now = self._clock.monotonic()
            if now >= ends_at:
                await outlet.write(frames.closing("lifetime"))
                return
            if now >= checks_at:
                checks_at = now + self._rules.recheck_seconds
                if not await self._proven():
                    await outlet.write(frames.closing("token"))
                    return
            if now >= beats_at:
                beats_at = now + self._rules.heartbeat_seconds
                await outlet.write(frames.heartbeat(self._clock.wall() * 1000))
            await self._wait(min(ends_at, beats_at, checks_at) - now)

    async def _write_what_there_is(self, outlet: Outlet) -> None:
        while True:
            if self.tail.behind and not await self._look_up():
                return
            entries = self.tail.take()
            if not entries:
                return
            await outlet.write(frames.notifications(entries))
            self._say_written(entries[-1].seq)

    async def _look_up(self) -> bool:
        told = self.tail.told
        try:
            found = await self._lookups.read(self.seat.user_id, self.tail.last, READ_AT_ONCE)
        except LedgerUnavailable:
            await self._clock.sleep(LEDGER_PAUSE_SECONDS)
            self._stirred.set()
            return False
        self.tail.looked_up(found, told)
        return True

    async def _proven(self) -> bool:
        try:
            await self._prove()
        except LedgerUnavailable:
            # Whether a key was taken back cannot be asked now; the next look will tell.
            return True
        except CarillonError:
            return False
        return True

    async def _wait(self, seconds: float) -> None:
        # Not while somebody has woken it: what they have told of may have to be looked up first.
        self.idle = not self._stirred.is_set()
        # A timer that stirs costs less than a timeout, which cancels and raises: thousands wait at the same time.
        timer = asyncio.get_running_loop().call_later(max(0.0, seconds), self._stirred.set)
        try:
            await self._stirred.wait()
        finally:
            timer.cancel()
        self.idle = False
        self._stirred.clear()
