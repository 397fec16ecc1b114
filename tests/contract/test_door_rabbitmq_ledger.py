"""The RabbitMQ door while the ledger is away, refuses, breaks or takes its time; and a door that answers too early."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
from aio_pika.abc import AbstractIncomingMessage

from carillon.domain.errors import LedgerUnavailable, Overloaded
from carillon.domain.events import Event, Trouble
from carillon.domain.intents import Intent, Malformed
from carillon.domain.notifications import Acceptance, Enrolled, Enrolment
from carillon.doors.messages import STRANGE_TRIES, QueueWire
from carillon.doors.rabbitmq.door import ConsumerSession, RabbitDoor, RabbitDoorRules
from tests.support.dispatches import LoopClock
from tests.support.rabbitmq import RabbitMQ
from tests.support.rabbitmq_queue import BODY, Queue, queue
from tests.support.stream_door import becomes
from tests.support.waiting import until

pytestmark = pytest.mark.slow


class Ledger:
    """Accepts each key once; can be away, full, broken or slow."""

    def __init__(self) -> None:
        self.keys: list[str | None] = []
        self.parked: dict[str, Malformed] = {}
        self.trouble: Exception | None = None
        self.asked = 0
        self.most_at_once = 0
        self._at_once = 0
        self.open = asyncio.Event()
        self.open.set()

    async def accept(self, intent: Intent) -> Acceptance:
        self.asked += 1
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            await self.open.wait()
        finally:
            self._at_once -= 1
        if self.trouble is not None:
            raise self.trouble
        if intent.idempotency_key not in self.keys:
            self.keys.append(intent.idempotency_key)
        return Acceptance("id", "standard")

    async def enrol(self, batch: Sequence[Enrolment]) -> list[Enrolled]:
        raise NotImplementedError(batch)

    async def keep_malformed(self, malformed: Sequence[Malformed]) -> None:
        if isinstance(self.trouble, LedgerUnavailable):
            raise self.trouble
        self.parked |= {each.stream_entry_id: each for each in malformed}


class HastyDoor(RabbitDoor):
    """The guard switched off: the acknowledgement goes out before anything is written."""

    async def _accept(self, message: AbstractIncomingMessage, session: ConsumerSession) -> None:
        await message.ack()
        await super()._accept(message, session)


class Home:
    """One door in this process."""

    def __init__(self, url: str, name: str, ledger: Ledger, kind: type[RabbitDoor], prefetch: int) -> None:
        self.events: list[Event] = []
        self.door = kind(
            rules=RabbitDoorRules(url=url, queue=name, prefetch=prefetch),
            wire=QueueWire("rabbitmq", name, 262_144, lambda: "made"),
            acceptor=ledger,
            ledger=ledger,
            clock=LoopClock(),
            observer=self.events.append,
        )
        self.task = asyncio.create_task(self.door.run())

    def troubles(self) -> list[Trouble]:
        return [event for event in self.events if isinstance(event, Trouble)]

    async def kill(self) -> None:
        """As a death does: nothing that is being written is waited for."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    async def close(self) -> None:
        self.door.stop()
        await asyncio.gather(self.task, return_exceptions=True)


@asynccontextmanager
async def home(
    rabbitmq: RabbitMQ, requests: Queue, ledger: Ledger, kind: type[RabbitDoor] = RabbitDoor, prefetch: int = 20
) -> AsyncIterator[Home]:
    living = Home(rabbitmq.url, requests.name, ledger, kind, prefetch)
    try:
        yield living
    finally:
        ledger.open.set()
        await living.close()


@pytest.fixture
async def requests(rabbitmq: RabbitMQ) -> AsyncIterator[Queue]:
    async with queue(rabbitmq.url) as found:
        await found.make("quorum")
        yield found
        await found.delete()


async def fill(requests: Queue, many: int) -> list[str]:
    keys = [f"key-{place}" for place in range(many)]
    for key in keys:
        await requests.publish(BODY, key)
    return keys


async def until_ready(requests: Queue, many: int) -> None:
    async def ready() -> bool:
        return await requests.ready() == many

    await until(ready, timeout=30, what=f"{many} messages in the queue")


async def until_alone(requests: Queue) -> None:
    async def alone() -> bool:
        return await requests.consumers() == 0

    await until(alone, timeout=30, what="no consumer")


@pytest.mark.parametrize("error", [LedgerUnavailable("PostgreSQL is not available"), Overloaded("full")])
async def test_a_ledger_that_is_away_keeps_deliveries_and_says_so_once_a_wait(
    rabbitmq: RabbitMQ, requests: Queue, error: Exception
) -> None:
    ledger = Ledger()
    ledger.trouble = error
    keys = await fill(requests, 100)
    async with home(rabbitmq, requests, ledger) as living:
        await becomes(lambda: len(living.troubles()) >= 3, "three waits")
        waits = [trouble.retry_in_seconds for trouble in living.troubles()]
        assert waits == [0.1 * 2**place for place in range(len(waits))], "one line per wait, not per delivery"
        # The prefetch is held, and no more: the broker may still be handing it out.
        await until_ready(requests, 80)
        ledger.trouble = None
        await becomes(lambda: len(ledger.keys) == 100, "all written")
    assert sorted(filter(None, ledger.keys)) == sorted(keys)
    assert ledger.most_at_once <= 20
    await until_ready(requests, 0)


async def test_poison_waits_for_the_ledger_too(rabbitmq: RabbitMQ, requests: Queue) -> None:
    ledger = Ledger()
    ledger.trouble = LedgerUnavailable("PostgreSQL is not available")
    await requests.publish(b"not json")
    async with home(rabbitmq, requests, ledger) as living:
        await becomes(lambda: len(living.troubles()) >= 2, "two waits")
        assert ledger.parked == {}
        ledger.trouble = None
        await becomes(lambda: len(ledger.parked) == 1, "parked")
    await until_ready(requests, 0)


async def test_a_door_that_stops_during_an_outage_leaves_everything(rabbitmq: RabbitMQ, requests: Queue) -> None:
    ledger = Ledger()
    ledger.trouble = LedgerUnavailable("PostgreSQL is not available")
    await fill(requests, 30)
    async with home(rabbitmq, requests, ledger) as living:
        await becomes(lambda: len(living.troubles()) >= 2, "two waits")
    await until_ready(requests, 30)


async def test_what_is_being_written_at_the_stop_is_acknowledged(rabbitmq: RabbitMQ, requests: Queue) -> None:
    ledger = Ledger()
    ledger.open.clear()
    await fill(requests, 30)
    async with home(rabbitmq, requests, ledger) as living:
        await becomes(lambda: ledger.asked == 20, "a prefetch of acceptances")
        living.door.stop()
        asyncio.get_running_loop().call_later(0.2, ledger.open.set)
        await living.task
    await until_ready(requests, 10)
    assert len(ledger.keys) == 20


async def test_an_error_nobody_expects_parks_the_one_and_stops_nobody(rabbitmq: RabbitMQ, requests: Queue) -> None:
    ledger = Ledger()
    ledger.trouble = KeyError("a bug of ours")
    await requests.publish(BODY, "key")
    async with home(rabbitmq, requests, ledger):
        await becomes(lambda: len(ledger.parked) == 1, "parked")
        assert ledger.asked == STRANGE_TRIES
        (found,) = ledger.parked.values()
        assert (found.failure_code, found.idempotency_key) == ("INTERNAL_ERROR", "key")
        ledger.trouble = None
        await requests.publish(BODY, "next")
        await becomes(lambda: ledger.keys == ["next"], "the next")
    await until_ready(requests, 0)


async def die_while_writing(rabbitmq: RabbitMQ, requests: Queue, kind: type[RabbitDoor], left: int) -> int:
    """How many of twenty messages are left when the process dies before the ledger has them."""
    ledger = Ledger()
    ledger.open.clear()
    await fill(requests, 20)
    async with home(rabbitmq, requests, ledger, kind) as living:
        await becomes(lambda: ledger.asked == 20, "twenty acceptances")
        await living.kill()
        assert ledger.keys == []
    # The next consumer reads the deliveries that the broker has taken back.
    await until_alone(requests)
    await until_ready(requests, left)
    again = Ledger()
    await requests.publish(BODY, "last")
    async with home(rabbitmq, requests, again):
        # The broker puts back at the front what its reader did not acknowledge: the last one comes last.
        await becomes(lambda: "last" in again.keys, "last")
    return len(again.keys) - 1


async def test_death_before_the_commit_loses_nothing(rabbitmq: RabbitMQ, requests: Queue) -> None:
    assert await die_while_writing(rabbitmq, requests, RabbitDoor, 20) == 20


async def test_control_a_door_that_acknowledges_first_loses_them(rabbitmq: RabbitMQ, requests: Queue) -> None:
    assert await die_while_writing(rabbitmq, requests, HastyDoor, 0) == 0


async def test_a_wrong_password_is_said_without_it(rabbitmq: RabbitMQ, requests: Queue) -> None:
    wrong = rabbitmq.url.replace("guest:guest", "guest:not-the-password")
    living = Home(wrong, requests.name, Ledger(), RabbitDoor, 20)
    await becomes(lambda: len(living.troubles()) >= 2, "two refusals")
    await living.close()
    assert not [trouble for trouble in living.troubles() if "not-the-password" in trouble.error]
