"""The sinks of alerts: a Redis stream, the log, a webhook, RabbitMQ, each with a real server."""

import asyncio
import io
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, cast

import aio_pika
import msgspec
import pytest
from redis.asyncio import Redis

from carillon.compose import upkeep
from carillon.compose.process import Process
from carillon.config.reading import load
from carillon.domain.errors import ConfigurationError
from carillon.providers.http import HttpClient
from carillon.providers.tools import Secret
from carillon.providers.webhook.signing import Check, verify_standard
from carillon.system import SystemClock
from carillon.upkeep.alerts import AlertSink
from carillon.upkeep.logs import lines as logs
from tests.contract.test_upkeep_alerts import ALERT
from tests.support import servers
from tests.support.rabbitmq import RabbitMQ
from tests.support.servicebus import KEY, Bus
from tests.support.vendor import Reply, Vendor

NAME = "listo-notifications-alerts"
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def process(folder: Path, settings: str) -> Process:
    config = folder / "alerts.toml"
    config.write_text(f'extends = "local"\n{settings}')
    chains: dict[str, tuple[str, ...]] = {"sms": ("Twilio", "AWS_SNS")}
    return Process(load(config=config, environ={}), chains, SystemClock(), lambda _: None, "me")


@asynccontextmanager
async def sinks(folder: Path, settings: str) -> AsyncIterator[list[AlertSink]]:
    async with AsyncExitStack() as stack:
        http = HttpClient()
        stack.push_async_callback(http.aclose)
        nobody: Any = None
        relay = upkeep.alert_relay(process(folder, settings), nobody, http, stack)
        yield [] if relay is None else list(relay.sinks)


@pytest.mark.req("S2-119", "S2-120")
async def test_the_redis_stream_holds_the_json(redis_url: str, tmp_path: Path) -> None:
    settings = f'[alerts]\nsinks = ["auto"]\n[redis]\nurl = "{redis_url}"\n'
    async with sinks(tmp_path, settings) as (sink,), Redis.from_url(redis_url) as redis:
        assert await sink.tell(ALERT) is None
        entries: Any = await redis.xrange(NAME)
    ((_, fields),) = entries
    assert json.loads(fields[b"event"]) == msgspec.to_builtins(ALERT)


async def test_a_redis_that_is_away_does_not_confirm(tmp_path: Path) -> None:
    server = servers.Redis()
    with server:
        settings = f'[alerts]\nsinks = ["redis"]\n[redis]\nurl = "{server.url()}"\n'
        async with sinks(tmp_path, settings) as (sink,):
            assert await sink.tell(ALERT) is None
            server.stop()
            assert await sink.tell(ALERT) is not None
            server.start()
            assert await sink.tell(ALERT) is None


@pytest.mark.req("S2-119")
async def test_without_redis_the_log_says_it(tmp_path: Path) -> None:
    out = io.StringIO()
    undo = logs.configure("json", stream=out, service="listo-notifications")
    try:
        async with sinks(tmp_path, '[alerts]\nsinks = ["auto"]\n') as (sink,):
            assert await sink.tell(ALERT) is None
    finally:
        undo()
    line = json.loads(out.getvalue())
    assert (line["event"], line["level"]) == ("NotificationFailed", "error")
    assert {name: line[name] for name in msgspec.to_builtins(ALERT)} == msgspec.to_builtins(ALERT)


async def test_a_webhook_is_signed_and_repeats_under_one_id(tmp_path: Path) -> None:
    with Vendor(tmp_path / "hook.jsonl") as hook:
        hook.answer(Reply(503, body="down"))
        settings = f'[alerts]\nsinks = ["webhook"]\nwebhook_url = "{hook.url}/alerts"\nwebhook_secrets = ["{SECRET}"]\n'
        async with sinks(tmp_path, settings) as (sink,):
            assert await sink.tell(ALERT) == "HTTP 503 down"
            assert await sink.tell(ALERT) is None
        first, second = hook.wait_for(2)
    assert first["id"] == second["id"]
    assert json.loads(second["body"]) == msgspec.to_builtins(ALERT)
    body, now = second["body"].encode(), SystemClock().wall()
    assert verify_standard([Secret(SECRET)], second["headers"].items(), body, now=now) is Check.OK
    assert verify_standard([Secret(SECRET)], second["headers"].items(), body + b" ", now=now) is Check.FORGED


async def test_rabbitmq_confirms_a_persistent_message_in_a_durable_queue(rabbitmq: RabbitMQ, tmp_path: Path) -> None:
    settings = f'[alerts]\nsinks = ["rabbitmq"]\nrabbitmq_url = "{rabbitmq.url}"\n'
    async with sinks(tmp_path, settings) as (sink,):
        # Side by side on one connection, as the relay does.
        assert await asyncio.gather(*(sink.tell(ALERT) for _ in range(20))) == [None] * 20
        connection = await aio_pika.connect(rabbitmq.url)
        async with connection:
            channel = await connection.channel()
            queue = await channel.declare_queue(NAME, durable=True)
            message = await queue.get()
            assert message is not None
            await message.ack()
            assert json.loads(message.body) == msgspec.to_builtins(ALERT)
            assert (message.delivery_mode, message.message_id) == (aio_pika.DeliveryMode.PERSISTENT, "7")
            assert queue.declaration_result.message_count == 20
        # A queue that somebody made differently is left as it is.
        connection = await aio_pika.connect(rabbitmq.url)
        async with connection:
            channel = await connection.channel()
            await channel.queue_delete(NAME)
            await channel.declare_queue(NAME, durable=True, arguments={"x-queue-type": "quorum"})
    async with sinks(tmp_path, settings) as (sink,):
        assert await sink.tell(ALERT) is None


async def test_a_rabbitmq_that_is_away_does_not_confirm(tmp_path: Path) -> None:
    async with sinks(tmp_path, '[alerts]\nsinks = ["rabbitmq"]\nrabbitmq_url = "amqp://127.0.0.1:9/"\n') as (sink,):
        assert "AMQPConnectionError" in (await sink.tell(ALERT) or "")


@pytest.mark.req("X2-6", "S2-119")
async def test_service_bus_accepts_a_message_in_a_queue_or_topic(tmp_path: Path) -> None:
    with Bus() as bus:
        bus.create(NAME)
        settings = f'[alerts]\nsinks = ["servicebus"]\nservicebus_connection_string = "{bus.connection}"\n'
        async with sinks(tmp_path, settings) as (sink,):
            # Side by side on one connection, as the relay does.
            assert await asyncio.gather(*(sink.tell(ALERT) for _ in range(20))) == [None] * 20
            found = bus.messages(NAME)
            assert (len(found), found[0].id, found[0].subject) == (20, "7", ALERT.event_type)
            assert json.loads(bytes(cast("bytes", found[0].body))) == msgspec.to_builtins(ALERT)
            bus.leave()
            assert "Error" in (await sink.tell(ALERT) or "")
            bus.come()
            assert await sink.tell(ALERT) is None
        wrong = settings.replace(KEY, "bm90LXRoZS1rZXk=")
        async with sinks(tmp_path, wrong) as (sink,):
            said = await sink.tell(ALERT) or ""
        assert "AuthenticationError" in said
        assert "bm90" not in said


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ('sinks = ["servicebus"]', "alerts.servicebus_connection_string"),
        ('sinks = ["servicebus"]\nservicebus_connection_string = "nonsense"', "servicebus_connection_string"),
        ('sinks = ["redis"]', "redis.url"),
        ('sinks = ["webhook"]', "alerts.webhook_url"),
        ('sinks = ["webhook"]\nwebhook_url = "http://127.0.0.1:9/"', "alerts.webhook_secrets"),
        ('sinks = ["webhook"]\nwebhook_url = "http://127.0.0.1:9/"\nwebhook_secrets = ["short"]', "whsec_"),
        ('sinks = ["rabbitmq"]', "alerts.rabbitmq_url"),
        ('sinks = ["pigeon"]', "alerts.sinks"),
    ],
)
async def test_a_sink_without_its_settings_stops_the_start(tmp_path: Path, settings: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        async with sinks(tmp_path, f"[alerts]\n{settings}\n"):
            pass


async def test_nobody_is_told_by_default(tmp_path: Path) -> None:
    async with sinks(tmp_path, "") as nobody:
        assert nobody == []
