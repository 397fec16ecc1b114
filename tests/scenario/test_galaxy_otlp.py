"""A process and a collector: the galaxy blueprint's metrics and spans arrive over OTLP, and its log lines name them."""

import asyncio

import pytest

from tests.support.galaxy_seen import PATIENT, exit_of, intent
from tests.support.galaxy_stand import Galaxy
from tests.support.http_client import Client
from tests.support.otlp import attributes, collecting, collecting_grpc
from tests.support.process import Program

pytestmark = pytest.mark.asyncio(loop_scope="module")

TRACE = "0af7651916cd43dd8448eb211c80319c"
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
DEPTH = "notification.route_schedule.depth"
UNREAD = "notification.intent_stream.oldest_unprocessed_age_ms"


@pytest.mark.req("S1-35", "S1-167", "S1-169", "S1-170", "S1-173", "S1-175", "S1-176", "S1-178", "S1-179")
async def test_numbers_and_spans_leave_together_and_the_log_knows_them(galaxy: Galaxy) -> None:
    with collecting() as collector:
        program = galaxy.start(
            OTEL_EXPORTER_OTLP_ENDPOINT=collector.address, OTEL_METRIC_EXPORT_INTERVAL="200", **PATIENT
        )
        entry_id = await galaxy.publish(intent(trace_id=TRACE, request_id="q-1"))
        await galaxy.routes(entry_id, status="published")
        Client(galaxy.address).get("/healthz")
        line = await program.until("route_attempted", lambda line: line["trace_id"] == TRACE)
        # The depth is counted now and then, and the count before this one may have seen the routes waiting.
        for gauge in (DEPTH, UNREAD):
            collector.wait_for_points(gauge, [({}, 0)])
        program.terminate()
        assert program.wait() == 0

    whose = {"notification_type": "game.turn.ready", "producer": "game_master", "audience_kind": "user"}
    assert collector.points("notification.intent.outcomes") == [(whose | {"outcome": "accepted"}, 1)]
    assert collector.points("notification.user_enrichment.attempts") == [({"result": "found"}, 2)]
    published = {"notification_type": "game.turn.ready", "result": "published"}
    assert sorted(collector.points("notification.route.publish_attempts"), key=str) == [
        ({"channel": "email"} | published, 2),
        ({"channel": "push"} | published, 2),
    ]
    assert collector.points(DEPTH) == [({}, 0)]
    assert collector.points(UNREAD) == [({}, 0)]
    assert {name.partition(".")[0] for name in collector.names()} == {"notification"}
    assert collector.attribute_names() <= ALLOWED
    assert {origin["service.name"] for origin, _ in collector.metrics} == {"notification"}

    ours = [span for _, span in collector.spans if span.trace_id.hex() == TRACE]
    assert sorted(span.name for span in ours) == ["intent accepted", *["route email"] * 2, *["route push"] * 2]
    [told] = [span for span in ours if span.span_id.hex() == line["otel_span_id"]]
    assert (line["otel_trace_id"], told.name) == (TRACE, f"route {line['channel']}")
    assert attributes(told.attributes)["notification_id"] == entry_id == line["notification_id"]
    assert {"GET /healthz", "person sought"} <= {span.name for _, span in collector.spans}


@pytest.mark.req("S1-35")
async def test_a_collector_that_is_away_holds_nothing_up(galaxy: Galaxy) -> None:
    program = galaxy.start(OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:1", OTEL_METRIC_EXPORT_INTERVAL="200")
    entry_id = await galaxy.publish(intent())
    await galaxy.routes(entry_id, status="published")
    program.terminate()
    assert program.wait(40) == 0


@pytest.mark.req("S1-35", "S1-178")
async def test_stdout_gets_spans_as_whole_lines(galaxy: Galaxy) -> None:
    program = galaxy.start(
        NOTIFICATION_OTEL_STDOUT_TRACES_ENABLED="true", NOTIFICATION_OTEL_STDOUT_METRICS_ENABLED="true"
    )
    entry_id = await galaxy.publish(intent(trace_id=f"00-{TRACE}-b7ad6b7169203331-01"))
    await galaxy.routes(entry_id, status="published")
    span = await program.until("span", lambda line: line["name"] == "intent accepted")
    assert (span["context"]["trace_id"], span["parent_id"]) == (f"0x{TRACE}", "0xb7ad6b7169203331")
    program.terminate()
    assert program.wait() == 0
    assert program.events("metrics"), "the last numbers leave at the end"


async def checked(galaxy: Galaxy, **environment: str) -> str:
    """What the doctor prints."""
    with Program("doctor", "--blueprint", "galaxy", env=galaxy.environment(**environment), cwd=galaxy.folder) as doctor:
        await asyncio.to_thread(doctor.wait)
        return doctor.tail(40)


@pytest.mark.req("X1-3")
async def test_numbers_and_spans_leave_over_grpc_too(galaxy: Galaxy) -> None:
    with collecting_grpc() as collector:
        program = galaxy.start(
            OTEL_EXPORTER_OTLP_ENDPOINT=collector.address,
            OTEL_EXPORTER_OTLP_PROTOCOL="grpc",
            OTEL_METRICS_EXPORTER="otlp",
            OTEL_TRACES_EXPORTER="otlp",
            OTEL_METRIC_EXPORT_INTERVAL="200",
            **PATIENT,
        )
        entry_id = await galaxy.publish(intent(trace_id=TRACE))
        await galaxy.routes(entry_id, status="published")
        await asyncio.to_thread(collector.wait_for_points, DEPTH, [({}, 0)])
        given = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.address, "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "grpc"}
        said = "ok   Telemetry: metrics over OTLP as http/protobuf, traces over OTLP as grpc"
        assert said in await checked(galaxy, **given)
        program.terminate()
        assert program.wait() == 0
    assert {"notification.intent.outcomes", "notification.route.publish_attempts"} <= collector.names()
    assert {span.name for _, span in collector.spans if span.trace_id.hex() == TRACE} >= {
        "intent accepted",
        "route push",
    }


@pytest.mark.req("X1-3")
@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"OTEL_METRICS_EXPORTER": "prometheus"}, "OTEL_METRICS_EXPORTER: there is no 'prometheus'; write console"),
        ({"OTEL_TRACES_EXPORTER": "otlp,zipkin"}, "OTEL_TRACES_EXPORTER: there is no 'zipkin'"),
        (
            {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/json"},
            "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL: 'http/json' is not spoken; write http/protobuf or grpc",
        ),
        (
            {"OTEL_METRICS_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "PYTHONPATH": "no-grpc"},
            "OTEL_EXPORTER_OTLP_PROTOCOL: metrics over OTLP as grpc need an extra: pip install 'carillon[otlp-grpc]'",
        ),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "PYTHONPATH": "no-http"},
            "OTEL_EXPORTER_OTLP_ENDPOINT: metrics over OTLP as http/protobuf need an extra: pip install 'carillon[otlp",
        ),
    ],
)
async def test_what_cannot_be_exported_ends_the_start_and_names_the_extra(
    galaxy: Galaxy, environment: dict[str, str], said: str
) -> None:
    hidden = environment.get("PYTHONPATH")
    if hidden is not None:
        # As if the extra were not installed: the interpreter looks at these modules first.
        place = galaxy.folder / hidden / "sitecustomize.py"
        place.parent.mkdir()
        package = f"opentelemetry.exporter.otlp.proto.{hidden.removeprefix('no-')}"
        place.write_text(f"import sys\nsys.modules[{package!r}] = None\n")
        environment = {**environment, "PYTHONPATH": str(place.parent)}
    code, printed = await asyncio.to_thread(exit_of, galaxy.launch(**environment))
    assert code not in {0, None}
    assert said in printed
    assert "Traceback" not in printed
    # The doctor says the same before the start does.
    assert f"ill  Telemetry: {said}" in await checked(galaxy, **environment)
