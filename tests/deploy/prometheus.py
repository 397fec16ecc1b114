"""What Prometheus makes of the metrics that Carillon exports, and which of them an expression asks for."""

import re
from typing import Any, Literal

from opentelemetry.metrics import NoOpMeter

from carillon.config.reading import load
from carillon.upkeep.metrics.instruments import ATTRIBUTES, CARILLON, Instrument
from carillon.upkeep.metrics.meters import Metrics
from carillon.upkeep.metrics.queues import ATTRIBUTES as QUEUE_ATTRIBUTES
from carillon.upkeep.metrics.queues import QUEUES, QueueMetrics
from tests.unit.test_config import NEEDED

Kind = Literal["counter", "gauge", "histogram"]
Series = dict[str, frozenset[str]]
"""A name in Prometheus to its labels."""

_UNITS = {"s": "seconds", "ms": "milliseconds"}
_OURS = re.compile(r"\b(?:carillon|notification)_\w+")
_BY = re.compile(r"\bby \(([^)]*)\)")
_SELECTOR = re.compile(r"(?P<name>\b(?:carillon|notification)_\w+)\{(?P<inside>[^}]*)\}")
_MATCHER = re.compile(r'(?P<label>\w+)\s*(?:=~|!~|!=|=)\s*"(?P<value>[^"]*)"')


class Listener(NoOpMeter):
    """Hears which instruments are made, and of what kind: the code's word, not the reference page's."""

    def __init__(self) -> None:
        super().__init__("listener")
        self.kinds: dict[str, Kind] = {}

    def create_observable_counter(self, name: str, *args: Any, **options: Any) -> Any:
        self.kinds[name] = "counter"
        return super().create_observable_counter(name, *args, **options)

    def create_observable_gauge(self, name: str, *args: Any, **options: Any) -> Any:
        self.kinds[name] = "gauge"
        return super().create_observable_gauge(name, *args, **options)

    def create_histogram(self, name: str, *args: Any, **options: Any) -> Any:
        self.kinds[name] = "histogram"
        return super().create_histogram(name, *args, **options)


def exported() -> dict[str, Series]:
    """By the name of each metric, the series that Prometheus keeps of it."""
    galaxy = load("galaxy", environ=NEEDED).metrics.instruments
    listener = Listener()
    Metrics(listener)
    QueueMetrics(listener)
    Metrics(listener, galaxy, only=True)
    known = ATTRIBUTES | QUEUE_ATTRIBUTES
    found: dict[str, Series] = {}
    for counted, one in (*CARILLON.items(), *QUEUES.items(), *galaxy.items()):
        labels = known[counted] if one.attributes is None else tuple(one.attributes.values())
        found[one.name] = _series(one, listener.kinds[one.name], frozenset(labels))
    return found


def _series(one: Instrument, kind: Kind, labels: frozenset[str]) -> Series:
    """Dots to underscores, the unit's word, `_total` of counters: the default of Prometheus and of the collector."""
    name = one.name.replace(".", "_")
    if one.unit in _UNITS:
        name = f"{name}_{_UNITS[one.unit]}"
    elif one.unit == "1" and kind == "gauge":
        name = f"{name}_ratio"
    match kind:
        case "counter":
            return {f"{name}_total": labels}
        case "gauge":
            return {name: labels}
        case "histogram":
            return {f"{name}_bucket": labels | {"le"}, f"{name}_sum": labels, f"{name}_count": labels}


def asked(expression: str) -> set[str]:
    return set(_OURS.findall(expression))


def grouped(expression: str) -> set[str]:
    """The labels an expression's result is told apart by."""
    return {label.strip() for inside in _BY.findall(expression) for label in inside.split(",")}


def mistakes(expression: str, series: Series) -> list[str]:
    """Names and labels that nobody exports."""
    strangers = sorted(asked(expression) - set(series))
    labels = frozenset[str]().union(*(series.get(name, frozenset()) for name in asked(expression)))
    strangers += sorted(grouped(expression) - labels)
    for found in _SELECTOR.finditer(expression):
        said = {match["label"] for match in _MATCHER.finditer(found["inside"])}
        strangers += sorted(said - series.get(found["name"], frozenset()))
    return strangers


def words(expression: str) -> set[tuple[str, str]]:
    """Labels with the values that selectors ask for."""
    return {
        (match["label"], match["value"])
        for found in _SELECTOR.finditer(expression)
        for match in _MATCHER.finditer(found["inside"])
    }
