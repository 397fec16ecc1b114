"""Pauses in every way that sends: RabbitMQ, Redis lists, live streams, synchronous; refused where senseless."""

import ast
import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.support.billing_stand import Billing
from tests.support.billing_stand import stand_fixture as billing_fixture
from tests.support.blueprint_stand import BlueprintStand
from tests.support.client import Client
from tests.support.process import Program, run_carillon
from tests.support.push_stand import Push, message
from tests.support.push_stand import stand_fixture as push_fixture
from tests.support.queue_stand import envelope
from tests.support.sources import syntax_trees
from tests.support.sse_stand import SseStand
from tests.support.waiting import until

OVERRIDE = {"X-Admin-Override": "true"}
REASON = "they send twice"
PAUSES = "/api/v1/admin/pauses"
OPEN: dict[str, Any] = {"CARILLON_HTTP__SURFACE": "full"}

push: Any = push_fixture(params=("sqlite", "postgres"), **OPEN)
billing: Any = billing_fixture()


def brake(client: Client, verb: str, scope: str, name: str) -> Any:
    body = {"scope": scope, "name": name, "reason": REASON}
    reply = client.call("POST", PAUSES + ("/resume" if verb == "resume" else ""), body, OVERRIDE)
    assert reply.status == 200, reply
    assert reply.body["changed"], reply
    return reply.body


def refused(client: Client, scope: str, name: str) -> str:
    reply = client.call("POST", PAUSES, {"scope": scope, "name": name, "reason": REASON}, OVERRIDE)
    assert reply.status == 400, reply
    return str(reply.body["error"]["message"])


def known(program: Program, event: str, what: str) -> None:
    """Wait until the process has logged that it knows."""
    line = program.wait_for(event, lambda line: bool(line["what"] == what), 40)
    assert event == "calls_resumed" or (line["by"], line["reason"]) == ("anonymous", REASON)


@pytest.mark.req("P-614")
@pytest.mark.parametrize(
    ("scope", "name", "free"),
    [
        ("provider", "fcm", None),
        ("lane", "standard", None),
        ("template", "welcome_notification", {"template_code": "other"}),
    ],
)
def test_the_push_worker_sends_nothing_that_is_paused(
    push: Push, scope: str, name: str, free: dict[str, str] | None
) -> None:
    program, client = push.programs[-1], push.client
    first = message()
    began = time.monotonic()
    push.publish(first)
    push.until_mark(first, "sent")
    usual = time.monotonic() - began
    brake(client, "pause", scope, name)
    known(program, "calls_paused", f"{scope} {name}")
    held = [message() for _ in range(3)]
    push.publish(*held)
    if free is None:
        # Nothing goes at all: three times as long as the first one took, nobody is called.
        time.sleep(max(1.0, 3 * usual))
    else:
        other = message(**free)
        push.publish(other)
        push.until_mark(other, "sent")
    assert [push.pushed(one) for one in held] == [0, 0, 0]
    (shown,) = client.get(PAUSES).body["items"]
    assert (shown["what"], shown["reason"]) == (f"{scope} {name}", REASON)
    brake(client, "resume", scope, name)
    for one in held:
        push.until_mark(one, "sent")
        assert push.pushed(one) == 1, "and once"
        push.until_audited(one, "sent")
    known(program, "calls_resumed", f"{scope} {name}")


@pytest.mark.req("P-1345")
def test_a_process_with_doors_alone_pauses_the_push_workers_beside_it(push: Push) -> None:
    worker, doors = push.programs[-1], BlueprintStand.start(push, "--roles", "doors")
    client = Client.of(doors)
    brake(client, "pause", "provider", "fcm")
    known(worker, "calls_paused", "provider fcm")
    brake(client, "resume", "provider", "fcm")
    known(worker, "calls_resumed", "provider fcm")


@pytest.mark.req("P-614")
def test_the_push_worker_refuses_what_would_keep_nothing_back(push: Push) -> None:
    assert refused(push.client, "tenant", "acme") == (
        "tenant acme cannot be paused here: messages of push.queue name no tenant"
    )
    assert "queues in Redis lists" in refused(push.client, "queue", "push.queue")
    assert "there is no lane bulk; known are standard" in refused(push.client, "lane", "bulk")
    body = {"scope": "endpoint", "name": "a:1", "provider": "fcm", "reason": REASON}
    reply = push.client.call("POST", PAUSES, body, OVERRIDE)
    assert reply.body["error"]["message"] == (
        "endpoint fcm a:1 cannot be paused here: fcm calls no endpoints of its own; pause the provider"
    )
    assert push.client.get(PAUSES).body["items"] == []


UPDATE = "q:pay:subscription_update"


def update(**payload: Any) -> dict[str, Any]:
    event_id = f"payment_{uuid4()}_1"
    return envelope(payload={"event_id": event_id, **payload}, idempotency_key=event_id)


@pytest.mark.req("P-614")
def test_a_paused_queue_keeps_its_messages_and_the_others_go_on(billing: Billing) -> None:
    program = billing.start_payment()
    client, usage = billing.client(), "q:pay:refund_initiation"
    brake(client, "pause", "queue", UPDATE)
    known(program, "calls_paused", f"queue {UPDATE}")
    held = [update() for _ in range(3)]
    for one in held:
        billing.push(UPDATE, one)
    # The other queue of the same process proves that its worker works meanwhile: what is no message fails.
    billing.push(usage, "no message at all")
    billing.until(lambda: billing.redis.llen(f"{usage}:failed") == 1, what="the other queue's")
    assert billing.redis.llen(UPDATE) == 3
    assert billing.found("job_logs", queue=UPDATE) == []
    brake(client, "resume", "queue", UPDATE)
    for one in held:
        row = billing.logged("success", message_id=one["id"])
        assert row["attempts"] == 0, "a pause costs no attempt"
    known(program, "calls_resumed", f"queue {UPDATE}")
    actions = [row for row in billing.rows("SELECT * FROM admin_actions ORDER BY action_id") if row["reason"] == REASON]
    assert [(row["action"], row["subject"]) for row in actions] == [
        ("pause", f"queue {UPDATE}"),
        ("resume", f"queue {UPDATE}"),
    ]


@pytest.mark.req("P-614")
def test_a_paused_tenants_messages_wait_in_the_queue_and_another_tenants_go(billing: Billing) -> None:
    program = billing.start_payment()
    brake(billing.client(), "pause", "tenant", "acme")
    known(program, "calls_paused", "tenant acme")
    held, free = update(tenant_id="acme"), update(tenant_id="globex")
    billing.push(UPDATE, held)
    billing.push(UPDATE, free)
    billing.logged("success", message_id=free["id"])
    assert "success" not in [row["status"] for row in billing.found("job_logs", message_id=held["id"])]
    assert not any(held["payload"]["event_id"] in str(post) for post in billing.posts())
    brake(billing.client(), "resume", "tenant", "acme")
    assert billing.logged("success", message_id=held["id"])["attempts"] == 0


@pytest.mark.req("P-614")
def test_billing_refuses_what_would_keep_nothing_back(billing: Billing) -> None:
    billing.start_payment()
    for scope in ("provider", "lane", "template", "endpoint"):
        said = refused(billing.client(), scope, "webhook")
        assert said.endswith("cannot be paused here: this blueprint works off queues; pause a queue or a tenant"), said
    assert UPDATE in refused(billing.client(), "queue", "q:pay:nothing")
    address = str(billing.programs[-1].wait_ready()["addresses"][0])
    done = run_carillon(["pause", "queue", UPDATE, "--reason", REASON, "--url", address])
    assert done.stdout.strip() == f"queue {UPDATE} is paused"
    done = run_carillon(["resume", "queue", UPDATE, "--url", address])
    assert done.stdout.strip() == f"queue {UPDATE} goes on"


@pytest.fixture(params=["sqlite", "postgres"])
async def sse(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SseStand]:
    url = f"sqlite:///{tmp_path}/sse.db" if request.param == "sqlite" else request.getfixturevalue("postgres_dsn")
    async with SseStand(tmp_path, url) as stand:
        await stand.start()
        yield stand


@pytest.mark.req("P-614")
@pytest.mark.parametrize(
    ("scope", "name", "paused", "free"),
    [
        ("provider", "sse", {}, None),
        ("lane", "priority", {"priority": "HIGH"}, {"priority": "LOW"}),
        ("template", "job.new", {}, {"event_type": "job.old"}),
    ],
)
async def test_a_live_stream_gets_nothing_that_is_paused(
    sse: SseStand, scope: str, name: str, paused: dict[str, str], free: dict[str, str] | None
) -> None:
    client = Client(sse.address)
    reader = await sse.read("ada")
    await asyncio.to_thread(brake, client, "pause", scope, name)
    await asyncio.to_thread(known, sse.programs[-1], "calls_paused", f"{scope} {name}")
    held = await sse.tell("ada", payload={"n": 1}, **paused)
    if free is None:
        await asyncio.sleep(1.0)
    else:
        await sse.tell("ada", payload={"n": 2}, **free)
        await reader.number(1)
    assert {"n": 1} not in reader.payloads
    story = await asyncio.to_thread(client.story, held)
    assert story["routes"][0]["waitsFor"] == f"{scope} {name} is paused by anonymous: {REASON}"
    await asyncio.to_thread(brake, client, "resume", scope, name)

    async def there() -> bool:
        return {"n": 1} in reader.payloads

    await until(there, timeout=40, what="what waited")
    row = await sse.until_row(held, status="pushed")
    assert row["retry_count"] == 0


SYNCHRONOUS = """
extends = "local"
[lanes.synchronous]
rank = 0
queue_name = ""
timeout_seconds = 5
max_attempts = 1
max_latency_seconds = 5
"""


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Program]:
    config = tmp_path / "carillon.toml"
    config.write_text(SYNCHRONOUS)
    env = {"DATABASE_URL": f"sqlite:///{tmp_path}/c.db", "CARILLON_HTTP__PORT": "0"}
    with Program("serve", "--config", str(config), env=env, cwd=tmp_path) as running:
        running.wait_ready(60)
        yield running


@pytest.mark.req("P-614")
@pytest.mark.parametrize(
    ("scope", "name", "free"),
    [
        ("provider", "sandbox", None),
        ("template", "welcome", {"templateKey": "password_reset"}),
        ("tenant", "acme", {"tenantId": "globex"}),
        ("lane", "synchronous", None),
    ],
)
def test_a_synchronous_request_is_refused_at_once_and_says_why(
    local: Program, scope: str, name: str, free: dict[str, str] | None
) -> None:
    client = Client.of(local)
    body: dict[str, Any] = {
        "channel": "email",
        "recipient": "ada@example.org",
        "synchronous": True,
        "tenantId": "acme",
        "data": {"name": "Ada", "link": "x", "code": "1"},
    }
    brake(client, "pause", scope, name)
    reply = client.send(**body)
    assert (reply.status, reply.body["error"]["code"]) != (200, None)
    assert f"{scope} {name} is paused by anonymous: {REASON}" in str(reply.body), reply
    sent = client.get("/api/v1/sandbox/messages").body["items"]
    assert sent == []
    if free is not None and scope == "tenant":
        assert client.send(**(body | free)).status == 200
    brake(client, "resume", scope, name)
    assert client.send(**body).status == 200


@pytest.mark.req("P-614")
def test_local_refuses_queues_and_endpoints_of_providers_without(local: Program) -> None:
    client = Client.of(local)
    assert "this blueprint has no queues in Redis lists" in refused(client, "queue", "q:pay:refund")
    body = {"scope": "endpoint", "name": "a:1", "provider": "sandbox", "reason": REASON}
    reply = client.call("POST", PAUSES, body, OVERRIDE)
    assert (reply.status, "sandbox calls no endpoints of its own" in reply.body["error"]["message"]) == (400, True)


@pytest.mark.req("P-614")
def test_every_worker_is_built_with_what_operators_pause() -> None:
    """The pause is a rule of Attempts and Worker; a way that sends and leaves `targets` out would not know any."""
    builders = {"Attempts", "Worker", "SynchronousDelivery"}
    calls = [
        (path, node.func.id, {keyword.arg for keyword in node.keywords})
        for path, tree in syntax_trees()
        if path.startswith("src/")
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in builders
    ]
    assert len(calls) >= 5
    assert [(path, name) for path, name, given in calls if "targets" not in given] == []
