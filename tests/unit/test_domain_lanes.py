"""Lanes: which one a notification takes, and how free slots are shared."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carillon.domain.intents import Priority
from carillon.domain.lanes import Lane, Lanes, shares
from tests.support.examples import examples

PROPERTY = examples(300)
THREE = Lanes(
    {
        "bulk": Lane(rank=3, queue_name="bulk", weight=1),
        "priority": Lane(rank=1, queue_name="priority", weight=6),
        "standard": Lane(rank=2, queue_name="standard", weight=3),
    }
)


@st.composite
def some_lanes(draw: st.DrawFn) -> Lanes:
    weights = draw(st.lists(st.integers(min_value=1, max_value=1000), min_size=1, max_size=6))
    ranks = draw(st.permutations(range(len(weights))))
    named = {
        f"lane{rank}": Lane(rank=rank, queue_name=f"q{rank}", weight=weight)
        for rank, weight in zip(ranks, weights, strict=True)
    }
    return Lanes(named, strict=draw(st.booleans()))


@PROPERTY
@given(some_lanes(), st.integers(min_value=1, max_value=5000))
def test_every_lane_keeps_a_slot_and_urgent_ones_come_first(lanes: Lanes, free: int) -> None:
    shared = shares(lanes, free)
    assert [rank for rank, _ in shared] == sorted(lane.rank for lane in lanes.by_name.values())
    assert all(1 <= limit <= free for _, limit in shared)


@PROPERTY
@given(some_lanes(), st.integers(min_value=1, max_value=5000))
def test_strict_lanes_may_each_take_everything_and_weighted_ones_share(lanes: Lanes, free: int) -> None:
    limits = [limit for _, limit in shares(lanes, free)]
    if lanes.strict:
        assert limits == [free] * len(limits)
    else:
        assert sum(limits) <= free + len(limits)


@PROPERTY
@given(some_lanes(), st.integers(min_value=1, max_value=5000))
def test_more_weight_is_never_a_smaller_share(lanes: Lanes, free: int) -> None:
    limits = dict(shares(lanes, free))
    by_weight = sorted(lanes.by_name.values(), key=lambda lane: lane.weight)
    in_order = [limits[lane.rank] for lane in by_weight]
    assert in_order == sorted(in_order)


def test_the_local_blueprints_weights() -> None:
    assert shares(THREE, 1000) == [(1, 600), (2, 300), (3, 100)]
    assert shares(THREE, 10) == [(1, 6), (2, 3), (3, 1)]
    assert shares(THREE, 1) == [(1, 1), (2, 1), (3, 1)]


@pytest.mark.parametrize(
    ("priority", "bulk", "name"),
    [
        (Priority.HIGH, False, "priority"),
        (Priority.HIGH, True, "priority"),
        (Priority.NORMAL, False, "standard"),
        (Priority.NORMAL, True, "bulk"),
        (Priority.LOW, False, "bulk"),
        (Priority.LOW, True, "bulk"),
    ],
)
def test_the_way_into_a_lane(priority: Priority, *, bulk: bool, name: str) -> None:
    assert THREE.name_for(priority, bulk=bulk) == name


def test_a_rank_the_settings_lost_falls_back_to_a_lane_there_is() -> None:
    assert THREE.by_rank(2).queue_name == "standard"
    assert THREE.by_rank(99) in THREE.by_name.values()


def test_priorities_are_ordered_by_urgency_and_not_by_spelling() -> None:
    assert sorted(Priority) == [Priority.HIGH, Priority.NORMAL, Priority.LOW]
