"""Every blueprint on the same servers: how one is started, given work, and asked what became of it."""

import asyncio
import json
import uuid
from abc import ABC, abstractmethod
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar, Self
from urllib.parse import urlsplit

import redis

from carillon.compose.blueprints import examine
from carillon.config.reading import load
from tests.support import tables
from tests.support.client import WELCOME, Client
from tests.support.fcm_stub import SERVER_KEY, FcmStub
from tests.support.galaxy import fields_for
from tests.support.galaxy_stand import GATEWAY, INTENTS, PASSWORD, Users
from tests.support.gates import Brokers, Gates, Way
from tests.support.kafka import Kafka, Topic
from tests.support.process import Line, Program
from tests.support.push_broker import Broker, reset
from tests.support.push_messages import TemplateStub, message
from tests.support.rabbitmq import RabbitMQ
from tests.support.servers import Postgres, Redis
from tests.support.servicebus import Bus
from tests.support.waiting import wait_until

PATIENCE = 90
LOUD = {"warning", "error", "critical"}
Given = dict[str, Any]


class World:
    """The servers, each behind a gate, and what the blueprints have for neighbours."""

    def __init__(
        self, folder: Path, *, postgres: Postgres, redis_server: Redis, rabbit: RabbitMQ, kafka: Kafka
    ) -> None:
        self.folder = folder
        self.postgres = postgres
        self._stack = ExitStack()
        gates = self._stack.enter_context(Gates())
        self.fcm = self._stack.enter_context(FcmStub(folder / "fcm.jsonl"))
        self.templates = self._stack.enter_context(TemplateStub(folder / "templates.jsonl"))
        self.users = self._stack.enter_context(Users(folder / "users.jsonl"))
        self.broker = self._stack.enter_context(Broker(rabbit.url))
        self.topic: Topic = self._stack.enter_context(kafka.topic())
        self.bus = self._stack.enter_context(Bus())
        self.redis: Any = redis.Redis(port=redis_server.port, password=PASSWORD, decode_responses=True)
        self._stack.callback(self.redis.close)
        self.rabbit_url = urlsplit(rabbit.url)
        self.ledger_gate = gates.before(postgres.port)
        self.redis_gate = gates.before(redis_server.port)
        self.rabbit_gate = gates.before(self.rabbit_url.port or 5672)
        self.template_gate = gates.before(urlsplit(self.templates.url).port or 0)
        self.users_gate = gates.before(urlsplit(self.users.url).port or 0)
        self.bus_gate = gates.before(self.bus.port)
        self.brokers = Brokers(kafka)

    def __enter__(self) -> Self:
        reset(self.broker)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def dsn(self, own: str) -> str:
        return own.replace(f":{self.postgres.port}/", f":{self.ledger_gate.port}/")

    def environment(self, own: str) -> dict[str, str]:
        redis_url = f"redis://:{PASSWORD}@127.0.0.1:{self.redis_gate.port}/0"
        login = self.rabbit_url.netloc.rpartition("@")[0]
        rabbit = f"{f'{login}@' if login else ''}127.0.0.1:{self.rabbit_gate.port}"
        return {
            "CARILLON_LEDGER__ALLOW_UNSAFE": "true",
            "CARILLON_ALLOW_SANDBOX": "1",
            "CARILLON_WORK__START_SECONDS": "0",
            "DATABASE_URL": self.dsn(own),
            "RABBITMQ_URL": self.rabbit_url._replace(netloc=rabbit).geturl(),
            "TEMPLATE_SERVICE_URL": f"http://127.0.0.1:{self.template_gate.port}",
            "FCM_API": "legacy",
            "FCM_BASE_URL": self.fcm.url,
            "FCM_SERVER_KEY": SERVER_KEY,
            "NOTIFICATION_REDIS_MASTER_ADDR": f"127.0.0.1:{self.redis_gate.port}",
            "NOTIFICATION_REDIS_PASSWORD": PASSWORD,
            "NOTIFICATION_POSTGRES_PRIMARY_DSN": f"{self.dsn(own)}?search_path=notification",
            "NOTIFICATION_USER_SERVICE_BASE_URL": f"http://127.0.0.1:{self.users_gate.port}",
            "NOTIFICATION_INTERNAL_HTTP_ADDR": "127.0.0.1:0",
            "WEBHOOK_SIGNING_SECRET": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            "SERVICE_TOKEN": "every-blueprint-service-token",
            "REDIS_URL": redis_url,
        }


class Blueprint(ABC):
    """One blueprint with a database of its own."""

    name: ClassVar[str]
    settings: ClassVar[str] = "[http]\nport = 0\n"
    found_ill: ClassVar[dict[str, str]]
    """By the name of a check, what the doctor calls it."""
    gauge: ClassVar[str] = "carillon.routes.due"
    needs_doors: ClassVar[bool] = False
    """Work is handed in over HTTP."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.own = world.postgres.database()
        self.config = world.folder / f"{self.name}.toml"
        self.config.write_text(f'extends = "{self.name}"\n{self.settings}')
        self.programs: list[Program] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for way in self.ways.values():
            way.open()
        for program in self.programs:
            program.close()
        self.world.postgres.drop(self.own)

    @property
    def ways(self) -> dict[str, Way]:
        """By the name of a check, how the dependency behind it is reached."""
        known: dict[str, Way] = {
            "Ledger": self.world.ledger_gate,
            "Redis": self.world.redis_gate,
            "RabbitMQ": self.world.rabbit_gate,
            "Kafka": self.world.brokers,
            "Templates": self.world.template_gate,
            "Directory": self.world.users_gate,
            "Service Bus": self.world.bus_gate,
        }
        return {check: known[part] for check, part in self.found_ill.items()}

    def environment(self) -> dict[str, str]:
        found = self.world.environment(self.own)
        if "Redis" not in self.found_ill.values() or self.name == "galaxy":
            del found["REDIS_URL"]
        return found

    def launch(self, *arguments: str, **environment: str) -> Program:
        given = {**self.environment(), **environment}
        program = Program("serve", "--config", str(self.config), *arguments, env=given, cwd=self.world.folder)
        self.programs.append(program)
        return program

    def start(self, *arguments: str, **environment: str) -> Program:
        program = self.launch(*arguments, **environment)
        program.wait_ready(PATIENCE)
        return program

    def ill(self) -> set[str]:
        """The parts that `carillon doctor` finds ill."""
        settings = load(None, self.config, self.environment())
        return {finding.part for finding in asyncio.run(examine(settings)) if finding.verdict == "ill"}

    def readiness(self, program: Program) -> Any:
        return Client.of(program).get("/readyz").body

    def until(self, condition: Any, what: str) -> None:
        wait_until(condition, timeout=PATIENCE, what=f"{self.name}: {what}")

    def until_arrived(self, given: Given) -> None:
        self.until(lambda: self.arrived(given), f"{given} to arrive")

    @abstractmethod
    def give(self, program: Program | None) -> Given:
        """Hand one piece of work in; without a process where a queue takes it."""

    @abstractmethod
    def arrived(self, given: Given) -> bool:
        """It was sent."""

    def until_doors_read(self, given: Given) -> None:  # noqa: B027 - most doors read nothing before they may end
        """Wait until the doors have read what was given, where they must not end earlier."""

    def untouched(self, given: Given) -> bool:
        """Nothing was sent, and nothing was taken that only senders take."""
        return not self.arrived(given) and not self.held()

    def held(self) -> list[Any]:
        """What somebody still has a claim on."""
        return asyncio.run(tables.read(self.own, tables.HELD))


def loud(program: Program, since: int) -> list[Line]:
    """Warnings and worse, from a mark on; that a person reads no stream says nothing about the end of a process."""
    found = [line for line in program.lines[since:] if line.get("level") in LOUD]
    return [line for line in found if line["event"] != "route_attempted" or "not connected" not in line["message"]]


class Local(Blueprint):
    """Over HTTP, into the sandbox."""

    name = "local"
    needs_doors = True
    found_ill: ClassVar = {"ledger": "Ledger"}

    def give(self, program: Program | None) -> Given:
        assert program is not None
        reply = Client.of(program).send(WELCOME)
        assert reply.status == 202, reply
        return {"id": reply.body["notificationId"]}

    def arrived(self, given: Given) -> bool:
        found = f"SELECT status FROM routes WHERE notification_id = '{given['id']}'"  # noqa: S608 - an id of ours
        return {row["status"] for row in asyncio.run(tables.read(self.own, found))} == {"published"}


class Listo(Local):
    """Over HTTP, with a template of its own."""

    name = "listo"

    def give(self, program: Program | None) -> Given:
        assert program is not None
        body = {"templateKey": "order_confirmed", "channel": "email", "recipient": "ada@example.org"}
        reply = Client.of(program).call("POST", "/api/v1/notifications/send", body)
        assert reply.status == 202, reply
        return {"id": reply.body["notificationId"]}


class Sse(Local):
    """From Kafka, into a person's log."""

    name = "sse"
    needs_doors = False
    settings = '[http]\nport = 0\n[task_picker]\npoll_interval = "100ms"\n'
    found_ill: ClassVar = {"ledger": "Ledger", "kafka": "Kafka"}

    def environment(self) -> dict[str, str]:
        topic = self.world.topic
        return {
            **super().environment(),
            "KAFKA_BOOTSTRAP_SERVERS": topic.kafka.bootstrap,
            "KAFKA_TOPIC": topic.name,
            "KAFKA_GROUP_ID": f"group-{self.own.rpartition('/')[2]}",
        }

    def give(self, program: Program | None) -> Given:
        del program
        user = f"user-{uuid.uuid4()}"
        event = {"event_id": str(uuid.uuid4()), "event_type": "job.new", "user_id": user, "payload": {"job": 1}}
        self.world.topic.write(event)
        return {"user": user}

    def until_doors_read(self, given: Given) -> None:
        # A member that ends while it joins stays in its group until its session is over: 45 seconds.
        self.until(lambda: bool(self._rows(given)), f"{given} to be read")

    def arrived(self, given: Given) -> bool:
        # Nobody is connected, so a picker that tried leaves the reason; the door alone leaves a row without one.
        rows = self._rows(given)
        return bool(rows) and all(row["status"] == "not_pushed" and row["last_error"] for row in rows)

    def _rows(self, given: Given) -> list[tables.Row]:
        about = f"FROM notifications.notifications WHERE user_id = '{given['user']}'"
        return asyncio.run(tables.read(self.own, f"SELECT status, last_error {about}"))


class GalaxyBlueprint(Blueprint):
    """From a Redis Stream, into two others."""

    name = "galaxy"
    settings = ""
    found_ill: ClassVar = {"redis": "Redis", "ledger": "Ledger", "directory": "Directory"}
    gauge = "notification.route_schedule.depth"

    def give(self, program: Program | None) -> Given:
        del program
        key = f"every:{uuid.uuid4()}"
        before = self.world.redis.xlen(GATEWAY)
        entry = self.world.redis.xadd(INTENTS, {**fields_for("game.turn.ready"), "idempotency_key": key})
        return {"before": before, "entry": entry}

    def arrived(self, given: Given) -> bool:
        return bool(self.world.redis.xlen(GATEWAY) >= given["before"] + 2)

    def held(self) -> list[Any]:
        rows = asyncio.run(tables.read(f"{self.own}", tables.HELD.replace("FROM routes", "FROM notification.routes")))
        return [*rows, *self.world.redis.keys("notification:route_leases:*")]


class PushWorkerBlueprint(Blueprint):
    """From RabbitMQ, to FCM."""

    name = "push-worker"
    settings = "[http]\nport = 0\n[drill]\ntime_scale = 0.05\n"
    found_ill: ClassVar = {
        "database": "Ledger",
        "cache_service": "Redis",
        "message_broker": "RabbitMQ",
        "template_service": "Templates",
    }
    gauge = "carillon.queue.depth"

    def give(self, program: Program | None) -> Given:
        del program
        self.world.broker.declare("push.queue")
        sent = message()
        self.world.broker.publish(sent)
        return sent

    def arrived(self, given: Given) -> bool:
        return bool(self.world.redis.get(f"idempotency:{given['idempotency_key']}") == "sent")

    def untouched(self, given: Given) -> bool:
        return self.world.redis.get(f"idempotency:{given['idempotency_key']}") is None

    def held(self) -> list[Any]:
        marks = {key: self.world.redis.get(key) for key in self.world.redis.keys("idempotency:*")}
        return [key for key, value in marks.items() if value not in {"sent", "failed"}]


class BillingBlueprint(Blueprint):
    """Over HTTP and through list queues, to its own other half."""

    name = "billing"
    needs_doors = True
    settings = "[http]\nport = 0\n[beat]\npump_seconds = 0.05\n"
    found_ill: ClassVar = {"ledger": "Ledger", "redis": "Redis"}
    gauge = "carillon.queue.depth"

    def give(self, program: Program | None) -> Given:
        assert program is not None
        asked = {"plan_id": "basic", "user_id": f"user-{uuid.uuid4()}", "trial": True}
        reply = Client.of(program).call("POST", "/v1/subscriptions", asked)
        assert reply.status == 201, reply
        return {"id": reply.body["id"]}

    def arrived(self, given: Given) -> bool:
        found = f"SELECT status FROM subscriptions WHERE subscription_id = '{given['id']}'"  # noqa: S608 - an id of ours
        return [row["status"] for row in asyncio.run(tables.read(self.own, found))] == ["trial"]

    def held(self) -> list[Any]:
        keys = [str(key) for key in self.world.redis.keys("*")]
        return [key for key in keys if key.endswith(":processing") or key.startswith("lock:")]


EVERY: dict[str, type[Blueprint]] = {
    each.name: each for each in (Local, Listo, GalaxyBlueprint, PushWorkerBlueprint, BillingBlueprint, Sse)
}


def exported(program: Program) -> set[str]:
    """The names of the numbers that a process wrote to stdout."""
    said = (line.get("name") or line.get("metric") for line in list(program.lines))
    return {str(name) for name in said if name} | {name for line in program.lines for name in _names(json.dumps(line))}


def _names(text: str) -> list[str]:
    return [word for word in text.split('"') if word.startswith(("carillon.", "notification."))]
