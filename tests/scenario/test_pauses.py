"""Pauses from outside: no call of what is paused, in every process; story, explain and the command line say why."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.client import Client
from tests.support.process import Program, run_carillon

OVERRIDE = {"X-Admin-Override": "true"}
SETTINGS = """
extends = "local"
[http]
port = 0
[work]
poll_seconds = 0.05
[synchronous]
use_cases = []
"""
REASON = "they send twice"


class Stand:
    """Two replicas on one ledger."""

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        config = folder / "carillon.toml"
        config.write_text(SETTINGS)
        self.folder = folder
        self.programs = [Program("serve", "--config", str(config), env=env, cwd=folder) for _ in range(2)]
        self.one, self.other = (Client.of(program) for program in self.programs)

    def brake(self, what: str, scope: str, name: str) -> Any:
        body = {"scope": scope, "name": name, "reason": REASON}
        path = "/api/v1/admin/pauses" + ("/resume" if what == "resume" else "")
        reply = self.one.call("POST", path, body, OVERRIDE)
        assert reply.status == 200, reply
        return reply.body

    def pause(self, scope: str, name: str) -> None:
        assert self.brake("pause", scope, name)["changed"]
        # Each process looks at the store twice a second at most; asking makes both look.
        for client in (self.one, self.other):
            assert client.get("/api/v1/admin/pauses").body["items"]

    def send(self, client: Client, **more: Any) -> str:
        reply = client.send(**({"channel": "email", "recipient": "ada@example.org"} | more))
        assert reply.status == 202, reply
        return str(reply.body["notificationId"])

    def waits(self, client: Client, sent: str) -> str:
        (route,) = client.story(sent)["routes"]
        return str(route["waitsFor"] if route["status"] == "queued" else route["status"])


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def stand(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    folder = tmp_path_factory.mktemp("pauses")
    env = {"CARILLON_LEDGER__ALLOW_UNSAFE": "true", "DATABASE_URL": f"sqlite:///{folder}/ledger.db"}
    if request.param == "postgres":
        env["DATABASE_URL"] = request.getfixturevalue("module_dsn")
    found = Stand(folder, env)
    yield found
    for program in found.programs:
        program.close()


@pytest.fixture(scope="module")
def module_dsn(postgres: Any) -> Iterator[str]:
    dsn = postgres.database()
    yield dsn
    postgres.drop(dsn)


@pytest.mark.req("P-501")
@pytest.mark.parametrize(
    ("scope", "name", "sent", "free"),
    [
        ("provider", "sandbox", {}, None),
        ("lane", "priority", {"priority": "high"}, {}),
        ("template", "welcome", {}, None),
        ("tenant", "acme", {"tenantId": "acme"}, {"tenantId": "globex"}),
    ],
)
def test_what_is_paused_waits_in_every_process_and_goes_on_after_a_resume(
    stand: Stand, scope: str, name: str, sent: dict[str, Any], free: dict[str, Any] | None
) -> None:
    stand.pause(scope, name)
    paused = [stand.send(client, **sent) for client in (stand.one, stand.other) for _ in range(3)]
    said = f"{scope} {name} is paused by anonymous: {REASON}"
    for client in (stand.one, stand.other):
        for one in paused:
            assert stand.waits(client, one) == said
    if free is not None:
        # Those who are not paused prove that the workers work meanwhile.
        assert stand.one.settled(stand.send(stand.one, **free))["status"] == "delivered"
        assert all(stand.waits(stand.one, one) == said for one in paused)
    assert stand.brake("resume", scope, name)["changed"]
    assert not stand.brake("resume", scope, name)["changed"]
    for one in paused:
        story = stand.other.settled(one)
        assert story["status"] == "delivered"
        assert story["routes"][0]["attemptCount"] == 1, "a pause costs no attempt"


@pytest.mark.req("P-501")
def test_explain_and_the_audit_trail_name_the_operator(stand: Stand) -> None:
    stand.pause("template", "welcome")
    body = {
        "templateKey": "welcome",
        "channel": "email",
        "recipient": "a@example.org",
        "data": {"name": "A", "link": "x"},
    }
    explained = stand.other.call("POST", "/api/v1/notifications/explain", body).body
    (step,) = (one for one in explained["steps"] if one["step"] == "paused")
    assert (step["verdict"], step["detail"]["because"]) == (
        "note",
        f"template welcome is paused by anonymous: {REASON}",
    )
    assert (explained["outcome"], explained["routes"][0]["attempts"]) == ("queued", [])
    stand.brake("resume", "template", "welcome")
    explained = stand.other.call("POST", "/api/v1/notifications/explain", body).body
    assert "paused" not in [one["step"] for one in explained["steps"]]
    actions = stand.one.get("/api/v1/admin/audit?pageSize=2").body["items"]
    assert [(one["action"], one["subject"], one["reason"]) for one in actions] == [
        ("resume", "template welcome", REASON),
        ("pause", "template welcome", REASON),
    ]


@pytest.mark.req("P-501")
def test_what_does_not_exist_is_refused_and_a_reason_is_needed(stand: Stand) -> None:
    for scope, name in (("provider", "nobody"), ("lane", "nowhere")):
        body = {"scope": scope, "name": name, "reason": REASON}
        assert stand.one.call("POST", "/api/v1/admin/pauses", body, OVERRIDE).status == 400
    body = {"scope": "provider", "name": "sandbox"}
    assert stand.one.call("POST", "/api/v1/admin/pauses", body, OVERRIDE).status == 400
    assert stand.one.call("POST", "/api/v1/admin/pauses", body | {"reason": REASON}).status == 403


@pytest.mark.req("P-501")
def test_from_the_command_line(stand: Stand) -> None:
    url = ["--url", str(stand.programs[0].wait_ready()["addresses"][0])]
    done = run_carillon(["pause", "lane", "bulk", "--reason", REASON, *url])
    assert done.stdout.strip() == "lane bulk is paused"
    shown = json.loads(run_carillon(["pause", "--json", *url]).stdout)
    assert [(one["what"], one["reason"]) for one in shown["items"]] == [("lane bulk", REASON)]
    done = run_carillon(["resume", "lane", "bulk", *url])
    assert done.stdout.strip() == "lane bulk goes on"
    assert run_carillon(["pause", *url]).stdout.strip() == "Nothing is paused."


@pytest.mark.req("P-502")
def test_a_breaker_is_forced_open_and_probed(stand: Stand) -> None:
    def force(to: str) -> Any:
        body = {"provider": "sandbox", "to": to, "reason": REASON}
        return stand.one.call("POST", "/api/v1/admin/breakers", body, OVERRIDE)

    assert force("open").body == {"provider": "sandbox", "state": "open"}
    assert force("half_open").body == {"provider": "sandbox", "state": "half_open"}
    assert stand.one.settled(stand.send(stand.one))["status"] == "delivered"
    assert force("ajar").status == 400
