"""The sse blueprint's messages through each of its doors, into PostgreSQL, while nobody picks anything."""

import asyncio
import json
import shlex
import subprocess
import uuid
from collections.abc import Iterator
from functools import partial
from itertools import count
from typing import Any

import pytest
import redis

from tests.support import tables
from tests.support.http_client import Client
from tests.support.kafka import Kafka, Topic
from tests.support.process import Program
from tests.support.servers import Postgres, Redis
from tests.support.waiting import until

ROWS = "SELECT * FROM notifications.notifications WHERE user_id LIKE '{user}%' ORDER BY created_at, notification_id"
PARKED = "SELECT * FROM malformed_intents WHERE raw_fields::text LIKE '%{user}%'"
RECORD = "SELECT * FROM records WHERE user_id = '{user}'"
STREAM = "notification:events"
_people = count(1)
_CONFIG = f'extends = "sse"\n[stream]\nname = "{STREAM}"\nblock_seconds = 0.5\n'


class Stand:
    """One process with all its doors open and nothing that sends; every test has people of its own."""

    def __init__(self, program: Program, topic: Topic, stream: redis.Redis, ledger: str) -> None:
        self.program, self.topic, self.stream, self.ledger = program, topic, stream, ledger
        self.http = Client(program.wait_ready(60)["addresses"][0])

    async def rows(self, user: str, many: int) -> list[tables.Row]:
        return await self._until(ROWS.format(user=user), many)

    async def parked(self, user: str, many: int) -> list[tables.Row]:
        return await self._until(PARKED.format(user=user), many)

    async def _until(self, question: str, many: int) -> list[tables.Row]:
        async def there() -> bool:
            return len(await tables.read(self.ledger, question)) >= many

        await until(there, timeout=60, what=f"{many} rows")
        found = await tables.read(self.ledger, question)
        assert len(found) == many
        return found


@pytest.fixture(scope="module")
def stand(
    kafka: Kafka, postgres: Postgres, redis_server: Redis, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stand]:
    folder = tmp_path_factory.mktemp("sse")
    (folder / "carillon.toml").write_text(_CONFIG)
    redis_server.flush()
    ledger = postgres.database()
    with kafka.topic(3) as topic, redis.Redis(port=redis_server.port) as stream:
        environment = {
            "DATABASE_URL": ledger,
            "REDIS_URL": redis_server.url(),
            "KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap,
            "KAFKA_TOPIC": topic.name,
            "KAFKA_GROUP_ID": topic.group,
            "CARILLON_LEDGER__ALLOW_UNSAFE": "1",
            "CARILLON_HTTP__PORT": "0",
        }
        with Program("serve", "--config", "carillon.toml", "--roles", "doors", env=environment, cwd=folder) as program:
            stand = Stand(program, topic, stream, ledger)
            program.wait_for("part_started", lambda line: line["part"] == "kafka_door", timeout=60)
            yield stand
            program.terminate()
            assert program.wait(60) == 0
            assert program.noise == [], "nothing but JSON"
    postgres.drop(ledger)


@pytest.fixture(params=["kafka", "http", "redis_stream"])
def door(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def user() -> str:
    return f"user-{uuid.uuid4().hex[:12]}"


async def give(stand: Stand, door: str, said: dict[str, Any] | bytes) -> int | None:
    """Put one message through a door; the status where there is one to see."""
    body = json.dumps(said).encode() if isinstance(said, dict) else said
    match door:
        case "kafka":
            key = said.get("user_id") if isinstance(said, dict) else None
            await asyncio.to_thread(stand.topic.write, body, key=key)
        case "http":
            call = partial(stand.http.call, "POST", "/notifications", body, content_type="application/json")
            return (await asyncio.to_thread(call)).status
        case _:
            await asyncio.to_thread(stand.stream.xadd, STREAM, {"event": body})
    return None


def _tells_of(entry_id: str, line: dict[str, Any]) -> bool:
    return bool(line["stream_entry_id"] == entry_id)


def message(user: str, **changed: Any) -> dict[str, Any]:
    said = {
        "event_id": f"{user}-{next(_people)}",
        "event_type": "job.new",
        "priority": "LOW",
        "user_id": user,
        "event_timestamp": "2026-11-16T12:00:00.5Z",
        "payload": {"title": "Bell founder", "tags": ["a", 1, None]},
        "metadata": {"source_service": "jobs", "trace_id": "0af7651916cd43dd8448eb211c80319c"},
    }
    return {name: value for name, value in {**said, **changed}.items() if value is not ...}


@pytest.mark.req("S4-01", "S4-02", "S4-04", "S4-08", "S4-10")
async def test_a_message_becomes_a_row_that_waits(stand: Stand, door: str, user: str) -> None:
    said = message(user)
    await give(stand, door, said)
    (row,) = await stand.rows(user, 1)
    assert isinstance(row["notification_id"], uuid.UUID)
    assert (row["user_id"], row["event_type"], row["priority"]) == (user, "job.new", "LOW")
    assert json.loads(row["payload"]) == said["payload"]
    assert (row["status"], row["retry_count"], row["processing_by"]) == ("not_pushed", 0, None)
    assert row["event_id"] == said["event_id"]
    assert row["event_timestamp"].isoformat() == "2026-11-16T12:00:00.500000+00:00"
    (record,) = await tables.read(stand.ledger, RECORD.format(user=user))
    assert record["trace_id"] == said["metadata"]["trace_id"]
    assert json.loads(record["metadata_json"]) == said["metadata"]


@pytest.mark.req("S4-03", "S4-08")
async def test_the_priority_comes_from_the_type_where_none_is_said(stand: Stand, door: str, user: str) -> None:
    wanted = {"job.update": "HIGH", "connection.request": "MEDIUM", "follower.new": "LOW", "weather": "MEDIUM"}
    for event_type in wanted:
        await give(stand, door, message(user, event_type=event_type, priority=...))
    rows = await stand.rows(user, len(wanted))
    assert {row["event_type"]: row["priority"] for row in rows} == wanted


@pytest.mark.req("S4-06", "S4-08")
async def test_a_message_that_comes_again_is_one_row(stand: Stand, door: str, user: str) -> None:
    said = message(user)
    for _ in range(3):
        await give(stand, door, said)
    await give(stand, door, message(user))
    assert {row["event_id"] for row in await stand.rows(user, 2)} >= {said["event_id"]}


@pytest.mark.req("S4-06", "S4-08")
async def test_a_message_that_comes_again_by_another_door_is_one_row(stand: Stand, user: str) -> None:
    said = message(user)
    assert await give(stand, "http", said) == 202
    for door in ("kafka", "redis_stream"):
        await give(stand, door, said)
        await give(stand, door, message(user))
    await stand.rows(user, 3)


@pytest.mark.req("S4-07", "S4-08")
async def test_what_cannot_be_read_is_kept_told_and_passed(stand: Stand, door: str, user: str) -> None:
    flawed: list[dict[str, Any] | bytes] = [
        f"garbage {user}".encode(),
        message(user, user_id=..., payload={"about": user}),
        f'["{user}"]'.encode(),
    ]
    statuses = [await give(stand, door, said) for said in flawed]
    await give(stand, door, message(user))
    await stand.rows(user, 1)
    if door == "http":
        assert statuses == [400, 400, 400], "who asks is told; nothing needs to be kept"
        return
    rows = await stand.parked(user, 3)
    assert {row["failure_code"] for row in rows} == {"invalid_envelope"}
    assert {row["failure_message"] for row in rows} >= {"user_id is required", "the message must be a JSON object"}
    for row in rows:
        await stand.program.until("intent_malformed", partial(_tells_of, row["stream_entry_id"]))


@pytest.mark.req("S4-07")
async def test_more_that_a_topic_may_hold(stand: Stand, user: str) -> None:
    await asyncio.to_thread(stand.topic.write, None, headers={"about": user})
    await give(stand, "kafka", message(user, payload={"long": "x" * 300_000}))
    await give(stand, "kafka", message(user, event_id="é" * 300))
    await give(stand, "kafka", f'{{"user_id": "{user}", "text": "\\u0000"}}'.encode())
    await give(stand, "kafka", message(user))
    await stand.rows(user, 1)
    rows = await stand.parked(user, 4)
    assert sorted(row["failure_code"] for row in rows) == ["invalid_envelope"] * 3 + ["payload_too_large"]
    assert max(len(row["raw_fields"]) for row in rows) < 100_000


@pytest.mark.req("S4-06")
async def test_an_event_id_that_means_something_else_now_is_kept_for_an_operator(stand: Stand, user: str) -> None:
    said = message(user)
    await give(stand, "kafka", said)
    await stand.rows(user, 1)
    await give(stand, "kafka", {**said, "payload": {"about": user}})
    (row,) = await stand.parked(user, 1)
    assert (row["failure_code"], row["idempotency_key"]) == ("idempotency_conflict", said["event_id"])
    assert await give(stand, "http", {**said, "payload": {}}) == 409


@pytest.mark.req("S4-06")
async def test_records_without_an_event_id_are_known_by_their_place(stand: Stand, user: str) -> None:
    for _ in range(2):
        await give(stand, "kafka", message(user, event_id=...))
    rows = await stand.rows(user, 2)
    assert {row["event_id"].rpartition(":")[0].rpartition(":")[0] for row in rows} == {stand.topic.name}


@pytest.mark.req("S4-05", "S4-07")
async def test_what_is_written_down_is_committed(stand: Stand) -> None:
    await asyncio.to_thread(stand.topic.wait_all_committed)


@pytest.mark.req("S4-08")
async def test_the_http_door_answers_what_it_wrote(stand: Stand, user: str) -> None:
    said = message(user, event_id=..., priority=...)
    first = stand.http.post("/notifications", said, idempotency_key=f"key-{user}")
    again = stand.http.post("/notifications", said, idempotency_key=f"key-{user}")
    assert (first.status, again.status) == (202, 202)
    assert first.json == again.json
    assert (first.json["priority"], first.json["status"]) == ("HIGH", "not_pushed")
    assert ("idempotent-replayed" in first.headers, again.headers["idempotent-replayed"]) == (False, "true")
    (row,) = await stand.rows(user, 1)
    assert str(row["notification_id"]) == first.json["notification_id"]
    flawed = stand.http.post("/notifications", {**said, "priority": "URGENT"})
    assert (flawed.status, flawed.code) == (400, "VALIDATION_ERROR")
    assert "priority" in str(flawed.json)


def test_the_example_of_the_ready_line_works(stand: Stand) -> None:
    said = stand.program.wait_ready()
    posted = subprocess.run(shlex.split(said["send"]), capture_output=True, check=True, text=True)
    assert json.loads(posted.stdout)["status"] == "not_pushed"
    assert said["see"] == f"curl -sN '{stand.http.address}/notifications/stream?user_id=demo'"
