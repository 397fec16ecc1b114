"""Counts events and passes the numbers to OpenTelemetry."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeVar

from opentelemetry import metrics as otel

from carillon.domain.claims import Settled
from carillon.domain.events import (
    AlertDelayed,
    AlertTold,
    BreakerChanged,
    CallbackRefused,
    CallsPaused,
    CallsResumed,
    DoorStopped,
    EndpointDisabled,
    EndpointEnabled,
    Event,
    HistoryKept,
    IntentAccepted,
    IntentMalformed,
    IntentRepeated,
    LeaseLost,
    LeasesReset,
    MessageFinished,
    NotificationStopped,
    PartStarted,
    PartStopped,
    PersonSought,
    ProviderProbed,
    Pruned,
    ReceiptTaken,
    Rehomed,
    RequestServed,
    RouteAttempted,
    StreamTrimmed,
    TargetSlowed,
    TicketsLost,
    TokenRefused,
    Trouble,
    WebhookCalled,
)
from carillon.domain.gate_events import AddressSuppressed, RouteGated, RouteSuppressed
from carillon.domain.ports import UpkeepLedger
from carillon.domain.queue_events import (
    FailedTrimmed,
    MessageOverdue,
    MessageSwept,
    QueueDeep,
    QueueLooked,
    QueuePumped,
)
from carillon.upkeep.logs.redaction import Redaction
from carillon.upkeep.metrics.instruments import ATTRIBUTES, CARILLON, DURATION, GAUGES, Instrument

T = TypeVar("T")

# Half of the SDK's own limit, above which the SDK drops attributes.
_MAX_SERIES = 1000
_OTHER = "other"
_NONE = "none"
_UNREAD = frozenset({"invalid_envelope", "unsupported_notification_type", "invalid_audience"})
"""With these codes, type, producer and audience are a producer's unchecked text, which may be an id or an address."""
_ASK_SECONDS, _FRESH_SECONDS = 2.0, 0.5
_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 30.0)


class Metrics:
    """Counts events cheaply; the costly work happens at an export."""

    def __init__(
        self, meter: otel.Meter | None = None, table: Mapping[str, Instrument] | None = None, *, only: bool = False
    ) -> None:
        """`table` renames instruments; `only` exports no others."""
        meter = meter or otel.get_meter("carillon")
        self._table = {**CARILLON, **(table or {})}
        shown = {counted: self._table[counted] for counted in (table or {})} if only else self._table
        self._sums: dict[str, dict[tuple[str, ...], int]] = {}
        self._redaction = Redaction()
        self._attributes: dict[tuple[str, tuple[str, ...]], dict[str, str]] = {}
        self._counts: dict[str, Any] | None = None
        self._asked_at = float("-inf")
        self._served: set[str] = set()
        self._ask: Callable[[], dict[str, Any] | None] = lambda: None
        self._ask_stream: Callable[[], float | None] = lambda: None
        self._count_streams: Callable[[], int | None] = lambda: None
        self._ask_waits: Callable[[], Mapping[tuple[str, str], int] | None] = lambda: None
        self._durations: otel.Histogram | None = None
        for counted in self._table:
            self._sums[counted] = {}
        for counted, one in shown.items():
            if counted in GAUGES:
                meter.create_observable_gauge(one.name, [self._gauge(counted)], one.unit, one.description)
            elif counted == DURATION:
                self._durations = meter.create_histogram(
                    one.name, one.unit, one.description, explicit_bucket_boundaries_advisory=_BUCKETS
                )
            else:
                meter.create_observable_counter(one.name, [self._counter(counted)], one.unit, one.description)

    def __call__(self, event: Event) -> None:
        """Be an Observer."""
        match event:
            # Check for the two frequent events first.
            case RouteAttempted():
                self._attempted(event)
            case IntentAccepted():
                self._add("intents", ("accepted", event.notification_type, event.producer, event.audience_kind))
            case QueuePumped() | QueueLooked() | QueueDeep() | MessageSwept() | MessageOverdue() | FailedTrimmed():
                pass
            case (
                PartStarted()
                | PartStopped()
                | RequestServed()
                | TokenRefused()
                | ProviderProbed()
                | MessageFinished()
                | (WebhookCalled() | CallsPaused() | CallsResumed())
            ):
                pass
            case Pruned() | HistoryKept() | Rehomed() | TicketsLost():
                self._looked_after(event)
            case AlertTold() | AlertDelayed():
                self._add("alerts", (event.sink, "told" if isinstance(event, AlertTold) else "delayed"))
            case LeasesReset():
                self._add("leases_reset", (), event.count)
            case LeaseLost() | BreakerChanged() | Trouble() | EndpointDisabled() | EndpointEnabled() | TargetSlowed():
                self._went_wrong(event)
            case (
                ReceiptTaken()
                | CallbackRefused()
                | NotificationStopped()
                | RouteSuppressed()
                | RouteGated()
                | AddressSuppressed()
            ):
                self._reported(event)
            case _:
                self._arrived(event)

    def _looked_after(self, event: Pruned | HistoryKept | Rehomed | TicketsLost) -> None:
        match event:
            case Pruned():
                self._add("pruned", ("records",), event.records)
                self._add("pruned", ("malformed_intents",), event.malformed_intents)
                self._add("pruned", ("audit_rows",), event.audit_rows)
            case HistoryKept():
                self._add("history", (), event.endings)
            case Rehomed():
                self._add("rehomed", (event.channel,), event.routes)
            case TicketsLost():
                self._add("tickets_lost", (), event.routes)

    def _went_wrong(
        self, event: LeaseLost | BreakerChanged | Trouble | EndpointDisabled | EndpointEnabled | TargetSlowed
    ) -> None:
        match event:
            case LeaseLost():
                self._add("leases_lost", (event.provider,))
            case BreakerChanged(endpoint=None):
                self._add("breaker_changes", (event.provider, event.before, event.after))
            case BreakerChanged():
                # An endpoint's name is no attribute: there may be thousands.
                self._add("endpoint_breaker_changes", (event.provider, event.before, event.after))
            case Trouble():
                self._add("troubles", (event.where,))
            case EndpointDisabled():
                self._add("endpoints_disabled", (event.provider,))
            case EndpointEnabled():
                self._add("endpoints_enabled", (event.provider,))
            case TargetSlowed():
                self._add("slowed", (event.provider,))

    def _reported(
        self,
        event: ReceiptTaken | CallbackRefused | RouteSuppressed | RouteGated | AddressSuppressed | NotificationStopped,
    ) -> None:
        match event:
            case NotificationStopped():
                self._add("stopped", (event.gate,))
            case RouteGated():
                self._add("gated", (event.channel, event.gate))
            case RouteSuppressed():
                self._add("suppressed", (event.channel, event.kind))
            case AddressSuppressed():
                self._add("suppressions", (event.channel, event.kind, event.source, event.provider))
            case ReceiptTaken():
                self._add("receipts", (event.provider, event.kind, event.effect))
                if event.kind in {"opened", "clicked"} and event.effect == "noted":
                    self._add("engagement", (event.kind, event.provider))
            case CallbackRefused():
                self._add("callbacks_refused", (event.vendor,))

    def _arrived(self, event: IntentRepeated | IntentMalformed | PersonSought | DoorStopped | StreamTrimmed) -> None:
        match event:
            case IntentRepeated():
                self._add("intents", (event.outcome, event.notification_type, event.producer, event.audience_kind))
            case IntentMalformed():
                said = (event.notification_type, event.producer, event.audience_kind)
                told = (_NONE if event.failure_code in _UNREAD or not word else word for word in said)
                self._add("intents", ("rejected", *told))
                self._add("malformed", (event.failure_code,))
            case PersonSought():
                self._add("lookups", (event.result,))
            case DoorStopped():
                self._add("door_stops", (event.door,))
            case StreamTrimmed():
                self._add("stream_trims", ())

    def watch(self, ledger: UpkeepLedger, loop: asyncio.AbstractEventLoop) -> None:
        """Read the number of due routes from this ledger at every export; without an exporter, never."""
        self._ask = _asking(ledger.counts, loop)
        self._asked_at = float("-inf")

    def watch_stream(self, ask: Callable[[], Awaitable[float | None]], loop: asyncio.AbstractEventLoop) -> None:
        """Read the age of the oldest unread entry in milliseconds at every export; 0 if there is none."""
        self._ask_stream = _asking(ask, loop)

    def watch_streams(self, count: Callable[[], int]) -> None:
        """Read the number of live streams at every export."""
        self._count_streams = count

    def watch_waits(
        self, ask: Callable[[], Awaitable[Mapping[tuple[str, str], int]]], loop: asyncio.AbstractEventLoop
    ) -> None:
        """Read what keeps routes waiting at every export, counted by reason and provider."""
        self._ask_waits = _asking(ask, loop)

    def stop_watching(self) -> None:
        """Ask no server any more: the last export comes after the connections are closed."""
        self._ask = self._ask_stream = self._ask_waits = lambda: None

    def _attempted(self, event: RouteAttempted) -> None:
        # Without a call, there was a decision and no attempt.
        if event.outcome != "none":
            key = (event.channel, event.provider, event.outcome)
            self._add("attempts", (*key, event.verdict, event.notification_type))
            if self._durations is not None:
                scale = self._table[DURATION].scale / 1000
                self._durations.record(event.duration_ms * scale, self._exported(DURATION, key))
        if event.settled is Settled.STALE:
            return
        if event.verdict == "skip":
            self._add("gated", (event.channel, event.classification or event.outcome))
        elif event.verdict in {"retry", "bury"}:
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
            # Copy the list, because another thread goes on counting events.
            for key, amount in list(self._sums[counted].items()):
                exported = tuple(self._exported(counted, key).items())
                totals[exported] = totals.get(exported, 0) + amount
            return [otel.Observation(amount, dict(exported)) for exported, amount in totals.items()]

        return observe

    def _gauge(self, counted: str) -> Callable[[otel.CallbackOptions], Iterable[otel.Observation]]:
        def observe(_options: otel.CallbackOptions) -> Iterable[otel.Observation]:
            if counted == "waits":
                return self._waits()
            own = {"oldest_unread": self._unread, "streams": self._count_streams}.get(counted)
            value = self._of_ledger(counted) if own is None else own()
            return [] if value is None else [otel.Observation(value * self._table[counted].scale)]

        return observe

    def _waits(self) -> list[otel.Observation]:
        found = None if _in_loop() else self._ask_waits()
        return [otel.Observation(number, self._exported("waits", key)) for key, number in (found or {}).items()]

    def _unread(self) -> float | None:
        age = None if _in_loop() else self._ask_stream()
        return None if age is None else max(0.0, age / 1000)

    def _of_ledger(self, counted: str) -> float | None:
        counts = self._snapshot(counted)
        if counts is None:
            return None
        routes = counts["routes"]
        return {
            "due": float(counts["due"]),
            "open": float(routes["pending"] + routes["failed"]),
            "oldest_due": max(0.0, counts["oldest_due_seconds"] or 0.0),
        }[counted]

    def _snapshot(self, counted: str) -> dict[str, Any] | None:
        """One query serves all gauges of an export; a gauge that is read a second time begins the next export."""
        again = counted in self._served or time.monotonic() >= self._asked_at + _FRESH_SECONDS
        if again and not _in_loop():
            self._served = set()
            self._counts = self._ask()
            self._asked_at = time.monotonic()
        self._served.add(counted)
        return self._counts


def _in_loop() -> bool:
    """A flush from inside the loop cannot wait for the loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _asking(question: Callable[[], Awaitable[T]], loop: asyncio.AbstractEventLoop) -> Callable[[], T | None]:
    """Run the query in the event loop from an exporter's thread; None if it does not answer in time."""

    async def put() -> T:
        return await question()

    def ask() -> T | None:
        putting = put()
        try:
            asked = asyncio.run_coroutine_threadsafe(putting, loop)
        except RuntimeError:
            # The event loop is closed: this is the last export, after the end of the program.
            putting.close()
            return None
        try:
            return asked.result(_ASK_SECONDS)
        except Exception:  # noqa: BLE001 - a number that cannot be had is left out, the others still leave
            asked.cancel()
            return None

    return ask
