"""How the words of timing are read: durations, moments, keys, and the same fields on every door."""

import json

import pytest

from carillon.blueprints.galaxy.envelope import read_timing
from carillon.blueprints.push_worker.wire import decode
from carillon.blueprints.sse.wire import EventWire
from carillon.domain.errors import BadIntent
from carillon.domain.intents import Intent, Malformed
from carillon.domain.jobs import read_message
from carillon.domain.timing import AT_ONCE, Stop, Timing, duration, read_stop, timing_of
from carillon.doors.http.wire import Context, SendBody, reach_named, to_intent

pytestmark = pytest.mark.req("P-301")

PUSH = {
    "trace_id": "t",
    "idempotency_key": "k",
    "user_id": "7",
    "notification_type": "push",
    "recipient": "device",
    "template_code": "welcome",
}


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        (90, 90.0),
        (0.5, 0.5),
        ("90", 90.0),
        ("250ms", 0.25),
        ("10m", 600.0),
        ("1h30m", 5400.0),
        ("2d", 172_800.0),
        ("1w", 604_800.0),
        ("PT10M", 600.0),
        ("PT1H30M", 5400.0),
        ("P1DT2H", 93_600.0),
        ("P2W", 1_209_600.0),
        ("PT0.5S", 0.5),
    ],
)
def test_durations(said: object, seconds: float) -> None:
    assert duration(said) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "said", ["", "P", "PT", "ten", "10 m", "-5", -5, True, None, [], "1y", "PT-5M", float("nan"), float("inf"), "9999w"]
)
def test_what_is_no_duration(said: object) -> None:
    assert duration(said) is None


@pytest.mark.parametrize(
    ("timing", "ends"),
    [
        (AT_ONCE, None),
        (Timing(ttl_seconds=60.0), 160_000),
        (Timing(expires_at_ms=5), 5),
        (Timing(expires_at_ms=200_000, ttl_seconds=60.0), 160_000),
    ],
)
def test_the_earlier_of_both_ends_counts(timing: Timing, ends: int | None) -> None:
    assert timing.expiry(100.0) == ends


@pytest.mark.parametrize(
    "fields",
    [
        {"ttl": 0},
        {"ttl": "soon"},
        {"expiresAt": "2027-01-01T00:00:00"},
        {"expires_at": "tomorrow"},
        {"expires_at": True},
        {"collapseKey": "\n"},
        {"collapse_key": 7},
    ],
)
def test_what_cannot_be_read_is_refused_and_names_the_field(fields: dict[str, object]) -> None:
    with pytest.raises(BadIntent) as refused:
        timing_of(fields)
    assert str(refused.value.field).lower() == next(iter(fields)).replace("_", "").lower()


WANTED = Timing(expires_at_ms=1_800_000_000_000, ttl_seconds=600.0, collapse_key="score")
FIELDS = {"expires_at": "2027-01-15T08:00:00Z", "ttl": "10m", "collapse_key": "score"}


def test_every_door_reads_the_same_words() -> None:
    body = SendBody(template_key="welcome", recipient="a@b.org", expires_at=None, ttl="PT10M", collapse_key="score")
    context = Context(
        reach=reach_named(body), correlation_id="c", idempotency_key=None, trace_id=None, accept_language=None
    )
    assert to_intent(body, context).timing == Timing(ttl_seconds=600.0, collapse_key="score")
    assert EventWire({}, lambda: "n").read({"user_id": "7", "event_type": "t", **FIELDS}).timing == WANTED
    assert read_timing({**FIELDS, "expires_at": "1800000000000"}) == WANTED
    pushed = decode(json.dumps({**PUSH, **FIELDS}).encode())
    assert isinstance(pushed, Intent)
    # A queue that is the backlog itself holds no message that could be replaced.
    assert pushed.timing == Timing(expires_at_ms=WANTED.expires_at_ms, ttl_seconds=600.0)


def test_a_push_that_says_it_wrongly_is_refused() -> None:
    read = decode(json.dumps({**PUSH, "ttl": "soon"}).encode())
    assert isinstance(read, Malformed)
    assert "ttl" in read.failure_message


@pytest.mark.parametrize(
    ("more", "ends"),
    [
        ({}, None),
        ({"expires_at": "2027-01-15T08:00:00Z"}, 1_800_000_000.0),
        ({"ttl": 60, "created_at": "2027-01-15T08:00:00+00:00"}, 1_800_000_060.0),
        ({"ttl": 60}, None),
        ({"ttl": "soon"}, None),
    ],
)
def test_a_job_of_a_list_says_it_in_its_envelope(more: dict[str, object], ends: float | None) -> None:
    raw = json.dumps({"id": "1", "action": "a", "payload": {}, **more}).encode()
    message = read_message(raw, "1", "job")
    assert message is not None
    assert message.expires_at == ends
    plain = read_message(json.dumps({"id": "1", "ttl": 5, "expires_at": "2027-01-15T08:00:00Z"}).encode(), "1", "job")
    assert plain is not None
    assert plain.expires_at is None


@pytest.mark.parametrize("stop", [Stop("cancelled"), Stop("collapsed", "0198-1"), Stop("expired")])
def test_what_stopped_a_notification_is_read_back(stop: Stop) -> None:
    assert read_stop(stop.text()) == stop
    assert stop.reason
