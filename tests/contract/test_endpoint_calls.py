"""How endpoints do: counted by each process, shared through every home of targets, and forgotten in time."""

import msgspec
import pytest

from carillon.domain.events import Trouble
from carillon.domain.targets import CALLS_SECONDS, EndpointHealth, TargetState
from carillon.outbound.endpoint_calls import WINDOW_SECONDS, EndpointCalls, SharedCalls
from tests.contract.test_targets import ALIVE, DEAD, AlwaysAway, Fleet
from tests.contract.test_targets import fleet as fleet_of_targets
from tests.support.clocks import ManualClock

fleet = fleet_of_targets


def shared(fleet: Fleet, name: str) -> tuple[EndpointCalls, SharedCalls]:
    assert fleet.store is not None
    own = EndpointCalls(fleet.clock)
    return own, SharedCalls(
        own, fleet.store, service="test", process=name, clock=fleet.clock, observer=fleet.events.append
    )


def test_counts_are_of_this_window_and_the_one_before() -> None:
    clock = ManualClock()
    calls = EndpointCalls(clock)
    calls.add(ALIVE, [True, True], 10.0)
    calls.add(DEAD, [False, True], 30.0)
    seen = calls.lately()
    assert (seen[ALIVE].calls, seen[ALIVE].failures, seen[ALIVE].failed_at) == (2, 0, 0.0)
    assert (seen[DEAD].calls, seen[DEAD].failures, seen[DEAD].slowest_ms) == (2, 1, 30.0)
    clock.now += WINDOW_SECONDS
    calls.add(ALIVE, [True], 40.0)
    assert (calls.lately()[ALIVE].calls, calls.lately()[ALIVE].slowest_ms) == (3, 40.0)
    clock.now += WINDOW_SECONDS
    assert calls.lately()[ALIVE].calls == 1
    assert DEAD not in calls.lately()
    clock.now += WINDOW_SECONDS
    assert calls.lately() == {}
    calls.add(ALIVE, [True], 40.0)
    clock.now += 2 * WINDOW_SECONDS
    assert calls.lately() == {}, "a long silence forgets both windows"


@pytest.mark.req("P-612")
async def test_processes_add_up_and_disturb_no_target(fleet: Fleet) -> None:
    if fleet.store is None or isinstance(fleet.store, AlwaysAway):
        return
    (one, first), (other, second) = shared(fleet, "a/1"), shared(fleet, "b/2")
    one.add(DEAD, [False], 5.0)
    other.add(DEAD, [True, True], 15.0)
    other.add(ALIVE, [True], 2.0)
    for each in (first, second):
        await each.share()
        await each.share()
    seen = await first.everywhere()
    assert seen == await second.everywhere()
    assert (seen[DEAD].calls, seen[DEAD].failures, seen[DEAD].slowest_ms, seen[DEAD].total_ms) == (3, 1, 15.0, 35.0)
    assert seen[ALIVE].calls == 1
    assert await fleet.names() == set(), "what a call asks about targets does not grow"


@pytest.mark.req("P-612")
async def test_a_process_that_ended_is_forgotten(fleet: Fleet) -> None:
    store = fleet.store
    if store is None or isinstance(store, AlwaysAway):
        return
    (one, first), (_, second) = shared(fleet, "a/1"), shared(fleet, "b/2")
    one.add(DEAD, [True], 5.0)
    await first.share()
    assert set(await second.everywhere()) == {DEAD}

    def age(state: TargetState, _: float) -> tuple[TargetState, None]:
        return msgspec.structs.replace(state, touched=state.touched - CALLS_SECONDS - 1), None

    await store.change_target("test/calls", "a/1", age)
    assert await second.everywhere() == {}
    await second.forget()
    assert (await store.target_states("test/calls"))[1] == {}


@pytest.mark.req("P-612")
async def test_a_store_that_is_away_is_told_and_costs_nothing_else() -> None:
    fleet = Fleet(AlwaysAway(), 1)
    own, calls = shared(fleet, "a/1")
    own.add(DEAD, [True], 5.0)
    await calls.share()
    assert isinstance(fleet.events[-1], Trouble)
    assert own.lately() == {DEAD: EndpointHealth(calls=1, total_ms=5.0, slowest_ms=5.0, ok_at=fleet.clock.wall())}
