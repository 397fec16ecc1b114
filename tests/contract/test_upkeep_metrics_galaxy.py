"""The numbers of the galaxy blueprint under its names, with its attributes and words, at a real OTLP receiver."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

from carillon.config.reading import load
from carillon.domain.claims import Settled
from carillon.domain.events import (
    BreakerChanged,
    DoorStopped,
    Event,
    IntentAccepted,
    IntentMalformed,
    IntentRepeated,
    LeaseLost,
    PersonSought,
    Pruned,
    RouteAttempted,
    StreamTrimmed,
    Trouble,
)
from carillon.domain.notifications import Enrolment, Notification, Route
from carillon.ledger.sqlite.ledger import SqliteLedger
from carillon.upkeep.metrics.meters import Metrics
from tests.support.otlp import Collector, collecting
from tests.support.waiting import until
from tests.unit.test_config import NEEDED

COUNTERS = {
    "notification.intent.outcomes",
    "notification.intent.malformed",
    "notification.user_enrichment.attempts",
    "notification.route.publish_attempts",
    "notification.route.retries",
    "notification.route.dead_letters",
}
GAUGES = {
    "notification.route_schedule.depth",
    "notification.route_schedule.oldest_age_ms",
    "notification.intent_stream.oldest_unprocessed_age_ms",
}
ALLOWED = {
    "notification_type",
    "producer",
    "audience_kind",
    "channel",
    "result",
    "outcome",
    "failure_code",
    "failure_classification",
}
CANARY = "canary-7f3a9c"
INTENT = {
    "notification_type": "game.finished",
    "producer": "game_master",
    "audience_kind": "user",
    "idempotency_key": CANARY,
    "request_id": CANARY,
    "trace_id": CANARY,
}


class Exports:
    """The blueprint's own table, and a collector that is sent what it makes of events."""

    def __init__(self, collector: Collector) -> None:
        exporter = OTLPMetricExporter(f"{collector.address}/v1/metrics")
        self.collector = collector
        self.provider = MeterProvider([PeriodicExportingMetricReader(exporter, 3_600_000)], shutdown_on_exit=False)
        settings = load("galaxy", environ=NEEDED).metrics
        self.metrics = Metrics(self.provider.get_meter("carillon"), settings.instruments, only=settings.only)

    def of(self, *events: Event) -> Collector:
        for event in events:
            self.metrics(event)
        self.provider.force_flush()
        return self.collector


@pytest.fixture
def exports() -> Iterator[Exports]:
    with collecting() as collector:
        made = Exports(collector)
        yield made
        made.provider.shutdown()


def attempted(**changes: Any) -> RouteAttempted:
    plain: dict[str, Any] = {
        **INTENT,
        "notification_id": CANARY,
        "route_id": f"push:user:{CANARY}",
        "channel": "push",
        "provider": "gateway",
        "attempt": 1,
        "outcome": "sent",
        "verdict": "finish",
        "duration_ms": 2.0,
        "settled": Settled.APPLIED,
    }
    return RouteAttempted(**{**plain, **changes})


FAILED = {"outcome": "unavailable", "classification": "gateway_stream_publish_failed", "error": CANARY}
EVERYTHING: tuple[Event, ...] = (
    IntentAccepted(**INTENT, notification_id=CANARY, routes=2),
    IntentRepeated(**INTENT, notification_id=CANARY, outcome="duplicate"),
    IntentRepeated(**INTENT, notification_id=CANARY, outcome="conflict"),
    IntentMalformed(stream_entry_id=CANARY, failure_code="invalid_payload", failure_message=CANARY),
    PersonSought(result="found", duration_ms=1.0),
    PersonSought(result="not_found", duration_ms=1.0),
    PersonSought(result="failed", duration_ms=1.0, error=CANARY),
    attempted(),
    attempted(channel="email", provider="mail"),
    attempted(**FAILED, verdict="retry"),
    attempted(outcome="unknown", verdict="retry", classification="gateway_stream_publish_failed"),
    attempted(**FAILED, verdict="bury"),
    LeaseLost(notification_id=CANARY, route_id=CANARY, provider="gateway"),
    BreakerChanged(provider="gateway", before="closed", after="open"),
    Trouble(where="door", error=CANARY),
    DoorStopped(door="stream", stream_entry_id=CANARY, reason=CANARY, retry_in_seconds=1.0),
    StreamTrimmed(stream="notification:intents", offset=CANARY),
    Pruned(records=1, malformed_intents=1),
)


@pytest.mark.req("S1-167", "S1-168", "S1-169")
def test_intents_and_people_are_counted_by_what_became_of_them(exports: Exports) -> None:
    found = exports.of(*EVERYTHING)
    whose = {"notification_type": "game.finished", "producer": "game_master", "audience_kind": "user"}
    unknown = dict.fromkeys(whose, "none")
    assert sorted(found.points("notification.intent.outcomes"), key=str) == sorted(
        [
            (whose | {"outcome": "accepted"}, 1),
            (whose | {"outcome": "duplicate"}, 1),
            (whose | {"outcome": "rejected"}, 1),
            (unknown | {"outcome": "rejected"}, 1),
        ],
        key=lambda point: str(({"outcome": point[0]["outcome"]} | point[0], point[1])),
    )
    assert found.points("notification.intent.malformed") == [({"failure_code": "invalid_payload"}, 1)]
    results = {point["result"]: count for point, count in found.points("notification.user_enrichment.attempts")}
    assert results == {"found": 1, "not_found": 1, "failed": 1}


@pytest.mark.req("S1-170", "S1-171", "S1-172")
def test_routes_are_counted_by_channel_and_failure(exports: Exports) -> None:
    found = exports.of(*EVERYTHING)
    kind = {"notification_type": "game.finished"}
    assert found.points("notification.route.publish_attempts") == [
        (kind | {"channel": "push", "result": "published"}, 1),
        (kind | {"channel": "email", "result": "published"}, 1),
        (kind | {"channel": "push", "result": "failed"}, 3),
    ]
    failure = {"channel": "push", "failure_classification": "gateway_stream_publish_failed"}
    assert found.points("notification.route.retries") == [(failure, 2)]
    assert found.points("notification.route.dead_letters") == [(failure, 1)]


@pytest.mark.req("S1-176")
def test_nothing_else_is_exported_and_nobody_can_be_recognised(exports: Exports) -> None:
    found = exports.of(*EVERYTHING)
    assert found.names() == COUNTERS
    assert found.attribute_names() == ALLOWED
    assert CANARY not in str(found.metrics)


@pytest.fixture
async def ledger(tmp_path: Path) -> AsyncIterator[SqliteLedger]:
    opened = await SqliteLedger.open(tmp_path / "ledger.db")
    await opened.migrate()
    yield opened
    await opened.aclose()


@pytest.mark.req("S1-173", "S1-174", "S1-175")
async def test_gauges_are_asked_when_an_export_leaves(
    exports: Exports, ledger: SqliteLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("carillon.upkeep.metrics.meters._ASK_SECONDS", 30.0)
    loop = asyncio.get_running_loop()
    waited: list[float | None] = [0]

    async def age() -> float | None:
        return waited[-1]

    async def is_seen() -> bool:
        await asyncio.to_thread(exports.of)
        return exports.collector.points("notification.route_schedule.depth") == [({}, 2)]

    exports.metrics.watch(ledger, loop)
    exports.metrics.watch_stream(age, loop)
    found = await asyncio.to_thread(exports.of)
    assert found.names() == GAUGES
    assert [found.points(name) for name in sorted(GAUGES)] == [[({}, 0)], [({}, 0)], [({}, 0)]]

    await ledger.enrol([enrolment("n1"), enrolment("n2")])
    waited.append(4321)
    await until(is_seen, timeout=40, what="two routes that wait")
    assert 0 < found.points("notification.route_schedule.oldest_age_ms")[0][1] < 60_000
    assert found.points("notification.intent_stream.oldest_unprocessed_age_ms") == [({}, 4321)]

    waited.append(None)
    before = len(found.metrics)
    await asyncio.to_thread(exports.of)
    late = {metric.name for _, metric in found.metrics[before:]}
    assert late == GAUGES - {"notification.intent_stream.oldest_unprocessed_age_ms"}, "what is not known is not said"


def enrolment(notification_id: str) -> Enrolment:
    notification = Notification(
        notification_id=notification_id,
        notification_type="game.finished",
        producer="game_master",
        audience_kind="user",
        payload_json="{}",
        request_fingerprint=notification_id,
        priority=2,
    )
    route = Route(
        route_id="push:user:1",
        channel="push",
        recipient_ref="user:1",
        lane=2,
        provider="gateway",
        policy="*/push",
        max_attempts=3,
    )
    return Enrolment(notification, (route,))


def test_a_flush_from_the_loops_own_thread_leaves_unanswerable_gauges_out(exports: Exports) -> None:
    async def flushed() -> Collector:
        exports.metrics.watch_stream(forever, asyncio.get_running_loop())
        return exports.of(EVERYTHING[0])

    async def forever() -> float:
        await asyncio.Event().wait()
        return 0.0

    found = asyncio.run(flushed())
    assert found.names() == {"notification.intent.outcomes"}
