"""Breakers in Redis: their keys, a fleet that shares them, and a Redis that may be away."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from carillon.domain.breaker import Admission, BreakerPolicy, State
from carillon.domain.events import Event, Trouble
from carillon.outbound.breakers import redis as breakers_redis
from carillon.outbound.breakers.redis import RedisBreakers
from carillon.outbound.breakers.shared import AWAY_SECONDS
from tests.contract.test_breakers import Home
from tests.support import servers
from tests.support.clocks import ManualClock

FCM = BreakerPolicy(failure_threshold=5, open_seconds=30.0, success_threshold=2)
POLICIES = {"*": BreakerPolicy(), "fcm": FCM}
PREFIX = "circuit:test:"
STATE, FAILURES, OPENED_AT = (f"{PREFIX}fcm:{part}" for part in ("state", "failures", "opened_at"))


def worker(redis: Redis, clock: ManualClock | None = None) -> Home:
    """The breakers of one process of the fleet."""
    clock, events = clock or ManualClock(), list[Event]()
    breakers = RedisBreakers(redis, POLICIES, prefix=PREFIX, clock=clock, observer=events.append)
    return Home(breakers, clock, events, redis)


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    async with Redis.from_url(redis_url, decode_responses=True) as client:
        yield client


@pytest.mark.req("S0-60")
async def test_keys_hold_the_state_word_and_a_decimal_count(redis: Redis) -> None:
    home = worker(redis)
    assert await redis.keys("*") == []
    await home.fail("fcm", 3)
    assert await redis.get(FAILURES) == "3"
    assert await redis.get(STATE) in (None, "closed")
    await home.fail("fcm", 2)
    assert (await redis.get(STATE), await redis.get(FAILURES)) == ("open", "5")
    assert float(await redis.get(OPENED_AT) or 0) > 1_600_000_000
    await home.pass_time(31.0)
    await home.breakers.admit("fcm")
    assert await redis.get(STATE) == "half_open"
    await home.breakers.record("fcm", ok=True)
    await home.breakers.record("fcm", ok=True)
    assert (await redis.get(STATE), await redis.get(FAILURES)) == ("closed", "0")
    assert all(str(key).startswith(f"{PREFIX}fcm:") for key in await redis.keys("*"))


@pytest.mark.req("S0-62")
async def test_a_state_set_by_hand_is_honoured_from_first_sight(redis: Redis) -> None:
    home = worker(redis)
    await redis.set(STATE, "open")
    assert await home.breakers.admit("fcm") is Admission.STOP
    assert await redis.get(OPENED_AT) is not None
    await home.pass_time(25.0)
    assert await home.breakers.admit("fcm") is Admission.STOP
    await home.pass_time(6.0)
    assert await home.breakers.admit("fcm") is Admission.PROBE


async def test_a_hand_that_opens_is_seen_once_the_last_look_has_aged(redis: Redis) -> None:
    home = worker(redis)
    assert await home.breakers.admit("fcm") is Admission.GO
    await redis.set(STATE, "open")
    await home.pass_time(0.3)
    assert await home.state("fcm") is State.OPEN
    assert await home.breakers.admit("fcm") is Admission.STOP


async def test_a_hand_that_closes_is_honoured_at_once(redis: Redis) -> None:
    home = worker(redis)
    await home.open("fcm")
    await redis.set(STATE, "closed")
    assert await home.breakers.admit("fcm") is Admission.GO


async def test_a_word_that_is_no_state_counts_as_closed(redis: Redis) -> None:
    home = worker(redis)
    await redis.set(STATE, "OPENED")
    assert await home.breakers.admit("fcm") is Admission.GO
    await home.fail("fcm", 5)
    assert await redis.get(STATE) == "open"


@pytest.mark.req("S0-61")
async def test_processes_share_one_state(redis: Redis) -> None:
    one, other = worker(redis), worker(redis)
    await one.fail("fcm", 3)
    await other.fail("fcm", 2)
    assert await one.breakers.admit("fcm") is Admission.STOP
    assert await other.breakers.admit("fcm") is Admission.STOP
    await one.pass_time(31.0)
    assert await one.breakers.admit("fcm") is Admission.PROBE
    await other.pass_time(0.3)  # as long as a look is trusted
    assert await other.breakers.admit("fcm") is Admission.STOP
    await one.breakers.record("fcm", ok=True)
    await one.breakers.record("fcm", ok=True)
    assert await other.breakers.admit("fcm") is Admission.GO


async def test_skewed_process_clocks_change_nothing(redis: Redis) -> None:
    ahead, behind = ManualClock(), ManualClock()
    ahead.now, behind.now = 1e9, 1.0
    one, other = worker(redis, ahead), worker(redis, behind)
    await one.open("fcm")
    ahead.now += 3600.0
    assert await other.breakers.admit("fcm") is Admission.STOP
    assert await one.breakers.admit("fcm") is Admission.STOP


@pytest.mark.req("S0-72")
async def test_a_fleet_failing_at_once_loses_no_count(redis: Redis) -> None:
    fleet = [worker(redis) for _ in range(10)]
    await asyncio.gather(*(home.fail("patient", 9) for home in fleet))
    assert await redis.get(f"{PREFIX}patient:state") == "open"
    assert await redis.get(f"{PREFIX}patient:failures") == "5", "opened exactly at the fifth; the rest came late"


async def probes_of_a_crowd(redis: Redis) -> int:
    """How many of fifty processes may call when the wait is over."""
    fleet = [worker(redis) for _ in range(50)]
    await fleet[0].open("fcm")
    await fleet[0].pass_time(31.0)
    answers = await asyncio.gather(*(home.breakers.admit("fcm") for home in fleet))
    return 50 - answers.count(Admission.STOP)


async def test_one_probe_for_the_whole_fleet(redis: Redis) -> None:
    assert await probes_of_a_crowd(redis) == 1


@pytest.mark.parametrize(
    ("line", "mutant"),
    [
        ("redis.call('ZCARD', KEYS[5]) >= max_probes", "false"),
        ("redis.call('ZADD', KEYS[5], now,", "redis.call('ZADD', KEYS[5] .. 'x', now,"),
    ],
)
async def test_a_half_open_that_lets_all_through_would_be_noticed(
    redis: Redis, monkeypatch: pytest.MonkeyPatch, line: str, mutant: str
) -> None:
    script = breakers_redis._SCRIPT  # noqa: SLF001 - the mutant must stand exactly where the script stands
    assert script.count(line) == 1
    monkeypatch.setattr(breakers_redis, "_SCRIPT", script.replace(line, mutant))
    assert await probes_of_a_crowd(redis) == 50


async def test_without_redis_each_process_keeps_breakers_of_its_own() -> None:
    with servers.Redis() as server:
        async with Redis.from_url(server.url(), retry=Retry(NoBackoff(), 0)) as client:
            home = worker(client)
            assert await home.breakers.admit("fcm") is Admission.GO
            server.stop()
            home._redis = None  # noqa: SLF001 - from here on time passes only in this process
            await home.pass_time(1.0)
            assert await home.breakers.admit("fcm") is Admission.GO
            await home.open("fcm")
            assert await home.breakers.admit("fcm") is Admission.STOP
            assert await home.state("fcm") is State.OPEN
            await home.pass_time(31.0)
            assert await home.breakers.admit("fcm") is Admission.PROBE
            assert await home.breakers.admit("fcm") is Admission.STOP
            assert any(isinstance(event, Trouble) and event.where == "breakers" for event in home.events)


async def test_when_redis_comes_back_its_word_counts_again() -> None:
    with servers.Redis() as server:
        async with Redis.from_url(server.url(), retry=Retry(NoBackoff(), 0)) as client:
            home = worker(client)
            await home.open("fcm")
            server.stop()
            assert await home.breakers.admit("fcm") is Admission.STOP, "the failures were counted at home as well"
            server.start()
            assert await home.breakers.admit("fcm") is Admission.STOP, "an absent Redis is not asked again at once"
            await home.pass_time(AWAY_SECONDS)
            assert await home.breakers.admit("fcm") is Admission.GO, "this Redis has forgotten, and it speaks for all"
            await client.set(STATE, "open")
            await home.pass_time(0.3)
            assert await home.breakers.admit("fcm") is Admission.STOP


async def test_a_key_of_the_wrong_kind_is_trouble_and_no_crash(redis: Redis) -> None:
    home = worker(redis)
    await redis.lpush(STATE, "not a word")
    assert await home.breakers.admit("fcm") is Admission.GO
    assert [type(event) for event in home.events] == [Trouble]


async def test_successes_of_a_healthy_provider_cost_no_round_trip(redis: Redis) -> None:
    home = worker(redis)
    await home.breakers.admit("fcm")
    before = (await redis.info("commandstats")).get("cmdstat_evalsha", {}).get("calls", 0)
    for _ in range(100):
        assert await home.breakers.admit("fcm") is Admission.GO
        await home.breakers.record("fcm", ok=True)
    assert (await redis.info("commandstats")).get("cmdstat_evalsha", {}).get("calls", 0) == before


async def test_one_look_answers_everybody_who_asked_before_it_and_a_probe_is_one_caller_s(redis: Redis) -> None:
    home = RedisBreakers(
        redis,
        POLICIES,
        prefix=PREFIX,
        clock=ManualClock(),
        observer=lambda _: None,
        refresh_seconds=0.0,
    )

    async def asked() -> tuple[int, list[Admission]]:
        before = (await redis.info("commandstats")).get("cmdstat_evalsha", {"calls": 0})["calls"]
        said = await asyncio.gather(*(home.admit("fcm") for _ in range(50)))
        return (await redis.info("commandstats"))["cmdstat_evalsha"]["calls"] - before, said

    await home.admit("fcm")
    assert await asked() == (1, [Admission.GO] * 50)
    await redis.set(STATE, "open")
    assert await asked() == (1, [Admission.STOP] * 50)
    await redis.set(STATE, "half_open")
    calls, said = await asked()
    assert (calls, sorted(said)) == (50, sorted([Admission.PROBE] + [Admission.STOP] * 49))
