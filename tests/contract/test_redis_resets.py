"""A Redis that has reset its connections is asked again at once, and is never a strange error."""

import asyncio
from collections.abc import Callable, Iterator
from typing import cast

import pytest
import uvloop
from redis.asyncio import Redis
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ConnectionError as RedisConnectionError

from carillon.compose.queues import client
from carillon.compose.redis import SharedRedis
from carillon.compose.redis_resets import outliving_resets
from tests.support import servers
from tests.support.gates import Gate, Gates

MANY = 8
BUILDERS: dict[str, Callable[[str], Redis]] = {
    "queues": lambda url: client(url, MANY, 5.0),
    "shared": lambda url: cast("Redis", SharedRedis(url).redis),
    "plain": lambda url: outliving_resets(Redis.from_url(url)),
}


@pytest.fixture
def gate(redis_server: servers.Redis) -> Iterator[Gate]:
    with Gates() as gates:
        yield gates.before(redis_server.port)


async def asked(build: Callable[[str], Redis], gate: Gate) -> list[object]:
    """What the connections of a pool say after each of them was reset while it lay idle."""
    redis = build(f"redis://127.0.0.1:{gate.port}/0")
    try:
        await asyncio.gather(*(redis.ping() for _ in range(MANY)))
        await asyncio.to_thread(gate.close)
        await asyncio.to_thread(gate.open)
        return await asyncio.gather(*(redis.ping() for _ in range(MANY)), return_exceptions=True)
    finally:
        await redis.aclose()


@pytest.mark.parametrize("name", BUILDERS)
def test_a_connection_that_was_reset_is_replaced(name: str, gate: Gate) -> None:
    assert uvloop.run(asked(BUILDERS[name], gate)) == [True] * MANY


def test_control_the_clients_own_pool_uses_what_was_reset(gate: Gate) -> None:
    found = uvloop.run(asked(Redis.from_url, gate))
    assert {type(each) for each in found} == {RuntimeError}


def test_a_reset_between_the_look_and_the_write_is_a_redis_that_is_away(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look does not see it here."""

    def blind(url: str) -> Redis:
        redis = outliving_resets(Redis.from_url(url))
        monkeypatch.setattr(redis.connection_pool.connection_class, "is_connected", AbstractConnection.is_connected)
        return redis

    assert {type(each) for each in uvloop.run(asked(blind, gate))} == {RedisConnectionError}
