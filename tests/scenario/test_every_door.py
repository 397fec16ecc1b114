"""Every wish at every door: the same meaning, the same gate in the story, and the same words where it is refused."""

import base64
import datetime as dt
import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.blueprint_stand import database
from tests.support.every_door import DOORS, EveryDoor, every_door
from tests.support.http_client import Client as HttpClient
from tests.support.kafka import Kafka
from tests.support.rabbitmq import RabbitMQ
from tests.support.servers import Redis

pytestmark = pytest.mark.slow
FAR = "2096-01-31T18:00:00Z"
FILE = {"filename": "a.txt", "contentType": "text/plain", "content": base64.b64encode(b"a").decode()}
REFUSED: dict[str, dict[str, Any]] = {
    "an unknown category": {"category": "noise"},
    "no name of a category": {"category": "Big Offers"},
    "a digest without a window": {"digest": {"key": "comments"}},
    "a digest with a strange window": {"digest": {"key": "comments", "window": "soon"}},
    "a digest of none": {"digest": {"key": "comments", "window": "1h", "max": 0}},
    "an expiry that is no time": {"expiresAt": "tomorrow"},
    "an expiry without an offset": {"expiresAt": "2096-01-31T18:00:00"},
    "a ttl that is no duration": {"ttl": "soon"},
    "a ttl of nothing": {"ttl": 0},
    "a collapse key with a line feed": {"collapseKey": "a\nb"},
    "an unknown goal": {"channels": ["push", "email"], "until": "seen", "after": "10m"},
    "a goal without a time": {"channels": ["push", "email"], "until": "read"},
    "a chain of one": {"channels": ["push"], "until": "read", "after": "10m"},
    "a channel that is not here": {"channels": ["webhook"]},
    "a schedule without an offset": {"scheduledFor": "2096-01-31T18:00:00"},
    "a schedule that is no time": {"scheduledFor": "tonight"},
    "a schedule before 1970": {"scheduledFor": "1969-01-31T18:00:00Z"},
    "a zone of one's own": {"scheduledFor": "2096-01-31T18:00:00", "timeZone": "Europe/Berlin"},
    "a zone and an offset": {"scheduledFor": FAR, "timeZone": "recipient"},
    "files of a push": {"attachments": [FILE]},
    "copies of a push": {"cc": ["bob@example.org"]},
    "hidden copies of a push": {"bcc": ["bob@example.org"]},
    "answers to a push": {"replyTo": "help@example.org"},
    "headers of a push": {"headers": {"X-Order": "7"}},
    "an inbox's parts of a push": {"inApp": {"url": "/start"}},
    "files where another renders": {"channels": ["email"], "attachments": [FILE]},
    "a file without a name": {"channels": ["email"], "attachments": [{"content": ""}]},
}


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def doors(
    request: pytest.FixtureRequest,
    kafka: Kafka,
    rabbitmq: RabbitMQ,
    redis_server: Redis,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[EveryDoor]:
    folder = tmp_path_factory.mktemp("doors")
    for url in database(request, folder):
        with every_door(kafka, rabbitmq, redis_server, url, folder) as found:
            yield found


@pytest.fixture(params=DOORS)
def door(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def user(doors: EveryDoor) -> str:
    name = f"user-{uuid.uuid4().hex[:12]}"
    doors.person(name)
    return name


@pytest.mark.req("P-204", "P-530")
def test_a_category_is_gated(doors: EveryDoor, door: str, user: str) -> None:
    doors.give(door, user, {"category": "offers"})
    assert doors.gate(user) == "category"
    assert doors.stories(user)[0]["category"] == "offers"


@pytest.mark.req("P-204", "P-530")
def test_a_channel_that_the_person_switched_off_is_refused(doors: EveryDoor, door: str, user: str) -> None:
    doors.person(user, channels={"push": {"isEnabled": False}})
    assert doors.refusal(door, user, {}) == f"user:{user} has switched push off"


@pytest.mark.req("P-301", "P-530")
@pytest.mark.parametrize("wish", [{"expiresAt": "2020-01-01T00:00:00Z"}, {"ttl": "1ms"}], ids=["expiresAt", "ttl"])
def test_what_has_expired_is_skipped(doors: EveryDoor, door: str, user: str, wish: dict[str, Any]) -> None:
    later = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=1)
    doors.give(door, user, {**wish, "scheduledFor": later.isoformat()})
    assert doors.gate(user) == "expired"


@pytest.mark.req("P-302", "P-530")
def test_a_collapse_key_replaces_what_waits(doors: EveryDoor, door: str, user: str) -> None:
    for _ in range(2):
        doors.give(door, user, {"collapseKey": f"score-{user}", "scheduledFor": FAR})
    assert doors.gate(user, many=2) == "collapsed"
    first, second = doors.stories(user, 2)
    assert first["routes"][0]["lastError"] == f"replaced by notification {second['id']}"
    assert second["status"] == "queued"


@pytest.mark.req("P-303", "P-530")
def test_events_are_gathered_and_told_together(doors: EveryDoor, door: str, user: str) -> None:
    for _ in range(2):
        doors.give(door, user, {"digest": {"key": "comments", "window": "1h", "max": 2}})
    found = doors.stories(user, 3)
    told = next(one for one in found if one["metadata"].get("digest"))
    events = [one for one in found if one is not told]
    assert told["metadata"]["digest"] == {
        "key": "comments",
        "count": 2,
        "members": sorted(one["id"] for one in events),
    }
    assert [one["routes"][0]["gate"] for one in events] == ["digest", "digest"]
    assert events[0]["routes"][0]["lastError"] == f"told in digest {told['id']}"


@pytest.mark.req("P-763", "P-767", "P-530")
def test_a_digest_meets_a_collapse_key_and_a_new_address(doors: EveryDoor, door: str, user: str) -> None:
    wish = {"digest": {"key": "comments", "window": "1h", "max": 3}}
    for more in ({"collapseKey": f"score-{user}"}, {"collapseKey": f"score-{user}"}):
        doors.give(door, user, {**wish, **more})
    assert doors.gate(user, many=2) == "collapsed"
    doors.person(user, contacts={"pushToken": f"new-{user}", "email": f"{user}@example.org"})
    doors.give(door, user, wish)
    found = doors.stories(user, 4)
    told = next(one for one in found if one["metadata"].get("digest"))
    events = [one for one in found if one is not told]
    assert (told["metadata"]["digest"]["count"], told["recipient"]) == (2, f"new-{user}")
    assert [one["routes"][0]["gate"] for one in events] == ["collapsed", "digest", "digest"]
    assert events[0]["routes"][0]["lastError"] == f"replaced by notification {events[1]['id']}"


@pytest.mark.req("P-305", "P-530")
@pytest.mark.parametrize(
    ("wish", "due"),
    [
        ({"scheduledFor": FAR}, FAR),
        # In January the clocks of Auckland are thirteen hours ahead.
        ({"scheduledFor": "2096-01-31T18:00:00", "timeZone": "recipient"}, "2096-01-31T05:00:00Z"),
    ],
    ids=["offset", "recipient"],
)
def test_a_schedule_is_kept(doors: EveryDoor, door: str, user: str, wish: dict[str, Any], due: str) -> None:
    doors.give(door, user, wish)
    (story,) = doors.stories(user)
    (route,) = story["routes"]
    assert dt.datetime.fromisoformat(route["nextAttemptAt"]) == dt.datetime.fromisoformat(due)


@pytest.mark.req("P-320", "P-530")
def test_a_chain_tries_one_channel_after_the_other(doors: EveryDoor, door: str, user: str) -> None:
    doors.give(door, user, {"channels": ["push", "email"], "until": "read", "after": "PT10M"})
    (story,) = doors.stories(user)
    path = f"/api/v1/notifications/{story['id']}/receipts"
    push, email = (next(one for one in story["routes"] if one["channel"] == name) for name in ("push", "email"))
    assert (push["goal"], email["goal"], email["status"]) == ("read", "read", "queued")
    waits = dt.datetime.fromisoformat(email["nextAttemptAt"]) - dt.datetime.fromisoformat(email["createdAt"])
    assert waits.total_seconds() == pytest.approx(600, abs=30)
    assert doors.client.call("POST", path, {"kind": "read", "channel": "push"}).status in {200, 409}


@pytest.mark.req("P-324")
def test_explain_shows_until_when_a_report_is_awaited(doors: EveryDoor, user: str) -> None:
    body = {"templateKey": "job.new", "userId": user, "data": {}, "channel": "push"}
    said = doors.client.call("POST", "/api/v1/notifications/explain", body).body
    (step,) = [step for step in said["steps"] if step["step"] == "providers"]
    assert step["detail"]["order"] == [{"provider": "pretend", "breaker": "closed", "receiptDeadlineSeconds": 600}]


LARGER = "http.max_body_bytes is the limit; give a large file by its URL, or raise the limit"


@pytest.mark.req("P-531", "P-117")
@pytest.mark.parametrize("door", ["send", "batch", "events", "rabbitmq", "kafka", "chunked"])
def test_a_file_that_is_too_large_for_a_body_says_what_to_do(doors: EveryDoor, user: str, door: str) -> None:
    wishes = {"attachments": [{**FILE, "content": base64.b64encode(bytes(300_000)).decode()}]}
    if door in {"rabbitmq", "kafka"}:
        assert doors.refusal(door, user, wishes).endswith(LARGER)
        return
    body = {"templateKey": "job.new", "userId": user, "channel": "email", **wishes}
    path = "/notifications" if door == "events" else "/api/v1/notifications/send"
    if door == "batch":
        body, path = {"notifications": [body]}, "/api/v1/notifications/batch"
    raw = json.dumps(body).encode()
    pieces = (raw[at : at + 50_000] for at in range(0, len(raw), 50_000))
    answer = HttpClient(doors.address).call(
        "POST", path, pieces if door == "chunked" else raw, content_type="application/json"
    )
    assert (answer.status, answer.code) == (413, "PAYLOAD_TOO_LARGE")
    assert answer.json["error"]["message"].endswith(LARGER)


@pytest.mark.req("P-531")
@pytest.mark.parametrize("what", REFUSED)
def test_every_door_refuses_in_the_same_words(doors: EveryDoor, what: str) -> None:
    words: dict[str, str] = {}
    for door in DOORS:
        user = f"user-{uuid.uuid4().hex[:12]}"
        doors.person(user)
        words[door] = doors.refusal(door, user, REFUSED[what])
    assert len(set(words.values())) == 1, words
