"""The private servers start, hand out fresh stores and survive being killed."""

import os

import asyncpg
import pytest
import redis.asyncio

from tests.support.daemon import children_of, is_alive
from tests.support.servers import Postgres, Redis

pytestmark = pytest.mark.slow


async def test_postgres_gives_a_fresh_database(postgres: Postgres, postgres_dsn: str) -> None:
    connection = await asyncpg.connect(postgres_dsn)
    try:
        assert await connection.fetchval("SELECT current_setting('fsync')") == "off"
        assert await connection.fetchval("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == 0
    finally:
        await connection.close()
    other = postgres.database()
    assert other != postgres_dsn
    postgres.drop(other)


def test_postgres_killed_as_a_whole_keeps_what_was_committed() -> None:
    with Postgres(durable=True) as server:
        assert server.execute("SHOW fsync") == "on"
        server.execute("CREATE TABLE bells (name text); INSERT INTO bells VALUES ('tenor')")
        family = [server.pid, *children_of(server.pid)]
        assert len(family) > 1
        server.kill()
        assert not any(map(is_alive, family))
        server.start()
        assert server.execute("SELECT name FROM bells") == "tenor"
        server.restart()
        assert server.execute("SELECT name FROM bells") == "tenor"
        last = server.pid
    assert not is_alive(last)
    assert not server.folder.exists()


def test_server_that_cannot_start_says_why() -> None:
    server = Postgres(settings={"shared_buffers": "nonsense"})
    try:
        with pytest.raises(RuntimeError, match="shared_buffers"):
            server.start()
    finally:
        server.close()


async def test_redis_is_empty_for_each_test(redis_url: str) -> None:
    async with redis.asyncio.Redis.from_url(redis_url) as client:
        assert await client.dbsize() == 0
        await client.set("bell", os.getpid())


async def test_redis_is_empty_again(redis_url: str) -> None:
    async with redis.asyncio.Redis.from_url(redis_url) as client:
        assert await client.dbsize() == 0


def test_redis_killed_keeps_its_append_only_file() -> None:
    with Redis(appendonly=True) as server:
        assert server.execute("SET bell tenor") == "+OK"
        server.kill()
        assert not server.running
        server.start()
        assert server.execute("EXISTS bell") == ":1"
