"""Leases in Redis: their keys, keys changed by others, and a Redis that is away or loses data."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from carillon.domain.claims import Claim, Settled
from carillon.domain.errors import LedgerUnavailable
from carillon.ledger.opening import Ledger
from carillon.ledger.redis import leases as redis_leases
from carillon.ledger.redis.leases import RedisLeases
from tests.support import servers
from tests.support.ledger_builders import bury, defer, enrolment, finish, retry, route, want
from tests.support.ledger_engines import PostgresEngine, ledger_fixture
from tests.support.proxy import FaultProxy
from tests.support.waiting import until

ledger = ledger_fixture("function")

ID, ROUTE = "1775121700000-0", "push:user:user-1"
KEY = "notification:route_leases:MTc3NTEyMTcwMDAwMC0w:cHVzaDp1c2VyOnVzZXItMQ"
EMAIL_KEY = "notification:route_leases:MTc3NTEyMTcwMDAwMC0w:ZW1haWw6dXNlcjp1c2VyLTE"


@pytest.fixture
def engine(ledger_dsn: str) -> PostgresEngine:
    return PostgresEngine(ledger_dsn)


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    async with Redis.from_url(redis_url, decode_responses=True) as client:
        yield client


def process(ledger: Ledger, redis: Redis, owner: str = "one", lease_seconds: float = 5.0) -> RedisLeases:
    return RedisLeases(ledger, redis, lease_seconds=lease_seconds, owner=owner)


async def enrol(ledger: Ledger) -> None:
    routes = (route(route_id=ROUTE), route(route_id="email:user:user-1"))
    await ledger.enrol([enrolment(*routes, notification_id=ID)])


async def take(leases: RedisLeases) -> list[Claim]:
    return await leases.claim([want()], 500, "worker")


async def take_one(leases: RedisLeases) -> Claim:
    (claim,) = [claim for claim in await take(leases) if claim.route_id == ROUTE]
    return claim


@pytest.mark.req("S1-118", "S1-119")
async def test_a_claim_is_a_key_with_a_value_of_its_own_and_an_end(ledger: Ledger, redis: Redis) -> None:
    await enrol(ledger)
    assert len(await take(process(ledger, redis, lease_seconds=60.0))) == 2
    assert set(await redis.keys("*")) == {KEY, EMAIL_KEY}
    assert await redis.get(KEY) != await redis.get(EMAIL_KEY)
    assert 40_000 < await redis.pttl(KEY) <= 60_000


@pytest.mark.req("S1-119", "S1-189")
@pytest.mark.parametrize("build", [finish, retry, defer, bury])
async def test_a_settled_claim_leaves_no_key(ledger: Ledger, redis: Redis, build: Any) -> None:
    await enrol(ledger)
    leases = process(ledger, redis)
    claims = await take(leases)
    assert await leases.settle([build(claim) for claim in claims]) == [Settled.APPLIED] * 2
    await leases.aclose()
    assert await redis.keys("*") == []


@pytest.mark.req("S1-119")
async def test_a_foreign_lease_survives_our_release(ledger: Ledger, redis: Redis) -> None:
    await enrol(ledger)
    leases = process(ledger, redis)
    claims = await take(leases)
    await redis.set(KEY, "another's", px=60_000)
    await leases.extend(claims)
    assert 40_000 < await redis.pttl(KEY) <= 60_000
    await leases.settle([finish(claim) for claim in claims])
    await leases.aclose()
    assert await redis.keys("*") == [KEY]
    assert await redis.get(KEY) == "another's"


@pytest.mark.parametrize(
    ("line", "mutant"),
    [("elseif holder(key) == value then", "else"), ("and holder(key) == value then", "then")],
    ids=["blind release", "blind renewal"],
)
async def test_a_script_that_takes_no_look_would_be_noticed(
    ledger: Ledger, redis: Redis, monkeypatch: pytest.MonkeyPatch, line: str, mutant: str
) -> None:
    script = redis_leases._SCRIPT  # noqa: SLF001 - the mutant must stand exactly where the script stands
    assert script.count(line) == 1
    monkeypatch.setattr(redis_leases, "_SCRIPT", script.replace(line, mutant))
    with pytest.raises(AssertionError):
        await test_a_foreign_lease_survives_our_release(ledger, redis)


@pytest.mark.req("S1-120")
@pytest.mark.parametrize("kind", ["word", "list"])
async def test_a_route_leased_elsewhere_waits_for_the_end_of_that_lease(
    engine: PostgresEngine, ledger: Ledger, redis: Redis, kind: str
) -> None:
    await enrol(ledger)
    await (redis.set(KEY, "another's") if kind == "word" else redis.lpush(KEY, "another's"))
    await redis.pexpire(KEY, 60_000)
    (claim,) = await take(process(ledger, redis))
    assert claim.route_id == "email:user:user-1", "a neighbour goes its way"
    row = next(row for row in await engine.rows("routes") if row["route_id"] == ROUTE)
    assert (row["status"], row["attempt_count"], row["claim_token"]) == ("pending", 0, None)
    assert 55_000 < row["next_attempt_at"] - row["updated_at"] <= 60_000
    assert await redis.pttl(KEY) > 50_000
    await redis.delete(KEY)
    await engine.make_due()
    assert (await take_one(process(ledger, redis))).attempt == 1, "waiting cost nothing"


@pytest.mark.req("S1-120")
async def test_a_short_lease_elsewhere_is_waited_out(ledger: Ledger, redis: Redis) -> None:
    await enrol(ledger)
    await redis.set(KEY, "another's", px=3000)
    leases = process(ledger, redis)
    assert len(await take(leases)) == 1

    async def taken() -> bool:
        # It may run out between the question and the claim: then as much time has passed as was left.
        asked, left = time.monotonic(), await redis.pttl(KEY)
        claims = await take(leases)
        assert not claims or time.monotonic() - asked >= left / 1000 - 0.01, "not while it is held"
        return len(claims) == 1

    await until(taken, timeout=30, what="the route after its foreign lease")


async def test_a_lease_without_an_end_is_looked_at_again(engine: PostgresEngine, ledger: Ledger, redis: Redis) -> None:
    await enrol(ledger)
    await redis.set(KEY, "another's")
    await take(process(ledger, redis))
    row = next(row for row in await engine.rows("routes") if row["route_id"] == ROUTE)
    assert row["next_attempt_at"] - row["updated_at"] == 5000


async def test_a_release_that_never_arrived_does_not_keep_us_from_our_own(
    engine: PostgresEngine, ledger: Ledger, redis: Redis
) -> None:
    await enrol(ledger)
    leases = process(ledger, redis)
    first = await take_one(leases)
    before = await redis.get(KEY)
    await engine.make_due()
    again = await take_one(leases)
    assert await redis.get(KEY) != before
    # The first claim's late word must not give the second one's lease away.
    await leases.settle([retry(first)])
    await leases.aclose()
    assert str(await redis.get(KEY)).endswith(f":{again.token}")
    other = process(ledger, redis, owner="on")
    await engine.make_due()
    assert await take(other) == [], "a name that begins like ours is another's"


async def test_the_heir_of_a_dead_process_does_not_find_its_key(engine: PostgresEngine, redis: Redis) -> None:
    async with engine.ledger(lease_seconds=3.0) as brief:
        await enrol(brief)
        dead = process(brief, redis, "dead", lease_seconds=3.0)
        assert len(await take(dead)) == 2
        heir = process(brief, redis, "heir", lease_seconds=3.0)
        claims: list[Claim] = []

        async def inherited() -> bool:
            claims.extend(await take(heir))
            return len(claims) == 2

        await until(inherited, timeout=30, what="the inheritance")
        # A claim that had to be given back first would no longer say that its message may have gone out.
        assert [(claim.attempt, claim.abandoned) for claim in claims] == [(2, True)] * 2


async def test_renewal_keeps_the_key_and_tells_a_redis_that_forgot(ledger: Ledger, redis: Redis) -> None:
    await enrol(ledger)
    leases = process(ledger, redis, lease_seconds=60.0)
    claims = await take(leases)
    await redis.pexpire(KEY, 30_000)
    await redis.delete(EMAIL_KEY)
    assert await leases.extend(claims) == []
    for key in (KEY, EMAIL_KEY):
        assert 40_000 < await redis.pttl(key) <= 60_000


@pytest.mark.req("S1-119", "S1-124")
async def test_rival_processes_never_share_a_route(engine: PostgresEngine, ledger: Ledger, redis_url: str) -> None:
    await ledger.enrol([enrolment(route(f"r{n}")) for n in range(300)])
    taken: list[Claim] = []

    async def drain(mine: Ledger, owner: str) -> None:
        async with Redis.from_url(redis_url) as redis:
            leases = process(mine, redis, owner)
            while claims := await leases.claim([want(7)], 7, owner):
                taken.extend(claims)
                await leases.settle([finish(claim) for claim in claims])
            await leases.aclose()

    async with engine.ledger() as other:
        await asyncio.gather(*(drain(mine, f"w{n}") for n, mine in enumerate([ledger, other, ledger, other])))
    assert len(taken) == len({claim.key for claim in taken}) == 300
    async with Redis.from_url(redis_url) as redis:
        assert await redis.keys("*") == []


async def attempts(engine: PostgresEngine) -> list[int]:
    return [row["attempt_count"] for row in await engine.rows("routes")]


async def test_an_outage_of_redis_spends_no_budget(engine: PostgresEngine, ledger: Ledger) -> None:
    with servers.Redis() as server:
        async with Redis(port=server.port, retry=Retry(NoBackoff(), 0)) as redis:
            leases = process(ledger, redis)
            await enrol(ledger)
            server.stop()
            for _ in range(5):
                with pytest.raises(LedgerUnavailable, match="the leases in Redis are not available: "):
                    await take(leases)
            assert await attempts(engine) == [0, 0]
            tokens = await engine.execute("SELECT last_value FROM claim_tokens")
            assert tokens == [{"last_value": 3}], "two tickets and one lease: only the first one asked the ledger"
            server.start()
            claims = await take(leases)
            assert [(claim.attempt, claim.abandoned) for claim in claims] == [(1, False)] * 2
            assert await redis.dbsize() == 2


async def test_a_redis_that_hangs_is_given_up_before_the_lease_ends(
    engine: PostgresEngine, ledger: Ledger, redis_server: servers.Redis
) -> None:
    redis_server.flush()
    async with (
        FaultProxy("127.0.0.1", redis_server.port) as proxy,
        Redis(port=proxy.port, retry=Retry(NoBackoff(), 0)) as redis,
    ):
        leases = process(ledger, redis, lease_seconds=6.0)
        await enrol(ledger)
        await redis.ping()
        proxy.blackhole()
        with pytest.raises(LedgerUnavailable):
            await take(leases)
        assert await attempts(engine) == [0, 0]
        proxy.heal()
        assert len(await take(leases)) == 2


async def test_settling_and_renewing_need_no_redis(engine: PostgresEngine, ledger: Ledger) -> None:
    with servers.Redis() as server:
        async with Redis(port=server.port, retry=Retry(NoBackoff(), 0)) as redis:
            leases = process(ledger, redis)
            await enrol(ledger)
            claims = await take(leases)
            server.stop()
            assert await leases.extend(claims) == []
            assert await leases.settle([finish(claim) for claim in claims]) == [Settled.APPLIED] * 2
            await leases.aclose()
    assert {row["status"] for row in await engine.rows("routes")} == {"published"}


async def test_a_restarted_redis_is_taught_the_script_again(ledger: Ledger, redis: Redis) -> None:
    await enrol(ledger)
    leases = process(ledger, redis)
    await leases.settle([defer(claim, 0.0) for claim in await take(leases)])
    await leases.aclose()
    await redis.script_flush()
    assert len(await take(leases)) == 2


async def test_the_end_does_not_wait_for_a_redis_that_says_nothing(ledger: Ledger, redis_server: servers.Redis) -> None:
    await enrol(ledger)
    redis_server.flush()
    async with FaultProxy("127.0.0.1", redis_server.port) as proxy:
        silent = Redis(port=proxy.port, retry=Retry(NoBackoff(), 0), socket_timeout=40.0)
        leases = process(ledger, silent, lease_seconds=120.0)
        claims = await take(leases)
        proxy.blackhole()
        assert await leases.settle([finish(claim) for claim in claims]) == [Settled.APPLIED] * 2
        began = time.monotonic()
        await leases.aclose()
        assert time.monotonic() - began < redis_leases.CLOSE_SECONDS + 10.0
        await silent.aclose()
