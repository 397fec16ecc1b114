"""One process with five blueprints at once: each has its own path, its own listener and its own names."""

import asyncio
import json
import urllib.error
import urllib.request
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import pytest_asyncio
import redis

from tests.support.fcm_stub import SERVER_KEY, FcmStub
from tests.support.galaxy import fields_for
from tests.support.galaxy_stand import GATEWAY, INTENTS, MAIL, PASSWORD, Users
from tests.support.kafka import Kafka, Topic
from tests.support.ports import free_port
from tests.support.process import Line, Program
from tests.support.push_broker import Broker, reset
from tests.support.push_messages import TemplateStub, message
from tests.support.push_stand import consuming
from tests.support.rabbitmq import RabbitMQ
from tests.support.servers import Postgres, Redis
from tests.support.sse_reader import StreamReader
from tests.support.waiting import until

BLUEPRINTS = ("push-worker", "galaxy", "listo", "billing", "sse")
SECRET = "five-together-signing-secret-of-some-length"
pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]


class Five:
    """The process, what stands around it, and where each blueprint listens."""

    def __init__(self, folder: Path, dsn: str, redis_server: Redis, rabbit: RabbitMQ, topic: Topic) -> None:
        self.folder = folder
        self.dsn = dsn
        self.redis_server = redis_server
        self.redis_url = f"redis://:{PASSWORD}@127.0.0.1:{redis_server.port}/0"
        self.topic = topic
        self.rabbit = rabbit
        self.redis: Any = redis.Redis.from_url(self.redis_url)
        self.broker = Broker(rabbit.url)
        self.fcm = FcmStub(folder / "fcm.jsonl")
        self.templates = TemplateStub(folder / "templates.jsonl")
        self.users = Users(folder / "users.jsonl")
        self.ports = {name: free_port() for name in BLUEPRINTS}
        self.program: Program | None = None

    def __getitem__(self, blueprint: str) -> str:
        return f"http://127.0.0.1:{self.ports[blueprint]}"

    def start(self) -> None:
        files: list[str] = []
        for name, port in self.ports.items():
            file = self.folder / f"{name}.toml"
            listener = "" if name == "galaxy" else f"[http]\nport = {port}\n"
            more = '[task_picker]\npoll_interval = "100ms"\n' if name == "sse" else ""
            file.write_text(f'extends = "{name}"\n{listener}{more}')
            files += ["--config", str(file)]
        self.program = Program("serve", *files, env=self.environment(), cwd=self.folder)

    def environment(self) -> dict[str, str]:
        return {
            "CARILLON_LEDGER__ALLOW_UNSAFE": "true",
            "CARILLON_ALLOW_SANDBOX": "1",
            "DATABASE_URL": self.dsn,
            "REDIS_URL": self.redis_url,
            "RABBITMQ_URL": self.rabbit.url,
            "TEMPLATE_SERVICE_URL": self.templates.url,
            "FCM_API": "legacy",
            "FCM_BASE_URL": self.fcm.url,
            "FCM_SERVER_KEY": SERVER_KEY,
            "NOTIFICATION_REDIS_MASTER_ADDR": f"127.0.0.1:{self.redis_server.port}",
            "NOTIFICATION_REDIS_PASSWORD": PASSWORD,
            "NOTIFICATION_POSTGRES_PRIMARY_DSN": f"{self.dsn}?search_path=notification",
            "NOTIFICATION_USER_SERVICE_BASE_URL": self.users.url,
            "NOTIFICATION_INTERNAL_HTTP_ADDR": f"127.0.0.1:{self.ports['galaxy']}",
            "WEBHOOK_SIGNING_SECRET": SECRET,
            "SERVICE_TOKEN": "five-together-service-token",
            "SUBSCRIPTION_SERVICE_URL": self["billing"],
            "PAYMENT_SERVICE_URL": self["billing"],
            "KAFKA_BOOTSTRAP_SERVERS": self.topic.kafka.bootstrap,
            "KAFKA_TOPIC": self.topic.name,
        }

    async def ask(self, method: str, url: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        return await asyncio.to_thread(_ask, method, url, body, headers)


def _ask(method: str, url: str, body: Any, headers: dict[str, str]) -> tuple[int, Any]:
    data = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(url, data, {"Content-Type": "application/json", **headers}, method=method)  # noqa: S310 - loopback
    try:
        with urllib.request.urlopen(asked, timeout=30) as answer:  # noqa: S310 - loopback
            text, status = answer.read(), answer.status
    except urllib.error.HTTPError as error:
        text, status = error.read(), error.code
    try:
        return status, json.loads(text)
    except ValueError:
        return status, text.decode()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def five(tmp_path_factory: pytest.TempPathFactory, postgres: Postgres, rabbitmq: RabbitMQ) -> AsyncIterator[Five]:
    dsn = postgres.database()
    with Redis(password=PASSWORD) as server, Kafka() as kafka, kafka.topic() as topic:
        stand = Five(tmp_path_factory.mktemp("five"), dsn, server, rabbitmq, topic)
        with stand.fcm, stand.templates, stand.users, stand.broker:
            reset(stand.broker)
            stand.start()
            assert stand.program is not None
            with stand.program as program:
                try:
                    await until(lambda: _said_ready(program), timeout=120, what="five blueprints that are ready")
                except BaseException as error:
                    error.add_note(program.tail(20))
                    raise
                await asyncio.to_thread(consuming, program)
                yield stand
        stand.redis.close()
    postgres.drop(dsn)


async def _said_ready(program: Program) -> bool:
    assert not [line for line in program.lines if line.get("event") == "start_failed"]
    assert not [line for line in program.noise if line.startswith("carillon:")]
    return len([line for line in program.lines if line.get("event") == "ready"]) == len(BLUEPRINTS)


@pytest.mark.req("G-01")
async def test_each_is_ready_under_its_own_name(five: Five) -> None:
    assert five.program is not None
    ready = [line for line in five.program.lines if line.get("event") == "ready"]
    assert {line["blueprint"]: line["addresses"] for line in ready} == {name: [five[name]] for name in BLUEPRINTS}


@pytest.mark.req("G-01")
async def test_each_part_speaks_for_its_own_blueprint(five: Five) -> None:
    assert five.program is not None
    # The topic's reader speaks from a thread of its own.
    owners = {"kafka_door": "sse", "redis_stream": "galaxy", "rabbitmq": "push-worker"}
    for part, owner in owners.items():
        line = await asyncio.to_thread(five.program.wait_for, "part_started", _is_part(part), 60)
        assert line["blueprint"] == owner, line


@pytest.mark.req("G-01")
async def test_a_push_leaves_the_queue(five: Five) -> None:
    sent = message()
    await asyncio.to_thread(five.broker.publish, sent)
    key = f"idempotency:{sent['idempotency_key']}"
    try:
        await until(lambda: _is(five.redis.get(key) == b"sent"), timeout=60, what="a push that is marked as sent")
    except TimeoutError as error:
        queued = await asyncio.to_thread(five.broker.ready)
        assert five.program is not None
        error.add_note(f"{five.redis.get(key)!r}, {queued} in the queue; {five.program.tail(60)}")
        raise
    assert [entry for entry in five.fcm.sends if sent["trace_id"] in entry["body"]]


@pytest.mark.req("G-01")
async def test_an_intent_becomes_routes(five: Five) -> None:
    before = five.redis.xlen(GATEWAY), five.redis.xlen(MAIL)
    five.redis.xadd(INTENTS, {**fields_for("game.turn.ready"), "idempotency_key": f"five:{uuid.uuid4()}"})

    def routed() -> bool:
        return (five.redis.xlen(GATEWAY), five.redis.xlen(MAIL)) == (before[0] + 2, before[1] + 2)

    await until(lambda: _is(routed()), timeout=60, what="four routes")


@pytest.mark.req("G-01")
async def test_a_request_is_delivered(five: Five) -> None:
    body = {"templateKey": "order_confirmed", "channel": "email", "recipient": "ada@example.org"}
    status, accepted = await five.ask("POST", f"{five['listo']}/api/v1/notifications/send", body)
    assert status == 202, accepted

    async def delivered() -> bool:
        _, seen = await five.ask("GET", f"{five['listo']}/api/v1/notifications/{accepted['notificationId']}")
        return bool(seen["status"] == "delivered")

    await until(delivered, timeout=60, what="a delivered notification")


@pytest.mark.req("G-01")
async def test_a_trial_becomes_a_subscription(five: Five) -> None:
    asked = {"plan_id": "basic", "user_id": f"user-{uuid.uuid4()}", "trial": True}
    status, made = await five.ask("POST", f"{five['billing']}/v1/subscriptions", asked)
    assert status == 201, made

    async def trial() -> bool:
        _, seen = await five.ask("GET", f"{five['billing']}/v1/subscriptions/{made['id']}")
        return bool(seen["status"] == "trial")

    await until(trial, timeout=60, what="a trial that was paid for")


@pytest.mark.req("G-01")
async def test_an_event_reaches_its_reader(five: Five) -> None:
    async with StreamReader(five["sse"], "user_id=reader-1") as reader:
        await reader.event("connected")
        event = {"event_id": "five-1", "event_type": "job.new", "user_id": "reader-1", "payload": {"job": 1}}
        await asyncio.to_thread(five.topic.write, event)
        frame = await reader.event("notification")
    assert frame.json["payload"] == {"job": 1}


SURFACES = {
    "push-worker": ({"/health"}, {"/metrics", "/ops/queues", "/notifications/stream", "/api/v1/notifications"}),
    "galaxy": ({"/healthz", "/readyz"}, {"/metrics", "/health", "/api/v1/notifications", "/ops/queues", "/docs"}),
    "listo": ({"/health", "/healthz", "/readyz", "/inbox"}, {"/metrics", "/ops/queues"}),
    "billing": ({"/health", "/ops/queues"}, {"/metrics", "/notifications/stream", "/api/v1/notifications"}),
    "sse": ({"/health"}, {"/metrics", "/ops/queues", "/v1/subscriptions/x"}),
}


@pytest.mark.req("G-17")
@pytest.mark.parametrize("blueprint", BLUEPRINTS)
async def test_a_listener_serves_its_own_paths_and_nobody_elses(five: Five, blueprint: str) -> None:
    own, others = SURFACES[blueprint]
    for path in own:
        status, body = await five.ask("GET", five[blueprint] + path)
        assert status == 200, (path, body)
    for path in others:
        status, _ = await five.ask("GET", five[blueprint] + path)
        assert status == 404, path


@pytest.mark.req("G-17")
async def test_each_body_is_its_documents(five: Five) -> None:
    _, push = await five.ask("GET", f"{five['push-worker']}/health")
    assert {"database", "message_broker", "cache_service"} <= set(push["checks"])
    _, stream = await five.ask("GET", f"{five['sse']}/health")
    assert {"status", "active_connections", "timestamp"} <= set(stream)


@pytest.mark.req("G-12")
async def test_every_name_is_where_its_document_writes_it(five: Five) -> None:
    # What is looked for is written by using it, also where this test runs alone.
    await test_a_push_leaves_the_queue(five)
    await test_an_intent_becomes_routes(five)
    await test_a_trial_becomes_a_subscription(five)
    connection = await asyncpg.connect(five.dsn)
    try:
        rows = await connection.fetch(
            "SELECT table_schema || '.' || table_name AS name FROM information_schema.tables "
            "WHERE table_schema NOT IN ('pg_catalog', 'information_schema')"
        )
    finally:
        await connection.close()
    names = {row["name"] for row in rows}
    assert {
        *(f"notification.{table}" for table in ("records", "routes", "dead_letters", "malformed_intents")),
        "public.audit_logs",
        "public.NotificationQueue",
        "public.job_logs",
        "public.payment_webhook_requests",
        "notifications.notifications",
    } <= names
    keys = {key.decode() for key in five.redis.scan_iter("*")}
    assert any(key.startswith("idempotency:") for key in keys)
    assert any(key.startswith("notification:stream_offsets:") for key in keys)
    assert {INTENTS, GATEWAY, MAIL, "q:log:jobs"} <= keys


def _is_part(name: str) -> Callable[[Line], bool]:
    return lambda line: bool(line["part"] == name)


async def _is(condition: object) -> bool:
    return bool(condition)
