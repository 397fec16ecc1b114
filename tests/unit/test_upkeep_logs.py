"""Every output of the process becomes one JSON object per line."""

import io
import json
import re
import subprocess
import sys
from typing import Any

import pytest

from carillon.domain.claims import Settled
from carillon.domain.events import (
    BreakerChanged,
    Event,
    IntentAccepted,
    IntentRepeated,
    LeaseLost,
    Pruned,
    RouteAttempted,
    Trouble,
)
from carillon.upkeep.logs.lines import LEVELS, LogSink, log_observer
from carillon.upkeep.logs.redaction import Redaction

CANARY = "CANARY-7f3a9c"
HEAD = ["timestamp", "level", "event", "message", "service", "blueprint"]


def attempted(**changes: Any) -> RouteAttempted:
    plain: dict[str, Any] = {
        "notification_id": "n1",
        "notification_type": "order.shipped",
        "producer": "shop",
        "audience_kind": "user",
        "route_id": "push:user:1",
        "channel": "push",
        "provider": "fcm",
        "attempt": 1,
        "outcome": "sent",
        "verdict": "finish",
        "duration_ms": 1.23456,
        "settled": Settled.APPLIED,
        "trace_id": "t1",
    }
    return RouteAttempted(**{**plain, **changes})


def said(*events: Event, level: str = "info", redaction: Redaction | None = None) -> list[dict[str, Any]]:
    stream = io.StringIO()
    observe = log_observer(LogSink(stream, level=level, blueprint="galaxy", redaction=redaction))
    for event in events:
        observe(event)
    return [json.loads(line) for line in stream.getvalue().splitlines()]


@pytest.mark.req("G-15")
def test_lines_begin_with_what_every_line_has() -> None:
    [line] = said(attempted())
    assert list(line)[:6] == HEAD
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["timestamp"])
    assert (line["service"], line["blueprint"], line["duration_ms"]) == ("carillon", "galaxy", 1.235)


@pytest.mark.req("S2-35")
def test_events_keep_their_fields_and_get_their_level() -> None:
    accepted = IntentAccepted(
        notification_id="n1", notification_type="a", producer="p", audience_kind="user", routes=2, idempotency_key="k1"
    )
    repeated = {"notification_id": "n1", "notification_type": "a", "producer": "p", "audience_kind": "user"}
    lines = said(
        accepted,
        IntentRepeated(**repeated, outcome="duplicate"),
        IntentRepeated(**repeated, outcome="conflict"),
        attempted(),
        attempted(verdict="retry", error="503", delay_seconds=1.0),
        attempted(verdict="defer", error="429", delay_seconds=1.0),
        attempted(verdict="bury", error="gone", classification="unregistered"),
        LeaseLost(notification_id="n1", route_id="r", provider="fcm"),
        BreakerChanged(provider="fcm", before="closed", after="open"),
        Trouble(where="settle", error="down"),
        Pruned(records=1, malformed_intents=2),
    )
    assert [line["level"] for line in lines] == [
        *("info", "info", "warning", "info", "warning", "warning", "error", "warning", "warning", "warning", "info")
    ]
    assert lines[0]["idempotency_key"] == "k1"
    assert {"notification_id", "notification_type", "producer", "route_id", "channel", "trace_id"} <= lines[3].keys()
    assert [lines[4][name] for name in ("provider", "attempt", "outcome", "delay_seconds")] == ["fcm", 1, "sent", 1.0]
    assert lines[6]["classification"] == "unregistered"
    assert "type" not in lines[0]


def test_a_success_after_failover_is_called_one() -> None:
    failed, other, late = said(
        attempted(verdict="fail_over", next_provider="sns", error="503"),
        attempted(route_id="push:user:2"),
        attempted(provider="sns", attempt=2, failed_over=True),
    )
    assert (failed["level"], failed["next_provider"]) == ("warning", "sns")
    assert "failed_over" not in other
    assert late["failed_over"] is True
    assert late["message"] == "Failover succeeded: sent push through sns on attempt 2"


def test_a_stale_settlement_says_that_nothing_changed() -> None:
    assert "changed nothing" in said(attempted(verdict="bury", error="x", settled=Settled.STALE))[0]["message"]


def test_below_the_level_nothing_is_formatted() -> None:
    assert said(attempted(), level="warning") == []
    assert len(said(attempted(verdict="retry", error="x", delay_seconds=1.0), level="WARNING")) == 1


def test_repeated_trouble_is_thinned_per_place_and_attempts_never() -> None:
    assert len(said(*[Trouble(where="settle", error="x")] * 50, Trouble(where="claim", error="x"))) == 11
    assert len(said(*[attempted(verdict="retry", error="x", delay_seconds=1.0)] * 50)) == 50


class RedactionOff(Redaction):
    def fields(self, fields: dict[str, Any], *, debug: bool = False) -> dict[str, Any]:
        del debug
        return fields


def test_the_canary_shows_with_redaction_off_and_only_then() -> None:
    event = attempted(verdict="retry", error=f"Bearer {CANARY}", delay_seconds=1.0)
    assert CANARY in json.dumps(said(event, redaction=RedactionOff()))
    assert CANARY not in json.dumps(said(event))


def test_a_stream_that_broke_costs_nobody_anything() -> None:
    stream = io.StringIO()
    stream.close()
    log_observer(LogSink(io.TextIOWrapper(io.BytesIO())))(attempted())
    sink = LogSink(io.StringIO())
    sink.stream = stream
    log_observer(sink)(attempted())


def test_pretty_lines_stay_single_and_name_the_field() -> None:
    stream = io.StringIO()
    log_observer(LogSink(stream, pretty=True))(attempted(verdict="retry", error="a\n\x1b[31mb", delay_seconds=1.0))
    assert stream.getvalue().count("\n") == 1
    assert "\x1b[31mb" not in stream.getvalue()


@pytest.mark.req("P-563")
def test_a_line_for_people_has_time_level_and_sentence_and_the_rest_on_request() -> None:
    short, long = io.StringIO(), io.StringIO()
    for stream, verbose in ((short, False), (long, True)):
        sink = LogSink(stream, pretty=True, verbose=verbose)
        sink.emit(LEVELS["warning"], "remark", "Careful", {"setting": "x.y"})
        sink.emit(LEVELS["error"], "log", "It broke", {"exception": "Traceback\n  File\nValueError: no"})
    warned, broke = short.getvalue().splitlines()
    assert re.fullmatch(r"\d\d:\d\d:\d\d  warn   Careful", warned)
    assert broke[10:] == "error  It broke  (ValueError: no)"
    warned, broke, *trace = long.getvalue().splitlines()
    assert warned.endswith("warn   Careful  event=remark setting=x.y")
    assert trace == ["    Traceback", "      File", "    ValueError: no"]


@pytest.mark.parametrize("pretty", [False, True])
def test_what_people_paste_is_whole_and_holds_no_secret(*, pretty: bool) -> None:
    stream = io.StringIO()
    sink = LogSink(stream, level="error", pretty=pretty, redaction=Redaction([CANARY]))
    sink.ready(["http://127.0.0.1:1"], {"send": f"curl -d 'ada@example.org +4915112345678 token={CANARY}'"})
    assert "ada@example.org +4915112345678" in stream.getvalue()
    assert CANARY not in stream.getvalue()


EVERYTHING = f"""
import asyncio, logging, sys, threading, warnings
import structlog
from granian.log import LogLevels, configure_logging, logger
from opentelemetry import trace
from carillon.upkeep.logs import lines as logs
logs.configure("json", "error", blueprint="local", secrets=["{CANARY}"])
logs.ready(["http://127.0.0.1:1"])
logs.configure("json", "info", blueprint="local", secrets=["{CANARY}"])
configure_logging(LogLevels.info, logs.granian_logging())
logger.info("granian speaks")
logging.getLogger("aiohttp").warning("odd %s %d", "{CANARY}")
warnings.warn("careful")
print("stray", "{CANARY}")
print("stray error", file=sys.stderr)
context = trace.SpanContext(1, 2, is_remote=False)
with trace.use_span(trace.NonRecordingSpan(context)):
    structlog.get_logger().info("door_open", message="A door opened", port=1, password="{CANARY}")
thread = threading.Thread(target=lambda: 1 / 0)
thread.start()
thread.join()
class Loud:
    def __del__(self):
        raise ValueError("in del")
Loud()
async def main():
    asyncio.get_running_loop().call_soon(lambda: 1 / 0)
    await asyncio.sleep(0)
asyncio.run(main())
raise RuntimeError("{CANARY}")
"""


@pytest.mark.req("G-15", "S1-178")
def test_every_source_of_output_writes_json() -> None:
    done = subprocess.run([sys.executable, "-c", EVERYTHING], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert CANARY not in done.stdout
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert all(list(line)[:6] == HEAD for line in lines)
    assert lines[0]["event"] == "ready"
    by_event = {line["event"]: line for line in lines}
    assert {
        "ready",
        "log",
        "warning",
        "stray_output",
        "door_open",
        "uncaught_exception",
        "unraisable",
    } == by_event.keys()
    assert by_event["door_open"]["otel_trace_id"] == f"{1:032x}"
    assert by_event["door_open"]["otel_span_id"] == f"{2:016x}"
    assert "RuntimeError" in by_event["uncaught_exception"]["exception"]
    assert {line.get("logger") for line in lines} >= {"_granian", "aiohttp", "asyncio", "py.warnings"}
