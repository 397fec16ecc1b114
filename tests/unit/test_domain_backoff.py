"""The backoff engine: bounds and shape for any setting, and the schedules of every document."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carillon.domain.policy import Backoff
from tests.support.examples import examples

PROPERTY = examples(300)

PUSH_WORKER = Backoff(
    base_delay_seconds=1.0, backoff_multiplier=2.0, max_delay_seconds=4.0, jitter="proportional", jitter_seconds=0.25
)
GALAXY = Backoff(base_delay_seconds=1.0, backoff_multiplier=2.0, max_delay_seconds=300.0, jitter="none")
LISTO_SMS = Backoff(
    base_delay_seconds=3.0, backoff_multiplier=2.0, max_delay_seconds=120.0, jitter="additive", jitter_seconds=1.0
)
LISTO_EMAIL = Backoff(
    base_delay_seconds=5.0, backoff_multiplier=2.0, max_delay_seconds=600.0, jitter="additive", jitter_seconds=1.0
)
LISTO_PUSH = Backoff(
    base_delay_seconds=2.0, backoff_multiplier=2.0, max_delay_seconds=300.0, jitter="additive", jitter_seconds=0.5
)
BILLING = Backoff(
    base_delay_seconds=60.0, backoff_multiplier=2.0, max_delay_seconds=3600.0, jitter="additive", jitter_seconds=10.0
)
BILLING_ORIGIN = Backoff(
    base_delay_seconds=60.0,
    backoff_multiplier=2.0,
    max_delay_seconds=3600.0,
    jitter="additive",
    jitter_seconds=10.0,
    first_exponent=1,
)
EVERY_SEED = (PUSH_WORKER, GALAXY, LISTO_SMS, LISTO_EMAIL, LISTO_PUSH, BILLING, BILLING_ORIGIN)

dice = st.floats(min_value=0.0, max_value=1.0, exclude_max=True)
attempts = st.one_of(st.integers(min_value=1, max_value=40), st.integers(min_value=1, max_value=10**9))
backoffs = st.builds(
    Backoff,
    base_delay_seconds=st.floats(min_value=0.0, max_value=1e6),
    backoff_multiplier=st.floats(min_value=1.0, max_value=1e6),
    max_delay_seconds=st.floats(min_value=0.0, max_value=1e6),
    jitter=st.sampled_from(["none", "additive", "proportional", "full"]),
    jitter_seconds=st.floats(min_value=0.0, max_value=1e3),
    first_exponent=st.integers(min_value=0, max_value=3),
)


def before_jitter(backoff: Backoff, attempt: int) -> float:
    """The formula of the documents, by logarithm, so that it cannot overflow where the engine could."""
    if backoff.base_delay_seconds == 0.0:
        return 0.0
    exponent = attempt - 1 + backoff.first_exponent
    if exponent * math.log(backoff.backoff_multiplier) > 700.0:
        return backoff.max_delay_seconds
    return min(backoff.base_delay_seconds * backoff.backoff_multiplier**exponent, backoff.max_delay_seconds)


def bounds(backoff: Backoff, wait: float) -> tuple[float, float]:
    match backoff.jitter:
        case "none":
            return wait, wait
        case "additive":
            return wait, wait + backoff.jitter_seconds
        case "proportional":
            return wait, wait * (1.0 + backoff.jitter_seconds)
        case "full":
            return 0.0, wait


@pytest.mark.req("G-07")
@PROPERTY
@given(st.sampled_from(EVERY_SEED), attempts, dice)
def test_every_seeds_schedule_keeps_its_bounds(backoff: Backoff, attempt: int, die: float) -> None:
    low, high = bounds(backoff, before_jitter(backoff, attempt))
    assert low <= backoff.delay(attempt, die) <= high


@PROPERTY
@given(backoffs, attempts, dice)
def test_any_setting_keeps_its_bounds(backoff: Backoff, attempt: int, die: float) -> None:
    delay = backoff.delay(attempt, die)
    low, high = bounds(backoff, before_jitter(backoff, attempt))
    assert math.isfinite(delay)
    assert delay >= 0.0
    assert low * (1 - 1e-9) <= delay <= high * (1 + 1e-9)


@PROPERTY
@given(backoffs, attempts, dice)
def test_a_later_attempt_never_waits_less(backoff: Backoff, attempt: int, die: float) -> None:
    assert backoff.delay(attempt + 1, die) >= backoff.delay(attempt, die)


@PROPERTY
@given(backoffs, attempts, dice, dice)
def test_a_higher_die_never_waits_less(backoff: Backoff, attempt: int, one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert backoff.delay(attempt, low) <= backoff.delay(attempt, high)


@pytest.mark.req("S2-44")
@PROPERTY
@given(
    st.sampled_from((LISTO_SMS, LISTO_EMAIL, LISTO_PUSH)),
    st.integers(min_value=0, max_value=60),
    dice,
)
def test_listo_caps_before_it_adds_jitter(backoff: Backoff, zero_based: int, die: float) -> None:
    expected = min(backoff.base_delay_seconds * backoff.backoff_multiplier**zero_based, backoff.max_delay_seconds)
    delay = backoff.delay(zero_based + 1, die)
    assert delay == pytest.approx(expected + die * backoff.jitter_seconds)
    assert expected <= delay <= expected + backoff.jitter_seconds


@pytest.mark.parametrize(
    ("backoff", "waits"),
    [
        (PUSH_WORKER, [1.0, 2.0, 4.0, 4.0]),
        (GALAXY, [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 300.0, 300.0]),
        (LISTO_SMS, [3.0, 6.0, 12.0, 24.0, 48.0, 96.0, 120.0]),
        (LISTO_EMAIL, [5.0, 10.0, 20.0, 40.0, 80.0]),
        (BILLING, [60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 3600.0]),
        (BILLING_ORIGIN, [120.0, 240.0, 480.0]),
    ],
)
def test_the_documents_schedules_before_jitter(backoff: Backoff, waits: list[float]) -> None:
    assert [backoff.delay(attempt, 0.0) for attempt in range(1, len(waits) + 1)] == waits


def test_the_listo_sms_example_with_its_jitter() -> None:
    nearly_one = math.nextafter(1.0, 0.0)
    spans = [(LISTO_SMS.delay(n, 0.0), LISTO_SMS.delay(n, nearly_one)) for n in (1, 2, 3, 4)]
    assert [low for low, _ in spans] == [3.0, 6.0, 12.0, 24.0]
    assert all(high == pytest.approx(low + 1.0) for low, high in spans)


@PROPERTY
@given(attempts, dice, dice)
def test_galaxy_waits_exactly(attempt: int, one: float, other: float) -> None:
    assert GALAXY.delay(attempt, one) == GALAXY.delay(attempt, other)


def test_the_push_worker_adds_at_most_a_quarter() -> None:
    assert PUSH_WORKER.delay(3, 0.5) == pytest.approx(4.5)
    assert PUSH_WORKER.delay(3, math.nextafter(1.0, 0.0)) == pytest.approx(5.0)


def test_full_jitter_spreads_over_the_whole_wait() -> None:
    backoff = Backoff(base_delay_seconds=10.0, backoff_multiplier=2.0, max_delay_seconds=1000.0, jitter="full")
    assert backoff.delay(3, 0.0) == 0.0
    assert backoff.delay(3, 0.25) == 10.0
    assert backoff.delay(3, math.nextafter(1.0, 0.0)) == pytest.approx(40.0)


@pytest.mark.parametrize("attempt", [1025, 2000, 10**6, 10**18])
def test_an_exponent_beyond_a_float_is_the_cap(attempt: int) -> None:
    assert GALAXY.delay(attempt, 0.0) == 300.0
    assert (
        Backoff(base_delay_seconds=1e308, backoff_multiplier=10.0, max_delay_seconds=7.0, jitter="none").delay(
            attempt, 0.0
        )
        == 7.0
    )


@pytest.mark.parametrize("attempt", [1, 2, 1025, 10**6])
def test_no_base_means_no_wait_however_often_it_failed(attempt: int) -> None:
    assert Backoff(base_delay_seconds=0.0, jitter="none").delay(attempt, 0.0) == 0.0


@pytest.mark.parametrize("attempt", [0, -1, -1000])
def test_before_the_first_failure_the_wait_is_the_first_one(attempt: int) -> None:
    assert GALAXY.delay(attempt, 0.0) == 1.0
