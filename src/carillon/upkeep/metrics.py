"""Numbers about what happens, counted from events and handed to OpenTelemetry."""

import asyncio
import importlib
import os
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec
from opentelemetry import metrics as otel

from carillon.domain.claims import Settled
from carillon.domain.errors import ConfigurationError, LedgerUnavailable
from carillon.domain.events import (
    BreakerChanged,
    Event,
    IntentAccepted,
    IntentRepeated,
    LeaseLost,
    Pruned,
    Rehomed,
    RouteAttempted,
    Trouble,
)
from carillon.domain.ports import UpkeepLedger
from carillon.upkeep import logs
from carillon.upkeep.redaction import Redaction, encode

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import MetricExporter, MetricsData

# Half of what the SDK lets pass before it drops attributes by itself.
_MAX_SERIES = 1000
_OTHER = "other"
_ASK_SECONDS, _FRESH_SECONDS = 2.0, 0.5
_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 30.0)
_OTLP = "opentelemetry.exporter.otlp.proto.http.metric_exporter"
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT")


class Instrument(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How one of our numbers leaves: its name, and which attributes under which names and words."""

    name: str
    unit: str = "1"
    description: str = ""
    attributes: dict[str, str] | None = None
    """Our attribute to the exported one; None exports all under our names, what is missing is summed over."""
    values: dict[str, dict[str, str]] = {}
    """For one of our attributes, our word to the exported one."""
    scale: float = 1.0


# What is counted, and by which attributes. None of them is an id, an address or a key, and none may become one.
ATTRIBUTES: Final[dict[str, tuple[str, ...]]] = {
    "intents": ("outcome", "notification_type", "producer", "audience_kind"),
    "attempts": ("channel", "provider", "outcome", "verdict", "notification_type"),
    "retries": ("channel", "provider", "classification"),
    "dead_letters": ("channel", "provider", "classification"),
    "leases_lost": ("provider",),
    "breaker_changes": ("provider", "before", "after"),
    "troubles": ("where",),
    "pruned": ("kind",),
    "rehomed": ("channel",),
    "attempt_duration": ("channel", "provider", "outcome"),
    "due": (),
    "open": (),
    "oldest_due": (),
}
_GAUGES = ("due", "open", "oldest_due")
_DURATION = "attempt_duration"

# A blueprint whose document fixes other names hands its own table, or a part of one, to Metrics.
CARILLON: Final[dict[str, Instrument]] = {
    "intents": Instrument("carillon.intents", "{intent}", "Intents by what became of them"),
    "attempts": Instrument("carillon.attempts", "{attempt}", "Calls of providers"),
    "retries": Instrument("carillon.retries", "{retry}", "Attempts that will be repeated"),
    "dead_letters": Instrument("carillon.dead_letters", "{route}", "Routes given up"),
    "leases_lost": Instrument("carillon.leases.lost", "{lease}", "Leases lost to another worker"),
    "breaker_changes": Instrument("carillon.breaker.changes", "{change}", "Breakers going from state to state"),
    "troubles": Instrument("carillon.troubles", "{failure}", "Failures of our own loops"),
    "rehomed": Instrument("carillon.rehomed", "{route}", "Waiting routes that lost their provider or lane"),
    "pruned": Instrument("carillon.pruned", "{row}", "Rows removed by retention"),
    "attempt_duration": Instrument("carillon.attempt.duration", "s", "How long providers took"),
    "due": Instrument("carillon.routes.due", "{route}", "Routes that could be claimed now"),
    "open": Instrument("carillon.routes.open", "{route}", "Routes that are not terminal"),
    "oldest_due": Instrument("carillon.routes.oldest_due_age", "s", "How long the oldest due route has waited"),
}


class Metrics:
    """Counts events; what is costly happens when an exporter asks, so that counting stays cheap."""

    def __init__(self, meter: otel.Meter | None = None, table: Mapping[str, Instrument] | None = None) -> None:
        meter = meter or otel.get_meter("carillon")
        self._table = {**CARILLON, **(table or {})}
        self._sums: dict[str, dict[tuple[str, ...], int]] = {}
        self._redaction = Redaction()
        self._attributes: dict[tuple[str, tuple[str, ...]], dict[str, str]] = {}
        self._counts: dict[str, Any] | None = None
        self._asked_at = float("-inf")
        self._ask: Callable[[], dict[str, Any] | None] = lambda: None
        for counted, one in self._table.items():
            if counted in _GAUGES:
                meter.create_observable_gauge(one.name, [self._gauge(counted)], one.unit, one.description)
            elif counted != _DURATION:
                self._sums[counted] = {}
                meter.create_observable_counter(one.name, [self._counter(counted)], one.unit, one.description)
        lasting = self._table[_DURATION]
        self._durations = meter.create_histogram(
            lasting.name, lasting.unit, lasting.description, explicit_bucket_boundaries_advisory=_BUCKETS
        )

    def __call__(self, event: Event) -> None:
        """Be an Observer."""
        match event:
            case RouteAttempted():
                self._attempted(event)
            case IntentAccepted():
                self._add("intents", ("accepted", event.notification_type, event.producer, event.audience_kind))
            case IntentRepeated():
                self._add("intents", (event.outcome, event.notification_type, event.producer, event.audience_kind))
            case LeaseLost():
                self._add("leases_lost", (event.provider,))
            case BreakerChanged():
                self._add("breaker_changes", (event.provider, event.before, event.after))
            case Trouble():
                self._add("troubles", (event.where,))
            case Rehomed():
                self._add("rehomed", (event.channel,), event.routes)
            case Pruned():
                self._add("pruned", ("records",), event.records)
                self._add("pruned", ("malformed_intents",), event.malformed_intents)

    def watch(self, ledger: UpkeepLedger, loop: asyncio.AbstractEventLoop) -> None:
        """From now on, exports ask this ledger how much is due; without an exporter it is never asked."""

        def ask() -> dict[str, Any] | None:
            asked = asyncio.run_coroutine_threadsafe(ledger.counts(), loop)
            try:
                return asked.result(_ASK_SECONDS)
            except (LedgerUnavailable, TimeoutError):
                asked.cancel()
                return None

        self._ask = ask

    def _attempted(self, event: RouteAttempted) -> None:
        # Without a call there was no attempt, only a decision.
        if event.outcome != "none":
            key = (event.channel, event.provider, event.outcome)
            self._add("attempts", (*key, event.verdict, event.notification_type))
            scale = self._table[_DURATION].scale / 1000
            self._durations.record(event.duration_ms * scale, self._exported(_DURATION, key))
        if event.settled is Settled.STALE:
            return
        if event.verdict in {"retry", "bury"}:
            counted = "retries" if event.verdict == "retry" else "dead_letters"
            self._add(counted, (event.channel, event.provider, event.classification or event.outcome))

    def _add(self, counted: str, key: tuple[str, ...], amount: int = 1) -> None:
        sums = self._sums[counted]
        if key not in sums and len(sums) >= _MAX_SERIES:
            key = (_OTHER,) * len(key)
        sums[key] = sums.get(key, 0) + amount

    def _exported(self, counted: str, key: tuple[str, ...]) -> dict[str, str]:
        found = self._attributes.get((counted, key))
        if found is None:
            one = self._table[counted]
            names = {name: name for name in ATTRIBUTES[counted]} if one.attributes is None else one.attributes
            words = dict(zip(ATTRIBUTES[counted], key, strict=True))
            found = {
                exported: self._redaction.text(one.values.get(ours, {}).get(words[ours], words[ours]))
                for ours, exported in names.items()
            }
            if len(self._attributes) < _MAX_SERIES * len(ATTRIBUTES):
                self._attributes[counted, key] = found
        return found

    def _counter(self, counted: str) -> Callable[[otel.CallbackOptions], Iterable[otel.Observation]]:
        def observe(_options: otel.CallbackOptions) -> Iterable[otel.Observation]:
            totals: dict[tuple[tuple[str, str], ...], int] = {}
            # The list is a copy: events go on being counted in another thread.
            for key, amount in list(self._sums[counted].items()):
                exported = tuple(self._exported(counted, key).items())
                totals[exported] = totals.get(exported, 0) + amount
            return [otel.Observation(amount, dict(exported)) for exported, amount in totals.items()]

        return observe

    def _gauge(self, counted: str) -> Callable[[otel.CallbackOptions], Iterable[otel.Observation]]:
        def observe(_options: otel.CallbackOptions) -> Iterable[otel.Observation]:
            counts = self._snapshot()
            if counts is None:
                return []
            routes = counts["routes"]
            value = {
                "due": counts["due"],
                "open": routes["pending"] + routes["failed"],
                "oldest_due": max(0.0, counts["oldest_due_seconds"] or 0.0),
            }[counted]
            return [otel.Observation(value * self._table[counted].scale)]

        return observe

    def _snapshot(self) -> dict[str, Any] | None:
        """One question to the ledger serves all gauges of an export."""
        if time.monotonic() >= self._asked_at + _FRESH_SECONDS and not _in_loop():
            self._counts = self._ask()
            self._asked_at = time.monotonic()
        return self._counts


def _in_loop() -> bool:
    """A flush from inside the loop cannot wait for the loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class _Lines:
    """The log's stream as an exporter sees it, so that numbers and log lines never cut each other."""

    def write(self, line: str) -> None:
        logs.active().write(line)

    def flush(self) -> None:
        pass


def _line(data: "MetricsData") -> str:
    begin = logs.active().header(logs.LEVELS["info"], "metrics", "Numbers since the start")
    return encode(begin | msgspec.json.decode(data.to_json(indent=None)))


def _otlp_exporter() -> "Callable[[], MetricExporter] | None":
    try:
        found: Callable[[], MetricExporter] = importlib.import_module(_OTLP).OTLPMetricExporter
    except ModuleNotFoundError:
        message = "An OTLP endpoint is set and nothing is exported to it: install carillon[otlp]"
        logs.active().emit(logs.LEVELS["warning"], "otlp_missing", message, {})
        return None
    return found


def configure_metrics(*, stdout: bool, otlp: bool, service: str = "carillon") -> "MeterProvider | None":
    """Export to stdout and over OTLP as asked; None, and no SDK at work, when nothing is to be exported."""
    otlp_exporter = _otlp_exporter() if otlp and any(os.environ.get(name) for name in _ENDPOINTS) else None
    if not stdout and otlp_exporter is None:
        return None
    # The SDK costs time and memory at import, which only those who export should pay.
    from opentelemetry.sdk.metrics import MeterProvider  # noqa: PLC0415
    from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, PeriodicExportingMetricReader  # noqa: PLC0415
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415

    exporters: list[MetricExporter] = [ConsoleMetricExporter(_Lines(), _line)] if stdout else []  # type: ignore[arg-type]
    if otlp_exporter is not None:
        exporters.append(otlp_exporter())
    try:
        readers = [PeriodicExportingMetricReader(exporter) for exporter in exporters]
    except ValueError:
        raise ConfigurationError("OTEL_METRIC_EXPORT_INTERVAL must be a positive number of milliseconds") from None
    provider = MeterProvider(readers, Resource.create({"service.name": service}))
    otel.set_meter_provider(provider)
    return provider
