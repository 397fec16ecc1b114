"""A short run of hostile templates: none crashes, none hangs, and many are rendered."""

import random
import time
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest

from carillon.domain.errors import BadIntent, BadTemplate
from carillon.domain.notifications import Template
from carillon.intake.jinja.formats import Person
from carillon.intake.jinja.guard import FILTERS
from carillon.intake.jinja.ready import Composer
from carillon.intake.render import render_message
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
@pytest.mark.parametrize(("seed", "number"), [(20, 424604), (20, 425011), (1118, 118048)])
def test_templates_that_a_long_run_found_slow_are_refused_in_time(seed: int, number: int) -> None:
    """Filters that compare or cut up a list, once for each element of a long loop: seconds before."""
    text, form = numbered(seed, number)
    began = time.process_time()
    assert outcome(text, form) == "refused"
    assert time.process_time() - began < 1.0, text


# What a filter is given that takes something; None is not for texts, lists or tables.
ARGUMENTS = {
    "attribute": ("groupby", "selectattr", "rejectattr", "map"),
    "2": ("batch", "slice", "indent", "truncate"),
    "'a', 'b'": ("replace",),
    "','": ("join", "split"),
    "'EUR'": ("money",),
}
VALUES: dict[str, Any] = {
    "text": "a," * 30_000,
    "words": "word " * 10_000,
    "lines": "\n" * 60_000,
    "list": ["ab"] * 9000,
    "rows": [{"n": number % 7, "m": {"k": [number] * 3}} for number in range(2000)],
    "deep": {"a": [1] * 9000, "b": {"c": ["x"] * 9000}},
}


@pytest.mark.req("P-971")
@pytest.mark.parametrize("name", sorted(FILTERS))
def test_no_filter_of_a_long_loop_takes_a_second(name: str) -> None:
    """Each letter, element and field that a filter looks at counts, whatever the filter and the value."""
    given = next((said for said, names in ARGUMENTS.items() if name in names), "")
    given = {"attribute": "'n'" if name != "map" else "attribute='n'"}.get(given, given)
    for value, held in VALUES.items():
        source = f"{{% for i in range(10000) %}}{{{{ {value}|{name}({given})|string|length }}}}{{% endfor %}}"
        template = Template(code="t", channel="email", locale="en", engine="jinja", text=source)
        began = time.process_time()
        with suppress(BadIntent, BadTemplate):
            render_message(Composer().ready(template, lambda _: {}), {value: held}, person=Person("en", "UTC", 1.8e9))
        assert time.process_time() - began < 1.0, source
