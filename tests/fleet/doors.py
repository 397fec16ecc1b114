"""Producers before every door: each goes on until its work is taken, and journals when it asked and was answered."""

import asyncio
import json
import os
import random
import time
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import aio_pika
import aiohttp
import redis.asyncio
from redis.exceptions import RedisError

from tests.fleet.crews import Crew, Sse
from tests.fleet.topology import WholeServers

QUEUE = "push.queue"
INTENTS = "notification:intents"
PATIENCE = 15.0
SHORTEST_PAUSE, LONGEST_PAUSE = 0.2, 1.0
MOST_PENDING = 50
"""Pieces of work of one door that wait for an answer, or to be offered again."""
READERS = 4


class Journal:
    """One line for each answer; a line is one system call, so a torn journal has whole lines before the tear."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self.accepted = 0

    def write(self, **line: Any) -> None:
        self.accepted += line.get("status") == "accepted"
        os.write(self._file, json.dumps(line).encode() + b"\n")

    def close(self) -> None:
        os.close(self._file)


class Door(ABC):
    """A steady producer; `rate` a second, one task for each piece of work, so that a stuck one delays no other."""

    share: ClassVar[float] = 1.0
    """Of the load, beside other doors."""
    repeats: ClassVar[bool] = True
    """Whether the same key may be offered again after an answer that did not come."""

    def __init__(self, crew: Crew, folder: Path, rate: float, dice: random.Random) -> None:
        self.crew, self.rate, self._dice = crew, rate, dice
        self.journal = Journal(folder / f"journal-{crew.name}.jsonl")
        self._number = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._over = asyncio.Event()

    async def run(self, until: Callable[[], bool]) -> None:
        """Offer work until told to stop, then wait for the answers under way."""
        began, offered = time.monotonic(), 0
        while not until():
            due = int((time.monotonic() - began) * self.rate)
            # What a pause of this process left undone is not made up for: it would be a burst.
            offered = max(offered, due - int(self.rate) - 1)
            while offered < due:
                offered += 1
                if len(self._tasks) >= MOST_PENDING:
                    # As a real producer would: what cannot be handed in makes nobody produce more.
                    continue
                self._number += 1
                task = asyncio.create_task(self._until_taken(f"{self.crew.name}-{self._number}"))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            await asyncio.sleep(0.5 / self.rate)
        self._over.set()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=90)

    async def _until_taken(self, key: str) -> None:
        pause = SHORTEST_PAUSE
        while True:
            asked = time.time()
            try:
                async with asyncio.timeout(PATIENCE):
                    status, own_id = await self.offer(key)
            except Exception as error:  # noqa: BLE001 - whatever a client raises, no answer came
                status, own_id = f"{type(error).__name__}: {error}"[:120], None
            said = {"asked": asked, "answered": time.time(), "status": status, "id": own_id}
            self.journal.write(door=self.crew.name, key=key, **said)
            if status == "accepted" or not self.repeats or status.startswith("refused"):
                return
            await asyncio.sleep(pause * (0.5 + self._dice.random()))
            pause = min(pause * 1.5, LONGEST_PAUSE)

    @abstractmethod
    async def offer(self, key: str) -> tuple[str, str | None]:
        """Hand one piece of work in; what became of it, and the id it was given."""

    @abstractmethod
    async def open(self) -> None:
        """Connect."""

    async def aclose(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.journal.close()


class HttpDoor(Door):
    """POST to the processes in turn, as behind a load balancer."""

    path = "/api/v1/notifications/send"

    async def open(self) -> None:
        connector = aiohttp.TCPConnector(limit=0)
        self._http = aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=10))
        self._turn = 0

    def body(self, key: str) -> dict[str, Any]:
        raise NotImplementedError

    async def offer(self, key: str) -> tuple[str, str | None]:
        self._turn += 1
        port = self.crew.ports[self._turn % self.crew.size]
        headers = {"Idempotency-Key": key}
        url = f"http://127.0.0.1:{port}{self.path}"
        async with self._http.post(url, json=self.body(key), headers=headers) as answer:
            content = await answer.json(content_type=None)
            if answer.status in (200, 201, 202):
                return "accepted", str(content.get("notificationId") or content.get("id"))
            again = answer.status >= 500 or answer.status == 429
            return f"{'again' if again else 'refused'} {answer.status}: {str(content)[:100]}", None

    async def aclose(self) -> None:
        await self._http.close()
        await super().aclose()


class LocalDoor(HttpDoor):
    def body(self, key: str) -> dict[str, Any]:
        return {
            "templateKey": "welcome",
            "channel": "webhook",
            "userId": key,
            "recipient": f"{self.crew.vendors.hooks.url}/{self.crew.name}/{key}",
            "data": {"name": key, "link": "https://example.org/start"},
        }


class ListoDoor(HttpDoor):
    def body(self, key: str) -> dict[str, Any]:
        return {"templateKey": "order_confirmed", "channel": "email", "recipient": f"{key}@example.org"}


class BillingDoor(HttpDoor):
    """A subscription has no key: an answer that did not come is not asked for again."""

    # Each subscription goes through three queues and two calls between the halves.
    share = 0.25
    path = "/v1/subscriptions"
    repeats = False

    def body(self, key: str) -> dict[str, Any]:
        return {"plan_id": "basic", "user_id": key, "trial": True}


class GalaxyDoor(Door):
    """XADD, and then WAIT until a replica has it too, where there is one."""

    async def open(self) -> None:
        url = self.crew.servers.redis_url(1)
        self._replicas = int(isinstance(self.crew.servers, WholeServers))
        self._redis: Any = redis.asyncio.Redis.from_url(url, socket_timeout=4, socket_connect_timeout=2)

    async def offer(self, key: str) -> tuple[str, str | None]:
        payload = {"game_id": key, "game_name": "Nebula", "turn_number": 1}
        fields = {
            "notification_type": "game.turn.ready",
            "producer": "game_master",
            "audience_kind": "user",
            "idempotency_key": key,
            "occurred_at_ms": "1775121700000",
            "payload_json": json.dumps(payload, separators=(",", ":"), sort_keys=True),
            "recipient_user_ids_json": json.dumps([f"user-{key}"]),
        }
        try:
            # In one pipeline, because WAIT is about the writes of its own connection.
            async with self._redis.pipeline(transaction=False) as both:
                both.xadd(INTENTS, fields)
                both.execute_command("WAIT", self._replicas, 2000)
                entry, copies = await both.execute()
            if copies < self._replicas:
                return "again: no replica has it", None
        except (RedisError, OSError) as error:
            return f"again: {error}"[:100], None
        return "accepted", entry.decode()

    async def aclose(self) -> None:
        await self._redis.aclose()
        await super().aclose()


class PushDoor(Door):
    """Persistent messages in a quorum queue, each confirmed."""

    async def open(self) -> None:
        self._channel: Any = None
        self._connection: Any = None
        self._lock = asyncio.Lock()
        for _ in range(60):
            with suppress(Exception):
                channel = await self._opened()
                kind = {"x-queue-type": "quorum"}
                await channel.declare_queue(QUEUE, durable=True, arguments=kind)
                return
            await asyncio.sleep(1)
        raise RuntimeError("push.queue could not be declared")

    async def _opened(self) -> Any:
        async with self._lock:
            if self._channel is None or self._channel.is_closed:
                if self._connection is not None:
                    with suppress(Exception):
                        await asyncio.wait_for(self._connection.close(), 1)
                self._connection = await aio_pika.connect(self.crew.servers.rabbit_url(), timeout=3)
                self._channel = await self._connection.channel(on_return_raises=True)
            return self._channel

    async def offer(self, key: str) -> tuple[str, str | None]:
        content = {
            "trace_id": key,
            "idempotency_key": f"notif_{key}",
            "user_id": "550e8400-e29b-41d4-a716-446655440000",
            "notification_type": "push",
            "recipient": f"device_token_{key}",
            "template_code": "welcome_notification",
            "variables": {"name": key, "link": "https://example.com/welcome"},
            "language": "en",
            "metadata": {},
        }
        mode = aio_pika.DeliveryMode.PERSISTENT
        message = aio_pika.Message(json.dumps(content).encode(), content_type="application/json", delivery_mode=mode)
        try:
            async with asyncio.timeout(10):
                channel = await self._opened()
                await channel.default_exchange.publish(message, routing_key=QUEUE)
        except Exception as error:  # noqa: BLE001 - a channel of which nobody knows whether it lives is replaced
            self._channel = None
            return f"again: {type(error).__name__}", None
        return "accepted", f"notif_{key}"

    async def aclose(self) -> None:
        if self._connection is not None:
            with suppress(Exception):
                await asyncio.wait_for(self._connection.close(), 2)
        await super().aclose()


class SseDoor(Door):
    """Records in a topic, acknowledged by its brokers; a few people read their streams, and come back when cut off."""

    # Four people's streams, each in its order: on two full cores they take about four a second.
    share = 0.4

    async def open(self) -> None:
        from confluent_kafka import Producer  # noqa: PLC0415 - only where there is a Kafka

        crew = self.crew
        assert isinstance(crew, Sse)
        self._topic = crew.topic.name
        servers = crew.servers.kafka.bootstrap
        settings = {"bootstrap.servers": servers, "linger.ms": 5, "acks": "all", "log_level": 2}
        self._producer = Producer({**settings, "message.timeout.ms": 10_000, "enable.idempotence": False})
        self._heard = Journal(crew.folder.parent / "heard.jsonl")
        self._readers = [asyncio.create_task(self._read(f"reader-{number}")) for number in range(READERS)]
        self._poller = asyncio.create_task(self._poll())

    async def _poll(self) -> None:
        while True:
            self._producer.poll(0)
            await asyncio.sleep(0.02)

    async def offer(self, key: str) -> tuple[str, str | None]:
        loop = asyncio.get_running_loop()
        told: asyncio.Future[Any] = loop.create_future()

        def delivered(error: Any, _: Any) -> None:
            if not told.done():
                told.set_result(error)

        user = f"reader-{zlib.crc32(key.encode()) % READERS}"
        event = {"event_id": key, "event_type": "job.new", "user_id": user, "payload": {"key": key}}
        self._producer.produce(self._topic, json.dumps(event), key=user, on_delivery=delivered)
        error = await told
        return ("accepted", key) if error is None else (f"again: {error}"[:100], None)

    async def _read(self, user: str) -> None:
        last, turn = "", 0
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=3, sock_read=45)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            while True:
                turn += 1
                port = self.crew.ports[turn % self.crew.size]
                headers = {"Last-Event-ID": last} if last else {}
                url = f"http://127.0.0.1:{port}/notifications/stream?user_id={user}"
                with suppress(aiohttp.ClientError, OSError, TimeoutError, asyncio.IncompleteReadError):
                    async with session.get(url, headers=headers) as stream:
                        async for line in stream.content:
                            if line.startswith(b"id:"):
                                last = line[3:].strip().decode()
                            elif line.startswith(b"data:") and b'"key"' in line:
                                self._heard.write(id=_key_in(line), time_us=time.time_ns() // 1000, status=200)
                await asyncio.sleep(0.3)

    async def aclose(self) -> None:
        for task in (*self._readers, self._poller):
            task.cancel()
        await asyncio.gather(*self._readers, self._poller, return_exceptions=True)
        await asyncio.to_thread(self._producer.flush, 5)
        await super().aclose()


def _key_in(line: bytes) -> str:
    found: Any = json.loads(line[5:])
    payload = found.get("payload", found)
    return str(payload["key"])


EVERY: dict[str, type[Door]] = {
    "local": LocalDoor,
    "local-sqlite": LocalDoor,
    "listo": ListoDoor,
    "galaxy": GalaxyDoor,
    "push-worker": PushDoor,
    "billing": BillingDoor,
    "sse": SseDoor,
}
