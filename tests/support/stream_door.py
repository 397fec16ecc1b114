"""A Redis stream door over an acceptor that remembers, for tests of the door alone."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import count
from typing import Any, TypeVar

import msgspec
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError

from carillon.domain.errors import LedgerUnavailable
from carillon.domain.events import Event
from carillon.domain.intents import Arrival, Intent, Malformed, Progress
from carillon.doors.redis_stream.door import RedisStreamDoor, RedisStreamRules
from tests.support.dispatches import LoopClock
from tests.support.waiting import until

STREAM = "notification:intents"
SEGMENT = "bm90aWZpY2F0aW9uOmludGVudHM"
OFFSET = f"notification:stream_offsets:{SEGMENT}"
COUNT = f"notification:stream_counts:{SEGMENT}"
LEASE = f"notification:stream_leases:{SEGMENT}"
FAST = RedisStreamRules(stream=STREAM, block_seconds=0.2, batch=100, lease_seconds=3.0)
"""A lease that a machine busy with other things does not outlive, and that a test can wait for."""
SECONDS = 30.0
"""How long anything may take that is to happen at all."""
SomeEvent = TypeVar("SomeEvent", bound=msgspec.Struct)
_numbers = count(1)


class Ledger:
    """Accepts as an ordered acceptor does, and can be told to stop, to be away or to take its time."""

    def __init__(self) -> None:
        self.accepted: list[str] = []
        """Entry ids, each once, as a UNIQUE key would keep them."""
        self.offered: list[list[str]] = []
        self.parked: dict[str, Malformed] = {}
        self.stop_at: str | None = None
        self.away = False
        self.broken = False
        self.bug: str | None = None
        """An entry over which we stumble, unless it is malformed."""
        self.open = asyncio.Event()
        self.open.set()

    async def accept_in_order(self, arrivals: Sequence[Arrival]) -> Progress:
        self.offered.append([arrival.stream_entry_id for arrival in arrivals])
        await self.open.wait()
        if self.away:
            raise LedgerUnavailable("PostgreSQL is not available")
        readable = {arrival.raw_fields.get("n") for arrival in arrivals if isinstance(arrival.read, Intent)}
        if self.broken or self.bug in readable:
            raise KeyError("a bug of ours")
        for done, arrival in enumerate(arrivals):
            if arrival.raw_fields.get("n") == self.stop_at is not None:
                return Progress(done, "the directory answered 503")
            if isinstance(arrival.read, Malformed):
                self.parked[arrival.stream_entry_id] = arrival.read
            elif arrival.stream_entry_id not in self.accepted:
                self.accepted.append(arrival.stream_entry_id)
        return Progress(len(arrivals))


def decode(entry_id: str, fields: Mapping[str, str]) -> Intent | Malformed:
    if fields["n"] == "poison":
        raise RecursionError("too deep")
    if fields["n"] == "bad":
        return Malformed(
            stream_entry_id=entry_id, failure_code="invalid_payload", failure_message="bad", raw_fields=dict(fields)
        )
    return Intent(
        notification_type="game.turn.ready",
        producer="game",
        recipients=(),
        channels=(),
        payload=dict(fields),
        content=fields["n"],
        notification_id=entry_id,
    )


class Home:
    """One process with its door."""

    def __init__(self, redis: Redis, ledger: Ledger, rules: RedisStreamRules) -> None:
        self.ledger = ledger
        self.events: list[Event] = []
        self.door = RedisStreamDoor(
            redis=redis,
            acceptor=ledger,
            decode=decode,
            rules=rules,
            clock=LoopClock(),
            observer=self.events.append,
            owner=f"process-{next(_numbers)}",
        )
        self.task = asyncio.create_task(self.door.run())

    def seen(self, kind: type[SomeEvent]) -> list[SomeEvent]:
        return [event for event in self.events if isinstance(event, kind)]

    async def until_accepted(self, many: int) -> None:
        await becomes(lambda: len(self.ledger.accepted) >= many, f"{many} accepted entries")

    async def kill(self) -> None:
        """As kill -9 would: nothing is given back."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    async def close(self) -> None:
        self.door.stop()
        await asyncio.gather(self.task, return_exceptions=True)
        await self.door.aclose()


@asynccontextmanager
async def home(redis: Redis, ledger: Ledger | None = None, rules: RedisStreamRules = FAST) -> AsyncIterator[Home]:
    living = Home(redis, ledger or Ledger(), rules)
    try:
        yield living
    finally:
        await living.close()


def client(port: int, **options: Any) -> Redis:
    return Redis(port=port, retry=Retry(NoBackoff(), 0), decode_responses=True, **options)


async def add(redis: Redis, *values: str | int, entry_id: str = "*") -> list[str]:
    return [str(await redis.xadd(STREAM, {"n": str(value)}, id=entry_id)) for value in values]


async def becomes(condition: Callable[[], bool], what: str, seconds: float | None = None) -> None:
    async def asked() -> bool:
        return condition()

    await until(asked, timeout=SECONDS if seconds is None else seconds, what=what)


async def offset_becomes(redis: Redis, entry_id: str) -> None:
    await until(_equals(redis, entry_id), timeout=SECONDS, what=f"the offset {entry_id}")


def _equals(redis: Redis, entry_id: str) -> Callable[[], Awaitable[bool]]:
    async def asked() -> bool:
        # A pooled connection may be one to the server before its restart.
        with suppress(RedisConnectionError):
            return bool(await redis.get(OFFSET) == entry_id)
        return False

    return asked
