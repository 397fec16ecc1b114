"""Controls of the pauses: with the pause switched off, what every test of a paused way waits for does not hold."""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.scenario.test_pauses_everywhere import OPEN, REASON, SYNCHRONOUS, UPDATE, brake, known, update
from tests.scenario.test_sse_trust import bearer
from tests.support.billing_stand import Billing
from tests.support.billing_stand import stand_fixture as billing_fixture
from tests.support.client import Client
from tests.support.process import Program
from tests.support.push_stand import Push, message
from tests.support.push_stand import stand_fixture as push_fixture
from tests.support.sources import ROOT
from tests.support.sse_stand import SECRET, SseStand
from tests.support.waiting import until

MUTANT = "nothing_is_paused"
PAUSES = "/api/v1/admin/pauses"

push: Any = push_fixture(start=False, params=("sqlite",), **OPEN)
billing: Any = billing_fixture(params=("sqlite",))


@pytest.mark.req("P-614")
@pytest.mark.parametrize(
    ("scope", "name"), [("provider", "fcm"), ("lane", "standard"), ("template", "welcome_notification")]
)
def test_control_a_push_worker_without_the_guard_sends_what_is_paused(push: Push, scope: str, name: str) -> None:
    program = push.start(mutant=MUTANT)
    brake(push.client, "pause", scope, name)
    known(program, "calls_paused", f"{scope} {name}")
    sent = message()
    push.publish(sent)
    push.until_mark(sent, "sent")


@pytest.mark.req("P-614")
@pytest.mark.parametrize(("scope", "name"), [("queue", UPDATE), ("tenant", "acme")])
def test_control_a_queue_without_the_guard_is_worked_off(billing: Billing, scope: str, name: str) -> None:
    program = billing.start("--roles", "payment", mutant=MUTANT, SUBSCRIPTION_SERVICE_URL=billing.subscription_stub.url)
    brake(billing.client(), "pause", scope, name)
    known(program, "calls_paused", f"{scope} {name}")
    sent = update(tenant_id="acme")
    billing.push(UPDATE, sent)
    billing.logged("success", message_id=sent["id"])


@pytest.mark.req("P-614")
@pytest.mark.parametrize(("scope", "name"), [("provider", "sse"), ("lane", "priority"), ("template", "job.new")])
async def test_control_a_stream_without_the_guard_gets_what_is_paused(tmp_path: Path, scope: str, name: str) -> None:
    async with SseStand(tmp_path, f"sqlite:///{tmp_path}/sse.db") as sse:
        program = await sse.start(mutant=MUTANT)
        reader = await sse.read("ada")
        await asyncio.to_thread(brake, Client(sse.address), "pause", scope, name)
        await asyncio.to_thread(known, program, "calls_paused", f"{scope} {name}")
        await sse.tell("ada", payload={"n": 1}, priority="HIGH")
        await reader.number(1)
        assert reader.payloads == [{"n": 1}]


@pytest.mark.req("P-614")
@pytest.mark.parametrize(("scope", "name"), [("provider", "sandbox"), ("template", "welcome"), ("tenant", "acme")])
def test_control_a_synchronous_request_without_the_guard_is_sent(tmp_path: Path, scope: str, name: str) -> None:
    config = tmp_path / "carillon.toml"
    config.write_text(SYNCHRONOUS)
    env = {"DATABASE_URL": f"sqlite:///{tmp_path}/c.db", "CARILLON_HTTP__PORT": "0", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.support.mutant", MUTANT]
    with Program("serve", "--config", str(config), env=env, cwd=tmp_path, command=command) as running:
        running.wait_ready(60)
        client = Client.of(running)
        brake(client, "pause", scope, name)
        body: dict[str, Any] = {
            "channel": "email",
            "recipient": "ada@example.org",
            "synchronous": True,
            "tenantId": "acme",
        }
        reply = client.send(**body, data={"name": "Ada", "link": "x", "code": "1"})
        assert (reply.status, reply.body["status"]) == (200, "delivered"), reply


@pytest.fixture(params=["sqlite", "postgres"])
async def tenants(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SseStand]:
    url = f"sqlite:///{tmp_path}/sse.db" if request.param == "sqlite" else request.getfixturevalue("postgres_dsn")
    async with SseStand(tmp_path, url, JWT_SECRET_KEY=SECRET) as stand:
        yield stand


async def _tell(sse: SseStand, tenant: str, number: int) -> str:
    return await sse.tell("ada", payload={"n": number}, headers=bearer("boss", role="admin", tenant_id=tenant))


async def _pause(sse: SseStand, program: Program, tenant: str) -> None:
    body = {"scope": "tenant", "name": tenant, "reason": REASON}
    done = await sse.ask("POST", PAUSES, body, headers={**bearer("root", role="admin"), "X-Admin-Override": "true"})
    assert (done.status, done.json["changed"]) == (200, True), done.json
    await program.until("calls_paused", lambda line: bool(line["what"] == f"tenant {tenant}"), timeout=40)


@pytest.mark.req("P-614")
async def test_a_paused_tenants_streams_get_nothing_and_anothers_go_on(tenants: SseStand) -> None:
    program = await tenants.start()
    ours, theirs = [await tenants.read(headers=bearer("ada", tenant_id=tenant)) for tenant in ("acme", "globex")]
    await _pause(tenants, program, "acme")
    held = await _tell(tenants, "acme", 1)
    await _tell(tenants, "globex", 2)
    await theirs.number(1)
    assert (theirs.payloads, ours.payloads) == ([{"n": 2}], [])
    story = (await tenants.ask("GET", f"/api/v1/notifications/{held}", headers=bearer("root", role="admin"))).json
    assert story["routes"][0]["waitsFor"] == f"tenant acme is paused by root: {REASON}"
    body = {"scope": "tenant", "name": "acme", "reason": REASON}
    headers = {**bearer("root", role="admin"), "X-Admin-Override": "true"}
    assert (await tenants.ask("POST", f"{PAUSES}/resume", body, headers=headers)).json["changed"]

    async def there() -> bool:
        return bool(ours.payloads == [{"n": 1}])

    await until(there, timeout=40, what="what waited, once")


@pytest.mark.req("P-614")
async def test_control_a_tenants_stream_without_the_guard_gets_what_is_paused(tenants: SseStand) -> None:
    program = await tenants.start(mutant=MUTANT)
    reader = await tenants.read(headers=bearer("ada", tenant_id="acme"))
    await _pause(tenants, program, "acme")
    await _tell(tenants, "acme", 1)
    await reader.number(1)
