"""Figures, their spread, and the ratios that are claimed."""

import statistics
from collections.abc import Callable

import msgspec


class Figure(msgspec.Struct, frozen=True):
    """One thing measured several times."""

    part: str
    name: str
    unit: str
    values: list[float]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def spread(self) -> float:
        """The widest distance from the median, as a share of it."""
        return max(abs(value - self.median) for value in self.values) / self.median if self.median else 0.0

    def line(self) -> str:
        return f"{self.part:9} {self.name:46} {self.median:14,.1f} {self.unit:12} ±{self.spread:4.0%}"


class Ratio(msgspec.Struct, frozen=True):
    """What is claimed, and whether it holds."""

    name: str
    figure: float
    target: float
    at_most: bool = False
    measured: float = 1.0
    """The share of what the target asks for that was measured: a slow machine does less, and then claims nothing."""

    @property
    def holds(self) -> bool:
        return self.measured >= 1.0 and self.within

    @property
    def within(self) -> bool:
        return self.figure <= self.target if self.at_most else self.figure >= self.target

    def line(self) -> str:
        bound = "≤" if self.at_most else "≥"
        said = "ok" if self.holds else f"not claimed: {self.measured:.0%} measured" if self.within else "short"
        return f"RATIO {self.name} {self.figure:.2f} target {bound}{self.target:g} {said}"


class Outcome(msgspec.Struct):
    """What one part of the bench found."""

    figures: list[Figure] = []
    ratios: list[Ratio] = []
    settings: dict[str, str] = {}

    def add(self, other: "Outcome") -> None:
        self.figures += other.figures
        self.ratios += other.ratios
        self.settings |= other.settings

    def median(self, name: str) -> float:
        return next(figure.median for figure in self.figures if figure.name == name)


def interleaved(
    part: str,
    unit: str,
    subjects: dict[str, Callable[[], float]],
    rounds: int,
    progress: Callable[[str], None],
) -> list[Figure]:
    """Every subject once a round, so that a busy minute hits all of them alike."""
    values: dict[str, list[float]] = {name: [] for name in subjects}
    for number in range(rounds):
        for name, measure in subjects.items():
            progress(f"{part}: {name}, round {number + 1} of {rounds}")
            values[name].append(measure())
    return [Figure(part, name, unit, found) for name, found in values.items()]
