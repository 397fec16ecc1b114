"""The sse blueprint's messages: what they are read as, and what is refused."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carillon.blueprints.sse.wire import EventWire, open_events
from carillon.config.reading import load
from carillon.domain.errors import BadIntent
from carillon.domain.intents import Intent, Malformed, Priority
from carillon.doors.kafka.wire import Record, TopicWire

MESSAGE: dict[str, Any] = {
    "event_id": "e-1",
    "event_type": "job.new",
    "priority": "LOW",
    "user_id": "user-1",
    "event_timestamp": "2026-11-16T12:00:00.123456789Z",
    "payload": {"title": "Bell founder"},
    "metadata": {"source_service": "jobs", "trace_id": "trace-1"},
}
WIRE = open_events(load("sse", environ={}).priorities, lambda: "made")


def read(**changed: Any) -> Intent:
    said = {name: value for name, value in {**MESSAGE, **changed}.items() if value is not ...}
    return WIRE.decode(json.dumps(said).encode(), "topic:0:7")


@pytest.mark.req("S4-02")
def test_a_message_as_the_document_has_it() -> None:
    intent = read()
    assert (intent.notification_type, intent.producer, intent.channels) == ("job.new", "notifications", ("sse",))
    (person,) = intent.recipients
    assert (person.ref, person.user_id, person.addresses) == (
        "user:user-1",
        "user-1",
        {"sse": "user-1", "inApp": "user-1"},
    )
    assert (intent.idempotency_key, intent.notification_id, intent.trace_id) == ("e-1", "made", "trace-1")
    assert (intent.priority, intent.payload) == (Priority.LOW, {"title": "Bell founder"})
    assert intent.occurred_at_ms == 1_794_830_400_123
    assert intent.metadata == {"source_service": "jobs", "trace_id": "trace-1"}


@pytest.mark.req("S4-03")
@pytest.mark.parametrize(
    ("event_type", "priority"),
    [
        ("job.new", Priority.HIGH),
        ("job.update", Priority.HIGH),
        ("job.application_status", Priority.HIGH),
        ("connection.request", Priority.NORMAL),
        ("connection.accepted", Priority.NORMAL),
        ("job.application_viewed", Priority.NORMAL),
        ("follower.new", Priority.LOW),
        ("follower.gone.again", Priority.LOW),
        ("connection.endorsed", Priority.LOW),
        ("followers.new", Priority.NORMAL),
        ("anything", Priority.NORMAL),
        ("job.new.extra", Priority.NORMAL),
    ],
)
@pytest.mark.parametrize("said", [..., None, ""])
def test_the_priority_of_a_message_that_says_none(event_type: str, priority: Priority, said: object) -> None:
    assert read(event_type=event_type, priority=said).priority is priority


def test_the_nearest_rule_wins() -> None:
    wire = EventWire({"a.*": "LOW", "a.b.*": "HIGH", "a.b.c": "MEDIUM"}, lambda: "")
    found = [wire.priority_of(name) for name in ("a.x", "a.b.x", "a.b.c", "a.b.c.d", "b", "a")]
    assert found == [Priority.LOW, Priority.HIGH, Priority.NORMAL, Priority.HIGH, Priority.NORMAL, Priority.NORMAL]


@pytest.mark.parametrize(("said", "priority"), [("HIGH", 1), ("medium", 2), ("Low", 3)])
def test_a_priority_that_is_said_wins(said: str, priority: int) -> None:
    assert read(event_type="job.new", priority=said).priority == priority


@pytest.mark.parametrize(
    ("said", "unix_ms"),
    [
        (..., None),
        (None, None),
        ("", None),
        ("0001-01-01T00:00:00Z", None),
        (1_794_830_400_123, 1_794_830_400_123),
        ("2026-11-16T13:00:00+01:00", 1_794_830_400_000),
        ("2026-11-16T12:00:00", 1_794_830_400_000),
    ],
)
def test_when_it_happened(said: object, unix_ms: int | None) -> None:
    assert read(event_timestamp=said).occurred_at_ms == unix_ms


def test_what_need_not_be_said() -> None:
    intent = WIRE.decode(b'{"user_id": 7, "event_type": "job.new", "colour": "red"}', "topic:0:7")
    assert (intent.idempotency_key, intent.payload, intent.metadata, intent.trace_id) == ("topic:0:7", {}, {}, None)
    assert intent.recipients[0].user_id == "7"


def test_who_repeats_a_message_may_say_anew_when_and_for_whom() -> None:
    again = read(event_timestamp="2026-11-16T12:00:01Z", metadata={"source_service": "other"})
    assert again.content == read().content
    assert read(payload={}).content != read().content


@pytest.mark.req("S4-07")
@pytest.mark.parametrize(
    ("changed", "culprit"),
    [
        ({"user_id": ...}, "user_id"),
        ({"user_id": ""}, "user_id"),
        ({"user_id": "  "}, "user_id"),
        ({"user_id": None}, "user_id"),
        ({"user_id": True}, "user_id"),
        ({"user_id": ["a"]}, "user_id"),
        ({"user_id": "a\nb"}, "user_id"),
        ({"user_id": "x" * 256}, "user_id"),
        ({"event_type": ...}, "event_type"),
        ({"event_id": {"a": 1}}, "event_id"),
        ({"event_id": "x" * 256}, "event_id"),
        ({"priority": "URGENT"}, "priority"),
        ({"priority": 1}, "priority"),
        ({"payload": "text"}, "payload"),
        ({"payload": []}, "payload"),
        ({"metadata": "text"}, "metadata"),
        ({"event_timestamp": "yesterday"}, "event_timestamp"),
        ({"event_timestamp": 1.5}, "event_timestamp"),
        ({"event_timestamp": 10**18}, "event_timestamp"),
    ],
)
def test_what_is_refused_names_the_culprit(changed: dict[str, Any], culprit: str) -> None:
    with pytest.raises(BadIntent) as refused:
        read(**changed)
    assert refused.value.field == culprit


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=10,
)


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(MESSAGE, ANY_JSON)))
def test_no_message_breaks_the_reader(said: dict[str, Any]) -> None:
    record = Record("topic", 0, 7, None, json.dumps(said).encode())
    assert TopicWire(WIRE.decode, 10_000).arrival(record).stream_entry_id == "kafka:topic:0:7"


@given(st.none() | st.binary(max_size=200))
def test_no_bytes_break_the_reader(value: bytes | None) -> None:
    arrival = TopicWire(WIRE.decode, 100).arrival(Record("topic", 0, 7, b"\xff", value, (("name", b"\xff"),)))
    assert isinstance(arrival.read, Malformed)
    assert arrival.read.failure_code in {"invalid_envelope", "payload_too_large"}
    assert arrival.raw_fields["bytes"] == len(value or b"")


def test_a_record_without_a_trace_has_its_headers() -> None:
    trace = "0af7651916cd43dd8448eb211c80319c"
    headers = (("Traceparent", f"00-{trace}-b7ad6b7169203331-01".encode()),)
    body = json.dumps({**MESSAGE, "metadata": {}}).encode()
    found = TopicWire(WIRE.decode, 10_000).arrival(Record("topic", 0, 7, None, body, headers)).read
    assert isinstance(found, Intent)
    assert found.trace_id == trace
