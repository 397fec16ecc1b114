"""Nobody waits for a stranger: an endpoint that hangs has its calls and no more, and its neighbours are served."""

import base64
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.client import WELCOME, Client
from tests.support.process import Program
from tests.support.vendor import Reply, Vendor
from tests.support.waiting import wait_until

CAP = 3
WAITING = 30
SLOW_SECONDS = 0.4
SECRET = "whsec_" + base64.b64encode(b"neighbour" * 4).decode()


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/carillon.db"
    return str(request.getfixturevalue("postgres_dsn"))


@pytest.fixture
def stranger(tmp_path: Path) -> Iterator[Vendor]:
    with Vendor(tmp_path / "stranger.jsonl") as vendor:
        yield vendor


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Vendor]:
    with Vendor(tmp_path / "own.jsonl") as vendor:
        yield vendor


def fleet(database: str, tmp_path: Path, groups: str = "") -> Iterator[list[Program]]:
    """Two processes of one fleet."""
    config = tmp_path / "carillon.toml"
    config.write_text(
        'extends = "local"\n'
        "[work]\nfirst_claims = 100\n"
        # The test ends the calls that hang, and no clock does.
        '[ledger]\nlease_seconds = 300.0\n[policy.retry."*/webhook"]\ntimeout_seconds = 250.0\n'
        f'[providers.webhook]\nsecrets = ["{SECRET}"]\nallow_http = true\nallow_networks = ["127.0.0.0/8"]\n'
        f'allow_ports = ["1024-65535"]\nconcurrency_per_endpoint = {CAP}\n{groups}'
    )
    env = {"DATABASE_URL": database, "CARILLON_HTTP__PORT": "0", "CARILLON_LEDGER__ALLOW_UNSAFE": "1"}
    env |= {"CARILLON_METRICS__STDOUT": "true", "OTEL_METRIC_EXPORT_INTERVAL": "500"}
    serve = ("serve", "--config", str(config))
    with Program(*serve, env=env, cwd=tmp_path) as one:
        one.wait_ready()
        with Program(*serve, env=env, cwd=tmp_path) as two:
            two.wait_ready()
            yield [one, two]


@pytest.fixture
def programs(database: str, tmp_path: Path) -> Iterator[list[Program]]:
    yield from fleet(database, tmp_path)


@pytest.fixture
def together(database: str, tmp_path: Path) -> Iterator[list[Program]]:
    """All webhooks are one group."""
    yield from fleet(database, tmp_path, f'[groups.webhook]\nby = "none"\ncap = {CAP}\n')


@pytest.mark.req("P-703")
def test_an_endpoint_that_hangs_holds_up_nobody_else(programs: list[Program], stranger: Vendor, own: Vendor) -> None:
    gate = threading.Event()
    stranger.default = Reply(gate=gate)
    client = Client.of(programs[0])
    sent = [client.send(channel="webhook", recipient=f"{stranger.url}/{number}") for number in range(WAITING)]
    stranger.wait_for(CAP)
    for program in programs:
        Client.of(program).send(channel="webhook", recipient=own.url)
    own.wait_for(2)
    # Everybody has looked for work since, and the cap holds over both processes.
    assert len([entry["path"] for entry in stranger.entries]) == CAP
    last = sent[-1].body["notificationId"]
    wait_until(lambda: client.story(last)["routes"][0]["waitsFor"] is not None, timeout=40, what="a reason to wait")
    full = f"its endpoint is at {CAP} of {CAP} calls"
    assert client.story(last)["routes"][0]["waitsFor"] == full
    for program in programs:
        page = Client.of(program).get("/api/v1/notifications?status=queued&pageSize=100").body
        said = {item["id"]: item["routes"][0]["waitsFor"] for item in page["items"]}
        assert said[last] == full, "the list says what the notification says"
        waiting = [one for one in sent if said[one.body["notificationId"]] is not None]
        assert len(waiting) == WAITING - CAP, "also what a worker has claimed ahead of a place waits"
        assert {said[one.body["notificationId"]] for one in waiting} == {full}
        stories = [client.story(one.body["notificationId"])["routes"][0] for one in waiting]
        assert [(story["waitsFor"], story["attemptCount"]) for story in stories] == [(full, 0)] * len(waiting)
        assert turn(Client.of(program), stranger) == ("note", full)
        assert turn(Client.of(program), own) == ("pass", None)
        assert turn(Client.of(program), stranger, tenantId="acme") == ("pass", None), "another tenant's group is free"
    wait_until(
        lambda: any("group_full" in json.dumps(line) for program in programs for line in program.events("metrics")),
        timeout=40,
        what="a metric that says so",
    )
    gate.set()
    stranger.wait_for(WAITING)
    story = client.settled(last)
    assert (story["status"], story["routes"][0]["waitsFor"]) == ("delivered", None)
    assert len({entry["path"] for entry in stranger.entries}) == WAITING == len(stranger.entries), "each once"


def turn(client: Client, endpoint: Vendor, **fields: str) -> tuple[str, str | None]:
    """What `explain` says about the turn of a webhook that would be sent now."""
    body = {**WELCOME, "channel": "webhook", "recipient": f"{endpoint.url}/next", **fields}
    steps = client.call("POST", "/api/v1/notifications/explain", body).body["steps"]
    (found,) = [step for step in steps if step["step"] == "turn"]
    return found["verdict"], found["detail"].get("because")


@pytest.mark.req("P-701")
def test_a_cap_holds_where_all_routes_are_one_group(together: list[Program], stranger: Vendor, own: Vendor) -> None:
    gate = threading.Event()
    stranger.default = own.default = Reply(gate=gate)
    client = Client.of(together[0])
    sent = [client.send(channel="webhook", recipient=f"{to.url}/{n}") for n in range(CAP * 2) for to in (stranger, own)]
    last = sent[-1].body["notificationId"]
    wait_until(lambda: client.story(last)["routes"][0]["waitsFor"] is not None, timeout=40, what="a reason to wait")
    assert client.story(last)["routes"][0]["waitsFor"] == f"webhook is at {CAP} of {CAP} calls"
    wait_until(lambda: len(stranger.entries) + len(own.entries) >= CAP, timeout=40, what="calls")
    assert len(stranger.entries) + len(own.entries) == CAP
    gate.set()
    for one in sent:
        assert client.settled(one.body["notificationId"])["status"] == "delivered"


@pytest.mark.alone
def test_an_endpoint_with_more_waiting_has_all_its_calls(programs: list[Program], stranger: Vendor) -> None:
    """As long as something waits, its places are filled: a call ends, and the next one begins."""
    stranger.default = Reply(delay=SLOW_SECONDS)
    client = Client.of(programs[0])
    for number in range(WAITING):
        client.send(channel="webhook", recipient=f"{stranger.url}/{number}")
    stranger.wait_for(WAITING)
    begun = sorted(entry["time_us"] / 1e6 for entry in stranger.entries)
    at_once = max(sum(at <= other < at + SLOW_SECONDS for other in begun) for at in begun)
    assert at_once == CAP, [round(at - begun[0], 3) for at in begun]
    filled = len(begun[CAP:-CAP]) * SLOW_SECONDS / (CAP * (begun[-CAP] - begun[CAP]))
    assert filled > 0.8, "of the time in which something waited"
