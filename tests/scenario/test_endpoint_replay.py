"""Endpoints from outside: how each does that was called, and what went to one since a time sent again."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.scenario import test_endpoints
from tests.scenario.test_endpoints import DOWN, OVERRIDE, Stand
from tests.scenario.test_endpoints import stand as endpoints_stand
from tests.support.client import WELCOME, Client, Reply
from tests.support.dispatches import SECRET as HOOK_SECRET
from tests.support.listo_stand import SECRET, token
from tests.support.process import Program, run_carillon
from tests.support.vendor import Reply as Answer
from tests.support.vendor import Vendor
from tests.support.waiting import wait_until

stand = endpoints_stand
PATH = "/api/v1/admin/targets/replay"


def now() -> str:
    return datetime.now(UTC).isoformat()


def replay(client: Client, vendor: Vendor, since: str, headers: dict[str, str] | None = None, **more: Any) -> Reply:
    body = {"endpoint": f"127.0.0.1:{vendor.port}", "since": since, "reason": "it was down", **more}
    return client.call("POST", PATH, body, {**OVERRIDE, **(headers or {})})


@pytest.fixture
def short(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> Stand:
    """A stand whose webhooks are tried once."""
    settings = test_endpoints.SETTINGS.replace("max_attempts = 50", "max_attempts = 1")
    monkeypatch.setattr(test_endpoints, "SETTINGS", settings)
    return stand


def fail(stand: Stand, client: Client, vendor: Vendor, number: int, **more: Any) -> list[str]:
    vendor.default = DOWN
    sent = [stand.send(client, vendor, **more) for _ in range(number)]
    assert {client.settled(one)["status"] for one in sent} == {"failed"}
    vendor.default = Answer()
    return sent


@pytest.mark.req("P-610")
def test_what_failed_at_one_endpoint_since_a_time_is_counted_and_sent_again(short: Stand) -> None:
    (client,) = short.start("[policy.breaker.webhook]\nfailure_threshold = 100\n")
    long_ago = fail(short, client, short.one, 1)
    since = now()
    lost = fail(short, client, short.one, 3)
    elsewhere = fail(short, client, short.other, 2)
    counted = replay(client, short.one, since, dryRun=True).body
    assert (counted["failed"], counted["delivered"], counted["replayed"], counted["actionId"]) == (3, 0, 0, None)
    before = len(short.one.entries)
    done = replay(client, short.one, since).body
    assert (done["failed"], done["replayed"]) == (3, 3)
    assert {client.settled(one)["status"] for one in lost} == {"delivered"}
    assert len(short.one.entries) - before == 3
    assert {client.story(one)["status"] for one in [*long_ago, *elsewhere]} == {"failed"}, "nobody else's"
    again = replay(client, short.one, since).body
    assert (again["failed"], again["replayed"]) == (0, 0)
    (shown, *_) = client.get("/api/v1/admin/redrives").body["items"]
    assert (shown["id"], shown["endpoint"], shown["delivered"]) == (done["actionId"], short.endpoint(short.one), 3)
    (action, *_) = client.get("/api/v1/admin/audit?action=redrive").body["items"]
    assert (action["subject"], action["reason"]) == (f"webhook@{short.endpoint(short.one)}", "it was down")


@pytest.mark.req("P-610", "P-611")
def test_what_it_took_is_sent_again_under_its_old_id_and_a_stop_leaves_it_delivered(stand: Stand) -> None:
    (client,) = stand.start("")
    since = now()
    sent = [stand.send(client, stand.one) for _ in range(4)]
    assert {client.settled(one)["status"] for one in sent} == {"delivered"}
    ids = sorted(entry["headers"]["webhook-id"] for entry in stand.one.entries)
    assert replay(client, stand.one, since, dryRun=True).body["failed"] == 0
    assert replay(client, stand.one, since, dryRun=True, delivered=True).body["delivered"] == 4
    done = replay(client, stand.one, since, delivered=True).body
    assert done["replayed"] == 4
    wait_until(lambda: len(stand.one.entries) == 8, timeout=40, what="four again")
    assert sorted(entry["headers"]["webhook-id"] for entry in stand.one.entries) == sorted(ids * 2)
    assert {client.settled(one)["status"] for one in sent} == {"delivered"}
    slow = replay(client, stand.one, since, delivered=True, ratePerSecond=0.01).body
    assert slow["replayed"] == 4
    wait_until(lambda: len(stand.one.entries) == 9, timeout=40, what="the first one's turn")
    stopped = client.call("POST", f"/api/v1/admin/redrives/{slow['actionId']}/stop", {"reason": "enough"}, OVERRIDE)
    assert stopped.body == {"stopped": 3}
    assert {client.settled(one)["status"] for one in sent} == {"delivered"}
    assert len(stand.one.entries) == 9


@pytest.mark.req("P-610")
def test_a_paused_endpoint_keeps_its_replay_waiting(short: Stand) -> None:
    (client,) = short.start("")
    since = now()
    (lost,) = fail(short, client, short.one, 1)
    pause = {"scope": "endpoint", "name": short.endpoint(short.one), "reason": "their release"}
    assert client.call("POST", "/api/v1/admin/pauses", pause, OVERRIDE).status == 200
    assert replay(client, short.one, since).body["replayed"] == 1

    def waits() -> bool:
        return "is paused by" in str(client.story(lost)["routes"][0].get("waitsFor"))

    wait_until(waits, timeout=40, what="the pause to be told")
    called = len(short.one.entries)
    assert client.call("POST", "/api/v1/admin/pauses/resume", pause, OVERRIDE).status == 200
    assert client.settled(lost)["status"] == "delivered"
    assert len(short.one.entries) == called + 1


@pytest.mark.req("P-610")
def test_a_registered_url_is_an_endpoint_of_its_own(short: Stand) -> None:
    url = f"http://127.0.0.1:{short.one.port}/registered"
    (client,) = short.start(f'[providers.webhook.endpoints]\n"{url}" = ["{HOOK_SECRET}"]\n')
    since = now()
    short.one.default = DOWN
    own = client.send(channel="webhook", recipient=url).body["notificationId"]
    other = short.send(client, short.one)
    assert {client.settled(one)["status"] for one in (own, other)} == {"failed"}
    short.one.default = Answer()
    done = replay(client, short.one, since, endpoint=url).body
    assert (done["failed"], done["replayed"]) == (1, 1)
    assert done["endpoint"].startswith(f"127.0.0.1:{short.one.port}#")
    assert client.settled(own)["status"] == "delivered"
    assert client.story(other)["status"] == "failed"
    assert replay(client, short.one, since, endpoint=done["endpoint"], delivered=True).body["replayed"] == 1
    assert replay(client, short.one, since).body["replayed"] == 1


@pytest.mark.req("P-610")
def test_what_is_refused(stand: Stand) -> None:
    (client,) = stand.start("")
    assert replay(client, stand.one, "yesterday").status == 400
    assert replay(client, stand.one, now(), endpoint="http://").status == 400
    unknown = replay(client, stand.one, now(), provider="sandbox")
    assert (unknown.status, unknown.body["error"]["code"]) == (400, "UNKNOWN_PROVIDER")
    assert "webhook" in unknown.body["error"]["message"]
    body = {"endpoint": "a:1", "since": now(), "reason": "x"}
    assert client.call("POST", PATH, body).status == 403, "by hand only on purpose"


@pytest.mark.req("P-610")
def test_a_tenants_administrator_replays_their_own_only(short: Stand) -> None:
    short.env["CARILLON_AUTH__SECRET"] = SECRET
    (client,) = short.start("")
    since = now()
    sent = {}
    short.one.default = DOWN
    for tenant in ("acme", "globex"):
        body = {**WELCOME, "channel": "webhook", "recipient": f"http://127.0.0.1:{short.one.port}/hook"}
        reply = client.call("POST", "/api/v1/notifications/send", body, token("boss", role="admin", tenant=tenant))
        assert reply.status == 202, reply
        sent[tenant] = str(reply.body["notificationId"])
    root = token("root", role="admin")
    wait_until(
        lambda: replay(client, short.one, since, root, dryRun=True).body["failed"] == 2, timeout=40, what="two failed"
    )
    short.one.default = Answer()
    boss = token("boss", role="admin", tenant="acme")
    assert replay(client, short.one, since, token("ada", tenant="acme")).status == 403
    assert replay(client, short.one, since, boss, tenantId="globex").status == 403
    assert replay(client, short.one, since, boss, dryRun=True).body["failed"] == 1
    done = replay(client, short.one, since, boss).body
    assert done["replayed"] == 1

    def status(tenant: str) -> str:
        return str(client.get(f"/api/v1/notifications/{sent[tenant]}", root).body["status"])

    wait_until(lambda: status("acme") == "delivered", timeout=40, what="acme's")
    assert status("globex") == "failed"
    stop = f"/api/v1/admin/redrives/{done['actionId']}/stop"
    stranger = {**token("boss", role="admin", tenant="globex"), **OVERRIDE}
    assert client.call("POST", stop, {"reason": "not mine"}, stranger).status == 404
    assert client.get("/api/v1/admin/endpoints", boss).status == 403, "it shows every tenant"


@pytest.mark.req("P-612")
def test_every_endpoint_that_was_called_shows_how_it_does(short: Stand) -> None:
    first, second = short.start("", replicas=2)
    assert first.get("/api/v1/admin/endpoints").body == {"items": [], "totalCount": 0}
    for client in (first, second):
        fail(short, client, short.one, 1)
        assert client.settled(short.send(client, short.other))["status"] == "delivered"

    def health(client: Client) -> dict[str, Any]:
        return {one["endpoint"]: one for one in client.get("/api/v1/admin/endpoints").body["items"]}

    good, bad = short.endpoint(short.other), short.endpoint(short.one)

    def both_know() -> bool:
        seen = [health(client) for client in (first, second)]
        return all(one.get(name, {}).get("calls") == 2 for one in seen for name in (good, bad))

    wait_until(both_know, timeout=30, what="the calls of both replicas")
    shown = health(first)
    assert (shown[good]["failures"], shown[good]["errorRate"], shown[good]["lastFailureAt"]) == (0, 0.0, None)
    assert shown[good]["lastSuccessAt"] is not None
    assert 0 < shown[good]["averageMs"] <= shown[good]["slowestMs"] < 30_000
    assert (shown[bad]["failures"], shown[bad]["errorRate"], shown[bad]["lastSuccessAt"]) == (2, 1.0, None)
    assert good not in short.targets(first), "nothing about it is kept beside the targets in trouble"


@pytest.mark.req("P-610", "P-612")
def test_the_command_line_shows_counts_and_replays(short: Stand, tmp_path: Path) -> None:
    (client,) = short.start("")
    since = now()
    (lost,) = fail(short, client, short.one, 1)
    address, name = short.programs[0].wait_ready()["addresses"][0], short.endpoint(short.one)
    shown = run_carillon(["endpoints", "health", "--json", "--url", address], cwd=tmp_path)
    assert [one["endpoint"] for one in json.loads(shown.stdout)["items"]] == [name]
    assert name in run_carillon(["endpoints", "health", "--url", address], cwd=tmp_path).stdout
    how = ["endpoints", "replay", name, "--since", since, "--url", address]
    counted = run_carillon([*how, "--dry-run"], cwd=tmp_path)
    assert counted.stdout.strip() == f"{name}: 1 failed since then, 0 replayed (dry run)"
    done = run_carillon([*how, "--delivered", "--json"], cwd=tmp_path)
    assert done.returncode == 0, done
    assert (json.loads(done.stdout)["failed"], json.loads(done.stdout)["replayed"]) == (1, 1)
    assert client.settled(lost)["status"] == "delivered"


@pytest.mark.req("P-610")
def test_where_no_provider_has_endpoints_it_says_what_to_do(tmp_path: Path) -> None:
    env = {"DATABASE_URL": f"sqlite:///{tmp_path}/c.db", "CARILLON_HTTP__PORT": "0"}
    with Program("serve", env=env, cwd=tmp_path) as program:
        client = Client.of(program)
        body = {"endpoint": "hooks.example.org:443", "since": now(), "reason": "it was down", "dryRun": True}
        reply = client.call("POST", PATH, body, OVERRIDE)
        assert (reply.status, reply.body["error"]["code"]) == (404, "NOT_FOUND")
        assert reply.body["error"]["message"] == (
            "no provider here calls endpoints of its own: redrive dead letters with POST /api/v1/admin/redrive"
        )
        assert client.get("/api/v1/admin/endpoints").body == {"items": [], "totalCount": 0}
        assert "endpoints" not in client.get("/api/v1/console/surface").body["pages"]
