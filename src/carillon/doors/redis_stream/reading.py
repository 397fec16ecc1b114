"""One stretch of reading: from the stored offset until the lease is lost, another is ahead, or the door stops."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import msgspec

from carillon.domain.errors import LedgerUnavailable
from carillon.domain.events import DoorStopped, PartStarted, PartStopped, StreamTrimmed, Trouble
from carillon.domain.intents import Arrival, Intent, Malformed
from carillon.domain.ports import Observer, OrderedAcceptor
from carillon.doors.redis_stream.offset import StoredOffset
from carillon.doors.redis_stream.position import EntryId, Look, Position, id_text, judge, parse_id
from carillon.doors.redis_stream.wire import Entry, StreamConnection
from carillon.ending import ended
from carillon.faultpoint import faultpoint

PART = "redis_stream"
FIRST_WAIT, LONGEST_WAIT = 0.1, 5.0

Decode = Callable[[str, Mapping[str, str]], Intent | Malformed]
"""From an entry's id and fields to what it asks for."""


class Patience:
    """How long to wait after a failure: twice as long each time, until something goes well."""

    def __init__(self, ended: asyncio.Event, observer: Observer) -> None:
        self._ended = ended
        self._observe = observer
        self._next = FIRST_WAIT

    def reset(self) -> None:
        self._next = FIRST_WAIT

    async def trouble(self, error: Exception) -> None:
        said = str(error) if isinstance(error, LedgerUnavailable) else f"{type(error).__name__}: {error}"
        self._observe(Trouble(where=PART, error=said, retry_in_seconds=self._next))
        await self._wait()

    async def stopped(self, entry_id: str, reason: str) -> None:
        self._observe(DoorStopped(door=PART, stream_entry_id=entry_id, reason=reason, retry_in_seconds=self._next))
        await self._wait()

    async def _wait(self) -> None:
        seconds, self._next = self._next, min(self._next * 2, LONGEST_WAIT)
        await pause(self._ended, seconds)


class Tools(msgspec.Struct, frozen=True):
    """What every stretch of reading uses."""

    stream: str
    acceptor: OrderedAcceptor
    decode: Decode
    offsets: StoredOffset
    patience: Patience
    observe: Observer
    ended: asyncio.Event


class Reading:
    """Reads, offers and moves the offset, strictly in this order."""

    def __init__(self, tools: Tools, source: StreamConnection, position: Position, alive: Callable[[], bool]) -> None:
        self._tools = tools
        self._source = source
        self.position = position
        self._alive = alive
        self._arriving = True
        self._overtaken = False

    async def run(self) -> None:
        try:
            # Beside the renewal's word our own clock's: a process that slept must not go on reading first.
            while not self._overtaken and self._alive():
                seen = await self._read()
                if seen is None:
                    return
                look, entries = seen
                faultpoint("after_stream_read")
                if await self._is_the_same(look):
                    await self._offer(entries)
        finally:
            if not self._arriving:
                self._tools.observe(PartStopped(part=PART))

    async def _read(self) -> tuple[Look | None, list[Entry]] | None:
        """None when reading ended meanwhile: a blocking read is not waited for."""
        reading = asyncio.create_task(self._source.read(self.position.offset))
        ending = asyncio.create_task(self._tools.ended.wait())
        try:
            await asyncio.wait({reading, ending}, return_when=asyncio.FIRST_COMPLETED)
            return None if self._tools.ended.is_set() else await reading
        finally:
            await ended(reading, ending)

    async def _is_the_same(self, look: Look | None) -> bool:
        """Whether the stream goes on from our offset; if not, it is read from its start, and dedupe absorbs it."""
        before, arriving = self.position, self._arriving
        if arriving:
            detail = f"reads {self._tools.stream} after {id_text(before.offset)}"
            self._tools.observe(PartStarted(part=PART, detail=detail))
            self._arriving = False
        self.position, gap = judge(before, look, arriving=arriving)
        if gap is not None:
            first = None if look is None or look.first is None else id_text(look.first)
            offset = id_text(before.offset)
            self._tools.observe(
                StreamTrimmed(stream=self._tools.stream, offset=offset, first_entry_id=first, lost=gap.lost)
            )
        if self.position.offset == before.offset:
            return True
        self._overtaken = not await self._tools.offsets.restart(before.offset)
        return False

    async def _offer(self, entries: Sequence[Entry]) -> None:
        tools = self._tools
        arrivals = [self._arrival(entry_id, fields) for entry_id, fields in entries]
        if not arrivals:
            tools.patience.reset()
        # The rest of a batch stays in hand while the door is stopped: Redis may have trimmed it by now.
        while arrivals and not self._overtaken and not tools.ended.is_set():
            try:
                progress = await tools.acceptor.accept_in_order(arrivals)
            except Exception as error:  # noqa: BLE001 - nothing was acknowledged, so it is simply offered again
                await tools.patience.trouble(error)
                continue
            faultpoint("before_stream_offset")
            if progress.done:
                await self._advance(arrivals[progress.done - 1].stream_entry_id, progress.done)
                tools.patience.reset()
            arrivals = arrivals[progress.done :]
            if arrivals and (progress.stopped_by is not None or not progress.done):
                reason = progress.stopped_by or "nothing was accepted"
                await tools.patience.stopped(arrivals[0].stream_entry_id, reason)

    async def _advance(self, entry_id: str, many: int) -> None:
        read = None if self.position.read is None else self.position.read + many
        offset: EntryId | None = parse_id(entry_id)
        if offset is not None:
            self.position = Position(offset, read)
            self._overtaken = not await self._tools.offsets.advance(self.position)

    def _arrival(self, entry_id: str, fields: dict[str, str]) -> Arrival:
        try:
            read = self._tools.decode(entry_id, fields)
        except Exception as error:  # noqa: BLE001 - one bad entry must not stop all that come after it
            read = Malformed(
                stream_entry_id=entry_id,
                failure_code="invalid_envelope",
                failure_message=f"{type(error).__name__}: {error}",
                raw_fields=fields,
            )
        return Arrival(entry_id, fields, read)


async def pause(ended: asyncio.Event, seconds: float) -> None:
    """Wait, unless it is over."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await ended.wait()
