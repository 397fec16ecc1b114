"""The pace of calls: evenly spaced, never above the limit, slower after a complaint and faster again."""

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carillon.domain.errors import ConfigurationError
from carillon.domain.pace import (
    HOLD_SECONDS,
    HORIZON_SECONDS,
    LEAST_LEAD_SECONDS,
    LONGEST_PAUSE_SECONDS,
    NO_PACE,
    Pace,
    RatePolicy,
    first_place,
    limit_of,
    reserve,
    room,
    slowed,
)


def taken(limit: float, asks: list[tuple[float, int]]) -> list[float]:
    """When calls start, if so many are asked for at each of these moments."""
    pace, now, starts = NO_PACE, 1000.0, list[float]()
    for pause, calls in asks:
        now += pause
        pace, more = reserve(pace, limit, calls, now)
        starts += more
    return starts


@given(
    st.floats(0.5, 500.0),
    st.lists(st.tuples(st.sampled_from([0.0, 0.01, 0.2, 0.5, 1.0, 7.0]), st.integers(1, 50)), max_size=60),
)
def test_no_window_of_a_second_holds_more_than_the_limit(limit: float, asks: list[tuple[float, int]]) -> None:
    starts = taken(limit, asks)
    assert starts == sorted(starts)
    for at, start in enumerate(starts):
        held = sum(1 for other in starts[at:] if other < start + 1.0)
        assert held <= math.ceil(limit), f"{held} calls within a second from {start}"


def test_calls_are_evenly_spaced_and_nothing_is_planned_far_ahead() -> None:
    pace, starts = reserve(NO_PACE, 100.0, 1000, 50.0)
    gaps = {round(late - early, 6) for early, late in pairwise(starts)}
    assert gaps == {round(1 / 95.0, 6)}
    assert starts[-1] <= 50.0 + HORIZON_SECONDS
    assert len(starts) == room(NO_PACE, 100.0, 50.0)
    assert room(pace, 100.0, 50.0) == 0
    assert reserve(pace, 100.0, 5, 50.0) == (pace, [])


def test_time_that_nobody_used_is_not_saved_up() -> None:
    pace, _ = reserve(NO_PACE, 10.0, 1, 0.0)
    _, starts = reserve(pace, 10.0, 100, 3600.0)
    assert len(starts) == 5
    assert starts[0] == 3600.0 + LEAST_LEAD_SECONDS


def test_without_a_limit_everything_starts_at_once() -> None:
    assert reserve(NO_PACE, None, 1000, 7.0) == (NO_PACE, [7.0] * 1000)
    assert room(NO_PACE, None, 7.0) is None


def test_retry_after_is_a_pause_and_what_was_sent_before_it_sets_the_rate() -> None:
    pace = slowed(NO_PACE, None, observed=200.0, retry_after=30.0, now=100.0)
    assert first_place(pace, 100.0) == 130.0
    assert room(pace, None, 100.0) == 0
    assert limit_of(pace, None, 130.0) == pytest.approx(140.0)
    resting = slowed(NO_PACE, None, observed=None, retry_after=30.0, now=100.0)
    assert (first_place(resting, 100.0), resting.learnt) == (130.0, 0.0), "a pause says nothing about a rate"
    again = slowed(pace, None, observed=200.0, retry_after=30.0, now=100.4)
    assert limit_of(again, None, 130.0) == pytest.approx(140.0), "calls that were on their way say the same"
    assert first_place(again, 101.0) == 130.4


def test_a_learnt_rate_grows_until_it_is_forgotten() -> None:
    pace = slowed(NO_PACE, None, observed=100.0, retry_after=0.0, now=0.0)
    assert limit_of(pace, None, HOLD_SECONDS) == pytest.approx(70.0)
    growing = [limit_of(pace, None, HOLD_SECONDS + second) for second in range(31)]
    known = [rate for rate in growing if rate is not None]
    assert known == sorted(known)
    assert growing[-1] is None
    assert pace.quiet(HOLD_SECONDS + 100.0)
    assert limit_of(pace, 80.0, HOLD_SECONDS + 60) == 80.0, "never above what is configured"


def test_a_second_complaint_slows_further() -> None:
    pace = slowed(NO_PACE, 50.0, observed=50.0, retry_after=None, now=0.0)
    assert limit_of(pace, 50.0, 1.0) == pytest.approx(35.0)
    pace = slowed(pace, 50.0, observed=35.0, retry_after=None, now=5.0)
    assert limit_of(pace, 50.0, 6.0) == pytest.approx(24.5)


@pytest.mark.parametrize("said", [float("nan"), -5.0])
def test_a_strange_pause_is_a_short_one(said: float) -> None:
    assert first_place(slowed(NO_PACE, None, observed=1.0, retry_after=said, now=0.0), 0.0) == 1.0


def test_no_peer_can_ask_for_a_pause_without_end() -> None:
    pace = slowed(NO_PACE, None, observed=1.0, retry_after=1e12, now=0.0)
    assert first_place(pace, 0.0) == LONGEST_PAUSE_SECONDS


@given(st.floats(-1e6, 1e6))
def test_a_pace_on_another_clock_says_the_same(shift: float) -> None:
    pace = Pace(next_at=1010.0, not_before=1020.0, learnt=5.0, learnt_at=1005.0)
    moved = pace.moved(shift)
    assert first_place(moved, 1000.0 + shift) - shift == pytest.approx(first_place(pace, 1000.0))
    assert limit_of(moved, None, 1030.0 + shift) == pytest.approx(limit_of(pace, None, 1030.0))


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf")])
def test_a_rate_that_nobody_means_is_refused(rate: float) -> None:
    with pytest.raises(ConfigurationError, match="requests a second"):
        RatePolicy(per_second=rate).checked("policy.rate.twilio")
