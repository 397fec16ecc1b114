"""One suite for every home of the breakers: this process's memory, Redis, and the ledger on both engines."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from redis.asyncio import BlockingConnectionPool, Redis

from carillon.compose.ledger import LedgerPart
from carillon.compose.outbound import BreakersPart
from carillon.compose.process import process_of
from carillon.config.reading import load
from carillon.domain.breaker import Admission, Breaker, BreakerPolicy, State, admit, record
from carillon.domain.events import BreakerChanged, Event, Trouble
from carillon.outbound.breakers import MemoryBreakers, RecoverableBreakers
from carillon.outbound.breakers.redis import RedisBreakers
from carillon.outbound.breakers.shared import BreakerLedger, LedgerBreakers
from tests.support.clocks import ManualClock
from tests.support.examples import examples
from tests.support.ledger_engines import Engine, PostgresEngine, SqliteEngine
from tests.support.waiting import until

POLICIES = {
    "*": BreakerPolicy(failure_threshold=5, open_seconds=60.0),
    "fcm": BreakerPolicy(failure_threshold=5, open_seconds=30.0, success_threshold=2),
    "wide": BreakerPolicy(failure_threshold=2, open_seconds=30.0, success_threshold=3, half_open_max_probes=2),
    "patient": BreakerPolicy(failure_threshold=1000),
}
PREFIX = "circuit:test:"
MOVED = {
    "postgres": """UPDATE breakers SET opened_at = opened_at - {seconds} * interval '1 second', probes_json = coalesce(
        (SELECT json_agg(it::float8 - {seconds}) FROM json_array_elements_text(probes_json::json) AS it), '[]')""",
    "sqlite": """UPDATE breakers SET opened_at = opened_at - CAST({seconds} * 1000 AS INTEGER),
        probes_json = (SELECT json_group_array(value - {seconds}) FROM json_each(probes_json))""",
}


class Home:
    """A set of breakers, the events that they reported, and a clock that moves without waiting."""

    def __init__(
        self,
        breakers: RecoverableBreakers,
        clock: ManualClock,
        events: list[Event],
        redis: Redis | None = None,
        engine: Engine | None = None,
    ) -> None:
        self.breakers = breakers
        self.events = events
        self._clock = clock
        self._redis = redis
        self._engine = engine

    async def pass_time(self, seconds: float) -> None:
        """Redis and databases have their own clocks: what they wrote down is moved into the past instead."""
        self._clock.now += seconds
        if self._engine is not None:
            await self._engine.execute(MOVED[self._engine.dialect].format(seconds=seconds))
        if self._redis is None:
            return
        async for key in self._redis.scan_iter(match=f"{PREFIX}*:opened_at"):
            await self._redis.set(key, f"{float(await self._redis.get(key) or 0) - seconds:.6f}")
        async for key in self._redis.scan_iter(match=f"{PREFIX}*:probes"):
            probes: Any = await self._redis.zrange(key, 0, -1, withscores=True)
            await self._redis.zadd(key, {member: score - seconds for member, score in probes})

    async def fail(self, provider: str, times: int) -> None:
        for _ in range(times):
            await self.breakers.record(provider, ok=False)

    async def open(self, provider: str) -> None:
        await self.fail(provider, (POLICIES.get(provider) or POLICIES["*"]).failure_threshold)

    async def state(self, provider: str) -> State:
        return (await self.breakers.states()).get(provider, State.CLOSED)


def memory_home() -> Home:
    clock, events = ManualClock(), list[Event]()
    return Home(MemoryBreakers(POLICIES, clock, events.append), clock, events)


def redis_home(redis: Redis) -> Home:
    clock, events = ManualClock(), list[Event]()
    breakers = RedisBreakers(redis, POLICIES, prefix=PREFIX, clock=clock, observer=events.append)
    return Home(breakers, clock, events, redis)


def ledger_home(ledger: BreakerLedger, engine: Engine) -> Home:
    clock, events = ManualClock(), list[Event]()
    breakers = LedgerBreakers(ledger, POLICIES, service="test", clock=clock, observer=events.append)
    return Home(breakers, clock, events, engine=engine)


@pytest.fixture(params=["memory", "redis", "postgres", "sqlite"])
async def home(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Home]:
    if request.param == "memory":
        yield memory_home()
        return
    if request.param in {"postgres", "sqlite"}:
        engine: Engine = SqliteEngine(tmp_path / "ledger.db")
        if request.param == "postgres":
            engine = PostgresEngine(request.getfixturevalue("ledger_dsn"))
        async with engine.ledger() as ledger:
            yield ledger_home(ledger, engine)
        return
    # A pool that does not block refuses the hundred-and-first caller, which would count as an absent Redis.
    pool = BlockingConnectionPool.from_url(request.getfixturevalue("redis_url"), max_connections=20, timeout=20)
    async with Redis.from_pool(pool) as redis:
        yield redis_home(redis)


async def test_an_unknown_provider_may_be_called(home: Home) -> None:
    assert await home.breakers.admit("smtp") is Admission.GO
    assert await home.state("smtp") is State.CLOSED


@pytest.mark.req("G-08")
async def test_it_opens_exactly_at_the_threshold(home: Home) -> None:
    for _ in range(4):
        await home.breakers.record("smtp", ok=False)
        assert await home.breakers.admit("smtp") is Admission.GO
    await home.breakers.record("smtp", ok=False)
    assert await home.breakers.admit("smtp") is Admission.STOP
    assert await home.state("smtp") is State.OPEN


@pytest.mark.req("S0-63")
async def test_a_success_starts_the_count_again(home: Home) -> None:
    await home.fail("fcm", 4)
    await home.breakers.record("fcm", ok=True)
    await home.fail("fcm", 4)
    assert await home.breakers.admit("fcm") is Admission.GO
    await home.fail("fcm", 1)
    assert await home.breakers.admit("fcm") is Admission.STOP


async def test_providers_do_not_share_a_fate(home: Home) -> None:
    await home.open("smtp")
    assert await home.breakers.admit("smtp") is Admission.STOP
    assert await home.breakers.admit("fcm") is Admission.GO


@pytest.mark.parametrize(("provider", "seconds"), [("smtp", 60.0), ("fcm", 30.0)])
async def test_after_its_time_one_caller_becomes_the_probe(home: Home, provider: str, seconds: float) -> None:
    await home.open(provider)
    await home.pass_time(seconds - 5.0)
    assert await home.breakers.admit(provider) is Admission.STOP
    await home.pass_time(5.0)
    assert await home.state(provider) is State.HALF_OPEN
    assert await home.breakers.admit(provider) is Admission.PROBE
    assert await home.breakers.admit(provider) is Admission.STOP


async def test_of_fifty_callers_at_once_exactly_one_probes(home: Home) -> None:
    await home.open("smtp")
    await home.pass_time(61.0)
    answers = await asyncio.gather(*(home.breakers.admit("smtp") for _ in range(50)))
    assert sorted(answers) == [Admission.PROBE] + [Admission.STOP] * 49


@pytest.mark.req("S0-69")
async def test_two_good_probes_close_where_two_are_asked_for(home: Home) -> None:
    await home.open("fcm")
    await home.pass_time(31.0)
    assert await home.breakers.admit("fcm") is Admission.PROBE
    await home.breakers.record("fcm", ok=True)
    assert await home.state("fcm") is State.HALF_OPEN
    assert await home.breakers.admit("fcm") is Admission.PROBE
    await home.breakers.record("fcm", ok=True)
    assert await home.state("fcm") is State.CLOSED
    await home.fail("fcm", 4)
    assert await home.breakers.admit("fcm") is Admission.GO, "the failures from before are forgotten"


@pytest.mark.req("S0-70")
async def test_a_bad_probe_opens_for_the_whole_time_again(home: Home) -> None:
    await home.open("fcm")
    await home.pass_time(31.0)
    assert await home.breakers.admit("fcm") is Admission.PROBE
    await home.breakers.record("fcm", ok=False)
    await home.pass_time(25.0)
    assert await home.breakers.admit("fcm") is Admission.STOP
    await home.pass_time(5.0)
    assert await home.breakers.admit("fcm") is Admission.PROBE


async def test_a_probe_whose_worker_died_gives_its_right_back(home: Home) -> None:
    await home.open("smtp")
    await home.pass_time(61.0)
    assert await home.breakers.admit("smtp") is Admission.PROBE
    await home.pass_time(25.0)
    assert await home.breakers.admit("smtp") is Admission.STOP
    await home.pass_time(6.0)
    assert await home.breakers.admit("smtp") is Admission.PROBE


async def test_late_answers_change_nothing_while_open(home: Home) -> None:
    await home.open("smtp")
    await home.pass_time(50.0)
    await home.breakers.record("smtp", ok=False)
    await home.breakers.record("smtp", ok=True)
    assert await home.breakers.admit("smtp") is Admission.STOP
    await home.pass_time(10.0)
    assert await home.breakers.admit("smtp") is Admission.PROBE, "the wait ran from the opening"


@pytest.mark.req("S2-61")
async def test_an_answer_without_a_message_may_shorten_the_wait(home: Home) -> None:
    await home.breakers.recovered("smtp")
    assert await home.breakers.admit("smtp") is Admission.GO
    await home.open("smtp")
    await home.breakers.recovered("smtp")
    assert await home.state("smtp") is State.HALF_OPEN
    assert await home.breakers.admit("smtp") is Admission.PROBE, "a message still has to prove it"
    assert await home.breakers.admit("smtp") is Admission.STOP
    await home.breakers.record("smtp", ok=False)
    assert await home.state("smtp") is State.OPEN


async def test_concurrent_failures_lose_no_count(home: Home) -> None:
    await asyncio.gather(*(home.breakers.record("patient", ok=False) for _ in range(999)))
    assert await home.breakers.admit("patient") is Admission.GO
    await home.breakers.record("patient", ok=False)
    assert await home.breakers.admit("patient") is Admission.STOP


@pytest.mark.req("P-720")
async def test_every_change_is_told_once_and_in_order(home: Home) -> None:
    await home.open("smtp")
    await home.pass_time(61.0)
    await home.breakers.admit("smtp")
    await home.breakers.record("smtp", ok=True)
    told = [(event.before, event.after) for event in home.events if isinstance(event, BreakerChanged)]
    assert told == [("closed", "open"), ("open", "half_open"), ("half_open", "closed")]


@pytest.mark.req("P-982")
async def test_a_process_that_comes_later_tells_of_the_state_before(redis_url: str) -> None:
    async with Redis.from_url(redis_url) as redis:
        first, second, third = redis_home(redis), redis_home(redis), redis_home(redis)
        await first.open("smtp")
        await second.breakers.look(["smtp"])
        await first.pass_time(61.0)
        for home in (second, third):
            # What they have seen is old by now.
            await home.breakers.look(["smtp"])
    told = [[(event.before, event.after) for event in home.events] for home in (second, third)]  # type: ignore[union-attr]
    assert told == [[("closed", "open"), ("open", "half_open")], [("open", "half_open")]]


@pytest.mark.req("P-804")
async def test_every_change_is_told_once_while_the_store_is_away() -> None:
    """The breakers of the process count then, and their changes are the ones that an alarm must see."""
    clock, events = ManualClock(), list[Event]()
    async with Redis.from_url("redis://127.0.0.1:1") as nobody:
        breakers = RedisBreakers(nobody, POLICIES, prefix=PREFIX, clock=clock, observer=events.append)
        for _ in range(POLICIES["*"].failure_threshold):
            await breakers.record("smtp", ok=False)
        clock.now += 61.0
        await breakers.admit("smtp")
        await breakers.record("smtp", ok=True)
    told = [(event.before, event.after) for event in events if isinstance(event, BreakerChanged)]
    assert told == [("closed", "open"), ("open", "half_open"), ("half_open", "closed")]


Step = str | float
steps: st.SearchStrategy[list[Step]] = st.lists(
    st.sampled_from(["admit", "ok", "fail", "fail", "fail", 6.0, 12.0, 24.0, 31.0, 100.0]), max_size=40
)
"""Whatever is added up is six seconds short of thirty at least, or thirty: a slow machine does not make up for it."""


async def differing_answer(home: Home, provider: str, story: Sequence[Step]) -> str | None:
    """Where a home says something else than the pure machine does, if it ever does."""
    policy, model, now = POLICIES[provider], Breaker(), 0.0
    for number, step in enumerate(story):
        if isinstance(step, float):
            now += step
            await home.pass_time(step)
        elif step == "admit":
            model, expected = admit(model, policy, now)
            said = await home.breakers.admit(provider)
            if said is not expected:
                return f"step {number}: {said} instead of {expected}"
        else:
            model = record(model, policy, ok=step == "ok", now=now)
            await home.breakers.record(provider, ok=step == "ok")
    return None


@pytest.mark.parametrize("provider", ["fcm", "wide"])
@examples(60, HealthCheck.function_scoped_fixture)
@given(story=steps)
async def test_both_homes_answer_like_the_machine(redis_url: str, provider: str, story: list[Step]) -> None:
    async with Redis.from_url(redis_url) as redis:
        await redis.flushall()
        for home in (memory_home(), redis_home(redis)):
            assert await differing_answer(home, provider, story) is None


@pytest.mark.req("X2-4")
async def test_a_tripped_breaker_is_open_at_once_and_only_for_its_time(home: Home) -> None:
    await home.breakers.trip("other")
    assert await home.state("other") is State.OPEN
    assert await home.breakers.admit("other") is Admission.STOP
    assert await home.breakers.admit("fcm") is Admission.GO
    await home.pass_time(40.0)
    # One that is open keeps its time: many messages that give up together do not hold it open for ever.
    await home.breakers.trip("other")
    await home.pass_time(21.0)
    assert await home.breakers.admit("other") is Admission.PROBE
    await home.breakers.trip("other")
    assert await home.state("other") is State.OPEN


@pytest.mark.req("P-872")
async def test_a_question_that_outlives_its_asker_is_no_trouble_at_the_end_of_the_process(
    ledger_dsn: str, tmp_path: Path
) -> None:
    """At a stop under load the worker cancels who asks a breaker, and then the process closes its ledger."""
    path = tmp_path / "shared.toml"
    path.write_text(f'extends = "local"\n[ledger]\nurl = "{ledger_dsn}"\nshare_breakers = true\nallow_unsafe = true\n')
    events: list[Event] = []
    process = process_of(load(None, path, {}), events.append)
    ledger = LedgerPart(process)
    breakers = BreakersPart(process, ledger)
    rival = await asyncpg.connect(ledger_dsn)
    async with AsyncExitStack() as stack:
        await ledger.open(stack)
        await breakers.open(stack)
        await breakers.breakers.record("sandbox", ok=False)
        await rival.execute("BEGIN; LOCK TABLE breakers IN ACCESS EXCLUSIVE MODE")
        asking = asyncio.create_task(breakers.breakers.admit("sandbox"))
        await until(lambda: _waits(rival), timeout=30, what="a statement that waits for the breaker")
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        (question,) = [task for task in asyncio.all_tasks() if "Coalescer" in repr(task.get_coro())]
    await asyncio.wait([question], timeout=30)
    await rival.close()
    assert question.done()
    assert not [event for event in events if isinstance(event, Trouble)]


WAITING = """
SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')
"""


async def _waits(connection: "asyncpg.Connection[asyncpg.Record]") -> bool:
    # Inside of a transaction PostgreSQL shows what it has shown before.
    await connection.execute("SELECT pg_stat_clear_snapshot()")
    return bool(await connection.fetchval(WAITING))
