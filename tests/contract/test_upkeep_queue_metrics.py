"""Numbers about list queues as an exporter sees them: depth, age, failure rate, waits, webhooks."""

from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from carillon.domain.claims import Settled
from carillon.domain.events import WebhookCalled
from carillon.domain.queue_events import MessageSwept, QueueDeep, QueueLooked, QueuePumped
from carillon.upkeep.metrics.instruments import Instrument
from carillon.upkeep.metrics.queues import QueueMetrics
from tests.contract.test_upkeep_metrics import CANARY, Points, attempted, exported

QUEUE = "q:pay:subscription_update"


class Counted:
    """The observer on a clock of the test's own."""

    def __init__(self, table: dict[str, Instrument] | None = None, *, only: bool = False) -> None:
        self.now = 1000.0
        self.reader = InMemoryMetricReader()
        meter = MeterProvider([self.reader], shutdown_on_exit=False).get_meter("carillon")
        self.metrics = QueueMetrics(meter, table, only=only, monotonic=lambda: self.now)

    def ran(self, verdict: str = "finish", **changes: Any) -> None:
        plain = {"audience_kind": "queue", "channel": QUEUE, "provider": QUEUE, "verdict": verdict}
        self.metrics(attempted(**{**plain, **changes}))

    def points(self) -> Points:
        return exported(self.reader)


def looked(**changes: Any) -> QueueLooked:
    plain = {"queue": QUEUE, "main": 3, "processing": 2, "delayed": 1, "failed": 4, "oldest_seconds": 7.5}
    return QueueLooked(**{**plain, **changes})


@pytest.mark.req("S3-94")
def test_depths_and_ages_are_the_last_look() -> None:
    counted = Counted()
    counted.metrics(looked(main=9))
    counted.metrics(looked())
    counted.metrics(looked(queue="q:sub:usage_sync", main=0, oldest_seconds=None))
    counted.metrics(QueueDeep(queue=QUEUE, depth=3, limit=2))
    points = counted.points()
    depths = {(at["queue"], at["place"]): value for at, value in points["carillon.queue.depth"]}
    assert [depths[QUEUE, place] for place in ("main", "processing", "delayed", "failed")] == [3, 2, 1, 4]
    ages = {at["queue"]: value for at, value in points["carillon.queue.oldest_age"]}
    assert ages == {QUEUE: 7.5, "q:sub:usage_sync": 0}


@pytest.mark.req("S3-94")
def test_runs_durations_and_waits() -> None:
    counted = Counted()
    counted.ran()
    counted.ran("retry", outcome="unavailable", delay_seconds=60.0)
    counted.ran("bury", outcome="refused")
    # No run: nothing was called, the word was stale, or it is a notification's attempt and no message's.
    counted.ran("bury", outcome="none")
    counted.ran("retry", outcome="unavailable", settled=Settled.STALE)
    counted.ran("defer", outcome="throttled")
    counted.metrics(attempted())
    counted.metrics(QueuePumped(queue=QUEUE, moved=3, late_seconds=0.4))
    counted.metrics(MessageSwept(queue=QUEUE, message_id=CANARY, attempts=1, verdict="retry"))
    points = counted.points()
    runs = {at["result"]: value for at, value in points["carillon.queue.runs"]}
    assert runs == {"success": 1, "retry": 1, "failed": 1}
    assert sum(value for _, value in points["carillon.queue.run.duration"]) == pytest.approx(0.06)
    assert points["carillon.queue.retry.delay"] == [({"queue": QUEUE}, 60.0)]
    assert points["carillon.queue.retry.latency"] == [({"queue": QUEUE}, 0.4)]
    assert points["carillon.queue.swept"] == [({"queue": QUEUE, "verdict": "retry"}, 1)]
    assert CANARY not in repr(points)


@pytest.mark.req("S3-94")
def test_the_failure_rate_is_of_the_last_five_minutes() -> None:
    counted = Counted()
    counted.ran("retry", outcome="unavailable")
    counted.now += 240
    for _ in range(3):
        counted.ran()
    assert counted.points()["carillon.queue.failure_rate"] == [({"queue": QUEUE}, 0.25)]
    counted.now += 120
    assert counted.points()["carillon.queue.failure_rate"] == [({"queue": QUEUE}, 0.0)]
    counted.ran("bury", outcome="refused")
    assert counted.points()["carillon.queue.failure_rate"] == [({"queue": QUEUE}, 0.25)]
    counted.now += 3600
    assert "carillon.queue.failure_rate" not in counted.points()


@pytest.mark.req("S3-94")
def test_webhooks_by_how_they_were_sent_and_what_came_of_it() -> None:
    counted = Counted()
    counted.metrics(WebhookCalled(event_id=CANARY, immediate=True, duration_ms=20.0, status=200))
    counted.metrics(WebhookCalled(event_id=CANARY, immediate=False, duration_ms=500.0, error="no answer"))
    points = {(at["kind"], at["result"]): value for at, value in counted.points()["carillon.webhook.duration"]}
    assert points == {("immediate", "success"): pytest.approx(0.02), ("queued", "failed"): pytest.approx(0.5)}


def test_a_table_renames_and_leaves_out() -> None:
    table = {
        "queue_runs": Instrument("jobs.runs", attributes={"result": "status"}, values={"result": {"success": "done"}})
    }
    counted = Counted(table, only=True)
    counted.ran()
    counted.ran(channel="q:other:queue")
    counted.metrics(looked())
    points = counted.points()
    assert set(points) == {"jobs.runs"}
    assert points["jobs.runs"] == [({"status": "done"}, 2)]
