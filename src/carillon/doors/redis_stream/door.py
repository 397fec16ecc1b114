"""The Redis stream door: it reads entries in order with XREAD, and moves its offset after the ledger's commit."""

import asyncio
from base64 import urlsafe_b64encode

import msgspec
from redis.asyncio import Redis

from carillon.domain.events import StreamTrimmed, Trouble
from carillon.domain.ports import Clock, Observer, OrderedAcceptor
from carillon.doors.backoff import DoorBackoff, pause
from carillon.doors.redis_stream.lease import ReaderLease
from carillon.doors.redis_stream.offset import StoredOffset
from carillon.doors.redis_stream.position import START, Position, id_text
from carillon.doors.redis_stream.session import PART, Decode, ReadSession, ReadTools
from carillon.doors.redis_stream.wire import AWAY, StreamConnection
from carillon.ending import ended


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
        session = ReadSession(self._tools, source, await self._position(), lambda: self._lease.alive)
        keeping = asyncio.create_task(self._keep())
        try:
            await session.run()
        finally:
            self._reached = session.position.offset
            await ended(keeping)
            await source.aclose()
            if not self._stopping:
                self._ended.clear()

    async def _keep(self) -> None:
        await self._lease.keep()
        self._ended.set()

    async def _position(self) -> Position:
        stored = await self._offsets.load()
        if isinstance(stored, Position):
            return stored
        if stored is not None:
            said = f"the stored offset {stored[:64]!r} is not an entry id; the stream is read from its start"
            self._observe(Trouble(where=PART, error=said))
        elif self._reached != START:
            self._observe(StreamTrimmed(stream=self._rules.stream, offset=id_text(self._reached)))
        return Position(START, 0)
