"""The policy table: the most exact entry wins, and a lane caps what was not made for exactly this case."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carillon.domain.lanes import Lane
from carillon.domain.policy import PolicyTable, RetryPolicy
from tests.support.examples import examples

PROPERTY = examples(200)
HIGH = Lane(rank=1, queue_name="priority", timeout_seconds=15.0, max_attempts=3)
UNCAPPED = Lane(rank=2, queue_name="standard")
LISTO = PolicyTable(
    {
        "auth/sms": RetryPolicy(max_attempts=4, timeout_seconds=20.0),
        "*/email": RetryPolicy(max_attempts=6, timeout_seconds=30.0),
        "orders/*": RetryPolicy(max_attempts=2, timeout_seconds=5.0),
        "orders/push": RetryPolicy(max_attempts=3, timeout_seconds=15.0),
        "*/*": RetryPolicy(max_attempts=6, timeout_seconds=30.0),
    }
)
words = st.sampled_from(["auth", "orders", "sms", "email"])
names = st.builds("{}/{}".format, words | st.just("*"), words | st.just("*"))


@pytest.mark.parametrize(
    ("origin", "channel", "name"),
    [
        ("auth", "sms", "auth/sms"),
        ("auth", "email", "*/email"),
        ("orders", "email", "*/email"),
        ("orders", "sms", "orders/*"),
        ("orders", "push", "orders/push"),
        ("auth", "push", "*/*"),
        ("unheard-of", "carrier-pigeon", "*/*"),
    ],
)
def test_lookup_goes_from_exact_to_general(origin: str, channel: str, name: str) -> None:
    assert LISTO.name_for(origin, channel) == name


@PROPERTY
@given(st.sets(names), words, words)
def test_the_lookup_order_holds_for_any_table(held: set[str], origin: str, channel: str) -> None:
    table = PolicyTable({name: RetryPolicy(max_attempts=6) for name in held | {"*/*"}})
    wanted = [f"{origin}/{channel}", f"*/{channel}", f"{origin}/*", "*/*"]
    assert table.name_for(origin, channel) == next(name for name in wanted if name in table.policies)


@pytest.mark.parametrize(
    ("name", "lane", "attempts", "timeout"),
    [
        ("*/email", HIGH, 3, 15.0),
        ("auth/sms", HIGH, 4, 20.0),
        ("orders/*", HIGH, 2, 5.0),
        ("*/*", HIGH, 3, 15.0),
        ("*/*", UNCAPPED, 6, 30.0),
        ("a/policy that settings lost", UNCAPPED, 6, 30.0),
    ],
)
def test_an_exact_policy_wins_and_others_are_capped_by_the_lane(
    name: str, lane: Lane, attempts: int, timeout: float
) -> None:
    assert LISTO.max_attempts(name, lane) == attempts
    assert LISTO.timeout(name, lane) == timeout


@pytest.mark.parametrize(("counts", "calls"), [("attempts", 3), ("retries", 4)])
def test_a_budget_of_retries_is_one_call_more(counts: str, calls: int) -> None:
    policy = RetryPolicy(max_retries=3) if counts == "retries" else RetryPolicy(max_attempts=3)
    assert policy.budget == calls
