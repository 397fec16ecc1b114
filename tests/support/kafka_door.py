"""A Kafka door over an acceptor that remembers, for tests of the door alone."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

import msgspec

from carillon.domain.events import Event, Trouble
from carillon.domain.intents import Arrival, Intent, Malformed, Progress
from carillon.doors.kafka.door import KafkaDoor
from carillon.doors.kafka.group import TopicRules
from carillon.doors.kafka.wire import TopicWire
from tests.support.dispatches import LoopClock
from tests.support.kafka import Topic
from tests.support.stream_door import becomes
from tests.support.waiting import until

SomeEvent = TypeVar("SomeEvent", bound=msgspec.Struct)
SECONDS = 30.0
SESSION_MS, QUICK_MS = 30_000, 3000
"""A member that is silent for so long is put out; the brokers wait for nearly as long whenever a group changes."""


class Ledger:
    """Accepts each key once, in order; can be away, broken by one key, half-hearted or slow."""

    def __init__(self) -> None:
        self._keys: dict[str, None] = {}
        self.parked: dict[str, Malformed] = {}
        self.offered: list[list[str]] = []
        self.trouble: Exception | None = None
        self.poison: str | None = None
        self.at_most: int | None = None
        self.open = asyncio.Event()
        self.open.set()

    @property
    def keys(self) -> list[str]:
        """Each once, in the order in which they came first."""
        return list(self._keys)

    async def accept_in_order(self, arrivals: Sequence[Arrival]) -> Progress:
        self.offered.append([arrival.stream_entry_id for arrival in arrivals])
        await self.open.wait()
        if self.trouble is not None:
            raise self.trouble
        if any(isinstance(each.read, Intent) and each.read.idempotency_key == self.poison for each in arrivals):
            raise KeyError("a bug of ours")
        taken = arrivals if self.at_most is None else arrivals[: self.at_most]
        for arrival in taken:
            if isinstance(arrival.read, Malformed):
                self.parked[arrival.stream_entry_id] = arrival.read
            else:
                self._keys[arrival.read.idempotency_key or ""] = None
        return Progress(len(taken), None if len(taken) == len(arrivals) else "the directory answered 503")


def decode(body: bytes, key: str) -> Intent:
    said = json.loads(body)
    return Intent(
        notification_type="job.new",
        producer="notifications",
        recipients=(),
        channels=(),
        payload=said,
        content=said,
        idempotency_key=str(said.get("n", key)),
    )


class Home:
    """One process with its door."""

    def __init__(
        self, topic: Topic, ledger: Ledger, kind: type[KafkaDoor], batch: int, session_ms: int, **options: str
    ) -> None:
        self.ledger = ledger
        self.events: list[Event] = []
        rules = TopicRules(
            bootstrap_servers=topic.kafka.bootstrap,
            topic=topic.name,
            group_id=topic.group,
            session_timeout_ms=session_ms,
            batch=batch,
            options={name.replace("_", "."): value for name, value in options.items()}
            or {"heartbeat.interval.ms": "500"},
        )
        self.door = kind(
            rules=rules,
            wire=TopicWire(decode, 262_144),
            acceptor=ledger,
            clock=LoopClock(),
            observer=self.events.append,
        )
        self.task = asyncio.create_task(self.door.run())

    def seen(self, kind: type[SomeEvent]) -> list[SomeEvent]:
        return [event for event in self.events if isinstance(event, kind)]

    def troubles(self) -> list[str]:
        return [event.error for event in self.seen(Trouble)]

    async def until_keys(self, many: int) -> None:
        await becomes(lambda: len(self.ledger.keys) >= many, f"{many} accepted records", SECONDS)

    async def kill(self) -> None:
        """As a death does: nothing that is being written is waited for, and nothing is committed."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    async def close(self) -> None:
        self.door.stop()
        await asyncio.gather(self.task, return_exceptions=True)


@asynccontextmanager
async def home(
    topic: Topic,
    ledger: Ledger | None = None,
    kind: type[KafkaDoor] = KafkaDoor,
    batch: int = 100,
    session_ms: int = SESSION_MS,
    **options: str,
) -> AsyncIterator[Home]:
    """Options have underscores for dots."""
    living = Home(topic, ledger or Ledger(), kind, batch, session_ms, **options)
    try:
        yield living
    finally:
        living.ledger.open.set()
        await living.close()


async def fill(topic: Topic, numbers: Sequence[int], partition: int | None = None) -> None:
    values = [{"n": number} for number in numbers]
    await asyncio.to_thread(topic.write_all, values, partition=partition)


async def all_committed(topic: Topic) -> None:
    async def asked() -> bool:
        return await asyncio.to_thread(topic.committed) == await asyncio.to_thread(topic.ends)

    await until(asked, timeout=SECONDS, what="everything committed")
