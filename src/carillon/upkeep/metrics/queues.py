"""Numbers about list queues: what is counted, the sums since the start, and the instruments of OpenTelemetry."""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec
from opentelemetry import metrics as otel

from carillon.domain.claims import Settled
from carillon.domain.events import Event, RouteAttempted, WebhookCalled
from carillon.domain.queue_events import MessageSwept, QueueLooked, QueuePumped
from carillon.upkeep.metrics.instruments import Instrument

ATTRIBUTES: Final[dict[str, tuple[str, ...]]] = {
    "queue_depth": ("queue", "place"),
    "queue_oldest": ("queue",),
    "queue_runs": ("queue", "result"),
    "queue_failure_rate": ("queue",),
    "queue_swept": ("queue", "verdict"),
    "queue_run_duration": ("queue", "result"),
    "queue_retry_delay": ("queue",),
    "queue_retry_latency": ("queue",),
    "webhook_duration": ("kind", "result"),
}
QUEUES: Final[dict[str, Instrument]] = {
    "queue_depth": Instrument(
        "carillon.queue.depth", "{message}", "Messages in main, processing, delayed and failed, as last looked at"
    ),
    "queue_oldest": Instrument("carillon.queue.oldest_age", "s", "How old the next message of the main list is"),
    "queue_runs": Instrument("carillon.queue.runs", "{run}", "Runs of handlers by result"),
    "queue_failure_rate": Instrument(
        "carillon.queue.failure_rate", "1", "Share of the last five minutes' runs that failed"
    ),
    "queue_swept": Instrument("carillon.queue.swept", "{message}", "Messages whose worker died"),
    "queue_run_duration": Instrument("carillon.queue.run.duration", "s", "How long handlers took"),
    "queue_retry_delay": Instrument("carillon.queue.retry.delay", "s", "How long failed messages are made to wait"),
    "queue_retry_latency": Instrument(
        "carillon.queue.retry.latency", "s", "How long after its time a waiting message was back in its queue"
    ),
    "webhook_duration": Instrument("carillon.webhook.duration", "s", "How long neighbours took to answer webhooks"),
}
Key = tuple[str, ...]

_RESULTS: Final = {"finish": "success", "retry": "retry", "bury": "failed", "skip": "skipped"}
"""The engine's verdicts by the names that list queues have for the end of a run."""
_MOST_SERIES: Final = 1000
_SLOT_SECONDS, _SLOTS = 60.0, 5
_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0)


class Runs(msgspec.Struct):
    """Runs of a queue's handler by result, and messages taken back from workers that died."""

    success: int = 0
    retry: int = 0
    failed: int = 0
    swept: int = 0
    seconds: float = 0.0
    """What the runs took together."""


class QueueTally:
    """An Observer that remembers sums only."""

    def __init__(self) -> None:
        self._runs: dict[str, Runs] = {}

    def __call__(self, event: Event) -> None:
        """Be an Observer."""
        match event:
            case RouteAttempted(audience_kind="queue"):
                if event.outcome != "none" and event.settled is not Settled.STALE:
                    self._ran(event)
            case MessageSwept():
                self.of(event.queue).swept += 1
            case _:
                pass

    def of(self, queue: str) -> Runs:
        """The sums of one queue, which go on counting."""
        found = self._runs.get(queue)
        if found is None:
            found = self._runs[queue] = Runs()
        return found

    def _ran(self, event: RouteAttempted) -> None:
        runs = self.of(event.channel)
        match event.verdict:
            case "finish":
                runs.success += 1
            case "retry":
                runs.retry += 1
            case "bury":
                runs.failed += 1
            case _:
                return
        runs.seconds += event.duration_ms / 1000


class Recent:
    """How many of the last minutes' runs failed, in slots of a minute, so that a number of runs costs nothing."""

    __slots__ = ("_slots",)

    def __init__(self) -> None:
        self._slots: dict[int, list[int]] = {}

    def add(self, now: float, *, failed: bool) -> None:
        number = int(now / _SLOT_SECONDS)
        slot = self._slots.get(number)
        if slot is None:
            for old in [each for each in self._slots if each <= number - _SLOTS]:
                del self._slots[old]
            slot = self._slots[number] = [0, 0]
        slot[0] += 1
        slot[1] += failed

    def rate(self, now: float) -> float | None:
        """Failed runs of all runs; None when nothing ran."""
        newest = int(now / _SLOT_SECONDS)
        # A copy, because events go on being counted in another thread.
        slots = [slot for number, slot in list(self._slots.items()) if number > newest - _SLOTS]
        runs = sum(slot[0] for slot in slots)
        return sum(slot[1] for slot in slots) / runs if runs else None


class QueueMetrics:
    """An Observer for processes that work off list queues."""

    def __init__(
        self,
        meter: otel.Meter | None = None,
        table: Mapping[str, Instrument] | None = None,
        *,
        only: bool = False,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Give a table to rename instruments, and `only` to export no others."""
        self._meter = meter or otel.get_meter("carillon")
        self._table = dict(table or {}) if only else {**QUEUES, **(table or {})}
        self._now = monotonic
        self._looks: dict[str, QueueLooked] = {}
        self._recent: dict[str, Recent] = {}
        self._sums: dict[str, dict[Key, int]] = {"queue_runs": {}, "queue_swept": {}}
        self._histograms: dict[str, otel.Histogram] = {}
        self._attributes: dict[tuple[str, Key], dict[str, str]] = {}
        self._create()

    def __call__(self, event: Event) -> None:
        """Be an Observer."""
        match event:
            case RouteAttempted(audience_kind="queue"):
                self._ran(event)
            case QueueLooked():
                self._looks[event.queue] = event
            case QueuePumped():
                self._record("queue_retry_latency", event.late_seconds, (event.queue,))
            case MessageSwept():
                self._add("queue_swept", (event.queue, event.verdict))
            case WebhookCalled():
                kind = "immediate" if event.immediate else "queued"
                result = "failed" if event.error else "success"
                self._record("webhook_duration", event.duration_ms / 1000, (kind, result))
            case _:
                pass

    def _ran(self, event: RouteAttempted) -> None:
        result = _RESULTS.get(event.verdict)
        # Without a call no handler ran, and a stale settlement changed nothing.
        if result is None or event.outcome == "none" or event.settled is Settled.STALE:
            return
        queue = event.channel
        self._add("queue_runs", (queue, result))
        self._record("queue_run_duration", event.duration_ms / 1000, (queue, result))
        recent = self._recent.get(queue)
        if recent is None:
            recent = self._recent[queue] = Recent()
        recent.add(self._now(), failed=result != "success")
        if event.delay_seconds is not None and result == "retry":
            self._record("queue_retry_delay", event.delay_seconds, (queue,))

    def _add(self, counted: str, key: Key) -> None:
        sums = self._sums[counted]
        if key in sums or len(sums) < _MOST_SERIES:
            sums[key] = sums.get(key, 0) + 1

    def _record(self, counted: str, seconds: float, key: Key) -> None:
        histogram = self._histograms.get(counted)
        if histogram is not None:
            histogram.record(seconds * self._table[counted].scale, self._exported(counted, key))

    def _exported(self, counted: str, key: Key) -> dict[str, str]:
        found = self._attributes.get((counted, key))
        if found is None:
            one = self._table[counted]
            names = {name: name for name in ATTRIBUTES[counted]} if one.attributes is None else one.attributes
            words = dict(zip(ATTRIBUTES[counted], key, strict=True))
            found = {ours: one.values.get(name, {}).get(words[name], words[name]) for name, ours in names.items()}
            if len(self._attributes) < _MOST_SERIES * len(ATTRIBUTES):
                self._attributes[counted, key] = found
        return found

    def _create(self) -> None:
        gauges = {"queue_depth": self._depths, "queue_oldest": self._oldest, "queue_failure_rate": self._rates}
        for counted, one in self._table.items():
            if counted in gauges:
                callback = self._observing(counted, gauges[counted])
                self._meter.create_observable_gauge(one.name, [callback], one.unit, one.description)
            elif counted in self._sums:
                callback = self._observing(counted, lambda sums=self._sums[counted]: list(sums.items()))  # type: ignore[misc]
                self._meter.create_observable_counter(one.name, [callback], one.unit, one.description)
            else:
                self._histograms[counted] = self._meter.create_histogram(
                    one.name, one.unit, one.description, explicit_bucket_boundaries_advisory=_BUCKETS
                )

    def _observing(
        self, counted: str, found: Callable[[], Iterable[tuple[Key, float]]]
    ) -> Callable[[otel.CallbackOptions], Iterable[otel.Observation]]:
        def observe(_options: otel.CallbackOptions) -> Iterable[otel.Observation]:
            totals: dict[tuple[tuple[str, str], ...], float] = {}
            for key, value in found():
                # What is left out of the attributes is summed over.
                exported = tuple(self._exported(counted, key).items())
                totals[exported] = totals.get(exported, 0) + value * self._table[counted].scale
            return [otel.Observation(value, dict(exported)) for exported, value in totals.items()]

        return observe

    def _depths(self) -> Iterable[tuple[Key, float]]:
        for queue, look in list(self._looks.items()):
            for place in ("main", "processing", "delayed", "failed"):
                yield (queue, place), getattr(look, place)

    def _oldest(self) -> Iterable[tuple[Key, float]]:
        # An empty queue has no oldest message: report 0, or the last age would stay.
        return [((queue,), look.oldest_seconds or 0.0) for queue, look in list(self._looks.items())]

    def _rates(self) -> Iterable[tuple[Key, float]]:
        now = self._now()
        rates = {queue: recent.rate(now) for queue, recent in list(self._recent.items())}
        return [((queue,), rate) for queue, rate in rates.items() if rate is not None]
