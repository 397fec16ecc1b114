"""What leaves through OpenTelemetry: the right numbers under the right names, and nobody's identity."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from carillon.domain.claims import Settled
from carillon.domain.events import (
    BreakerChanged,
    Event,
    IntentAccepted,
    IntentRepeated,
    LeaseLost,
    LeasesReset,
    Pruned,
    RouteAttempted,
    Trouble,
)
from carillon.domain.gate_events import AddressSuppressed, RouteSuppressed
from carillon.domain.notifications import Enrolment, Notification, Route
from carillon.ledger.sqlite.ledger import SqliteLedger
from carillon.upkeep.metrics.instruments import Instrument
from carillon.upkeep.metrics.meters import Metrics

Points = dict[str, list[tuple[dict[str, Any], Any]]]
CANARY = "canary-id"


def attempted(**changes: Any) -> RouteAttempted:
    plain: dict[str, Any] = {
        "notification_id": CANARY,
        "notification_type": "order.shipped",
        "producer": "shop",
        "audience_kind": "user",
        "route_id": CANARY,
        "channel": "push",
        "provider": "fcm",
        "attempt": 1,
        "outcome": "sent",
        "verdict": "finish",
        "duration_ms": 20.0,
        "settled": Settled.APPLIED,
        "request_id": CANARY,
        "trace_id": CANARY,
    }
    return RouteAttempted(**{**plain, **changes})


def exported(reader: InMemoryMetricReader) -> Points:
    data = reader.get_metrics_data()
    if data is None:
        return {}
    found = json.loads(data.to_json())["resource_metrics"][0]["scope_metrics"][0]["metrics"]
    return {metric["name"]: [_point(point) for point in metric["data"]["data_points"]] for metric in found}


def _point(point: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    return point["attributes"], point.get("value", point.get("sum"))


def counted(*events: Event, table: dict[str, Instrument] | None = None) -> Points:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    metrics = Metrics(provider.get_meter("carillon"), table)
    for event in events:
        metrics(event)
    return exported(reader)


SKIPPED = RouteSuppressed(
    notification_id=CANARY,
    notification_type="a",
    producer="p",
    tenant_id=CANARY,
    route_id=CANARY,
    channel="sms",
    suppression_id=7,
    kind="invalid",
    until_ms=None,
)
DEAD = AddressSuppressed(
    channel="sms",
    kind="invalid",
    source="delivery",
    reason=CANARY,
    tenant_id=CANARY,
    seconds=None,
    provider="twilio",
    notification_id=CANARY,
    route_id=CANARY,
)
REPEATED = {"notification_id": CANARY, "notification_type": "a", "producer": "p", "audience_kind": "user"}


@pytest.mark.req("G-18")
def test_every_event_is_counted() -> None:
    points = counted(
        IntentAccepted(**REPEATED, routes=2, idempotency_key=CANARY),
        IntentRepeated(**REPEATED, outcome="duplicate", idempotency_key=CANARY),
        IntentRepeated(**REPEATED, outcome="conflict"),
        attempted(),
        attempted(outcome="unavailable", verdict="retry", classification="timeout"),
        attempted(outcome="refused", verdict="bury", classification="unregistered"),
        attempted(outcome="unavailable", verdict="retry", classification="timeout", settled=Settled.STALE),
        attempted(outcome="none", verdict="bury", classification="expired", duration_ms=0.0),
        LeaseLost(notification_id=CANARY, route_id=CANARY, provider="fcm"),
        LeasesReset(count=4, failed=1),
        BreakerChanged(provider="fcm", before="closed", after="open"),
        Trouble(where="settle", error=CANARY),
        Pruned(records=5, malformed_intents=2),
        SKIPPED,
        DEAD,
    )
    totals = {name: sum(value for _, value in found) for name, found in points.items()}
    assert totals == {
        "carillon.intents": 3,
        "carillon.attempts": 4,
        "carillon.attempt.duration": pytest.approx(0.08),
        "carillon.retries": 1,
        "carillon.dead_letters": 2,
        "carillon.leases.lost": 1,
        "carillon.leases.reset": 4,
        "carillon.breaker.changes": 1,
        "carillon.troubles": 1,
        "carillon.pruned": 7,
        "carillon.routes.suppressed": 1,
        "carillon.suppressions": 1,
    }
    assert [attributes["outcome"] for attributes, _ in points["carillon.intents"]] == [
        "accepted",
        "duplicate",
        "conflict",
    ]


def test_suppressions_are_counted_by_channel_and_kind() -> None:
    points = counted(SKIPPED, SKIPPED, DEAD)
    assert points["carillon.routes.suppressed"] == [({"channel": "sms", "kind": "invalid"}, 2)]
    why = {"channel": "sms", "kind": "invalid", "source": "delivery", "provider": "twilio"}
    assert points["carillon.suppressions"] == [(why, 1)]


def test_nobody_can_be_recognised() -> None:
    points = counted(
        SKIPPED,
        DEAD,
        attempted(verdict="retry", outcome="unavailable", error=CANARY),
        IntentAccepted(**{**REPEATED, "producer": "alice@example.org"}, routes=1, idempotency_key=CANARY),
    )
    text = json.dumps(points)
    assert CANARY not in text
    assert "alice" not in text
    assert not {"notification_id", "route_id", "idempotency_key", "user_id", "error"} & {
        name for found in points.values() for attributes, _ in found for name in attributes
    }


def test_a_table_renames_numbers_attributes_and_words() -> None:
    points = counted(
        IntentRepeated(**REPEATED, outcome="conflict"),
        attempted(),
        attempted(provider="other"),
        attempted(outcome="refused", verdict="bury", classification="gone"),
        table={
            "intents": Instrument("notification.intent.outcomes", values={"outcome": {"conflict": "rejected"}}),
            "attempts": Instrument(
                "notification.route.publish_attempts",
                attributes={"channel": "channel", "notification_type": "notification_type", "outcome": "result"},
                values={"outcome": {"sent": "success", "refused": "failure"}},
            ),
            "dead_letters": Instrument(
                "notification.route.dead_letters",
                attributes={"channel": "channel", "classification": "failure_classification"},
            ),
        },
    )
    push = {"channel": "push", "notification_type": "order.shipped"}
    assert points["notification.route.publish_attempts"] == [
        (push | {"result": "success"}, 2),
        (push | {"result": "failure"}, 1),
    ]
    assert points["notification.intent.outcomes"][0][0]["outcome"] == "rejected"
    assert points["notification.route.dead_letters"] == [({"channel": "push", "failure_classification": "gone"}, 1)]


def test_series_stay_bounded() -> None:
    points = counted(*(Trouble(where=f"place {number}", error="x") for number in range(3000)))["carillon.troubles"]
    assert len(points) == 1001
    assert points[-1] == ({"where": "other"}, 2000)


async def test_what_keeps_routes_waiting_is_asked_when_exported() -> None:
    reader = InMemoryMetricReader()
    metrics = Metrics(MeterProvider([reader], shutdown_on_exit=False).get_meter("carillon"))
    found = {("group_full", "webhook"): 2, ("rate", "tenant"): 1}

    async def waits() -> dict[tuple[str, str], int]:
        return found

    metrics.watch_waits(waits, asyncio.get_running_loop())
    assert (await asyncio.to_thread(exported, reader))["carillon.waits"] == [
        ({"reason": "group_full", "provider": "webhook"}, 2),
        ({"reason": "rate", "provider": "tenant"}, 1),
    ]
    found.clear()
    assert "carillon.waits" not in await asyncio.to_thread(exported, reader), "nothing waits"


async def test_the_last_export_asks_nobody() -> None:
    """It comes after the connections are closed: a question would log an outage at every clean stop."""
    reader = InMemoryMetricReader()
    metrics = Metrics(MeterProvider([reader], shutdown_on_exit=False).get_meter("carillon"))
    asked = 0

    async def waits() -> dict[tuple[str, str], int]:
        nonlocal asked
        asked += 1
        return {}

    metrics.watch_waits(waits, asyncio.get_running_loop())
    await asyncio.to_thread(exported, reader)
    metrics.stop_watching()
    await asyncio.to_thread(exported, reader)
    assert asked == 1


async def test_gauges_ask_the_ledger_when_exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("carillon.upkeep.metrics.meters._ASK_SECONDS", 30.0)
    ledger = await SqliteLedger.open(tmp_path / "ledger.db")
    await ledger.migrate()
    notification = Notification(
        notification_id="n1",
        notification_type="a",
        producer="p",
        audience_kind="user",
        payload_json="{}",
        request_fingerprint="f",
        priority=2,
    )
    route = Route(
        route_id="r", channel="push", recipient_ref="user:1", lane=2, provider="fcm", policy="*/*", max_attempts=3
    )
    await ledger.enrol([Enrolment(notification, (route,))])
    reader = InMemoryMetricReader()
    table = {"oldest_due": Instrument("oldest_age_ms", "ms", scale=1000)}
    metrics = Metrics(MeterProvider([reader], shutdown_on_exit=False).get_meter("carillon"), table)
    metrics.watch(ledger, asyncio.get_running_loop())
    points = await asyncio.to_thread(exported, reader)
    assert points["carillon.routes.due"] == [({}, 1)]
    assert points["carillon.routes.open"] == [({}, 1)]
    assert 0 <= points["oldest_age_ms"][0][1] < 60_000
    # Asked from inside the loop, the last answer has to do: waiting for a new one would be waiting for oneself.
    assert exported(reader)["carillon.routes.due"] == [({}, 1)]
    await ledger.aclose()


EXPORTING = """
import sys
from carillon.domain.events import Trouble
from carillon.upkeep.logs import lines as logs
from carillon.upkeep.metrics.meters import Metrics
from carillon.upkeep.metrics.otlp import configure_metrics
logs.configure("json", "error", blueprint="galaxy")
provider = configure_metrics(stdout=STDOUT, otlp=True)
metrics = Metrics()
metrics(Trouble(where="settle", error="x"))
if provider is not None:
    provider.shutdown()
logs.ready(["sdk" if "opentelemetry.sdk" in sys.modules else "no sdk"])
"""


def lines_of(program: str, **environment: str) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env={"PATH": "", **environment}
    )
    assert done.stderr == ""
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_process_that_exports_nothing_does_not_load_the_sdk() -> None:
    """With the SDK loaded every event is counted, and a worker drains an eighth less."""
    program = (
        "import sys; import carillon.cli.serve; from carillon.upkeep.logs import lines as logs; "
        "logs.configure('json', 'error'); "
        "logs.ready(sorted(name for name in sys.modules if name.startswith(('opentelemetry.sdk', 'redis'))))"
    )
    (ready,) = lines_of(program)
    assert ready["addresses"] == []


def test_stdout_gets_one_object_per_export_and_the_last_at_shutdown() -> None:
    export, ready = lines_of(EXPORTING.replace("STDOUT", "True"))
    assert (export["event"], export["level"], export["blueprint"]) == ("metrics", "info", "galaxy")
    assert "carillon.troubles" in json.dumps(export["resource_metrics"])
    assert ready["addresses"] == ["sdk"]


def test_the_interval_of_the_environment_is_honoured() -> None:
    program = EXPORTING.replace("STDOUT", "True").replace("if provider", "sys.stdin.read()\nif provider")
    environment = {"PATH": "", "OTEL_METRIC_EXPORT_INTERVAL": "50"}
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    ) as running:
        assert running.stdout is not None
        # The program only ends when its stdin does, so these lines came by the clock.
        assert [json.loads(running.stdout.readline())["event"] for _ in range(3)] == ["metrics"] * 3
        running.communicate()


def test_without_anything_to_export_to_the_sdk_is_not_even_loaded() -> None:
    assert [line["addresses"] for line in lines_of(EXPORTING.replace("STDOUT", "False"))] == [["no sdk"]]
