"""The Redis stream door: it reads entries in order with XREAD, and moves its offset after the ledger's commit."""

import asyncio
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence

import msgspec
from redis.asyncio import Redis

from carillon.domain.errors import DirectoryUnavailable, LedgerUnavailable, Overloaded
from carillon.domain.events import PartStarted, PartStopped, StreamTrimmed, Trouble
from carillon.domain.intents import Arrival, Intent, Malformed
from carillon.domain.ports import Clock, Observer, OrderedAcceptor
from carillon.doors.backoff import DoorBackoff, pause
from carillon.doors.redis_stream.offset import (
    START,
    EntryId,
    Position,
    StoredOffset,
    StreamState,
    id_text,
    judge,
    parse_id,
)
from carillon.doors.redis_stream.wire import AWAY, Entry, ReaderLease, StreamConnection
from carillon.ending import ended
from carillon.faultpoint import faultpoint

PART = "redis_stream"
STRANGE_TRIES = 5
"""After so many unexpected errors an entry is stored as malformed: otherwise it would block the stream forever."""
_LATER = (LedgerUnavailable, Overloaded, DirectoryUnavailable)

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
        self._overtaken = not await self._tools.offsets.restart(self._source.ask, before.offset)
        return False

    async def _offer(self, entries: Sequence[Entry]) -> None:
        tools = self._tools
        arrivals = [self._arrival(entry_id, fields) for entry_id, fields in entries]
        width, strange = len(arrivals), 0
        if not arrivals:
            tools.backoff.reset()
        # Keep the rest of a batch in memory while the door waits: Redis may have trimmed it by now.
        while arrivals and not self._overtaken and not tools.ended.is_set():
            try:
                progress = await tools.acceptor.accept_in_order(arrivals[:width])
            except Exception as error:  # noqa: BLE001 - the offset has not moved, so the batch is offered again
                strange += not isinstance(error, _LATER)
                if strange >= STRANGE_TRIES and width > 1:
                    # One at a time finds the entry that raises.
                    width, strange = 1, 0
                elif strange >= STRANGE_TRIES:
                    arrivals[0] = _refused(arrivals[0], error)
                await tools.backoff.failed(error)
                continue
            faultpoint("before_stream_offset")
            if progress.done:
                await self._advance(arrivals[progress.done - 1].stream_entry_id, progress.done)
                tools.backoff.reset()
                # Without an error the entry that raises is still to come.
                width, strange = len(arrivals) if strange else width, 0
            arrivals = arrivals[progress.done :]
            if arrivals and (progress.stopped_by is not None or not progress.done):
                reason = progress.stopped_by or "nothing was accepted"
                await tools.backoff.stopped(arrivals[0].stream_entry_id, reason)

    async def _advance(self, entry_id: str, many: int) -> None:
        read = None if self.position.read is None else self.position.read + many
        offset: EntryId | None = parse_id(entry_id)
        if offset is not None:
            position = Position(offset, read)
            self._overtaken = not await self._tools.offsets.advance(self._source.ask, position)
            # Only now: an offset that Redis never stored, because it went away, is not one that Redis has lost.
            self.position = position

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


def _refused(arrival: Arrival, error: Exception) -> Arrival:
    """The same arrival as a malformed one, for an operator."""
    read = arrival.read
    flaw = Malformed(
        stream_entry_id=arrival.stream_entry_id,
        failure_code="invalid_payload",
        failure_message=f"{type(error).__name__}: {error}",
        raw_fields=arrival.raw_fields,
        notification_type=read.notification_type,
        producer=read.producer,
        idempotency_key=read.idempotency_key,
    )
    return Arrival(arrival.stream_entry_id, arrival.raw_fields, flaw)


class RedisStreamRules(msgspec.Struct, frozen=True, kw_only=True):
    """The Redis stream, how to read it, and the keys of its offset, count and lease."""

    stream: str
    block_seconds: float = 2.0
    batch: int = 500
    offset_prefix: str = "notification:stream_offsets"
    count_prefix: str = "notification:stream_counts"
    """How many entries the stream ever had up to the offset; this detects trimming, also after a restart."""
    lease_prefix: str = "notification:stream_leases"
    lease_seconds: float = 5.0


class RedisStreamDoor:
    """Reads while it holds the reader's lease; it recovers from every error of Redis, the ledger or an entry."""

    def __init__(
        self,
        *,
        redis: Redis,
        acceptor: OrderedAcceptor,
        decode: Decode,
        rules: RedisStreamRules,
        clock: Clock,
        observer: Observer,
        owner: str,
    ) -> None:
        """`owner` must be unique to this process."""
        self._redis = redis
        self._rules = rules
        self._observe = observer
        name = urlsafe_b64encode(rules.stream.encode()).rstrip(b"=").decode()
        lease_key = f"{rules.lease_prefix}:{name}"
        self._lease = ReaderLease(redis, lease_key, token=owner, seconds=rules.lease_seconds, clock=clock)
        self._offsets = StoredOffset(
            redis,
            offset_key=f"{rules.offset_prefix}:{name}",
            count_key=f"{rules.count_prefix}:{name}",
            stream=rules.stream,
        )
        self._stopping = False
        self._ended = asyncio.Event()
        """Set when reading ends: because the lease is lost, or because the door stops."""
        self._backoff = DoorBackoff(PART, self._ended, observer)
        self._tools = ReadTools(rules.stream, acceptor, decode, self._offsets, self._backoff, observer, self._ended)
        self._reached = START
        """How far this process has read: if Redis then has no offset, Redis has lost it."""

    async def run(self) -> None:
        """Read until stop()."""
        while not self._stopping:
            try:
                left = await self._lease.take()
                if left is None:
                    await self._read_while_leased()
                else:
                    self._backoff.reset()
                    await pause(self._ended, left)
            except Exception as error:  # noqa: BLE001 - if the door ended, the stream would grow unread
                await self._backoff.failed(error)

    def stop(self) -> None:
        """Stop reading; entries that are being accepted still move the offset."""
        self._stopping = True
        self._ended.set()

    async def aclose(self) -> None:
        """Stop and release the lease, so that another reader starts at once."""
        self.stop()
        await self._lease.release()

    async def oldest_unprocessed_age_ms(self) -> int | None:
        """Age of the first entry after the stored offset; 0 when there is none, None when Redis does not answer."""
        try:
            return await self._offsets.age_ms()
        except AWAY:
            return None

    async def _read_while_leased(self) -> None:
        rules = self._rules
        source = StreamConnection(self._redis, rules.stream, block_seconds=rules.block_seconds, batch=rules.batch)
        keeping = asyncio.create_task(self._keep())
        try:
            session = ReadSession(self._tools, source, await self._position(source), lambda: self._lease.alive)
            try:
                await session.run()
            finally:
                self._reached = session.position.offset
        finally:
            await ended(keeping)
            await source.aclose()
            if not self._stopping:
                self._ended.clear()

    async def _keep(self) -> None:
        await self._lease.keep()
        self._ended.set()

    async def _position(self, source: StreamConnection) -> Position:
        stored = await self._offsets.load(source.ask)
        if isinstance(stored, Position):
            return stored
        if stored is not None:
            said = f"the stored offset {stored[:64]!r} is not an entry id; the stream is read from its start"
            self._observe(Trouble(where=PART, error=said))
        elif self._reached != START:
            self._observe(StreamTrimmed(stream=self._rules.stream, offset=id_text(self._reached)))
        return Position(START, 0)
