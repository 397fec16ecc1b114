"""Every alarm that we ship fires within two minutes of its fault, and none without one, as promtool evaluates them.

The events of each fault go through the real instruments, exporter and names of a process, fifteen seconds to an export,
in virtual time. test_alarms_live lets faults happen to running processes.
"""

import asyncio
import threading
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from carillon.config.reading import load
from carillon.domain.claims import Settled
from carillon.domain.events import (
    AlertDelayed,
    BreakerChanged,
    CallbackRefused,
    DoorStopped,
    EndpointDisabled,
    Event,
    IntentAccepted,
    IntentMalformed,
    LeaseLost,
    LeasesReset,
    PersonSought,
    Rehomed,
    RouteAttempted,
    StreamTrimmed,
    TicketsLost,
    Trouble,
)
from carillon.domain.gate_events import AddressSuppressed, RouteSuppressed
from carillon.domain.queue_events import MessageSwept, QueueLooked
from carillon.upkeep.metrics.meters import Metrics
from carillon.upkeep.metrics.queues import QueueMetrics
from tests.deploy.alarm_series import STEP, Timeline, complaints
from tests.deploy.test_observe import RULES
from tests.unit.test_config import NEEDED

CALM = 1200
"""Twenty minutes without a fault, before each fault."""
HOUR = 3600
WITHIN = 120
QUEUE = "q:pay:refund_initiation"


@cache
def galaxy_table() -> Any:
    return load("galaxy", environ=NEEDED).metrics.instruments


class Telling:
    """One process: its instruments, and what their gauges find."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Callable[[], float], *, galaxy: bool) -> None:
        self._reader = InMemoryMetricReader()
        meter = MeterProvider([self._reader]).get_meter("carillon")
        table = galaxy_table() if galaxy else None
        metrics = Metrics(meter, table, only=galaxy)
        ledger: Any = self
        metrics.watch(ledger, loop)
        metrics.watch_stream(self.unread, loop)
        self.observers: list[Callable[[Event], None]] = [metrics]
        if not galaxy:
            self.observers.append(QueueMetrics(meter, monotonic=clock))
        self.due_seconds, self.unread_ms, self.silent = 1.0, 200.0, False

    async def counts(self) -> dict[str, Any]:
        return {"routes": {"pending": 3, "failed": 0}, "due": 3, "oldest_due_seconds": self.due_seconds}

    async def unread(self) -> float:
        return self.unread_ms

    def export(self) -> Any:
        data = self._reader.get_metrics_data()
        return None if data is None or self.silent else encode_metrics(data)


class Process:
    """A process of an engine with queues and one of galaxy, second by second."""

    def __init__(self, loop: asyncio.AbstractEventLoop, calm: Timeline | None = None) -> None:
        """With `calm`, it has lived through the calm already, and these are its exports."""
        self.second = 0
        self.told = [Telling(loop, lambda: float(self.second), galaxy=galaxy) for galaxy in (False, True)]
        self.timeline = Timeline() if calm is None else deepcopy(calm)
        self.queue = QueueLooked(queue=QUEUE, main=3, processing=1, delayed=2, failed=0, oldest_seconds=0.5)
        self.failing, self.slow, self.runs_fail = False, False, False
        if calm is not None:
            # The instruments hear everything; exporting it once more would give the same series.
            self._live(CALM, exporting=False)

    def tell(self, event: Event) -> None:
        for one in self.told:
            for observer in one.observers:
                observer(event)

    def attempt(self, **changes: Any) -> None:
        usual: dict[str, Any] = {
            "notification_id": "n",
            "notification_type": "welcome",
            "producer": "shop",
            "audience_kind": "user",
            "route_id": "r",
            "channel": "sms",
            "provider": "twilio",
            "attempt": 1,
            "outcome": "sent",
            "verdict": "finish",
            "duration_ms": 200.0,
            "settled": Settled.APPLIED,
        }
        self.tell(RouteAttempted(**{**usual, **changes}))

    def live(self, until: int, fault: Callable[["Process", int], None] | None = None) -> None:
        """Load until this second; a fault is told how many seconds it has lasted."""
        self._live(until, fault)
        self.timeline.steps = self.second // STEP + 1

    def _live(
        self, until: int, fault: Callable[["Process", int], None] | None = None, *, exporting: bool = True
    ) -> None:
        began = self.second
        while self.second < until:
            self._load()
            if fault is not None:
                fault(self, self.second - began)
            if exporting and self.second % STEP == 0:
                for one in self.told:
                    body = one.export()
                    if body is not None:
                        self.timeline.add(self.second // STEP, body)
            self.second += 1

    def _load(self) -> None:
        """What a healthy process tells: one call in fifty fails and is repeated."""
        self.tell(
            IntentAccepted(
                notification_id="n", notification_type="welcome", producer="shop", audience_kind="user", routes=1
            )
        )
        self.tell(PersonSought(result="found", duration_ms=3.0))
        bad = {"outcome": "unavailable", "verdict": "retry", "classification": "http_503"}
        for part in range(2):
            fails = self.failing or (2 * self.second + part) % 50 == 0
            self.attempt(duration_ms=9000.0 if self.slow else 200.0, **(bad if fails else {}))
        failed = self.runs_fail or self.second % 50 == 0
        self.attempt(
            audience_kind="queue",
            channel=QUEUE,
            provider="handler",
            verdict="retry" if failed else "finish",
            outcome="unavailable" if failed else "sent",
        )
        self.tell(self.queue)


def once(event: Event) -> Callable[[Process, int], None]:
    def fault(process: Process, second: int) -> None:
        if second == 0:
            process.tell(event)

    return fault


def each(seconds: int, event: Event, most: int = 1_000_000) -> Callable[[Process, int], None]:
    def fault(process: Process, second: int) -> None:
        if second % seconds == 0 and second // seconds < most:
            process.tell(event)

    return fault


def given(**values: Any) -> Callable[[Process, int], None]:
    def fault(process: Process, _second: int) -> None:
        for name, value in values.items():
            setattr(process, name, value)

    return fault


def ages(name: str, unit: float) -> Callable[[Process, int], None]:
    def fault(process: Process, second: int) -> None:
        for one in process.told:
            setattr(one, name, second * unit)

    return fault


def silent(process: Process, _second: int) -> None:
    for one in process.told:
        one.silent = True


def queue_ages(process: Process, second: int) -> None:
    process.queue = QueueLooked(queue=QUEUE, main=9, processing=0, delayed=0, failed=0, oldest_seconds=float(second))


def buried(process: Process, second: int) -> None:
    if second == 0:
        process.attempt(outcome="refused", verdict="bury", classification="invalid")


def suppressed(process: Process, _second: int) -> None:
    process.tell(
        RouteSuppressed(
            notification_id="n",
            notification_type="welcome",
            producer="shop",
            tenant_id=None,
            route_id="r",
            channel="sms",
            suppression_id=1,
            kind="bounced",
            until_ms=None,
        )
    )


def burst(number: int, event: Event) -> Callable[[Process, int], None]:
    """All at once, between two exports: the first of their series."""

    def fault(process: Process, second: int) -> None:
        for _ in range(number if second == 0 else 0):
            process.tell(event)

    return fault


MALFORMED = IntentMalformed(stream_entry_id="1-0", failure_code="invalid_payload", failure_message="no")
DEAD = AddressSuppressed(
    channel="sms", kind="bounced", source="receipt", reason="gone", tenant_id=None, seconds=None, provider="twilio"
)
DELAYED = AlertDelayed(
    alert_id=1, notification_id="n", channel="sms", sink="webhook", error="refused", retry_in_seconds=5.0
)
FAULTS: dict[str, Callable[[Process, int], None]] = {
    "CarillonSilent": silent,
    "CarillonRoutesWait": ages("due_seconds", 1.0),
    "CarillonDeadLetters": buried,
    "CarillonProviderFails": given(failing=True),
    "CarillonBreakerOpens": once(BreakerChanged(provider="twilio", before="closed", after="open")),
    "CarillonEndpointDisabled": once(
        EndpointDisabled(provider="webhook", endpoint="e", failing_seconds=432_000.0, failures=99)
    ),
    "CarillonProviderSlow": given(slow=True),
    "CarillonTroubles": each(5, Trouble(where="claim", error="the ledger is away", retry_in_seconds=5.0)),
    "CarillonLeasesLost": once(LeaseLost(notification_id="n", route_id="r", provider="twilio")),
    "CarillonMalformed": once(MALFORMED),
    "CarillonDoorStops": once(DoorStopped(door="kafka", stream_entry_id="1-0", reason="no", retry_in_seconds=5.0)),
    "CarillonUnread": ages("unread_ms", 1000.0),
    "CarillonStreamTrimmed": once(StreamTrimmed(stream="s", offset="1-0")),
    "CarillonAlertsDelayed": each(5, DELAYED),
    "CarillonCallbacksRefused": burst(6, CallbackRefused(vendor="twilio", reason="signature")),
    "CarillonAddressesSuppressed": burst(21, DEAD),
    "CarillonRoutesSuppressed": suppressed,
    "CarillonRehomed": once(Rehomed(channel="sms", routes=3, provider="twilio")),
    "CarillonTicketsLost": once(TicketsLost(routes=2)),
    "CarillonStreamLeasesReset": once(LeasesReset(count=4, failed=0)),
    "CarillonQueueOld": queue_ages,
    "CarillonQueueDeep": given(queue=QueueLooked(queue=QUEUE, main=1001, processing=0, delayed=0, failed=0)),
    "CarillonQueueFails": given(runs_fail=True),
    "CarillonQueueGivenUp": given(queue=QueueLooked(queue=QUEUE, main=0, processing=0, delayed=0, failed=1)),
    "CarillonQueueSwept": once(MessageSwept(queue=QUEUE, message_id="m", attempts=1, verdict="retry")),
    "GalaxyUnread": ages("unread_ms", 1000.0),
    "GalaxyRoutesWait": ages("due_seconds", 1.0),
    "GalaxyDeadLetters": buried,
    "GalaxyMalformed": once(MALFORMED),
    "GalaxyPeopleNotAnswered": each(5, PersonSought(result="failed", duration_ms=1000.0)),
}


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """Where gauges ask their ledger."""
    made = asyncio.new_event_loop()
    thread = threading.Thread(target=made.run_forever, daemon=True)
    thread.start()
    yield made
    made.call_soon_threadsafe(made.stop)
    thread.join()
    made.close()


@pytest.fixture(scope="module")
def calm(loop: asyncio.AbstractEventLoop) -> Timeline:
    """The exports of twenty minutes without a fault, which all tests share."""
    process = Process(loop)
    process.live(CALM)
    return process.timeline


@pytest.mark.req("P-633")
def test_no_alarm_fires_in_an_hour_without_a_fault(loop: asyncio.AbstractEventLoop, tmp_path: Path) -> None:
    process = Process(loop)
    process.live(HOUR)
    assert complaints(tmp_path, process.timeline, calm_until=HOUR - STEP) == ""


@pytest.mark.req("P-633")
@pytest.mark.parametrize("name", FAULTS)
def test_an_alarm_fires_within_two_minutes_of_its_fault_and_not_before(
    name: str, loop: asyncio.AbstractEventLoop, calm: Timeline, tmp_path: Path
) -> None:
    process = Process(loop, calm)
    process.live(CALM + WITHIN + STEP, FAULTS[name])
    fired = [(name, CALM + WITHIN)]
    assert complaints(tmp_path, process.timeline, calm_until=CALM - STEP, fired=fired, only=name) == ""


@pytest.mark.req("P-1243")
def test_no_alarm_fires_for_who_is_not_connected(
    loop: asyncio.AbstractEventLoop, calm: Timeline, tmp_path: Path
) -> None:
    def away(process: Process, second: int) -> None:
        said = {} if second % 10 == 0 else {"outcome": "throttled", "verdict": "defer", "classification": "throttled"}
        process.attempt(channel="sse", provider="sse", **said)

    process, name = Process(loop, calm), "CarillonProviderFails"
    process.live(CALM + WITHIN + STEP, away)
    assert complaints(tmp_path, process.timeline, calm_until=CALM + WITHIN, only=name) == ""


def test_the_calm_that_is_shared_is_the_calm_that_a_process_exports(
    loop: asyncio.AbstractEventLoop, calm: Timeline
) -> None:
    quick, whole = Process(loop, calm), Process(loop)
    whole.live(CALM)
    for process in (quick, whole):
        process.live(CALM + WITHIN, FAULTS["CarillonProviderFails"])
    assert quick.timeline.series() == whole.timeline.series()


def test_every_alarm_has_a_fault() -> None:
    assert list(FAULTS) == [rule["alert"] for rule in RULES]


def test_control_without_the_fault_the_alarm_is_missed(
    loop: asyncio.AbstractEventLoop, calm: Timeline, tmp_path: Path
) -> None:
    process, name = Process(loop, calm), "CarillonDeadLetters"
    process.live(CALM + WITHIN + STEP)
    said = complaints(tmp_path, process.timeline, calm_until=CALM, fired=[(name, CALM + WITHIN)], only=name)
    assert name in said


def test_control_an_alarm_in_the_calm_is_seen(loop: asyncio.AbstractEventLoop, tmp_path: Path) -> None:
    process = Process(loop)
    process.live(300)
    process.live(CALM, FAULTS["CarillonTicketsLost"])
    assert "CarillonTicketsLost" in complaints(tmp_path, process.timeline, calm_until=CALM)
