"""The billing blueprint's policies: how long, how often, and what is refused."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from carillon.config.policies import named_queues, queue_policies
from carillon.domain.decide import Standing, decide
from carillon.domain.errors import ConfigurationError
from carillon.domain.outcomes import Refused, Unavailable
from carillon.domain.queues import Policy, QueueUpkeep
from carillon.domain.verdicts import Bury, Retry


@pytest.mark.req("S3-16", "S3-17")
def test_the_documents_defaults() -> None:
    policy = Policy()
    assert (policy.max_retries, policy.base_delay_seconds, policy.backoff_multiplier) == (5, 60.0, 2.0)
    assert (policy.max_delay_seconds, policy.jitter_seconds) == (3600.0, 10.0)
    assert (policy.lock_ttl_seconds, policy.visibility_timeout_seconds) == (120.0, 300.0)


@pytest.mark.req("S3-35", "G-07")
@pytest.mark.parametrize(
    ("failed", "wait"), [(1, 60.0), (2, 120.0), (3, 240.0), (4, 480.0), (5, 960.0), (6, 1920.0), (7, 3600.0)]
)
def test_waits_double_up_to_the_cap(failed: int, wait: float) -> None:
    assert Policy().delay(failed, 0.0) == wait
    assert Policy(first_exponent=1).delay(failed, 0.0) == min(2 * wait, 3600.0)


@pytest.mark.req("S3-36")
@given(st.integers(1, 50), st.floats(0.0, 1.0, exclude_max=True))
def test_jitter_comes_on_top_evenly(failed: int, dice: float) -> None:
    policy = Policy(jitter_seconds=10.0)
    assert policy.delay(failed, dice) == pytest.approx(policy.delay(failed, 0.0) + 10.0 * dice)


@pytest.mark.req("S3-28", "S3-29", "S3-30", "S3-37", "S3-98")
def test_the_decision_after_each_run() -> None:
    policy = Policy(max_retries=5).retry()
    failed = Unavailable("ValueError: no", "handler_error")
    verdicts = [decide(failed, policy, Standing(n, n, policy.budget, 0.0, None, 0.0)) for n in range(1, 7)]
    assert [type(verdict) for verdict in verdicts] == [Retry] * 5 + [Bury]
    assert policy.budget == 6
    assert isinstance(decide(Refused("never"), policy, Standing(1, 1, 6, 0.0, None, 0.0)), Bury)


@pytest.mark.req("S3-19", "S3-20")
def test_tables_stand_over_the_default_and_name_queues_without_colons() -> None:
    said = {"*": {"jitter_seconds": 0.0}, "q:pay:refund": {"max_retries": 3}}
    tables = msgspec.convert(named_queues(said), dict[str, Policy])
    found = queue_policies(tables)
    assert found["q:pay:refund"] == Policy(max_retries=3, jitter_seconds=0.0)
    assert found["*"] == Policy(jitter_seconds=0.0)
    assert queue_policies(tables, scale=0.5)["*"].base_delay_seconds == 30.0
    written: dict[str, Any] = {
        "q:pay:refund": {"max_retries": 3, "jitter_seconds": 1},
        "q_pay_refund": {"max_retries": 1},
        "q_sub_usage_sync": {"max_retries": 2},
        "default": {"max_retries": 9},
    }
    assert named_queues(written) == {
        "q:pay:refund": {"max_retries": 1, "jitter_seconds": 1},
        "q:sub:usage_sync": {"max_retries": 2},
        "*": {"max_retries": 9},
    }
    assert named_queues({"default": {"max_retries": 9}, "q:a:b": {"jitter_seconds": 1}})["q:a:b"] == {
        "max_retries": 9,
        "jitter_seconds": 1,
    }


@pytest.mark.req("G-03")
@pytest.mark.parametrize(
    "wrong",
    [
        {"max_retries": -1},
        {"base_delay_seconds": -1.0},
        {"base_delay_seconds": float("nan")},
        {"backoff_multiplier": 0.5},
        {"lock_ttl_seconds": 0.0},
        {"visibility_timeout_seconds": float("nan")},
        {"timeout_seconds": 0.0},
        {"concurrency": 0},
    ],
)
def test_a_policy_that_cannot_work_is_refused_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=r'queue\."q:x"'):
        Policy(**wrong).checked("q:x")


@pytest.mark.parametrize("wrong", [{"pump_seconds": 0.0}, {"failed_keep": 2000}, {"depth_limit": 0}])
def test_intervals_that_cannot_work_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="beat"):
        QueueUpkeep(**wrong).checked()
