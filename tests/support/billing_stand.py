"""Everything around the billing services: Redis, a database, neighbours that only listen, and the processes."""

import hashlib
import hmac
import json
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import pytest
import redis

from tests.support import tables
from tests.support.blueprint_stand import BlueprintStand, database
from tests.support.client import Client, Reply
from tests.support.ports import free_port
from tests.support.process import Program
from tests.support.servers import Redis
from tests.support.vendor import Vendor
from tests.support.waiting import wait_until

SECRET = "webhook-signing-secret"
TOKEN = "service-token-of-the-tests"
WEBHOOK = "/v1/webhooks/payment"
PROCESS = "/v1/payments/internal/process"
_PATIENT = "base_delay_seconds = 0.2\nmax_delay_seconds = 0.2\njitter_seconds = 0\nmax_retries = 1000\n"
FAST = f"""
[beat]
pump_seconds = 0.05
sweep_seconds = 0.5
grace_seconds = 1
[queue."*"]
{_PATIENT}
[queue."q:sub:trial_payment"]
{_PATIENT}
[queue."q:pay:refund_initiation"]
{_PATIENT}
[queue."q:sub:plan_change"]
max_retries = 3
"""
"""Short waits, and no budget that a slow machine could use up; plan changes show how one ends."""
QUEUES = (
    "q:sub:payment_initiation",
    "q:sub:trial_payment",
    "q:sub:plan_change",
    "q:sub:usage_sync",
    "q:pay:subscription_update",
    "q:pay:refund_initiation",
)


def signature(body: bytes, timestamp: int | str, secret: str = SECRET) -> str:
    digest = hmac.new(secret.encode(), f"{timestamp}.".encode() + body, hashlib.sha256)
    return f"sha256={digest.hexdigest()}"


class Billing(BlueprintStand):
    """A stand; `start()` runs `carillon serve --blueprint billing` with the launch contract's environment."""

    def __init__(self, folder: Path, *, redis_server: Redis, url: str, settings: str = "", **environment: str) -> None:
        super().__init__(folder, url, "billing", f'extends = "billing"\n{FAST}\n{settings}', environment)
        self.redis_server = redis_server
        self.redis = redis.Redis.from_url(redis_server.url(), decode_responses=True)
        self.subscription_stub = Vendor(folder / "subscription.jsonl")
        self.payment_stub = Vendor(folder / "payment.jsonl")

    def __enter__(self) -> Self:
        self._stack.enter_context(self.subscription_stub)
        self._stack.enter_context(self.payment_stub)
        self._stack.callback(self.redis.close)
        self.redis_server.flush()
        return self

    def contract(self) -> dict[str, str]:
        return {"REDIS_URL": self.redis_server.url(), "WEBHOOK_SIGNING_SECRET": SECRET, "SERVICE_TOKEN": TOKEN}

    def start_payment(self, subscription_url: str | None = None, **environment: str) -> Program:
        """The payment service alone; by default the subscription service is a stub."""
        where = subscription_url or self.subscription_stub.url
        return self.start("--roles", "payment", SUBSCRIPTION_SERVICE_URL=where, **environment)

    def start_subscription(self, payment_url: str | None = None, **environment: str) -> Program:
        """The subscription service alone; by default the payment service is a stub."""
        where = payment_url or self.payment_stub.url
        return self.start("--roles", "subscription", PAYMENT_SERVICE_URL=where, **environment)

    def client(self, program: Program | None = None) -> Client:
        return Client.of(program or self.programs[-1])

    def until(self, condition: Callable[[], bool], *, what: str, timeout: float = 40) -> None:
        wait_until(condition, timeout=timeout, what=what)

    def found(self, table: str, **equal: Any) -> list[tables.Row]:
        """The rows of a table that say so."""
        rows = self.rows(f"SELECT * FROM {table}")  # noqa: S608 - a name of this file's callers
        return [row for row in rows if all(row[name] == value for name, value in equal.items())]

    def pay(self, subscription_id: str, key: str | None = None, program: Program | None = None, **body: Any) -> Reply:
        headers = {"Authorization": f"Bearer {TOKEN}"} | ({"Idempotency-Key": key} if key else {})
        return self.client(program).call("POST", f"{PROCESS}?subscription_id={quote(subscription_id)}", body, headers)

    def deliver(
        self, event: Mapping[str, Any] | bytes, *, late: int = 0, program: Program | None = None, **headers: str | None
    ) -> Reply:
        """A webhook as the payment service sends it, `late` seconds ago; None leaves a header out."""
        body = event if isinstance(event, bytes) else json.dumps(event).encode()
        timestamp = headers.pop("timestamp", str(int(time.time()) - late))
        given = {"X-Webhook-Timestamp": timestamp, "X-Webhook-Signature": signature(body, timestamp or "")}
        if "signature" in headers:
            given["X-Webhook-Signature"] = headers.pop("signature")
        sent = {name: value for name, value in given.items() if value is not None}
        return self.client(program).call("POST", WEBHOOK, body, sent)

    def subscription(self, subscription_id: str, program: Program | None = None) -> Any:
        return self.client(program).get(f"/v1/subscriptions/{subscription_id}").body

    def until_status(self, subscription_id: str, status: str, program: Program | None = None) -> Any:
        self.until(
            lambda: bool(self.subscription(subscription_id, program)["status"] == status),
            what=f"{subscription_id} to be {status}",
        )
        return self.subscription(subscription_id, program)

    def create(self, *, trial: bool = False, plan_id: str = "basic", program: Program | None = None) -> str:
        """A new subscription's id."""
        body = {"plan_id": plan_id, "user_id": "ada", "trial": trial}
        reply = self.client(program).call("POST", "/v1/subscriptions", body)
        assert reply.status == 201, reply
        return str(reply.body["id"])

    def push(self, queue: str, message: Any) -> None:
        self.redis.lpush(queue, message if isinstance(message, str) else json.dumps(message))

    def waiting(self, *queues: str) -> list[Any]:
        """Everything of these queues that is not finished, wherever it is; seen in one moment, as messages wander."""
        with self.redis.pipeline(transaction=True) as moment:
            for queue in queues:
                moment.lrange(queue, 0, -1)
                moment.lrange(f"{queue}:processing", 0, -1)
                moment.zrange(f"{queue}:delayed", 0, -1)
                moment.lrange(f"{queue}:failed", 0, -1)
            return [json.loads(text) for texts in moment.execute() for text in texts]

    def until_idle(self) -> None:
        """Nothing waits in any queue, and no message is on its way to one."""
        self.until(lambda: not self.waiting(*QUEUES), what="empty queues")

    def logged(self, status: str, **equal: Any) -> tables.Row:
        """The one row of `job_logs` once it has that status: rows follow what happened."""
        what = f"a job log {status} of {equal}"
        self.until(lambda: [row["status"] for row in self.found("job_logs", **equal)] == [status], what=what)
        return self.found("job_logs", **equal)[0]

    def told(self, message_id: str, number: int) -> list[dict[str, Any]]:
        """That many entries of `q:log:jobs` about one message, newest first."""

        def entries() -> list[dict[str, Any]]:
            everything = [json.loads(text) for text in self.redis.lrange("q:log:jobs", 0, -1)]
            return [entry for entry in everything if entry["message_id"] == message_id]

        self.until(lambda: len(entries()) >= number, what=f"{number} entries about {message_id}")
        return entries()

    def posts(self, holding: str = "") -> list[dict[str, Any]]:
        """Webhooks that reached the subscription service's stub."""
        return [entry for entry in self.subscription_stub.entries if holding in entry["body"]]


def event(event_id: str, subscription_id: str, status: str = "success", **more: Any) -> dict[str, Any]:
    return {"event_id": event_id, "subscription_id": subscription_id, "status": status, **more}


def two_ports() -> tuple[int, int]:
    return free_port(), free_port()


def stand_fixture(
    settings: str = "",
    *,
    name: str = "billing",
    scope: Any = "function",
    params: tuple[str, ...] = (),
    **environment: str,
) -> Any:
    """Assigned to `billing`, it gives tests a stand in which nothing runs yet, on PostgreSQL or on each of `params`."""

    def billing(
        request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, redis_server: Redis
    ) -> Iterator[Billing]:
        folder = tmp_path_factory.mktemp("billing")
        for url in database(request, folder):
            with Billing(folder, redis_server=redis_server, url=url, settings=settings, **environment) as stand:
                yield stand

    return pytest.fixture(scope=scope, params=params or None, name=name)(billing)
