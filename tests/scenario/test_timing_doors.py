"""Chains, reports, redrives of the skipped and holidays at every door: HTTP, RabbitMQ, the command line, the page."""

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aio_pika
import pytest

from carillon.domain.claims import first_claim
from carillon.domain.consent import Categories, Category
from carillon.links import Links
from tests.support.client import Client, Reply
from tests.support.ledger_builders import enrolment, route
from tests.support.process import Program, run_carillon
from tests.support.rabbitmq import RabbitMQ
from tests.support.waiting import wait_until

OVERRIDE = {"X-Admin-Override": "true"}
QUEUE = "requests"
SETTINGS = """extends = "local"
[rabbitmq_door]
queue = "requests"
[categories.offers]
[preferences]
quiet_hours = true
[preferences.holidays]
ALL = [DAYS]
"""
DAYS = ", ".join(f'"{month:02}-{day:02}"' for month in range(1, 13) for day in range(1, 29))
DATA = {"name": "Ada", "link": "https://example.org/"}


def environment(folder: Path, rabbitmq_url: str) -> dict[str, str]:
    broker = {"RABBITMQ_URL": rabbitmq_url} if rabbitmq_url else {}
    return {"DATABASE_URL": f"sqlite:///{folder}/c.db", "CARILLON_HTTP__PORT": "0", **broker}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("doors")
    (made / "c.toml").write_text(SETTINGS.replace("DAYS", DAYS))
    return made


@pytest.fixture(scope="module")
def program(rabbitmq: RabbitMQ, folder: Path) -> Iterator[Program]:
    config = str(folder / "c.toml")
    with Program("serve", "--config", config, env=environment(folder, rabbitmq.url), cwd=folder) as running:
        running.wait_ready(60)
        yield running


@pytest.fixture
def client(program: Program) -> Client:
    return Client.of(program)


def prefer(client: Client, user: str, **wishes: Any) -> Reply:
    contacts = {"email": f"{user}@example.org", "pushToken": f"device-{user}"}
    return client.call("PUT", f"/api/v1/preferences/user/{user}", {"contacts": contacts, **wishes})


def chain(user: str, **more: Any) -> dict[str, Any]:
    said = {"templateKey": "welcome", "channels": ["push", "email"], "until": "read", "after": "PT10M", "userId": user}
    return {**said, "data": DATA, **more}


def send(client: Client, body: dict[str, Any]) -> Reply:
    return client.call("POST", "/api/v1/notifications/send", body)


def routes(client: Client, name: str) -> dict[str, Any]:
    return {one["channel"]: one for one in client.get(f"/api/v1/notifications/{name}").body["routes"]}


def until_sent(client: Client, name: str, channel: str = "push") -> None:
    wait_until(lambda: routes(client, name)[channel]["status"] == "delivered", timeout=30, what="the first is sent")


async def publish(url: str, body: dict[str, Any], key: str) -> None:
    connection = await aio_pika.connect(url)
    async with connection:
        channel = await connection.channel()
        message = aio_pika.Message(json.dumps(body).encode(), message_id=key)
        await channel.default_exchange.publish(message, QUEUE)


def found(client: Client, user: str) -> str:
    page: list[Any] = []

    def there() -> bool:
        page[:] = client.get(f"/api/v1/notifications?userId={user}").body["items"]
        return bool(page)

    wait_until(there, timeout=30, what="the message is accepted")
    return str(page[0]["id"])


@pytest.mark.slow
@pytest.mark.req("P-320", "P-323")
@pytest.mark.parametrize("door", ["http", "rabbitmq"])
def test_a_chain_through_each_door(client: Client, rabbitmq: RabbitMQ, door: str) -> None:
    user = f"ada-{door}"
    prefer(client, user)
    if door == "http":
        send(client, chain(user))
    else:
        asyncio.run(publish(rabbitmq.url, chain(user), f"key-{user}"))
    name = found(client, user)
    until_sent(client, name)
    assert routes(client, name)["email"]["status"] == "queued"
    path = f"/api/v1/notifications/{name}/receipts"
    assert client.call("POST", path, {"kind": "read", "channel": "email"}).status == 409
    told = client.call("POST", path, {"kind": "read"}).body
    assert (told["effect"], told["skipped"]) == ("noted", [f"email:user:{user}"])
    assert client.call("POST", path, {"kind": "read"}).body["effect"] == "repeated"
    email = routes(client, name)["email"]
    assert (email["status"], email["gate"], email["goal"]) == ("skipped", "reached", "read")


@pytest.mark.slow
@pytest.mark.req("P-204", "P-205")
def test_the_gate_of_categories_stands_at_the_door_of_rabbitmq(client: Client, rabbitmq: RabbitMQ) -> None:
    for user, wanted in (("ben", False), ("bea", True)):
        prefer(client, user, categories={"offers": {"email": wanted}})
        body = {"templateKey": "welcome", "channel": "email", "userId": user, "data": DATA, "category": "offers"}
        asyncio.run(publish(rabbitmq.url, body, f"key-{user}"))
    until_sent(client, found(client, "bea"), "email")
    email = routes(client, found(client, "ben"))["email"]
    assert (email["status"], email["gate"]) == ("skipped", "category")


@pytest.mark.slow
@pytest.mark.req("P-320", "P-322")
def test_explain_shows_the_chain_with_its_times(client: Client) -> None:
    prefer(client, "eve")
    said = client.call("POST", "/api/v1/notifications/explain", chain("eve")).body
    (step,) = [step for step in said["steps"] if step["step"] == "reached"]
    first, second = step["detail"]["chain"]
    assert (step["detail"]["until"], step["detail"]["afterSeconds"]) == ("read", 600)
    assert (first["channel"], second["channel"]) == ("push", "email")
    assert first["notBefore"] is None, "it goes at once"
    assert second["notBefore"] == pytest.approx((time.time() + 600) * 1000, abs=60_000)
    wrong = client.call("POST", "/api/v1/notifications/send", chain("eve", synchronous=True))
    assert (wrong.status, wrong.body["error"]["code"]) == (400, "SYNCHRONOUS_UNAVAILABLE")


@pytest.mark.slow
@pytest.mark.req("P-325")
def test_what_a_suppression_skipped_goes_after_it_is_lifted(client: Client, folder: Path) -> None:
    address = "zoe@example.org"
    made = client.call("POST", "/api/v1/suppressions", {"channel": "email", "address": address, "reason": "manual"})
    assert made.status in {200, 201}, made
    body = {"templateKey": "welcome", "channel": "email", "recipient": address, "data": DATA}
    name = send(client, body).body["notificationId"]
    asked = {"reason": "lifted", "gate": "suppressed", "notificationIds": [name]}
    path = "/api/v1/admin/redrive-skipped"
    held = client.call("POST", path, asked, OVERRIDE).body
    assert (held["matched"], held["redriven"], held["held"]) == (1, 0, {"suppressed": 1})
    suppression = client.get(f"/api/v1/suppressions?address={address}").body["items"][0]["id"]
    assert client.call("DELETE", f"/api/v1/suppressions/{suppression}").status in {200, 204}
    counted = client.call("POST", path, {**asked, "dryRun": True}, OVERRIDE).body
    assert (counted["matched"], counted["redriven"], counted["held"]) == (1, 0, {})
    command = ["skipped", "redrive", name, "--gate", "suppressed", "--json", "--config", str(folder / "c.toml")]
    said = json.loads(run_carillon(command, env=environment(folder, ""), cwd=folder, check=True).stdout)
    assert (said["found"], said["redriven"]) == (1, 1)
    until_sent(client, name, "email")
    assert routes(client, name)["email"]["redrivenBy"] == said["action"]
    assert client.call("POST", path, asked, OVERRIDE).body["matched"] == 0, "a repeat sends nothing twice"
    (action,) = [one for one in client.get("/api/v1/admin/audit").body["items"] if one["id"] == said["action"]]
    assert action["detail"]["skipped"] is True
    stopped = client.call("POST", f"/api/v1/admin/redrives/{said['action']}/stop", {"reason": "late"}, OVERRIDE)
    assert stopped.body == {"stopped": 0}
    assert client.call("POST", "/api/v1/admin/redrives/999/stop", {"reason": "late"}, OVERRIDE).status == 404


@pytest.mark.slow
@pytest.mark.req("P-326", "P-202")
def test_a_holiday_of_the_persons_calendar_delays(client: Client) -> None:
    quiet = {"startTime": "00:00", "endTime": "00:00"}
    unknown = prefer(client, "max", quietHours={**quiet, "holidays": "DE"})
    assert (unknown.status, "known are ALL" in unknown.body["error"]["message"]) == (400, True)
    kept = prefer(client, "max", quietHours={**quiet, "holidays": "ALL"})
    assert kept.body["quietHours"]["holidays"] == "ALL"
    body = {"templateKey": "welcome", "channel": "email", "userId": "max", "data": DATA}
    said = client.call("POST", "/api/v1/notifications/explain", body).body
    steps = {step["step"]: step["detail"] for step in said["steps"]}
    # Every day up to the 28th is a holiday: on the others nothing waits.
    assert ("quiet_hours" in steps) == (said["routes"][0]["notBefore"] is not None)


@pytest.mark.req("P-327")
def test_a_mail_with_copies_carries_no_link_for_its_recipient() -> None:
    key, url = "a key of this test, thirty-two characters", "https://messages.example.org"
    links = Links((key,), url, link_seconds=60.0, unsubscribe_seconds=60.0)
    known = Categories(shared={"offers": Category(name="offers")})
    plain = '{"text":"Hi"}'
    copied = '{"text":"Hi","mail":{"cc":["bob@example.org"]}}'
    left_out = '{"text":"Hi","mail":{"leftOut":["bob@example.org"]}}'
    claims = [
        first_claim(enrolment(route(message_json=text), category="offers"), "email:user:ann", 1, 1)
        for text in (plain, copied, left_out)
    ]
    assert [links.unsubscribe(claim, known) is None for claim in claims] == [False, True, True]
