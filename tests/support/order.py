"""Puts the longest files first, so that a run does not end with one worker busy and the others done."""

import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path

import pytest

KEY = "carillon/seconds"
"""In pytest's cache: the mean seconds of one test, by file, when the file last ran."""
SHIPPED = Path(__file__).parents[1] / "durations.json"
"""The same figures for a checkout in which the tests never ran; `make durations` writes them."""
CACHE = SHIPPED.parents[1] / ".pytest_cache" / "v" / KEY
# For a file that is in neither, by its folder.
USUAL = {"chaos": 6.0, "console": 1.5, "models": 1.0, "scenario": 0.6, "house": 0.3, "contract": 0.2}
OTHERS = 0.02


HOUSE = "tests/house/"
"""Its rules share the syntax trees of all files, so they run together."""


def sort(items: list[pytest.Item], known: Mapping[str, float]) -> None:
    """Order whole files by what they take; the tests of a file keep their order."""
    number = Counter(file_of(item.nodeid) for item in items)
    seconds = {file: tests * known.get(file, _usual(file)) for file, tests in number.items()}
    items.sort(key=lambda item: (-seconds[file_of(item.nodeid)], file_of(item.nodeid)))


class Stopwatch:
    """Remembers how long files take, for the next run."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._tests: defaultdict[str, set[str]] = defaultdict(set)

    def known(self) -> dict[str, float]:
        """The seconds of one test, by file: as shipped, and better where a file ran here."""
        return shipped() | dict(self._config.cache.get(KEY, {}))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        file = file_of(report.nodeid)
        self._seconds[file] += report.duration
        self._tests[file].add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        means = {file: round(spent / len(self._tests[file]), 4) for file, spent in self._seconds.items()}
        self._config.cache.set(KEY, dict(self._config.cache.get(KEY, {})) | means)


def shipped() -> dict[str, float]:
    """The figures of the checkout."""
    return dict(json.loads(SHIPPED.read_text()))


def file_of(nodeid: str) -> str:
    """The file of a test; the house rules count as one."""
    return HOUSE if nodeid.startswith(HOUSE) else nodeid.partition("::")[0]


def _usual(file: str) -> float:
    return next((seconds for folder, seconds in USUAL.items() if f"/{folder}/" in file), OTHERS)
