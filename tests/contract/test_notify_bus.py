"""Letters between replicas, over Redis and over PostgreSQL: they arrive, also after the line was cut."""

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


class Line:
    """A post and a way to cut it."""

    def __init__(self, post: NotifyBus, cut: Callable[[], Any]) -> None:
        self.post = post
        self.cut = cut
        self.heard: list[str] = []

    async def send_until_heard(self, text: str) -> None:
        """A letter may be lost; the next one must not be."""

        async def arrived() -> bool:
            await self.post.send({ME: [text]})
            return text in self.heard

        await until(arrived, timeout=30, what=text)


@asynccontextmanager
async def listening(post: NotifyBus, cut: Callable[[], Any]) -> AsyncIterator[Line]:
    line = Line(post, cut)
    hearing = asyncio.create_task(post.run(ME, line.heard.append))
    await line.send_until_heard("first")
    try:
        yield line
    finally:
        hearing.cancel()
        await asyncio.gather(hearing, return_exceptions=True)


@pytest.fixture(params=["redis", "postgres"])
async def line(request: pytest.FixtureRequest, postgres: Postgres, redis_server: Redis) -> AsyncIterator[Line]:
    if request.param == "redis":
        client = RedisClient.from_url(redis_server.url(5))
        post: NotifyBus = RedisBus(client, prefix="test:", clock=SystemClock(), observer=lambda _event: None)
        async with listening(post, lambda: redis_server.execute("CLIENT KILL TYPE pubsub")) as open_line:
            yield open_line
        await client.aclose()
        return
    dsn = postgres.database()
    post = PostgresBus(Address.parse(dsn), load("postgres"))

    async def cut() -> None:
        connection = await asyncpg.connect(dsn)
        await connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        await connection.close()

    async with listening(post, cut) as open_line:
        yield open_line
    postgres.drop(dsn)


async def test_letters_arrive_in_order_and_at_nobody_elses(line: Line) -> None:
    texts = [f"{number} ünïcödé" for number in range(50)]
    await line.post.send({OTHER: ["not mine"], ME: texts})
    await line.send_until_heard("last")
    assert [text for text in line.heard if text not in {"first", "last"}] == texts


async def test_a_line_that_was_cut_is_mended(line: Line) -> None:
    done = line.cut()
    if asyncio.iscoroutine(done):
        await done
    await line.send_until_heard("after the cut")


async def test_sending_to_a_server_that_is_away_harms_nobody() -> None:
    away = RedisBus(
        RedisClient.from_url("redis://127.0.0.1:1/0"), prefix="", clock=SystemClock(), observer=lambda _event: None
    )
    await away.send({ME: ["lost"]})
    await PostgresBus(Address.parse("postgresql://nobody@127.0.0.1:1/x"), load("postgres")).send({ME: ["lost"]})
