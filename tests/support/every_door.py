"""One process with every door open: two over HTTP, RabbitMQ, Kafka and a Redis stream, and their common story."""

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aio_pika
import redis
from proton import Message

from tests.support import tables
from tests.support.client import Client
from tests.support.kafka import Kafka, Topic
from tests.support.process import Program
from tests.support.rabbitmq import RabbitMQ
from tests.support.servers import Redis
from tests.support.servicebus import Bus
from tests.support.waiting import wait_until

DOORS = ("send", "batch", "events", "rabbitmq", "servicebus", "kafka", "redis_stream")
STREAM, QUEUE = "every:events", "every-door"
SETTINGS = f"""extends = "sse"
[task_picker]
poll_interval = "100ms"
[stream]
name = "{STREAM}"
block_seconds = 0.5
[rabbitmq_door]
queue = "{QUEUE}"
[servicebus_door]
queue = "{QUEUE}"
[categories.offers]
channels = {{ push = false }}
[categories.orders]
[channels]
push = ["pretend"]
email = ["pretend"]
[providers.pretend]
kind = "sandbox"
receipt_deadline = "10m"
"""
PERSON = {"contacts": {"email": "person@example.org", "pushToken": "device"}, "timeZone": "Pacific/Auckland"}


class EveryDoor:
    """`give` puts one request through a door; `words` says what was refused, `story` what became of the others."""

    def __init__(
        self, program: Program, topic: Topic, *, stream: redis.Redis, broker: str, bus: Bus, ledger: str
    ) -> None:
        self.program, self.topic, self._stream, self._broker, self._ledger = program, topic, stream, broker, ledger
        self._bus = bus
        self.address = str(program.wait_ready(60)["addresses"][0])
        self.client = Client(self.address)
        self._number = 0

    def person(self, user: str, **wishes: Any) -> None:
        """Somebody with an address for every channel, in a zone far from UTC."""
        answer = self.client.call("PUT", f"/api/v1/preferences/user/{user}", {**PERSON, **wishes})
        assert answer.status == 200, answer

    def give(self, door: str, user: str, wishes: dict[str, Any]) -> None:
        """Ask for one push to a person, unless the wishes name other channels."""
        self._number += 1
        key = f"key-{self._number}"
        asked = {"channels": ["push"], **wishes}
        body = {"templateKey": "job.new", "userId": user, "data": {"n": self._number}, **asked}
        event = {"event_type": "job.new", "user_id": user, "event_id": key, "payload": {"n": self._number}, **asked}
        match door:
            case "send":
                self.client.call("POST", "/api/v1/notifications/send", body, {"Idempotency-Key": key})
            case "batch":
                items = {"notifications": [{**body, "idempotencyKey": key}]}
                self.client.call("POST", "/api/v1/notifications/batch", items)
            case "events":
                self.client.call("POST", "/notifications", event)
            case "rabbitmq":
                asyncio.run(_publish(self._broker, body, key))
            case "servicebus":
                self._bus.publish(QUEUE, Message(body=json.dumps(body).encode(), inferred=True, id=key))
            case "kafka":
                self.topic.write(_underscored(event))
            case "redis_stream":
                self._stream.xadd(STREAM, {"event": json.dumps(_underscored(event))})
            case _:
                raise ValueError(door)

    def refusal(self, door: str, user: str, wishes: dict[str, Any]) -> str:
        """The words in which a door refuses a request: in its answer, or among the malformed intents."""
        asked = {"channels": ["push"], **wishes}
        body = {"templateKey": "job.new", "userId": user, "data": {}, **asked}
        event = {"event_type": "job.new", "user_id": user, "payload": {}, **asked}
        if door in {"send", "events"}:
            path, said = ("/api/v1/notifications/send", body) if door == "send" else ("/notifications", event)
            answer = self.client.call("POST", path, said)
            assert answer.status in {400, 422}, answer
            return str(answer.body["error"]["message"])
        if door == "batch":
            answer = self.client.call("POST", "/api/v1/notifications/batch", {"notifications": [body]})
            return re.sub(r"notifications\[0\]\.", "", answer.body["results"][0]["error"]["message"])
        self.give(door, user, wishes)
        question = f"SELECT failure_message FROM malformed_intents WHERE CAST(raw_fields AS text) LIKE '%{user}%'"  # noqa: S608 - ours
        found: list[str] = []

        def there() -> bool:
            found[:] = [row["failure_message"] for row in asyncio.run(tables.read(self._ledger, question))]
            return bool(found)

        wait_until(there, timeout=30, what=f"the refusal of {wishes} at {door}")
        return found[0]

    def stories(self, user: str, many: int = 1) -> list[dict[str, Any]]:
        """The notifications of a person with their routes, the oldest first, once there are that many."""
        ids: list[str] = []

        def there() -> bool:
            ids[:] = [one["id"] for one in self.client.get(f"/api/v1/notifications?userId={user}").body["items"]]
            return len(ids) >= many

        wait_until(there, timeout=30, what=f"{many} notifications of {user}")
        return [self.client.get(f"/api/v1/notifications/{name}").body for name in reversed(ids)]

    def gate(self, user: str, *, place: int = 0, many: int = 1, channel: str = "push") -> str:
        """The gate at which a route ended, once it did."""
        found: list[str] = []

        def there() -> bool:
            routes = {one["channel"]: one for one in self.stories(user, many)[place]["routes"]}
            found[:] = [routes[channel]["gate"]] if routes[channel]["status"] == "skipped" else []
            return bool(found)

        wait_until(there, timeout=30, what=f"the gate of {user}")
        return found[0]


async def _publish(url: str, body: dict[str, Any], key: str) -> None:
    async with await aio_pika.connect(url) as connection:
        channel = await connection.channel()
        await channel.default_exchange.publish(aio_pika.Message(json.dumps(body).encode(), message_id=key), QUEUE)


def _underscored(event: dict[str, Any]) -> dict[str, Any]:
    """The same message under the names that its document's producers write."""
    return {re.sub(r"[A-Z]", lambda found: f"_{found[0].lower()}", name): value for name, value in event.items()}


@contextmanager
def every_door(kafka: Kafka, rabbitmq: RabbitMQ, redis_server: Redis, ledger: str, folder: Path) -> Iterator[EveryDoor]:
    (folder / "every.toml").write_text(SETTINGS)
    redis_server.flush()
    with kafka.topic(2) as topic, redis.Redis(port=redis_server.port) as stream, Bus() as bus:
        bus.create(QUEUE)
        environment = {
            "DATABASE_URL": ledger,
            "REDIS_URL": redis_server.url(),
            "RABBITMQ_URL": rabbitmq.url,
            "KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap,
            "KAFKA_TOPIC": topic.name,
            "KAFKA_GROUP_ID": topic.group,
            "CARILLON_RABBITMQ_DOOR__URL": rabbitmq.url,
            "CARILLON_SERVICEBUS_DOOR__CONNECTION_STRING": bus.connection,
            "CARILLON_LEDGER__ALLOW_UNSAFE": "1",
            "CARILLON_HTTP__PORT": "0",
        }
        with Program("serve", "--config", "every.toml", env=environment, cwd=folder) as program:
            yield EveryDoor(program, topic, stream=stream, broker=rabbitmq.url, bus=bus, ledger=ledger)
