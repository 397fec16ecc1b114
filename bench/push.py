"""The push-worker blueprint from `push.queue` to FCM in one process, beside Celery and Dramatiq on one RabbitMQ."""

import asyncio
import dataclasses
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import aio_pika
import asyncpg

from bench.measure import Outcome, Ratio, interleaved
from bench.peers.install import install
from bench.peers.peer import ROOT
from bench.stage import BIN, carillon, nginx
from tests.support.rabbitmq import RabbitMQ
from tests.support.servers import Postgres, Redis

PART = "push"
MESSAGES = 4_000
LIMIT_SECONDS = 60.0
TEN, BEST = "Carillon, ten at once", "Carillon, a hundred at once"
OURS = {TEN: 10, BEST: 100}
"""Calls at once: the push-worker blueprint's prefetch, and the one that pays; both are `[work]` settings."""
THREADS = 20
"""Dramatiq was faster with 20 than with 4, 10 or 40 on two cores; to Celery 10 and 20 were alike, 4 was slower."""
PEERS = {"Celery": ("push_celery_run", "celery"), "Dramatiq": ("push_dramatiq_run", "dramatiq-push")}
QUEUE = "push.queue"
TEMPLATE = (
    '{"id":"1","code":"welcome_notification","type":"push","language":"en","version":1,'
    '"content":{"title":"Welcome {{name}}!","body":"Hi {{name}}, click {{link}} to begin."},'
    '"variables":["name","link"]}'
)
TAKEN = '{"multicast_id":1,"success":1,"failure":0,"results":[{"message_id":"1"}]}'
ROWS = "SELECT count(*) FROM audit_logs"
SECONDS = "SELECT extract(epoch FROM max(created_at) - min(created_at))::float8 FROM audit_logs"


@dataclasses.dataclass(frozen=True)
class Place:
    """Where everything is; the peers' own is bench.peers.push_job.PushOrder."""

    rabbitmq: str
    redis: str
    dsn: str
    templates: str
    fcm: str
    messages: int = MESSAGES
    threads: int = THREADS


def measure(postgres: Postgres, progress: Callable[[str], None], rounds: int = 2) -> Outcome:
    """Messages a second, by the database's clock from the first audit row to the last."""
    install(progress=progress)
    with RabbitMQ() as rabbit, Redis() as redis, nginx(TEMPLATE) as templates, nginx(TAKEN) as fcm:
        hosts = [url.rpartition("/")[0] for url in (templates, fcm)]

        def once(
            start: Callable[[Place], AbstractContextManager[Any]], fill: Callable[[Place], None], queue: str
        ) -> float:
            redis.flush()
            dsn = postgres.database()
            place = Place(rabbit.url, redis.url(), dsn, hosts[0], hosts[1])
            _prepare(place)
            fill(place)
            with start(place):
                seconds = asyncio.run(_finished(dsn))
            asyncio.run(_delete(rabbit.url, queue))
            return (MESSAGES - 1) / seconds

        subjects: dict[str, Callable[[], float]] = {
            name: lambda number=number: once(lambda place: _ours(place, number), _fill, QUEUE)  # type: ignore[misc]
            for name, number in OURS.items()
        }
        for name, (runner, queue) in PEERS.items():
            subjects[name] = lambda runner=runner, queue=queue: once(  # type: ignore[misc]
                lambda place: _peer(runner, place), lambda place: _run(runner, "fill", place), queue
            )
        outcome = Outcome(interleaved(PART, "messages/s", subjects, rounds, progress))
    best = max(outcome.median(name) for name in PEERS)
    outcome.ratios = [Ratio("push/best-peer", outcome.median(BEST) / best, 2)]
    outcome.settings = {
        PART: f"{MESSAGES:,} persistent messages, acknowledged late, one process; each takes two marks in Redis, a "
        "template over HTTP, a push over HTTP and an audit row in PostgreSQL; the ratio is of a hundred at once "
        "(CARILLON_WORK__CONCURRENCY, __FIRST_CLAIMS and __BATCH), beside it ten, as the push-worker blueprint has it; "
        f"peers on {THREADS} threads"
    }
    return outcome


def _prepare(place: Place) -> None:
    """The tables of this blueprint, before the clock runs."""
    command = [str(BIN / "carillon"), "migrate", "--blueprint", "push-worker"]
    subprocess.run(command, env=_environment(place), check=True, capture_output=True, timeout=LIMIT_SECONDS)


def _fill(place: Place) -> None:
    asyncio.run(_publish(place))


async def _publish(place: Place) -> None:
    connection = await aio_pika.connect(place.rabbitmq)
    async with connection:
        channel = await connection.channel()
        await channel.declare_queue(QUEUE, durable=True)
        for start in range(0, place.messages, 500):
            await asyncio.gather(
                *(
                    channel.default_exchange.publish(_message(number), routing_key=QUEUE)
                    for number in range(start, start + 500)
                )
            )


def _message(number: int) -> aio_pika.Message:
    body = {
        "trace_id": f"trace-{number}",
        "idempotency_key": f"key-{number}",
        "user_id": "user-1",
        "notification_type": "push",
        "recipient": "device-token-1",
        "template_code": "welcome_notification",
        "variables": {"name": "Ada", "link": "https://example.com/welcome"},
        "language": "en",
        "metadata": {},
    }
    return aio_pika.Message(json.dumps(body).encode(), delivery_mode=aio_pika.DeliveryMode.PERSISTENT)


def _ours(place: Place, at_once: int) -> AbstractContextManager[Any]:
    wide = {f"CARILLON_WORK__{name}": str(at_once) for name in ("CONCURRENCY", "FIRST_CLAIMS", "BATCH")}
    return carillon({**_environment(place), **wide}, "--blueprint", "push-worker")


def _environment(place: Place) -> dict[str, str]:
    return {
        "RABBITMQ_URL": place.rabbitmq,
        "REDIS_URL": place.redis,
        "DATABASE_URL": place.dsn,
        "TEMPLATE_SERVICE_URL": place.templates,
        "FCM_API": "legacy",
        "FCM_BASE_URL": place.fcm,
        "FCM_SERVER_KEY": "bench",
    }


def _command(runner: str, phase: str, place: Place) -> list[str]:
    python = str(ROOT / ".bench" / "venv" / "bin" / "python")
    return [python, "-m", f"bench.peers.{runner}", phase, json.dumps(dataclasses.asdict(place))]


def _run(runner: str, phase: str, place: Place) -> None:
    subprocess.run(_command(runner, phase, place), cwd=ROOT, check=True, capture_output=True, timeout=LIMIT_SECONDS)


@contextmanager
def _peer(runner: str, place: Place) -> Iterator[subprocess.Popen[bytes]]:
    log = (Path(ROOT) / ".bench" / f"{runner}.log").open("wb")
    process = subprocess.Popen(_command(runner, "work", place), cwd=ROOT, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        log.close()


async def _finished(dsn: str) -> float:
    """Seconds from the first audit row to the last."""
    connection = await asyncpg.connect(dsn)
    until = time.monotonic() + LIMIT_SECONDS
    try:
        while (rows := await connection.fetchval(ROWS)) < MESSAGES:
            if time.monotonic() > until:
                raise RuntimeError(f"{rows} of {MESSAGES} messages within {LIMIT_SECONDS:.0f} s")
            await asyncio.sleep(0.1)
        if rows != MESSAGES:
            raise RuntimeError(f"{rows} audit rows of {MESSAGES} messages")
        return float(await connection.fetchval(SECONDS))
    finally:
        await connection.close()


async def _delete(rabbitmq: str, queue: str) -> None:
    connection = await aio_pika.connect(rabbitmq)
    async with connection:
        channel = await connection.channel()
        await channel.queue_delete(queue)
