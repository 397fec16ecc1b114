"""The log fields that the galaxy blueprint names, on each kind of line it names."""

from typing import Any

import pytest

from carillon.domain.claims import Settled
from carillon.domain.events import Event, IntentAccepted, IntentMalformed, IntentRepeated, RouteAttempted
from tests.unit.test_upkeep_logs import said

INTENT: dict[str, Any] = {
    "notification_type": "game.finished",
    "producer": "game_master",
    "audience_kind": "user",
    "idempotency_key": "game-7:finished",
    "request_id": "q-1",
    "trace_id": "t-1",
}
ROUTE: dict[str, Any] = {
    **INTENT,
    "notification_id": "1-0",
    "route_id": "push:user:user-1",
    "channel": "push",
}
ATTEMPT: dict[str, Any] = {
    "provider": "gateway",
    "attempt": 1,
    "outcome": "unavailable",
    "duration_ms": 1.0,
    "settled": Settled.APPLIED,
    "classification": "gateway_stream_publish_failed",
    "error": "away",
}
NAMED = {
    "notification_id",
    "notification_type",
    "producer",
    "audience_kind",
    "idempotency_key",
    "route_id",
    "channel",
    "request_id",
    "trace_id",
}
LINES: dict[str, tuple[Event, dict[str, Any], str]] = {
    "accept": (
        IntentAccepted(**INTENT, notification_id="1-0", routes=2),
        {**INTENT, "notification_id": "1-0"},
        "info",
    ),
    "duplicate": (
        IntentRepeated(**INTENT, notification_id="1-0", outcome="duplicate"),
        {**INTENT, "notification_id": "1-0"},
        "info",
    ),
    "malformed": (
        IntentMalformed(**INTENT, stream_entry_id="1-0", failure_code="invalid_payload", failure_message="x"),
        INTENT,
        "warning",
    ),
    "publish": (RouteAttempted(**ROUTE, **{**ATTEMPT, "outcome": "sent"}, verdict="finish"), ROUTE, "info"),
    "retry": (RouteAttempted(**ROUTE, **ATTEMPT, verdict="retry", delay_seconds=1.0), ROUTE, "warning"),
    "dead letter": (RouteAttempted(**ROUTE, **ATTEMPT, verdict="bury"), ROUTE, "error"),
}


@pytest.mark.req("S1-177")
@pytest.mark.parametrize(("event", "told", "level"), LINES.values(), ids=LINES.keys())
def test_a_line_names_whom_it_is_about(event: Event, told: dict[str, Any], level: str) -> None:
    [line] = said(event)
    assert {name: value for name, value in line.items() if name in NAMED} == told
    assert line["level"] == level


@pytest.mark.req("S1-177")
def test_what_is_not_known_is_left_out() -> None:
    [line] = said(IntentMalformed(stream_entry_id="1-0", failure_code="missing_field", failure_message="x"))
    assert not NAMED & line.keys()
    assert line["stream_entry_id"] == "1-0"


@pytest.mark.req("S1-177")
def test_an_address_inside_a_route_id_is_not_written_out() -> None:
    [line] = said(RouteAttempted(**{**ROUTE, "route_id": "email:email:ops@example.com"}, **ATTEMPT, verdict="bury"))
    assert line["route_id"].startswith("email:email:")
    assert "ops@example.com" not in str(line)
