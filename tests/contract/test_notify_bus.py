"""Messages between replicas, over Redis and over PostgreSQL: they arrive, also after a broken connection."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest
from redis.asyncio import Redis as RedisClient

from carillon.domain.streams import NotifyBus
from carillon.ledger.postgres.notify import PostgresBus
from carillon.ledger.postgres.pools import Address
from carillon.ledger.statements import load
from carillon.live.relay import RedisBus
from carillon.system import SystemClock
from tests.support.servers import Postgres, Redis
from tests.support.waiting import until

ME, OTHER = "a" * 32, "b" * 32


class CuttableBus:
    """A notify bus, and a way to cut its connection."""

    def __init__(self, notify_bus: NotifyBus, cut: Callable[[], Any]) -> None:
        self.sender = notify_bus
        self.cut = cut
        self.heard: list[str] = []

    async def send_until_heard(self, text: str) -> None:
        """A message may be lost; the next one must not be."""

        async def arrived() -> bool:
            await self.sender.send({ME: [text]})
            return text in self.heard

        await until(arrived, timeout=30, what=text)


@asynccontextmanager
async def listening(notify_bus: NotifyBus, cut: Callable[[], Any]) -> AsyncIterator[CuttableBus]:
    bus = CuttableBus(notify_bus, cut)
    hearing = asyncio.create_task(notify_bus.run(ME, bus.heard.append))
    await bus.send_until_heard("first")
    try:
        yield bus
    finally:
        hearing.cancel()
        await asyncio.gather(hearing, return_exceptions=True)


@pytest.fixture(params=["redis", "postgres"])
async def bus(request: pytest.FixtureRequest, postgres: Postgres, redis_server: Redis) -> AsyncIterator[CuttableBus]:
    if request.param == "redis":
        client = RedisClient.from_url(redis_server.url(5))
        notify_bus: NotifyBus = RedisBus(client, prefix="test:", clock=SystemClock(), observer=lambda _event: None)
        async with listening(notify_bus, lambda: redis_server.execute("CLIENT KILL TYPE pubsub")) as open_bus:
            yield open_bus
        await client.aclose()
        return
    dsn = postgres.database()
    notify_bus = PostgresBus(Address.parse(dsn), load("postgres"))

    async def cut() -> None:
        connection = await asyncpg.connect(dsn)
        await connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        await connection.close()

    async with listening(notify_bus, cut) as open_bus:
        yield open_bus
    postgres.drop(dsn)


async def test_messages_arrive_in_order_and_only_at_their_replica(bus: CuttableBus) -> None:
    texts = [f"{number} ünïcödé" for number in range(50)]
    await bus.sender.send({OTHER: ["not mine"], ME: texts})
    await bus.send_until_heard("last")
    assert [text for text in bus.heard if text not in {"first", "last"}] == texts


async def test_a_bus_that_was_cut_reconnects(bus: CuttableBus) -> None:
    done = bus.cut()
    if asyncio.iscoroutine(done):
        await done
    await bus.send_until_heard("after the cut")


async def test_sending_while_the_server_is_away_does_not_raise() -> None:
    away = RedisBus(
        RedisClient.from_url("redis://127.0.0.1:1/0"), prefix="", clock=SystemClock(), observer=lambda _event: None
    )
    await away.send({ME: ["lost"]})
    await PostgresBus(Address.parse("postgresql://nobody@127.0.0.1:1/x"), load("postgres")).send({ME: ["lost"]})
