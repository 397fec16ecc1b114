"""A short run of hostile templates: none crashes, none hangs, and many are rendered."""

import random
import time
from collections import Counter

import pytest

from tests.fuzz.jinja_templates import hostile, numbered, outcome

ROUNDS = 1500


pytestmark = pytest.mark.slow


@pytest.mark.req("P-406")
@pytest.mark.parametrize("seed", range(2))
def test_hostile_templates_are_rendered_or_refused_in_time(seed: int) -> None:
    dice, seen = random.Random(seed), Counter[str]()
    slowest = 0.0
    for _ in range(ROUNDS):
        text = hostile(dice)
        began = time.process_time()
        seen[outcome(text)] += 1
        took = time.process_time() - began
        slowest = max(slowest, took)
        assert took < 1.0, text
    assert seen["rendered"] > ROUNDS // 50
    assert seen["refused"] > ROUNDS // 50


@pytest.mark.req("P-406")
@pytest.mark.parametrize("number", [424604, 425011])
def test_templates_that_a_long_run_found_slow_are_refused_in_time(number: int) -> None:
    """A filter that compares the elements of a list, once for each element of a long loop: eight seconds before."""
    text, form = numbered(20, number)
    began = time.process_time()
    assert outcome(text, form) == "refused"
    assert time.process_time() - began < 1.0, text
