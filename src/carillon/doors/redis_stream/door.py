"""The Redis stream door: plain XREAD in order, and an offset that moves behind the ledger's commit."""

import asyncio
from base64 import urlsafe_b64encode

import msgspec
from redis.asyncio import Redis

from carillon.domain.events import StreamTrimmed, Trouble
from carillon.domain.ports import Clock, Observer, OrderedAcceptor
from carillon.doors.redis_stream.lease import ReaderLease
from carillon.doors.redis_stream.offset import StoredOffset
from carillon.doors.redis_stream.position import START, Position, id_text
from carillon.doors.redis_stream.reading import PART, Decode, Patience, Reading, Tools, pause
from carillon.doors.redis_stream.wire import AWAY, StreamConnection
from carillon.ending import ended


class StreamRules(msgspec.Struct, frozen=True, kw_only=True):
    """Which stream is read, how, and under which keys its reading is kept."""

    stream: str
    block_seconds: float = 2.0
    batch: int = 500
    offset_prefix: str = "notification:stream_offsets"
    count_prefix: str = "notification:stream_counts"
    """How many entries there ever were up to the offset: what trimming is noticed by, also after a restart."""
    lease_prefix: str = "notification:stream_leases"
    lease_seconds: float = 5.0


class RedisStreamDoor:
    """Reads while it holds the reader's lease; whatever Redis, the ledger or an entry does, it goes on by itself."""

    def __init__(
        self,
        *,
        redis: Redis,
        acceptor: OrderedAcceptor,
        decode: Decode,
        rules: StreamRules,
        clock: Clock,
        observer: Observer,
        owner: str,
    ) -> None:
        """`owner` is this process's alone."""
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
        """Reading is over: for now, because the lease is lost, or for good."""
        self._patience = Patience(self._ended, observer)
        self._tools = Tools(rules.stream, acceptor, decode, self._offsets, self._patience, observer, self._ended)
        self._reached = START
        """Where this process has read to: a Redis that then knows of no offset has forgotten it."""

    async def run(self) -> None:
        """Read until stop()."""
        while not self._stopping:
            try:
                left = await self._lease.take()
                if left is None:
                    await self._read_while_ours()
                else:
                    self._patience.reset()
                    await pause(self._ended, left)
            except Exception as error:  # noqa: BLE001 - a door that ends would let the stream grow unread
                await self._patience.trouble(error)

    def stop(self) -> None:
        """Read no more; what is being accepted is accepted and its offset written."""
        self._stopping = True
        self._ended.set()

    async def aclose(self) -> None:
        """Let another reader go on at once."""
        self.stop()
        await self._lease.release()

    async def oldest_unprocessed_age_ms(self) -> int | None:
        """Age of the first entry behind the stored offset, 0 when there is none, None when Redis cannot say."""
        try:
            return await self._offsets.age_ms()
        except AWAY:
            return None

    async def _read_while_ours(self) -> None:
        rules = self._rules
        source = StreamConnection(self._redis, rules.stream, block_seconds=rules.block_seconds, batch=rules.batch)
        reading = Reading(self._tools, source, await self._position(), lambda: self._lease.alive)
        keeping = asyncio.create_task(self._keep())
        try:
            await reading.run()
        finally:
            self._reached = reading.position.offset
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
            said = f"the stored offset {stored[:64]!r} is no entry id; the stream is read from its start"
            self._observe(Trouble(where=PART, error=said))
        elif self._reached != START:
            self._observe(StreamTrimmed(stream=self._rules.stream, offset=id_text(self._reached)))
        return Position(START, 0)
