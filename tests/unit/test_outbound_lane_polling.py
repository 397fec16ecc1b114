"""Lanes with their own poll interval: skipped after they were empty, asked at once while they have work."""

import pytest

from carillon.domain.lanes import Lane, Lanes
from carillon.outbound.wants import LanePolling, wants
from tests.support.clocks import ManualClock
from tests.support.dispatches import dispatch

HIGH = Lane(rank=1, queue_name="HIGH", weight=6)
LOW = Lane(rank=3, queue_name="LOW", poll_seconds=5.0)


def paced() -> tuple[LanePolling, ManualClock]:
    clock = ManualClock()
    return LanePolling(Lanes({"priority": HIGH, "bulk": LOW}, strict=True), clock), clock


@pytest.mark.req("S4-59")
def test_an_empty_lane_is_left_alone_for_its_time() -> None:
    polling, clock = paced()
    lanes = polling.due()
    assert list(lanes.by_name) == ["priority", "bulk"]
    polling.record(lanes, [])
    assert list(polling.due().by_name) == ["priority"], "one without a pace is looked into whenever somebody looks"
    clock.now += 4.9
    assert list(polling.due().by_name) == ["priority"]
    clock.now += 0.2
    assert list(polling.due().by_name) == ["priority", "bulk"]
    assert polling.due().strict


@pytest.mark.req("S4-59")
def test_a_lane_with_work_is_asked_again_at_once() -> None:
    polling, _ = paced()
    polling.record(polling.due(), [dispatch(lane=3).claim])
    assert list(polling.due().by_name) == ["priority", "bulk"]


def test_without_paces_nothing_is_left_out() -> None:
    lanes = Lanes({"priority": HIGH})
    polling = LanePolling(lanes, ManualClock())
    polling.record(lanes, [])
    assert polling.due() is lanes


@pytest.mark.req("S4-62")
def test_with_ageing_every_priority_has_its_share() -> None:
    lanes = {"priority": HIGH, "bulk": Lane(rank=3, queue_name="LOW", weight=1)}
    strict, shared = (wants(Lanes(lanes, strict=strict), ["sse"], 70) for strict in (True, False))
    assert [(want.lane, want.limit) for want in strict] == [(1, 70), (3, 70)]
    assert [(want.lane, want.limit) for want in shared][:2] == [(1, 60), (3, 10)]
