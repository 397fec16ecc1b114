"""One session of reading: from the stored offset until the lease is lost, another reader leads, or the door stops."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

import msgspec

from carillon.domain.events import PartStarted, PartStopped, StreamTrimmed
from carillon.domain.intents import Arrival, Intent, Malformed
from carillon.domain.ports import Observer, OrderedAcceptor
from carillon.doors.backoff import DoorBackoff
from carillon.doors.redis_stream.offset import StoredOffset
from carillon.doors.redis_stream.position import EntryId, Position, StreamState, id_text, judge, parse_id
from carillon.doors.redis_stream.wire import Entry, StreamConnection
from carillon.ending import ended
from carillon.faultpoint import faultpoint

PART = "redis_stream"

Decode = Callable[[str, Mapping[str, str]], Intent | Malformed]
"""Decodes the id and the fields of an entry."""


class ReadTools(msgspec.Struct, frozen=True):
    """What all sessions share."""

    stream: str
    acceptor: OrderedAcceptor
    decode: Decode
    offsets: StoredOffset
    backoff: DoorBackoff
    observe: Observer
    ended: asyncio.Event


class ReadSession:
    """Reads, offers and moves the offset, strictly in this order."""

    def __init__(
        self, tools: ReadTools, source: StreamConnection, position: Position, alive: Callable[[], bool]
    ) -> None:
        self._tools = tools
        self._source = source
        self.position = position
        self._alive = alive
        self._arriving = True
        self._overtaken = False

    async def run(self) -> None:
        try:
            # Check the lease by the local clock too: a process that was suspended must not read on before it renews.
            while not self._overtaken and self._alive():
                seen = await self._read()
                if seen is None:
                    return
                state, entries = seen
                faultpoint("after_stream_read")
                if await self._continues(state):
                    await self._offer(entries)
        finally:
            if not self._arriving:
                self._tools.observe(PartStopped(part=PART))

    async def _read(self) -> tuple[StreamState | None, list[Entry]] | None:
        """The state and the new entries; None when the session ends during the blocking read."""
        reading = asyncio.create_task(self._source.read(self.position.offset))
        ending = asyncio.create_task(self._tools.ended.wait())
        try:
            await asyncio.wait({reading, ending}, return_when=asyncio.FIRST_COMPLETED)
            return None if self._tools.ended.is_set() else await reading
        finally:
            await ended(reading, ending)

    async def _continues(self, state: StreamState | None) -> bool:
        """Whether the stream continues after our offset; if not, read it from its start: duplicates are ignored."""
        before, arriving = self.position, self._arriving
        if arriving:
            detail = f"reads {self._tools.stream} after {id_text(before.offset)}"
            self._tools.observe(PartStarted(part=PART, detail=detail))
            self._arriving = False
        self.position, gap = judge(before, state, arriving=arriving)
        if gap is not None:
            first = None if state is None or state.first is None else id_text(state.first)
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
            tools.backoff.reset()
        # Keep the rest of a batch in memory while the door waits: Redis may have trimmed it by now.
        while arrivals and not self._overtaken and not tools.ended.is_set():
            try:
                progress = await tools.acceptor.accept_in_order(arrivals)
            except Exception as error:  # noqa: BLE001 - the offset has not moved, so the batch is offered again
                await tools.backoff.failed(error)
                continue
            faultpoint("before_stream_offset")
            if progress.done:
                await self._advance(arrivals[progress.done - 1].stream_entry_id, progress.done)
                tools.backoff.reset()
            arrivals = arrivals[progress.done :]
            if arrivals and (progress.stopped_by is not None or not progress.done):
                reason = progress.stopped_by or "nothing was accepted"
                await tools.backoff.stopped(arrivals[0].stream_entry_id, reason)

    async def _advance(self, entry_id: str, many: int) -> None:
        read = None if self.position.read is None else self.position.read + many
        offset: EntryId | None = parse_id(entry_id)
        if offset is not None:
            self.position = Position(offset, read)
            self._overtaken = not await self._tools.offsets.advance(self.position)

    def _arrival(self, entry_id: str, fields: dict[str, str]) -> Arrival:
        try:
            read = self._tools.decode(entry_id, fields)
        except Exception as error:  # noqa: BLE001 - one bad entry must not block those after it
            read = Malformed(
                stream_entry_id=entry_id,
                failure_code="invalid_envelope",
                failure_message=f"{type(error).__name__}: {error}",
                raw_fields=fields,
            )
        return Arrival(entry_id, fields, read)
