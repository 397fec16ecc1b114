"""From a Kafka topic to the people's streams, through the whole process; and a start without the client."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from tests.support.kafka import Kafka, Topic
from tests.support.process import Program
from tests.support.sse_stand import SseStand


@pytest.fixture
def topic(kafka: Kafka) -> Iterator[Topic]:
    with kafka.topic(2) as found:
        yield found


def message(user: str, number: int) -> dict[str, Any]:
    return {"event_id": f"{user}-{number}", "event_type": "job.new", "user_id": user, "payload": {"n": number}}


@pytest.mark.req("S4-01", "S4-02", "S4-28")
async def test_what_is_written_to_the_topic_reaches_its_people_in_order(
    postgres_dsn: str, topic: Topic, tmp_path: Path
) -> None:
    environment = {
        "KAFKA_BOOTSTRAP_SERVERS": topic.kafka.bootstrap,
        "KAFKA_TOPIC": topic.name,
        "KAFKA_GROUP_ID": topic.group,
    }
    async with SseStand(tmp_path, postgres_dsn, **environment) as stand:
        await stand.start()
        ada = await stand.read("ada")
        messages = [message(user, number) for number in range(30) for user in ("ada", "grace")]
        await asyncio.to_thread(topic.write_all, messages)
        told = await ada.number(30)
        assert [frame.json["payload"]["n"] for frame in told] == list(range(30))
        assert {frame.json["priority"] for frame in told} == {"HIGH"}
        # Who was away gets what came meanwhile.
        grace = await stand.read("grace")
        assert [frame.json["payload"]["n"] for frame in await grace.number(30)] == list(range(30))
        await asyncio.to_thread(topic.wait_all_committed)


@pytest.mark.req("P-204", "P-301")
async def test_the_gate_of_categories_and_the_expiry_stand_at_the_topic(
    postgres_dsn: str, topic: Topic, tmp_path: Path
) -> None:
    environment = {
        "KAFKA_BOOTSTRAP_SERVERS": topic.kafka.bootstrap,
        "KAFKA_TOPIC": topic.name,
        "KAFKA_GROUP_ID": topic.group,
    }
    settings = "[categories.news]\nchannels = { sse = false }\n[categories.orders]\n"
    async with SseStand(tmp_path, postgres_dsn, settings, **environment) as stand:
        await stand.start()
        ada = await stand.read("ada")
        said = [
            {**message("ada", 0), "category": "news"},
            {**message("ada", 1), "expires_at": "2020-01-01T00:00:00Z"},
            {**message("ada", 2), "category": "unknown"},
            {**message("ada", 3), "until": "read", "after": "10m"},
            {**message("ada", 4), "category": "orders", "ttl": "PT10M"},
        ]
        await asyncio.to_thread(topic.write_all, said)
        (told,) = await ada.number(1)
        assert told.json["payload"]["n"] == 4
        await asyncio.to_thread(topic.wait_all_committed)
    connection = await asyncpg.connect(postgres_dsn)
    try:
        ends = await connection.fetch("SELECT status, last_error_classification FROM routes ORDER BY created_at")
        refused = await connection.fetch("SELECT failure_message FROM malformed_intents ORDER BY stream_entry_id")
    finally:
        await connection.close()
    assert sorted((row[0], row[1]) for row in ends if row[0] == "skipped") == [
        ("skipped", "category"),
        ("skipped", "expired"),
    ]
    assert sorted(row[0].partition(";")[0] for row in refused) == [
        "there is no category unknown",
        "until needs channels, at least two of them",
    ]


def test_without_the_extra_the_start_says_what_to_install(tmp_path: Path) -> None:
    stub = tmp_path / "stub" / "confluent_kafka"
    stub.mkdir(parents=True)
    (stub / "__init__.py").write_text('raise ModuleNotFoundError("none", name="confluent_kafka")\n')
    environment = {
        "KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1",
        "DATABASE_URL": f"sqlite:///{tmp_path}/ledger.db",
        "CARILLON_HTTP__PORT": "0",
        "PYTHONPATH": str(stub.parent),
    }
    with Program("serve", "--blueprint", "sse", env=environment, cwd=tmp_path) as program:
        assert program.wait(60) == 2
        assert "pip install 'carillon[kafka]'" in program.tail()
