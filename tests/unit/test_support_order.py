"""Long files run first, and a file's tests stay together and in their order."""

from typing import Any
from unittest.mock import Mock

import pytest

from scripts.durations import table
from tests.support import order, workers

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


def test_a_checkout_without_a_run_knows_its_long_files() -> None:
    known = order.Stopwatch(Mock(cache=Mock(get=lambda _, none: none))).known()
    assert known == order.shipped()
    assert known["tests/chaos/test_crash_points.py"] > 1
    root = order.SHIPPED.parents[1]
    assert [file for file in known if not (root / file).exists()] == [], "make durations forgets what is gone"


def test_a_run_here_knows_better_than_the_checkout() -> None:
    file = "tests/chaos/test_crash_points.py"
    known = order.Stopwatch(Mock(cache=Mock(get=lambda *_: {file: 0.1}))).known()
    assert known == {**order.shipped(), file: 0.1}


def test_the_shipped_table_changes_seldom() -> None:
    before = {"tests/a.py": 2.0, "tests/b.py": 2.0, "tests/gone.py": 5.0}
    assert table({"tests/a.py": 3.9, "tests/b.py": 4.14, "tests/short.py": 0.1}, before) == {
        "tests/a.py": 2.0,
        "tests/b.py": 4.1,
    }


def test_workers_by_the_number_of_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {}
    for cores in (1, 2, 3, 64):
        monkeypatch.setattr("os.sched_getaffinity", lambda _, cores=cores: set(range(cores)))
        found[cores] = workers.number("auto")
    assert found == {1: 4, 2: 8, 3: 12, 64: 16}
    assert workers.number("0") == 0
