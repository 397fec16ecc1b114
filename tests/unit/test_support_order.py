"""Long files run first, and a file's tests stay together and in their order."""

from typing import Any
from unittest.mock import Mock

import pytest

from tests.support import order

FILES = ("tests/unit/test_a.py", "tests/chaos/test_b.py", "tests/unit/test_c.py")


def items() -> list[Any]:
    return [Mock(nodeid=f"{file}::test_{number}") for file in FILES for number in range(2)]


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        ({}, (FILES[1], FILES[0], FILES[2])),
        ({FILES[2]: 100.0}, (FILES[2], FILES[1], FILES[0])),
        ({FILES[1]: 0.001}, (FILES[0], FILES[2], FILES[1])),
    ],
)
def test_the_longest_file_comes_first(known: dict[str, float], expected: tuple[str, ...]) -> None:
    found = items()
    order.sort(found, known)
    assert [item.nodeid for item in found] == [f"{file}::test_{number}" for file in expected for number in range(2)]


def test_what_a_file_took_is_kept_for_each_of_its_tests() -> None:
    cache = {FILES[1]: 7.0}
    config = Mock(cache=Mock(get=lambda *_: cache, set=lambda _, value: cache.update(value)))
    watch = order.Stopwatch(config)
    for number, seconds in ((0, 0.5), (0, 1.0), (1, 0.5)):
        watch.pytest_runtest_logreport(Mock(nodeid=f"{FILES[0]}::test_{number}", duration=seconds))
    watch.pytest_sessionfinish()
    assert cache == {FILES[0]: 1.0, FILES[1]: 7.0}
