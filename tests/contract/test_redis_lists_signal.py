"""The wait of a worker on list queues: whenever a message comes, somebody listens, and nobody listens in vain."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from redis.asyncio import Redis as Client
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from carillon.domain.claims import Want
from carillon.ledger.redis.lists import ListSignal
from tests.support.ledger_builders import finish
from tests.support.proxy import FaultProxy
from tests.support.queue_lists import LANE, POLICY, Lists
from tests.support.queue_stand import QUEUE, envelope
from tests.support.servers import Redis
from tests.support.waiting import until

pytestmark = pytest.mark.slow

OTHER = "q:test:other"
POLICIES = {QUEUE: POLICY, OTHER: POLICY}
FOREVER, SOON = 60.0, 10.0


@pytest.fixture
async def lists(redis_server: Redis) -> AsyncIterator[Lists]:
    redis_server.flush()
    client = Client.from_url(redis_server.url(), retry=Retry(NoBackoff(), 0))
    await client.config_resetstat()
    found = Lists(client, policies=POLICIES)
    yield found
    await found.signal.aclose()
    await client.aclose()


async def calls(lists: Lists) -> int:
    """How often the server was asked to block."""
    found = (await lists.redis.info("commandstats")).get("cmdstat_blmove")
    return 0 if found is None else int(found["calls"])


async def blocked(lists: Lists) -> int:
    """How many calls are blocked at the moment."""
    return sum("b" in each["flags"] for each in await lists.redis.client_list())


async def waited(wait: Callable[[], Awaitable[None]]) -> float:
    began = time.monotonic()
    await wait()
    return time.monotonic() - began


async def heard_late(lists: Lists, signal: ListSignal) -> float:
    """How long a wait lasts that a message ends which comes when the first blocking call is over."""
    waiting = asyncio.create_task(waited(lambda: signal.wait(SOON)))

    async def over() -> bool:
        called = await calls(lists)
        return called >= 2 or (called == 1 and not await blocked(lists))

    await until(over, timeout=20, what="the end of the first call")
    await lists.put(envelope(id="late"))
    return await waiting


async def test_between_two_looks_somebody_listens(lists: Lists) -> None:
    assert await heard_late(lists, lists.signal) < SOON - 2.0


async def test_control_one_look_a_wait_is_deaf_afterwards(lists: Lists) -> None:
    class OneLook(ListSignal):
        async def _look(self, queue: str) -> None:
            if await self._has_message(queue):
                self.ring()

    signal = OneLook(lists.redis, [QUEUE])
    assert await heard_late(lists, signal) >= SOON - 0.1
    await signal.aclose()


async def test_every_queue_is_listened_to(lists: Lists) -> None:
    for queue in (QUEUE, OTHER):
        waiting = asyncio.create_task(waited(lambda: lists.signal.wait(FOREVER)))

        async def both() -> bool:
            return await blocked(lists) == 2

        await until(both, timeout=20, what="a call for each queue")
        await lists.put(envelope(id=queue), queue=queue)
        assert await waiting < SOON
        (claim,) = await lists.claim(queue=queue)
        await lists.backlog.settle([finish(claim)])


async def test_a_paused_queue_is_listened_to_when_its_pause_is_over(lists: Lists) -> None:
    lists.signal.pause(QUEUE, 0.3)
    await lists.put(envelope(id="early"))
    assert await lists.claim() == []
    took = await waited(lambda: lists.signal.wait(FOREVER))
    assert 0.2 < took < SOON
    assert [claim.notification_id for claim in await lists.claim()] == ["early"]


async def test_a_queue_without_room_wakes_nobody_until_a_run_ends(lists: Lists) -> None:
    """Its next message waits all the time; a look at it would wake the worker without end."""
    await lists.put(envelope(id="first"), envelope(id="second"))
    (claim,) = await lists.claim(1)
    # The claim that took its last slot asked for it, so the first wait still listens to it.
    await lists.signal.wait(FOREVER)
    await lists.backlog.claim([Want(LANE, OTHER, 10)], 10, "w")
    assert await waited(lambda: lists.signal.wait(0.5)) >= 0.4
    assert await blocked(lists) == 1, "only the queue with room"
    # Now no queue has room, so the worker claims nothing; then the run ends.
    before = await calls(lists)
    assert await waited(lambda: lists.signal.wait(0.5)) >= 0.4
    assert await calls(lists) <= before + 1, "at most the look that was blocked calls again"
    waiting = asyncio.create_task(waited(lambda: lists.signal.wait(FOREVER)))
    await asyncio.sleep(0)
    await lists.backlog.settle([finish(claim)])
    assert await waiting < SOON


async def test_control_a_look_at_a_queue_without_room_never_rests(lists: Lists) -> None:
    await lists.put(envelope(id="first"), envelope(id="second"))
    for _ in range(20):
        # Nobody has said what has room.
        await lists.signal.wait(FOREVER)
    assert await calls(lists) >= 20


@pytest.mark.parametrize("fault", ["refuse", "reset"])
async def test_a_server_that_comes_back_is_listened_to_again(redis_server: Redis, lists: Lists, fault: str) -> None:
    async with FaultProxy("127.0.0.1", redis_server.port) as proxy:
        client = Client.from_url(f"redis://{proxy.address}/0", retry=Retry(NoBackoff(), 0))
        signal = ListSignal(client, [QUEUE])
        waiting = asyncio.create_task(waited(lambda: signal.wait(FOREVER)))

        async def listens() -> bool:
            return await calls(lists) >= 1

        await until(listens, timeout=20, what="a blocking call")
        getattr(proxy, fault)()
        await lists.put(envelope(id="away"))
        proxy.heal()
        assert await waiting < SOON
        await signal.aclose()
        await client.aclose()


async def test_the_end_waits_for_no_blocked_call(redis_server: Redis) -> None:
    """Also where the server says nothing any more."""
    async with FaultProxy("127.0.0.1", redis_server.port) as proxy:
        client = Client.from_url(f"redis://{proxy.address}/0", retry=Retry(NoBackoff(), 0), socket_timeout=30.0)
        signal = ListSignal(client, [QUEUE])
        await signal.wait(0.1)
        proxy.blackhole()
        assert await waited(signal.aclose) < SOON
        await client.aclose()
