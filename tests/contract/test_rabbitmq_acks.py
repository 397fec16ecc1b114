"""Acknowledgements that cover earlier ones: the broker removes finished deliveries and keeps all others."""

import asyncio
import random
import uuid
from collections.abc import Iterator

import aio_pika
import pytest
from aiormq.exceptions import ChannelInvalidStateError
from hypothesis import given
from hypothesis import strategies as st

from carillon.domain.events import Event, Trouble
from carillon.ledger.rabbitmq import connection as rabbitmq_acks
from carillon.ledger.rabbitmq.connection import BrokerConnection, BrokerRules, Delivery, words
from tests.support.proxy import FaultProxy
from tests.support.push_broker import Broker
from tests.support.rabbitmq import RabbitMQ
from tests.support.waiting import until

MESSAGES = 60


@pytest.fixture
def queue(rabbitmq: RabbitMQ) -> Iterator[str]:
    name = f"acks-{uuid.uuid4().hex}"
    with Broker(rabbitmq.url) as broker:
        broker.declare(name)
        broker.publish(*(str(number).encode() for number in range(MESSAGES)), queue=name)
        yield name
        broker.delete(name, f"{name}.failed")


async def left_after(url: str, queue: str, dice: random.Random) -> tuple[set[int], set[int]]:
    """Answer in any order, some never; gives what must be in the queue, and what is there when the line is closed."""
    arrived: list[Delivery] = []
    events: list[Event] = []
    line = BrokerConnection(
        BrokerRules(url=url, queue=queue, failed_queue=f"{queue}.failed", prefetch=MESSAGES),
        arrived=arrived.append,
        lost=lambda: None,
        observer=events.append,
        dice=dice.random,
    )
    holding = asyncio.create_task(line.run())

    async def all_here() -> bool:
        return len(arrived) == MESSAGES

    await until(all_here, timeout=30, what="every message")
    await line.stop_consuming()
    given_back, done = set[int](), set[int]()
    for delivery in dice.sample(arrived, MESSAGES - 5):
        number = int(delivery.body)
        if dice.random() < 0.1:
            given_back.add(number)
            try:
                await delivery.give_back()
            except ChannelInvalidStateError:
                # The broker has closed the channel over something that was said before.
                break
        else:
            done.add(number)
            delivery.ack()
        if dice.random() < 0.2:
            # Now and then what was done so far leaves.
            await asyncio.sleep(0)
    await line.aclose()
    holding.cancel()
    await asyncio.gather(holding, return_exceptions=True)
    return set(range(MESSAGES)) - done, await _inside(url, queue)


async def _inside(url: str, queue: str) -> set[int]:
    connection = await aio_pika.connect(url)
    async with connection:
        channel = await connection.channel()
        found = await channel.get_queue(queue)
        inside = set[int]()
        while (message := await found.get(fail=False, no_ack=True)) is not None:
            inside.add(int(message.body))
        return inside


async def test_exactly_what_was_acknowledged_is_gone(rabbitmq: RabbitMQ, queue: str) -> None:
    expected, found = await left_after(rabbitmq.url, queue, random.Random(7))
    assert found == expected


async def test_a_word_for_all_said_too_early_is_noticed(
    rabbitmq: RabbitMQ, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rabbitmq_acks, "words", lambda done, _first_open: words(done, None))
    expected, found = await left_after(rabbitmq.url, queue, random.Random(7))
    # Too much is gone, or the broker has closed the channel over it and everything is there again.
    assert found != expected


@given(st.sets(st.integers(1, 200), min_size=1), st.sets(st.integers(1, 200)))
def test_words_say_what_is_done_and_nothing_that_is_open(done: set[int], more: set[int]) -> None:
    still_open = more - done
    said: set[int] = set()
    for tag, multiple in words(list(done), min(still_open, default=None)):
        said |= {each for each in done | still_open if each <= tag} if multiple else {tag}
    assert said == done


def test_one_word_is_enough_while_nothing_older_is_open() -> None:
    assert words([3, 1, 2], None) == [(3, True)]
    assert words([3, 1, 2], 4) == [(3, True)]
    assert words([5], None) == [(5, False)]
    assert words([5, 1, 2], 3) == [(2, True), (5, False)]
    # After a gap nothing speaks for another.
    assert words([5, 6], 0) == [(5, False), (6, False)]


async def test_checks_that_are_given_up_half_way_cost_no_connection(rabbitmq: RabbitMQ, queue: str) -> None:
    """Half a channel that is opened again is an error to the broker: it closes the connection and all deliveries."""
    arrived: list[Delivery] = []
    events: list[Event] = []
    async with FaultProxy("127.0.0.1", rabbitmq.port) as proxy:
        url = f"amqp://guest:guest@{proxy.address}/"
        line = BrokerConnection(
            BrokerRules(url=url, queue=queue, failed_queue=f"{queue}.failed", prefetch=MESSAGES),
            arrived=arrived.append,
            lost=lambda: None,
            observer=events.append,
            dice=random.Random(1).random,
        )
        holding = asyncio.create_task(line.run())
        await line.begun.wait()
        for turn in range(60):
            checks = [asyncio.create_task(line.check()) for _ in range(3)]
            # At every moment of a check the broker falls silent, the check is given up, and the broker speaks again.
            await asyncio.sleep(turn % 20 / 2000)
            proxy.pause()
            await asyncio.sleep(0.01)
            for check in checks:
                check.cancel()
            await asyncio.gather(*checks, return_exceptions=True)
            proxy.resume()
            await asyncio.sleep(0.01)

        async def all_here() -> bool:
            return len(arrived) >= MESSAGES

        await until(all_here, timeout=30, what="every message")
        await line.check()
        await line.aclose()
        await asyncio.wait_for(holding, 30)
    assert [event for event in events if isinstance(event, Trouble)] == []
    assert len(arrived) == MESSAGES, "nothing was delivered twice"


@pytest.mark.req("P-871")
async def test_a_broker_that_is_slow_to_end_a_consumer_closes_no_channel(
    rabbitmq: RabbitMQ, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a stop under load: what is in flight is still acknowledged, and not delivered again."""
    arrived: list[Delivery] = []
    events: list[Event] = []
    async with FaultProxy("127.0.0.1", rabbitmq.port) as proxy:
        url = f"amqp://guest:guest@{proxy.address}/"
        line = BrokerConnection(
            BrokerRules(url=url, queue=queue, failed_queue=f"{queue}.failed", prefetch=MESSAGES),
            arrived=arrived.append,
            lost=lambda: None,
            observer=events.append,
            dice=random.Random(1).random,
        )
        holding = asyncio.create_task(line.run())

        async def all_here() -> bool:
            return len(arrived) == MESSAGES

        await until(all_here, timeout=30, what="every message")
        with monkeypatch.context() as patched:
            patched.setattr(rabbitmq_acks, "_LEAVE_SECONDS", 0.2)
            proxy.pause()
            await line.stop_consuming()
        proxy.resume()
        for delivery in arrived:
            delivery.ack()
        await line.aclose()
        holding.cancel()
        await asyncio.gather(holding, return_exceptions=True)
    assert await _inside(rabbitmq.url, queue) == set()
    assert not [event for event in events if isinstance(event, Trouble)]
