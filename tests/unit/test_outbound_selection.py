"""Which routes a worker asks for and which provider comes next: choices over breaker states."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carillon.domain.breaker import State
from carillon.domain.claims import Want
from carillon.domain.decide import blocked_providers, candidates, following
from carillon.domain.lanes import Lane, Lanes, kept_free
from carillon.outbound.wants import CallSlots, questions, slots, wants
from tests.support.examples import examples

PROPERTY = examples(200)
LANES = Lanes(
    {
        "priority": Lane(rank=1, queue_name="priority", weight=6),
        "standard": Lane(rank=2, queue_name="standard", weight=3),
        "bulk": Lane(rank=3, queue_name="bulk", weight=1),
    }
)
PROVIDERS = ["a", "b", "c", "d"]
chain = st.lists(st.sampled_from(PROVIDERS), min_size=1, max_size=4, unique=True)
chains = st.dictionaries(st.sampled_from(["email", "sms", "push"]), chain, max_size=3)
states = st.dictionaries(st.sampled_from(PROVIDERS), st.sampled_from(State), max_size=4)


def test_wants_go_lane_by_lane_and_what_shares_leave_is_asked_for_again() -> None:
    assert wants(LANES, ["smtp"], 100) == [
        Want(1, "smtp", 60),
        Want(2, "smtp", 30),
        Want(3, "smtp", 10),
        *(Want(rank, "smtp", 100) for rank in (1, 2, 3)),
    ]


def test_strict_lanes_may_each_take_everything() -> None:
    strict = Lanes(LANES.by_name, strict=True)
    assert wants(strict, ["smtp"], 5) == [Want(rank, "smtp", 5) for rank in (1, 2, 3)]


@pytest.mark.req("S2-25")
def test_a_lane_without_a_queue_is_nobodys_to_claim() -> None:
    waited_for = Lane(rank=0, queue_name="", weight=100)
    lanes = Lanes({"synchronous": waited_for, **LANES.by_name})
    for strict in (False, True):
        same = Lanes(lanes.by_name, strict=strict)
        assert wants(same, ["smtp"], 100) == wants(Lanes(LANES.by_name, strict=strict), ["smtp"], 100)
    named = Lanes({**lanes.by_name, "synchronous": Lane(rank=0, queue_name="now", weight=100)})
    assert 0 in {want.lane for want in wants(named, ["smtp"], 100)}, "it is the name that makes the difference"


def test_providers_with_little_room_are_asked_for_alone() -> None:
    room = {"smtp": 100, "sms": 2, "push": 300, "full": 0}
    assert questions(room, 100) == [(["smtp", "push"], 100), (["sms"], 2)]


@pytest.mark.req("P-601")
def test_a_lane_takes_no_more_than_its_bound_in_both_rounds() -> None:
    bounds = {(1, "smtp"): 100, (2, "smtp"): 20, (3, "smtp"): 4}
    asked = wants(LANES, ["smtp"], 100, most=bounds)
    assert {rank: sum(want.limit for want in asked if want.lane == rank) for rank in (2, 3)} == {2: 20, 3: 4}
    assert [want.limit for want in asked if want.lane == 1] == [60, 100]
    strict = Lanes(LANES.by_name, strict=True)
    assert wants(strict, ["smtp"], 100, most=bounds | {(3, "smtp"): 0}) == [Want(1, "smtp", 100), Want(2, "smtp", 20)]


@pytest.mark.req("P-600")
def test_the_routes_of_a_provider_with_an_open_breaker_use_the_slots_of_the_next_one() -> None:
    most = {"vendor": 200, "smtp": 4}.__getitem__
    chains, calls = {"email": ["vendor", "smtp"]}, {"vendor": 3, "smtp": 1}
    assert slots(chains, {}, calls, most) == {"vendor": CallSlots("vendor", 200, 197), "smtp": CallSlots("smtp", 4, 3)}
    for state in (State.OPEN, State.HALF_OPEN):
        assert set(slots(chains, {"vendor": state}, calls, most).values()) == {CallSlots("smtp", 4, 0)}
    nowhere = slots(chains, {"vendor": State.OPEN, "smtp": State.OPEN}, calls, most)
    assert nowhere == slots(chains, {}, calls, most), "nobody calls anybody; each keeps its own"


@pytest.mark.req("P-601")
def test_the_last_lane_leaves_a_tenth_and_the_first_nothing() -> None:
    assert kept_free(LANES, 200) == {1: 0, 2: 10, 3: 20}
    assert kept_free(LANES, 10) == {1: 0, 2: 0, 3: 1}
    assert kept_free(LANES, 4) == {1: 0, 2: 0, 3: 0}
    alone = Lanes({"standard": LANES.by_name["standard"]})
    assert set(kept_free(alone, 1000).values()) == {0}


@PROPERTY
@given(
    room=st.dictionaries(st.sampled_from(PROVIDERS), st.integers(min_value=-3, max_value=50)),
    free=st.integers(min_value=1, max_value=100),
)
def test_every_lane_of_every_provider_with_room_is_asked_and_none_beyond_its_room(
    room: dict[str, int], free: int
) -> None:
    asked = questions(room, free)
    assert sorted(provider for group, _ in asked for provider in group) == sorted(
        p for p, space in room.items() if space > 0
    )
    for group, total in asked:
        assert 1 <= total <= min(free, *(room[provider] for provider in group))
        lanes = {(want.lane, want.provider) for want in wants(LANES, group, total) if want.limit >= 1}
        assert lanes == {(rank, provider) for rank in (1, 2, 3) for provider in group}


@pytest.mark.parametrize(
    ("held", "blocked"),
    [
        ({}, set()),
        ({"a": State.CLOSED}, set()),
        ({"a": State.OPEN}, set()),
        ({"a": State.OPEN, "b": State.OPEN}, {"b"}),
        ({"a": State.OPEN, "b": State.OPEN, "c": State.OPEN}, {"a", "b", "c"}),
        ({"a": State.OPEN, "b": State.OPEN, "c": State.HALF_OPEN}, {"b"}),
        ({"b": State.HALF_OPEN}, set()),
        ({"b": State.OPEN}, set()),
    ],
)
def test_a_provider_is_left_alone_when_its_routes_have_nowhere_to_go(held: dict[str, State], blocked: set[str]) -> None:
    assert blocked_providers({"email": ["a", "b"], "sms": ["a", "c"]}, held) == blocked


@PROPERTY
@given(chains, states)
def test_no_route_with_a_way_out_is_held_back(ways: dict[str, list[str]], held: dict[str, State]) -> None:
    blocked = blocked_providers(ways, held)
    assert all(held[provider] is State.OPEN for provider in blocked)
    for route in ways.values():
        usable = [provider for provider in route if held.get(provider) is not State.OPEN]
        assert not usable or blocked.isdisjoint(route)


@PROPERTY
@given(chain, st.sampled_from(PROVIDERS))
def test_every_provider_is_tried_once_the_current_one_first(route: list[str], current: str) -> None:
    tried = candidates(route, current)
    assert sorted(tried) == sorted(route)
    assert current not in route or tried[0] == current


@PROPERTY
@given(chain, st.sampled_from(PROVIDERS))
def test_failover_goes_forward_and_ends(route: list[str], current: str) -> None:
    seen = [current]
    while (step := following(route, seen[-1])) is not None:
        seen.append(step)
    assert len(seen) == len(set(seen))
    assert seen == (route[route.index(current) :] if current in route else [current])
