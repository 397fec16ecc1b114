"""A Redis whose answers get lost or that is away: no message is lost, and no unconfirmed lock is trusted."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from redis.asyncio import Redis as Client
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from carillon.domain.claims import Claim, Settled
from carillon.domain.errors import LedgerUnavailable
from carillon.domain.queues import Policy
from carillon.ledger.redis.scripts import script_texts
from tests.support.ledger_builders import finish, retry
from tests.support.proxy import FaultProxy
from tests.support.queue_checks import whereabouts
from tests.support.queue_lists import Lists, counted
from tests.support.queue_stand import QUEUE, envelope
from tests.support.servers import Redis
from tests.support.waiting import until


@pytest.fixture
async def proxy(redis_server: Redis) -> AsyncIterator[FaultProxy]:
    redis_server.flush()
    async with FaultProxy("127.0.0.1", redis_server.port) as proxy:
        yield proxy


@pytest.fixture
async def beside(redis_server: Redis) -> AsyncIterator[Lists]:
    """Another process, whose way to Redis is fine; the server knows every script already."""
    client = Client.from_url(redis_server.url())
    for text in script_texts().values():
        await client.script_load(text)
    yield Lists(client)
    await client.aclose()


@pytest.fixture
async def behind(proxy: FaultProxy) -> AsyncIterator[Lists]:
    client = Client.from_url(f"redis://{proxy.address}/0", socket_timeout=20.0, retry=Retry(NoBackoff(), 0))
    yield Lists(client, policies={QUEUE: Policy(max_retries=2, jitter_seconds=0.0, lock_ttl_seconds=0.5)})
    await client.aclose()


async def test_a_claim_whose_answer_got_lost_is_swept(proxy: FaultProxy, behind: Lists, beside: Lists) -> None:
    await beside.put(envelope(id="m1"))
    await behind.redis.ping()
    proxy.cut(after=1)
    with pytest.raises(LedgerUnavailable):
        await behind.claim()
    assert len(await beside.processing()) == 1, "the server had done it"

    async def unlocked() -> bool:
        return await beside.locks() == []

    await until(unlocked, timeout=20, what="its lock to run out")
    assert await beside.sweep_all() == 1
    assert counted([text for text, _ in await beside.delayed()]) == [1]


@pytest.mark.parametrize("verdict", ["finish", "retry"])
async def test_a_settlement_whose_answer_got_lost_is_not_made_twice(
    proxy: FaultProxy, behind: Lists, beside: Lists, verdict: str
) -> None:
    await beside.put(envelope(id="m1"))
    (claim,) = await behind.claim()
    settlement = finish(claim) if verdict == "finish" else retry(claim)
    proxy.cut(after=1)
    with pytest.raises(LedgerUnavailable):
        await behind.backlog.settle([settlement])
    proxy.heal()
    assert await behind.backlog.settle([settlement]) == [Settled.STALE]
    assert await whereabouts(beside) == ([] if verdict == "finish" else ["m1"])


@pytest.mark.req("S3-34")
async def test_a_lock_that_could_not_be_renewed_in_time_is_given_up(
    proxy: FaultProxy, behind: Lists, beside: Lists
) -> None:
    lost: list[Claim] = []
    behind.backlog.lost = lost.append
    await beside.put(envelope(id="m1"))
    claims = await behind.claim()
    proxy.refuse()

    async def given_up() -> bool:
        with pytest.raises(LedgerUnavailable):
            await behind.backlog.extend(claims)
        return bool(lost)

    await until(given_up, timeout=40, what="a lock whose time is over")
    assert lost == claims


@pytest.mark.req("P-1346")
@pytest.mark.parametrize("beside_it", [b"[]", envelope(id="m2", scheduled_for="2096-01-01T00:00:00Z")])
async def test_what_was_claimed_is_run_though_redis_goes_away_before_the_others_are_put_aside(
    behind: Lists, beside: Lists, monkeypatch: pytest.MonkeyPatch, beside_it: Any
) -> None:
    await beside.put(envelope(id="m1"), beside_it)
    run = behind.scripts.run

    async def without_settlements(name: str, *given: Any) -> Any:
        if name == "settle":
            raise LedgerUnavailable("away")
        return await run(name, *given)

    monkeypatch.setattr(behind.scripts, "run", without_settlements)
    (claim,) = await behind.claim()
    assert claim.notification_id == "m1"
    monkeypatch.undo()
    (settled,) = await behind.backlog.settle([finish(claim)])
    assert settled is not Settled.STALE
    assert len(await beside.processing()) == 1, "the other one waits for the sweeper"
