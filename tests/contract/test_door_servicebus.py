"""The Service Bus door through the vendor's library, against a stub that speaks the vendor's wire (AMQP 1.0)."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from proton import Message

from carillon.domain.errors import LedgerUnavailable, Overloaded
from carillon.domain.events import Event, PartStarted, Trouble
from carillon.doors.messages import STRANGE_TRIES, QueueWire
from carillon.doors.servicebus import door as door_module
from carillon.doors.servicebus.door import ServiceBusDoor, ServiceBusDoorRules
from tests.contract.test_door_rabbitmq import POISON
from tests.contract.test_door_rabbitmq_ledger import Ledger
from tests.support.dispatches import LoopClock
from tests.support.rabbitmq import RabbitMQ
from tests.support.rabbitmq_queue import BODY
from tests.support.servicebus import Bus
from tests.support.stream_door import becomes

pytestmark = pytest.mark.slow

QUEUE = "requests"


def message(body: object = BODY, key: str | None = None, **more: Any) -> Message:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Message(body=content, inferred=True, id=key, **more)


@pytest.fixture
def bus() -> Iterator[Bus]:
    with Bus() as found:
        found.create(QUEUE)
        yield found


class HastyDoor(ServiceBusDoor):
    """The guard switched off: the message is completed before anything is written."""

    async def _take(self, receiver: Any, batch: Any) -> None:
        for each in batch:
            await receiver.complete_message(each)
        await super()._take(receiver, batch)


class Home:
    """One door in this process."""

    def __init__(
        self, connection: str, ledger: Ledger, kind: type[ServiceBusDoor] = ServiceBusDoor, prefetch: int = 20
    ) -> None:
        self.events: list[Event] = []
        self.door = kind(
            rules=ServiceBusDoorRules(connection_string=connection, queue=QUEUE, prefetch=prefetch),
            wire=QueueWire("servicebus", QUEUE, 262_144, lambda: "made"),
            acceptor=ledger,
            ledger=ledger,
            clock=LoopClock(),
            observer=self.events.append,
        )
        self.task = asyncio.create_task(self.door.run())

    def troubles(self) -> list[Trouble]:
        return [event for event in self.events if isinstance(event, Trouble)]

    def sessions(self) -> int:
        return sum(isinstance(event, PartStarted) for event in self.events)

    async def kill(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    async def close(self) -> None:
        self.door.stop()
        await asyncio.gather(self.task, return_exceptions=True)


@asynccontextmanager
async def home(bus: Bus, ledger: Ledger, **more: Any) -> AsyncIterator[Home]:
    living = Home(bus.connection, ledger, **more)
    try:
        yield living
    finally:
        ledger.open.set()
        await living.close()


def fill(bus: Bus, many: int) -> list[str]:
    keys = [f"key-{place}" for place in range(many)]
    bus.publish(QUEUE, *(message(key=key) for key in keys))
    return keys


@pytest.mark.req("X2-6")
async def test_messages_are_stored_and_completed_and_repeats_are_recognised(bus: Bus) -> None:
    ledger = Ledger()
    keys = fill(bus, 50)
    bus.publish(QUEUE, message(key="made", properties={"idempotency-key": "said"}), message(key="key-1"))
    async with home(bus, ledger):
        await becomes(lambda: bus.waiting(QUEUE) == 0, "an empty queue")
    assert sorted(filter(None, ledger.keys)) == sorted([*keys, "said"])
    assert bus.dead(QUEUE) == []


@pytest.mark.req("X2-6")
async def test_a_message_without_any_key_is_one_notification_over_its_deliveries(bus: Bus) -> None:
    """Service Bus numbers its messages, and a lock that ends makes a second delivery of the same number."""
    ledger = Ledger()
    ledger.open.clear()
    bus.publish(QUEUE, message(), message({**BODY, "recipient": "device-2"}))
    async with home(bus, ledger) as living:
        await becomes(lambda: ledger.asked == 2, "two acceptances")
        bus.expire(QUEUE)
        ledger.open.set()
        # A message that was taken a second time is not in the queue either.
        await becomes(lambda: ledger.asked == 4, "both again")
        await becomes(lambda: bus.waiting(QUEUE) == 0, "an empty queue")
        assert living.sessions() == 1, "a lost lock is no reason to leave"
    assert ledger.asked == 4
    assert len(ledger.keys) == 2
    assert None not in ledger.keys


@pytest.mark.req("X2-6")
async def test_malformed_messages_are_kept_and_dead_lettered_and_stop_nobody(bus: Bus) -> None:
    ledger = Ledger()
    poison = [place for place in POISON if place[1] in {"VALIDATION_ERROR", "SYNCHRONOUS_UNAVAILABLE"}]
    bus.publish(QUEUE, *(message(body, f"poison-{place}") for place, (body, _) in enumerate(poison)))
    bus.publish(QUEUE, Message(body=[1, 2], id="sequence"), Message(body=json.dumps(BODY), id="text"))
    bus.publish(QUEUE, message(BODY, "a key\nof two lines"), message(BODY, "good"))
    async with home(bus, ledger):
        await becomes(lambda: bus.waiting(QUEUE) == 0, "an empty queue")
    dead = {held.message.id: held.why for held in bus.dead(QUEUE)}
    expected = {f"poison-{place}": code for place, (_, code) in enumerate(poison)}
    expected |= {"a key\nof two lines": "VALIDATION_ERROR", "sequence": "VALIDATION_ERROR"}
    assert {name: why["DeadLetterReason"] for name, why in dead.items()} == expected
    assert {row.idempotency_key: row.failure_code for row in ledger.parked.values()} == expected
    assert all(why["DeadLetterErrorDescription"] for why in dead.values())
    assert sorted(filter(None, ledger.keys)) == ["good", "text"]


@pytest.mark.req("X2-6")
@pytest.mark.parametrize("error", [LedgerUnavailable("PostgreSQL is not available"), Overloaded("full")])
async def test_a_ledger_that_is_away_costs_no_message_a_delivery(bus: Bus, error: Exception) -> None:
    ledger = Ledger()
    ledger.trouble = error
    keys = fill(bus, 100)
    bus.publish(QUEUE, message(b"not json", "poison"))
    async with home(bus, ledger) as living:
        await becomes(lambda: len(living.troubles()) >= 3, "three waits")
        waits = [trouble.retry_in_seconds for trouble in living.troubles()]
        assert waits == [0.1 * 2**place for place in range(len(waits))], "one line per wait, not per message"
        assert (bus.locked(QUEUE), bus.waiting(QUEUE)) == (20, 101), "the prefetch is held, and no more"
        assert ledger.parked == {}
        ledger.trouble = None
        await becomes(lambda: bus.waiting(QUEUE) == 0, "all settled")
    assert sorted(filter(None, ledger.keys)) == sorted(keys)
    assert ledger.most_at_once <= 20
    (dead,) = bus.dead(QUEUE)
    assert (dead.message.id, dead.deliveries) == ("poison", 0)


@pytest.mark.req("X2-6")
async def test_a_door_that_stops_during_an_outage_gives_everything_back_at_once(bus: Bus) -> None:
    """Locks outlive their connection: without giving back, the next process would wait for their end."""
    ledger = Ledger()
    ledger.trouble = LedgerUnavailable("PostgreSQL is not available")
    fill(bus, 30)
    async with home(bus, ledger) as living:
        await becomes(lambda: len(living.troubles()) >= 2, "two waits")
    assert (bus.locked(QUEUE), bus.waiting(QUEUE)) == (0, 30)


@pytest.mark.req("X2-6")
async def test_what_is_being_written_at_the_stop_is_completed(bus: Bus) -> None:
    ledger = Ledger()
    ledger.open.clear()
    fill(bus, 30)
    async with home(bus, ledger) as living:
        await becomes(lambda: ledger.asked == 20, "a prefetch of acceptances")
        living.door.stop()
        asyncio.get_running_loop().call_later(0.2, ledger.open.set)
        await living.task
    assert (bus.locked(QUEUE), bus.waiting(QUEUE), len(ledger.keys)) == (0, 10, 20)


@pytest.mark.req("X2-6")
async def test_an_error_nobody_expects_parks_the_one_and_stops_nobody(bus: Bus) -> None:
    ledger = Ledger()
    ledger.trouble = KeyError("a bug of ours")
    bus.publish(QUEUE, message(key="key"))
    async with home(bus, ledger):
        await becomes(lambda: len(ledger.parked) == 1, "parked", seconds=30)
        assert ledger.asked == STRANGE_TRIES
        ledger.trouble = None
        bus.publish(QUEUE, message(key="next"))
        await becomes(lambda: ledger.keys == ["next"], "the next")
    assert [held.why["DeadLetterReason"] for held in bus.dead(QUEUE)] == ["INTERNAL_ERROR"]


@pytest.mark.req("X2-6")
@pytest.mark.parametrize(("kind", "left"), [(ServiceBusDoor, 20), (HastyDoor, 0)], ids=["door", "control"])
async def test_death_before_the_commit_loses_nothing(bus: Bus, kind: type[ServiceBusDoor], left: int) -> None:
    ledger = Ledger()
    ledger.open.clear()
    fill(bus, 20)
    async with home(bus, ledger, kind=kind) as living:
        await becomes(lambda: ledger.asked == 20, "twenty acceptances")
        await living.kill()
        assert ledger.keys == []
    bus.expire(QUEUE)
    assert bus.waiting(QUEUE) == left


@pytest.mark.req("X2-6")
async def test_broken_connections_and_a_bus_that_is_away_lose_and_double_nothing(bus: Bus) -> None:
    ledger = Ledger()
    async with home(bus, ledger, prefetch=5) as living:
        for turn in range(2):
            await becomes(lambda at=turn: living.sessions() > at, "a session")  # type: ignore[misc]
            bus.publish(QUEUE, *(message(key=f"key-{turn}-{place}") for place in range(20)))
            bus.cut()
            bus.expire(QUEUE)
        bus.leave()
        before = len(living.troubles())
        await becomes(lambda: len(living.troubles()) > before, "trouble", seconds=30)
        bus.come()
        bus.expire(QUEUE)
        await becomes(lambda: bus.waiting(QUEUE) == 0, "an empty queue", seconds=60)
    assert len(ledger.keys) == 40
    assert bus.dead(QUEUE) == []
    assert max(trouble.retry_in_seconds or 0 for trouble in living.troubles()) <= 5


@pytest.mark.req("X2-6")
async def test_two_doors_share_a_queue(bus: Bus) -> None:
    ledger = Ledger()
    async with home(bus, ledger, prefetch=5), home(bus, ledger, prefetch=5):
        keys = fill(bus, 60)
        await becomes(lambda: bus.waiting(QUEUE) == 0, "an empty queue", seconds=30)
    assert sorted(filter(None, ledger.keys)) == sorted(keys)
    assert ledger.asked == 60


@pytest.mark.req("X2-6")
async def test_a_wrong_key_and_a_missing_queue_are_said_without_the_key(bus: Bus) -> None:
    wrong = Home(bus.connection_at(bus.port, "bm90LXRoZS1rZXk="), Ledger())
    bus.queues.clear()
    missing = Home(bus.connection, Ledger())
    await becomes(lambda: bool(wrong.troubles() and missing.troubles()), "two refusals", seconds=30)
    await asyncio.gather(wrong.close(), missing.close())
    assert bus.refused_tokens
    said = str([trouble.error for trouble in (*wrong.troubles(), *missing.troubles())])
    assert "AuthenticationError" in said
    assert f"'{QUEUE}' could not be found" in said
    assert "bm90LXRoZS1rZXk" not in said


@pytest.mark.req("X2-6")
async def test_the_doctor_looks_and_takes_nothing(bus: Bus) -> None:
    assert await door_module.waiting(bus.connection, QUEUE) is False
    bus.publish(QUEUE, message(key="one"))
    assert await door_module.waiting(bus.connection, QUEUE) is True
    assert (bus.locked(QUEUE), bus.waiting(QUEUE), bus.dispositions) == (0, 1, [])
    with pytest.raises(OSError, match="error"):
        await door_module.waiting(bus.connection, "no-such-queue")


@pytest.mark.slow
@pytest.mark.req("X2-6")
async def test_real_amqp_1_0_of_another_broker_is_refused_in_time(rabbitmq: RabbitMQ) -> None:
    """RabbitMQ carries the connection and its login; it has no `$cbs` to take a token, and the library would wait."""
    connection = Bus(port=rabbitmq.port).connection_at(rabbitmq.port)
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - a count
    living = Home(connection, Ledger())
    await becomes(lambda: bool(living.troubles()), "trouble", seconds=30)
    await living.close()
    assert len(os.listdir("/proc/self/fd")) <= before, "a socket is left"  # noqa: PTH208 - a count
    assert living.troubles()[0].error.startswith("TimeoutError")
    with pytest.raises(OSError, match="is it a Service Bus"):
        await door_module.waiting(connection, QUEUE)


def test_the_stub_refuses_what_the_vendor_refuses(bus: Bus) -> None:
    """The controls of the stub: locks are exclusive, and a tenth delivery is a dead letter."""
    bus.max_deliveries = 2
    bus.publish(QUEUE, message(key="one"))
    (held,) = bus.queues[QUEUE]
    for _ in range(2):
        held.lock, held.until = "x" * 16, 0.0
        bus.expire(QUEUE)
        bus._server._unlock(QUEUE)  # noqa: SLF001 - what the stub's timer calls
    assert [dead.why for dead in bus.dead(QUEUE)] == [{"DeadLetterReason": "MaxDeliveryCountExceeded"}]
