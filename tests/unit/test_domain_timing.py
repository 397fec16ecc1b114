"""How the words of timing are read: durations, moments, keys, and the same fields on every door."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from carillon.blueprints.galaxy.wire import GalaxyWire
from carillon.blueprints.push_worker.wire import decode
from carillon.blueprints.sse.wire import EventWire
from carillon.border import read_wishes
from carillon.domain.content.wishes import NAMES, SendWishes
from carillon.domain.errors import BadIntent
from carillon.domain.intents import Intent, Malformed
from carillon.domain.jobs import read_message
from carillon.domain.timing import AT_ONCE, Stop, Timing, duration, read_stop, timing_of
from carillon.doors.http.wire import Context, SendBody, reach_named, to_intent
from tests.support.galaxy import CATALOGUE, fields_for

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
    entry = fields_for("game.turn.ready") | FIELDS | {"expires_at": "1800000000000"}
    read = GalaxyWire.open(CATALOGUE, {}).decode("1-1", entry)
    assert isinstance(read, Intent)
    assert read.timing == WANTED
    pushed = decode(json.dumps({**PUSH, **FIELDS, "collapse_key": ""}).encode())
    assert isinstance(pushed, Intent)
    assert pushed.timing == Timing(expires_at_ms=WANTED.expires_at_ms, ttl_seconds=600.0)


ASKED: dict[str, Any] = {
    "channels": ["push", "sms"],
    "until": "read",
    "after": "10m",
    "scheduledFor": "2027-01-15T08:00:00Z",
    "timeZone": "recipient",
    "collapseKey": "score",
    "category": "offers",
    "digest": {"key": "comments", "window": "1h"},
    "attachments": [{"filename": "a.txt", "contentType": "text/plain", "content": "YQ=="}],
    "cc": ["bob@example.org"],
    "bcc": ["bob@example.org"],
    "replyTo": "help@example.org",
    "headers": {"X-Order": "7"},
    "calendar": {"title": "Talk", "start": "2027-01-15T08:00:00Z", "end": "2027-01-15T09:00:00Z"},
    "push": {"badge": 3},
    "inApp": {"url": "/start"},
}


def test_the_wishes_are_all_here() -> None:
    assert {*ASKED, "expiresAt", "ttl"} == set(NAMES)


@pytest.mark.req("P-532")
@pytest.mark.parametrize("name", ASKED)
@pytest.mark.parametrize("spelling", [str, NAMES.__getitem__], ids=["camel", "underscores"])
def test_a_queue_without_a_ledger_refuses_by_name_what_it_cannot_keep(
    name: str, spelling: Callable[[str], str]
) -> None:
    read = decode(json.dumps({**PUSH, spelling(name): ASKED[name]}).encode())
    assert isinstance(read, Malformed)
    said = f"{name}: this queue sends every message at once and alone; it keeps expiresAt and ttl"
    assert read.failure_message == said


@pytest.mark.req("P-532")
@pytest.mark.parametrize("name", ASKED)
def test_an_entry_says_in_texts_what_a_message_says_in_json(name: str) -> None:
    chain = {"until": "read", "after": "10m", "channels": ["push", "sms"]} if name in {"until", "after"} else {}
    value = {**chain, name: ASKED[name]}
    if name == "timeZone":
        value["scheduledFor"] = "2027-01-15T08:00:00"
    texts = {NAMES[each]: said if isinstance(said, str) else json.dumps(said) for each, said in value.items()}
    assert read_wishes(value) == read_wishes(texts) != SendWishes()


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
        ({"expiresAt": "2027-01-15T08:00:00Z", "ttl": "soon"}, 1_800_000_000.0),
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
