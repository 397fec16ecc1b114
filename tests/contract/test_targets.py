"""One suite for every home of what a fleet knows about targets: this process alone, Redis, and both ledgers."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from redis.asyncio import BlockingConnectionPool, Redis

from carillon.domain.breaker import BreakerPolicy, State
from carillon.domain.errors import LedgerUnavailable
from carillon.domain.events import BreakerChanged, EndpointDisabled, EndpointEnabled, Event, Trouble
from carillon.domain.pauses import Paused
from carillon.domain.targets import QUIET_SECONDS, Change, Held, T, TargetState, TargetStore, tenant_target
from carillon.outbound.breakers.redis import RedisTargets
from carillon.outbound.targets import Targets
from tests.support.clocks import ManualClock
from tests.support.ledger_engines import Engine, PostgresEngine, SqliteEngine

DAY = 86_400.0
POLICY = BreakerPolicy(
    failure_threshold=3, open_seconds=60.0, disable_after_seconds=5 * DAY, disabled_probe_seconds=3600.0
)
DEAD, ALIVE = "webhook@dead.example.org:443", "webhook@alive.example.org:443"


class AlwaysAway:
    """A store that never answers."""

    async def target_states(self, service: str) -> tuple[float, dict[str, TargetState]]:
        raise LedgerUnavailable(f"{service} is away")

    async def change_target(self, service: str, target: str, change: Change[T]) -> tuple[float, TargetState, T]:
        raise LedgerUnavailable(f"{service}/{target} is away: {change}")


class Fleet:
    """Replicas over one store, each with a clock that moves without waiting, and the events of all of them."""

    def __init__(self, store: TargetStore | None, replicas: int) -> None:
        self.store = store
        self.clock = ManualClock()
        self.events: list[Event] = []
        self.replicas = [
            # Each look reads the store: how long an answer is kept is no matter of these tests.
            Targets(
                store, {"*": POLICY}, service="test", clock=self.clock, observer=self.events.append, refresh_seconds=0
            )
            for _ in range(replicas)
        ]
        self.one, self.other = self.replicas[0], self.replicas[-1]

    async def pass_time(self, seconds: float) -> None:
        """Redis and databases have their own clocks: what they wrote down is moved into the past instead."""
        self.clock.now += seconds
        if self.store is not None and not isinstance(self.store, AlwaysAway):
            _, states = await self.store.target_states("test")
            for name in states:
                await self.store.change_target("test", name, lambda state, _: (state.moved(-seconds), None))

    async def fail(self, target: str, times: int = 1) -> None:
        for _ in range(times):
            await self.one.record(target, [False])

    async def open(self, target: str) -> None:
        await self.fail(target, POLICY.failure_threshold)

    async def state(self, target: str, at: Targets | None = None) -> State:
        view = (await (at or self.other).views([target]))[target]
        return view.state.breaker.state

    async def names(self) -> set[str]:
        return set(await self.other.views())

    async def admitted(self, target: str, at: Targets | None = None) -> bool:
        asked = at or self.other
        await asked.refresh()
        return asked.held(target) is None and not isinstance(await asked.ask(target), Held)


@pytest.fixture(params=["alone", "away", "redis", "postgres", "sqlite"])
async def fleet(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Fleet]:
    if request.param in {"alone", "away"}:
        yield Fleet(AlwaysAway() if request.param == "away" else None, 1)
        return
    if request.param in {"postgres", "sqlite"}:
        engine: Engine = SqliteEngine(tmp_path / "ledger.db")
        if request.param == "postgres":
            engine = PostgresEngine(request.getfixturevalue("ledger_dsn"))
        async with engine.ledger() as ledger:
            yield Fleet(ledger, 2)
        return
    pool = BlockingConnectionPool.from_url(request.getfixturevalue("redis_url"), max_connections=20, timeout=20)
    async with Redis.from_pool(pool) as redis:
        yield Fleet(RedisTargets(redis), 2)


async def test_one_endpoint_opens_for_every_replica_and_its_neighbour_does_not(fleet: Fleet) -> None:
    await fleet.fail(DEAD, 2)
    assert await fleet.admitted(DEAD)
    await fleet.fail(DEAD)
    assert not await fleet.admitted(DEAD)
    assert await fleet.admitted(ALIVE)


async def test_after_its_time_one_call_of_the_whole_fleet_probes_and_closes(fleet: Fleet) -> None:
    await fleet.open(DEAD)
    await fleet.pass_time(59.0)
    assert not await fleet.admitted(DEAD)
    await fleet.pass_time(2.0)
    answers = await asyncio.gather(*(fleet.admitted(DEAD, at) for at in fleet.replicas for _ in range(20)))
    assert sum(answers) == 1
    await fleet.one.record(DEAD, [True])
    assert await fleet.admitted(DEAD)
    changes = [(each.endpoint, each.before, each.after) for each in fleet.events if isinstance(each, BreakerChanged)]
    dead = "dead.example.org:443"
    assert changes == [(dead, "closed", "open"), (dead, "open", "half_open"), (dead, "half_open", "closed")]


async def test_a_bad_probe_opens_again(fleet: Fleet) -> None:
    await fleet.open(DEAD)
    await fleet.pass_time(61.0)
    assert await fleet.admitted(DEAD)
    await fleet.fail(DEAD)
    await fleet.pass_time(30.0)
    assert not await fleet.admitted(DEAD)


async def test_an_endpoint_that_fails_for_days_is_disabled_and_a_probe_enables_it(fleet: Fleet) -> None:
    await fleet.open(DEAD)
    for day in range(5):
        assert not any(isinstance(each, EndpointDisabled) for each in fleet.events), day
        await fleet.pass_time(DAY + 1)
        assert await fleet.admitted(DEAD), "a message probes it each day"
        await fleet.fail(DEAD)
    (told,) = (each for each in fleet.events if isinstance(each, EndpointDisabled))
    assert (told.provider, told.endpoint, told.failures) == ("webhook", "dead.example.org:443", 8)
    assert told.failing_seconds == pytest.approx(5 * (DAY + 1), abs=60)
    await fleet.other.refresh()
    held = fleet.other.held(DEAD)
    assert held is not None
    assert held.disabled
    await fleet.pass_time(3000.0)
    assert not await fleet.admitted(DEAD), "a disabled endpoint is probed once an hour"
    await fleet.pass_time(700.0)
    assert await fleet.admitted(DEAD)
    await fleet.one.record(DEAD, [True])
    assert await fleet.admitted(DEAD)
    (told_again,) = (each for each in fleet.events if isinstance(each, EndpointEnabled))
    assert told_again.by == "probe"


async def test_a_disabled_endpoint_is_enabled_by_hand(fleet: Fleet) -> None:
    await fleet.open(DEAD)
    await fleet.pass_time(6 * DAY)
    assert await fleet.admitted(DEAD)
    await fleet.fail(DEAD)
    assert not await fleet.admitted(DEAD)
    assert await fleet.other.enable(DEAD, "ada")
    assert await fleet.admitted(DEAD, fleet.one)
    assert not await fleet.other.enable(DEAD, "ada"), "it is enabled already"
    (told,) = (each for each in fleet.events if isinstance(each, EndpointEnabled))
    assert told.by == "ada"
    await fleet.fail(DEAD, 2)
    assert await fleet.admitted(DEAD), "the days before are forgotten"


async def test_a_success_starts_the_days_again(fleet: Fleet) -> None:
    await fleet.open(DEAD)
    await fleet.pass_time(4 * DAY)
    assert await fleet.admitted(DEAD)
    await fleet.one.record(DEAD, [True])
    await fleet.open(DEAD)
    await fleet.pass_time(4 * DAY)
    assert await fleet.admitted(DEAD)
    await fleet.fail(DEAD)
    assert not any(isinstance(each, EndpointDisabled) for each in fleet.events)


async def test_only_targets_in_trouble_are_kept(fleet: Fleet) -> None:
    for number in range(50):
        await fleet.one.record(f"webhook@{number}.example.org:443", [True])
    await fleet.fail("webhook@shaky.example.org:443", 2)
    await fleet.open(DEAD)
    assert await fleet.names() == {"webhook@shaky.example.org:443", DEAD}
    await fleet.one.record("webhook@shaky.example.org:443", [True])
    assert await fleet.names() == {DEAD}
    await fleet.fail("webhook@quiet.example.org:443", 2)
    await fleet.pass_time(QUIET_SECONDS + 1)
    if fleet.store is not None and not isinstance(fleet.store, AlwaysAway):
        await fleet.other.refresh()
        assert set((await fleet.store.target_states("test"))[1]) == {DEAD}, "a day without a call is quiet"


async def test_outcomes_of_many_callers_lose_no_count(fleet: Fleet) -> None:
    policies = {"*": BreakerPolicy(failure_threshold=40)}
    replicas = [
        Targets(
            fleet.store, policies, service="test", clock=fleet.clock, observer=fleet.events.append, refresh_seconds=0
        )
        for _ in range(len(fleet.replicas))
    ]
    share = 38 // len(replicas)
    await asyncio.gather(*(at.record(DEAD, [False]) for at in replicas for _ in range(share)))
    assert await fleet.state(DEAD, replicas[0]) is State.CLOSED
    await replicas[0].record(DEAD, [False, False])
    assert await fleet.state(DEAD, replicas[-1]) is State.OPEN


class SlowToRead:
    """A store whose answers to a look arrive after a change that came later."""

    def __init__(self) -> None:
        self.arrive = asyncio.Event()

    async def target_states(self, service: str) -> tuple[float, dict[str, TargetState]]:
        del service
        await self.arrive.wait()
        return 0.0, {}

    async def change_target(self, service: str, target: str, change: Change[T]) -> tuple[float, TargetState, T]:
        del service, target
        return 0.0, *change(TargetState(), 0.0)


async def test_a_look_that_began_before_a_change_does_not_undo_it() -> None:
    store = SlowToRead()
    policy = {"*": BreakerPolicy(failure_threshold=1)}
    targets = Targets(store, policy, service="test", clock=ManualClock(), observer=lambda _: None)
    looking = asyncio.create_task(targets.refresh())
    await asyncio.sleep(0)
    await targets.record(DEAD, [False])
    store.arrive.set()
    await looking
    assert targets.held(DEAD) is not None


async def test_a_store_that_is_away_is_told_of_and_the_process_goes_on() -> None:
    fleet = Fleet(AlwaysAway(), 1)
    await fleet.open(DEAD)
    assert not await fleet.admitted(DEAD)
    assert await fleet.admitted(ALIVE)
    assert {each.where for each in fleet.events if isinstance(each, Trouble)} == {"targets"}


async def test_what_keeps_calls_waiting_is_counted_without_names(fleet: Fleet) -> None:
    assert fleet.other.waits() == {}
    for target in (DEAD, ALIVE):
        await fleet.open(target)
    await fleet.one.slow(tenant_target("acme"), 120.0, too_fast=False)
    await fleet.other.refresh()
    assert fleet.other.waits() == {("breaker", "webhook"): 2, ("pause", "tenant"): 1}


@pytest.mark.req("P-501")
async def test_a_pause_is_the_whole_fleets_and_no_success_ends_it(fleet: Fleet) -> None:
    paused = Paused(what="endpoint webhook alive.example.org:443", by="ada", reason="asked", since_ms=1)
    if fleet.store is None or isinstance(fleet.store, AlwaysAway):
        # A pause that only one process knows would be worse than an error.
        with pytest.raises(LedgerUnavailable):
            await fleet.one.pause(ALIVE, paused)
        return
    assert await fleet.one.pause(ALIVE, paused) is None
    await fleet.other.refresh()
    assert fleet.other.paused == {ALIVE: paused}
    await fleet.one.record(ALIVE, [True, True])
    await fleet.open(ALIVE)
    await fleet.one.enable(ALIVE, "ada")
    await fleet.pass_time(2 * QUIET_SECONDS)
    await fleet.other.refresh()
    assert fleet.other.paused == {ALIVE: paused}, "neither outcomes nor time end a pause"
    assert await fleet.other.pause(ALIVE, None) == paused
    await fleet.one.refresh()
    assert fleet.one.paused == {}
    assert ALIVE not in await fleet.names()
