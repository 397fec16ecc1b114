"""A Redis that is away, loses data, hangs or has a wrong key: the door reports it and recovers by itself."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from redis.asyncio import Redis

from carillon.domain.events import PartStopped, StreamTrimmed, Trouble
from carillon.doors.redis_stream import wire as redis_stream_wire
from tests.support import servers
from tests.support.proxy import FaultProxy
from tests.support.stream_door import LEASE, OFFSET, STREAM, Ledger, add, becomes, client, home, offset_becomes

pytestmark = pytest.mark.slow


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    async with Redis.from_url(redis_url, decode_responses=True) as found:
        yield found


async def produce(server: servers.Redis, *values: str | int) -> list[str]:
    """From a process that saw nothing of the restart."""
    async with client(server.port) as redis:
        return await add(redis, *values)


async def off_loop(work: Callable[[], object]) -> None:
    """Starting and stopping a server must not stop the reader's loop."""
    await asyncio.to_thread(work)


@pytest.mark.req("S1-66", "S1-69")
async def test_a_redis_that_keeps_what_it_has_is_read_on_after_its_restart() -> None:
    with servers.Redis(appendonly=True) as server:
        async with client(server.port) as redis, home(redis) as here:
            ids = await add(redis, *range(3))
            await offset_becomes(redis, ids[-1])
            await off_loop(server.kill)
            await becomes(lambda: len(here.seen(Trouble)) >= 2, "trouble")
            await off_loop(server.start)
            ids += await produce(server, *range(3))
            await here.until_accepted(6)
            await offset_becomes(redis, ids[-1])
            assert here.ledger.accepted == ids
            assert [entry for offer in here.ledger.offered for entry in offer] == ids
            waits = [event.retry_in_seconds for event in here.seen(Trouble)]
            assert all(wait is not None and wait <= 5.0 for wait in waits)
            assert waits[:2] == [0.1, 0.2]
            assert not here.seen(StreamTrimmed)


async def test_a_redis_that_forgot_in_its_restart_is_told() -> None:
    with servers.Redis() as server:
        async with client(server.port) as redis, home(redis) as here:
            ids = await add(redis, *range(3))
            await offset_becomes(redis, ids[-1])
            await off_loop(server.kill)
            await off_loop(server.start)
            after = await produce(server, *range(2))
            await here.until_accepted(5)
            assert here.ledger.accepted == ids + after
            assert [event.offset for event in here.seen(StreamTrimmed)] == [ids[-1]]


async def test_restarts_at_any_moment_lose_nothing_and_never_end_the_door() -> None:
    dice = random.Random(5)
    ids: list[str] = []
    with servers.Redis(appendonly=True) as server:
        async with client(server.port) as redis, home(redis) as here:
            for _ in range(6):
                ids += await produce(server, *range(300))
                await asyncio.sleep(dice.uniform(0.0, 0.05))
                await off_loop(server.kill)
                await off_loop(server.start)
            ids += await produce(server, "last")
            await here.until_accepted(len(ids))
            assert here.ledger.accepted == ids
            assert not here.seen(StreamTrimmed)


@pytest.mark.parametrize("key", [STREAM, OFFSET, LEASE], ids=["stream", "offset", "lease"])
async def test_a_key_of_the_wrong_type_is_trouble_until_it_is_repaired(redis: Redis, key: str) -> None:
    await redis.hset(key, "no", "such thing")
    async with home(redis) as here:
        await becomes(lambda: len(here.seen(Trouble)) >= 3, "trouble")
        assert [event.retry_in_seconds for event in here.seen(Trouble)[:3]] == [0.1, 0.2, 0.4]
        assert "WRONGTYPE" in here.seen(Trouble)[0].error
        await redis.delete(key)
        ids = await add(redis, *range(3))
        await offset_becomes(redis, ids[-1])
        assert here.ledger.accepted == ids


async def test_a_redis_that_may_not_be_written_stops_nothing_for_good(redis_server: servers.Redis) -> None:
    redis_server.flush()
    async with client(redis_server.port) as redis, home(redis) as here:
        ids = await add(redis, 1)
        await offset_becomes(redis, ids[-1])
        await redis.replicaof("127.0.0.1", "1")
        try:
            await becomes(lambda: bool(here.seen(Trouble)), "trouble")
        finally:
            await redis.replicaof("NO", "ONE")
        ids += await add(redis, 2)
        await offset_becomes(redis, ids[-1])
        assert here.ledger.accepted == ids


Cut = Callable[[FaultProxy], Awaitable[None]]


async def _reset(proxy: FaultProxy) -> None:
    proxy.reset()


async def _refuse_for_a_while(proxy: FaultProxy) -> None:
    proxy.refuse()
    seen = proxy.connections
    await becomes(lambda: proxy.connections > seen + 1, "two more knocks")
    proxy.heal()


async def _swallow_for_a_while(proxy: FaultProxy) -> None:
    proxy.blackhole()
    seen = proxy.connections
    await becomes(lambda: proxy.connections > seen, "a new connection though nothing answers")
    proxy.heal()


@pytest.mark.parametrize("cut", [_reset, _refuse_for_a_while, _swallow_for_a_while])
async def test_a_connection_that_breaks_or_falls_silent_is_replaced(
    redis_server: servers.Redis, monkeypatch: pytest.MonkeyPatch, cut: Cut
) -> None:
    monkeypatch.setattr(redis_stream_wire, "_PATIENCE_SECONDS", 0.3)
    redis_server.flush()
    ledger = Ledger()
    async with (
        client(redis_server.port) as outside,
        FaultProxy("127.0.0.1", redis_server.port) as proxy,
        client(proxy.port) as redis,
        home(redis, ledger),
    ):
        ids = await add(outside, *range(3))
        await offset_becomes(outside, ids[-1])
        await cut(proxy)
        ids += await add(outside, *range(3))
        await offset_becomes(outside, ids[-1])
        assert ledger.accepted == ids


async def test_a_reader_cut_off_from_redis_stops_and_another_goes_on(redis_server: servers.Redis) -> None:
    redis_server.flush()
    async with (
        client(redis_server.port) as outside,
        FaultProxy("127.0.0.1", redis_server.port) as proxy,
        client(proxy.port) as redis,
        home(redis) as cut_off,
    ):
        first = await add(outside, 1)
        await offset_becomes(outside, first[-1])
        async with home(outside) as other:
            proxy.blackhole()
            more = await add(outside, 2)
            await other.until_accepted(1)
            await offset_becomes(outside, more[-1])
            await becomes(lambda: bool(cut_off.seen(PartStopped)), "the end of the other's reading")
        assert cut_off.ledger.accepted == first
        assert other.ledger.accepted == more


async def test_a_password_that_is_wrong_is_trouble() -> None:
    with servers.Redis(password="right") as server:
        async with client(server.port, password="wrong") as redis, home(redis) as here:
            await becomes(lambda: len(here.seen(Trouble)) >= 2, "trouble")
            assert await here.door.oldest_unprocessed_age_ms() is None
        async with client(server.port, password="right") as redis, home(redis) as here:
            await add(redis, 1)
            await here.until_accepted(1)


async def _cut_all_but_the_reader(redis: Redis) -> None:
    """Close idle connections, as servers and balancers do."""
    for each in await redis.client_list(_type="normal"):
        if each["cmd"] not in ("xread", "client|list"):
            await redis.client_kill_filter(_id=each["id"])


@pytest.mark.req("P-870")
async def test_entries_of_a_former_primary_hide_none_of_the_new_one() -> None:
    """Both take writes for a moment: the reader has an entry of one, and must not store its id as read in the other."""
    with servers.Redis(appendonly=True) as former, servers.Redis(appendonly=True) as new:
        async with (
            client(former.port) as old,
            client(new.port) as today,
            FaultProxy("127.0.0.1", former.port) as proxy,
            client(proxy.port) as redis,
            home(redis) as here,
        ):
            await today.replicaof("127.0.0.1", str(former.port))
            ids = await add(old, *range(3))
            await offset_becomes(today, ids[-1])
            await today.replicaof("NO", "ONE")
            proxy.lead_to(new.port)
            here.ledger.open.clear()
            milliseconds = int(ids[-1].partition("-")[0]) + 1000
            ids += await add(today, "younger on the new one", entry_id=f"{milliseconds}-0")
            ids += await add(old, "on the former one", entry_id=f"{milliseconds + 1}-0")
            await becomes(lambda: ids[-1:] in here.ledger.offered, "the entry of the former primary")
            await _cut_all_but_the_reader(old)
            here.ledger.open.set()
            await here.until_accepted(4)
            # Before the reader looks at the new one: an offset behind its last entry would be noticed.
            ids += await add(today, "last", entry_id=f"{milliseconds + 2}-0")
            await off_loop(former.kill)
            await here.until_accepted(5)
            await becomes(lambda: sorted(here.ledger.accepted) == ids, f"{ids}, got {here.ledger.accepted}")
