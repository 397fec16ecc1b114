"""Spans: one for each thing that happened, under the trace it names, and in the log lines written meanwhile."""

import asyncio
import json
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

from carillon.upkeep.metrics.otlp import shut_down
from tests.support.otlp import attributes, collecting

pytestmark = pytest.mark.slow

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
PROGRAM = """
import sys
from carillon.domain.claims import Settled
from carillon.domain.events import *
from carillon.upkeep.logs import lines as logs
from carillon.upkeep.metrics.otlp import Traces, configure_traces
logs.configure("json", "debug", service="notification", blueprint="galaxy", secrets=["planted-secret"])
provider = configure_traces(stdout=STDOUT, service="notification")
observe = logs.log_observer()
if provider is not None:
    observe = Traces(provider, [observe])
intent = dict(notification_id="n1", notification_type="game.finished", producer="game_master", audience_kind="user")
route = dict(intent, route_id="push:user:u1", channel="push", provider="gateway", attempt=1, settled=Settled.APPLIED)
EVENTS
if provider is not None:
    provider.shutdown()
logs.ready(["sdk" if "opentelemetry.sdk" in sys.modules else "no sdk"])
"""
ALL_EVENTS = """
observe(IntentAccepted(**intent, routes=2, request_id="q1", trace_id=TRACE))
observe(IntentRepeated(**intent, outcome="duplicate"))
observe(IntentMalformed(stream_entry_id="1-0", failure_code="invalid_payload", failure_message="x"))
observe(PersonSought(result="found", duration_ms=5.0))
observe(RouteAttempted(**route, outcome="sent", verdict="finish", duration_ms=20.0, trace_id=TRACE))
observe(RouteAttempted(**route, outcome="unavailable", verdict="retry", duration_ms=1.0, classification="timeout"))
observe(RequestServed(method="GET", path="/healthz", status=200, duration_ms=0.5))
observe(RequestServed(method="GET", path="/wp-login.php", status=404, duration_ms=0.5))
observe(Pruned(records=1, malformed_intents=0))
"""
NAMES = [
    "intent accepted",
    "intent duplicate",
    "intent malformed",
    "person sought",
    "route push",
    "route push",
    "GET /healthz",
    "GET",
]


def lines_of(events: str, *, stdout: bool = True, **environment: str) -> list[dict[str, Any]]:
    text = PROGRAM.replace("EVENTS", events).replace("STDOUT", str(stdout)).replace("TRACE)", f"{TRACE!r})")
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, check=True, env={"PATH": "", **environment}
    )
    assert done.stderr == ""
    return [json.loads(line) for line in done.stdout.splitlines()]


def spans(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [line for line in lines if line["event"] == "span"]


@pytest.mark.req("S1-35")
def test_stdout_gets_one_object_for_each_span() -> None:
    found = spans(lines_of(ALL_EVENTS))
    assert [span["name"] for span in found] == NAMES
    for span in found:
        assert (span["service"], span["blueprint"], span["level"]) == ("notification", "galaxy", "info")
        assert span["resource"]["attributes"]["service.name"] == "notification"
        assert span["parent_id"] is None
    assert [span["status"]["status_code"] for span in found[4:6]] == ["UNSET", "ERROR"]
    assert found[4]["attributes"]["channel"] == "push"


@pytest.mark.req("S1-178")
def test_a_log_line_carries_the_ids_of_its_span() -> None:
    lines = lines_of(ALL_EVENTS)
    told = [line for line in lines if line["event"] not in {"span", "ready", "pruned"}]
    written = [(line["otel_trace_id"], line["otel_span_id"]) for line in told]
    exported = [(span["context"]["trace_id"][2:], span["context"]["span_id"][2:]) for span in spans(lines)]
    assert written == exported
    assert len(set(exported)) == len(NAMES)
    assert [line for line in lines if line["event"] in {"ready", "pruned"} and "otel_trace_id" in line] == []


@pytest.mark.req("S1-178")
def test_without_tracing_no_line_carries_ids_and_the_sdk_is_not_even_loaded() -> None:
    lines = lines_of(ALL_EVENTS, stdout=False)
    assert not spans(lines)
    assert not [line for line in lines if "otel_trace_id" in line or "otel_span_id" in line]
    assert lines[-1]["addresses"] == ["no sdk"]


def test_the_trace_an_intent_names_is_the_spans_trace() -> None:
    first, second, *_, route, _, _, _ = spans(lines_of(ALL_EVENTS))
    assert first["context"]["trace_id"] == f"0x{TRACE}" == route["context"]["trace_id"]
    assert first["context"]["span_id"] != route["context"]["span_id"]
    assert second["context"]["trace_id"] not in {f"0x{TRACE}", f"0x{0:032x}"}


TRACES = [
    # What was said, whether it names a trace, and the parent it names.
    (f"00-{TRACE}-{PARENT}-01", True, f"0x{PARENT}"),
    (TRACE.upper(), True, None),
    (f"00-{TRACE}-{'0' * 16}-01", False, None),
    (f"00-{'0' * 32}-{PARENT}-01", False, None),
    ("0" * 32, False, None),
    (TRACE[:-1], False, None),
    (f"{TRACE}\n", False, None),
    ("trace-7", False, None),
    ("", False, None),
]


def test_what_counts_as_a_trace() -> None:
    observed = [f"observe(IntentAccepted(**intent, routes=1, trace_id={said!r}))" for said, _, _ in TRACES]
    found = spans(lines_of("\n".join(observed)))
    assert [span["parent_id"] for span in found] == [parent for _, _, parent in TRACES]
    assert [span["context"]["trace_id"] == f"0x{TRACE}" for span in found] == [named for _, named, _ in TRACES]
    assert f"0x{0:032x}" not in {span["context"]["trace_id"] for span in found}


def test_a_parent_that_was_not_sampled_gives_no_spans() -> None:
    event = f"observe(IntentAccepted(**intent, routes=1, trace_id='00-{TRACE}-{PARENT}-00'))"
    assert not spans(lines_of(event))
    assert spans(lines_of(event, OTEL_TRACES_SAMPLER="always_on"))


def test_nothing_secret_leaves_in_a_span() -> None:
    event = (
        "observe(RouteAttempted(**{**route, 'route_id': 'email:email:ops@example.com'}, outcome='unavailable', "
        "verdict='retry', duration_ms=1.0, error='refused planted-secret for ada@example.com'))"
    )
    lines = lines_of(event)
    assert len(spans(lines)) == 1
    for secret in ("planted-secret", "ops@example.com", "ada@example.com"):
        assert secret not in json.dumps(lines)


@pytest.mark.req("S1-35")
def test_a_collector_gets_the_spans_with_their_times() -> None:
    with collecting() as collector:
        began = time.time_ns()
        lines_of(
            ALL_EVENTS,
            stdout=False,
            OTEL_EXPORTER_OTLP_ENDPOINT=collector.address,
            OTEL_RESOURCE_ATTRIBUTES="deployment.environment=test,service.name=renamed",
        )
        ended = time.time_ns()
    assert [span.name for _, span in collector.spans] == NAMES
    for origin, span in collector.spans:
        assert (origin["service.name"], origin["deployment.environment"]) == ("renamed", "test")
        assert began < span.end_time_unix_nano < ended
    route = collector.spans[4][1]
    assert route.end_time_unix_nano - route.start_time_unix_nano == 20_000_000
    assert route.trace_id.hex() == TRACE
    assert attributes(route.attributes)["notification_type"] == "game.finished"


@pytest.mark.req("S1-35")
@pytest.mark.parametrize(
    ("environment", "stdout", "sent"),
    [
        ({"OTEL_SDK_DISABLED": "true"}, False, False),
        ({"OTEL_TRACES_EXPORTER": "none"}, True, False),
        ({"OTEL_TRACES_EXPORTER": "console"}, True, False),
        ({"OTEL_TRACES_EXPORTER": "otlp,console"}, True, True),
        ({"OTEL_TRACES_SAMPLER": "always_off"}, False, False),
        ({"OTEL_SERVICE_NAME": "other"}, True, True),
    ],
)
def test_the_standard_variables_choose(environment: dict[str, str], *, stdout: bool, sent: bool) -> None:
    with collecting() as collector:
        lines = lines_of(ALL_EVENTS, stdout=True, OTEL_EXPORTER_OTLP_ENDPOINT=collector.address, **environment)
    assert bool(spans(lines)) == stdout
    assert bool(collector.spans) == sent
    assert {origin["service.name"] for origin, _ in collector.spans} <= {"other", "notification"}


async def test_the_end_waits_for_telemetry_and_not_for_ever() -> None:
    class Slow:
        def __init__(self) -> None:
            self.asked = asyncio.Event()
            self.loop = asyncio.get_running_loop()

        def shutdown(self) -> None:
            # Gauges ask the loop at the end, so the loop must be free to answer.
            asyncio.run_coroutine_threadsafe(self.answer(), self.loop).result(30)

        async def answer(self) -> None:
            self.asked.set()

    slow = Slow()
    await asyncio.wait_for(shut_down([slow], 60.0), 40.0)
    assert slow.asked.is_set()

    class Hung:
        def shutdown(self) -> None:
            leave.wait(100)

    leave = threading.Event()
    began = time.monotonic()
    await shut_down([Hung(), slow], 0.2)
    assert time.monotonic() - began < 40
    leave.set()
