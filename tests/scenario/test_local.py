"""The default blueprint, as somebody meets it who has just cloned the project."""

import contextlib
import http.client
import os
import re
import shlex
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.client import WELCOME, Client
from tests.support.ports import free_port
from tests.support.process import Program, carillon_command
from tests.support.servers import Postgres
from tests.support.waiting import wait_until

ENGINES = ("sqlite", "postgres")


@pytest.fixture(scope="module", params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def database(engine: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if engine == "sqlite":
        return f"sqlite:///{tmp_path}/carillon.db"
    return str(request.getfixturevalue("postgres_dsn"))


def environment_of(database: str) -> dict[str, str]:
    return {
        "DATABASE_URL": database,
        "CARILLON_HTTP__PORT": "0",
        "CARILLON_LEDGER__ALLOW_UNSAFE": "1",
        "CARILLON_DRILL__TIME_SCALE": "0.001",
    }


@pytest.fixture
def environment(database: str) -> dict[str, str]:
    return environment_of(database)


@pytest.fixture(scope="module")
def program(engine: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """One for all tests that only ask it something."""
    folder = tmp_path_factory.mktemp("local")
    with contextlib.ExitStack() as stack:
        database = f"sqlite:///{folder}/carillon.db"
        if engine == "postgres":
            server: Postgres = request.getfixturevalue("postgres")
            database = server.database()
            stack.callback(server.drop, database)
        running = stack.enter_context(Program("serve", env=environment_of(database), cwd=folder))
        running.wait_ready()
        yield running


@pytest.fixture
def client(program: Program) -> Client:
    return Client.of(program)


def test_the_printed_commands_work(program: Program) -> None:
    ready = program.wait_ready()
    sent = subprocess.run(shlex.split(ready["send"]), capture_output=True, check=True, text=True)
    notification_id = re.search(r'"notificationId":"([^"]+)"', sent.stdout)
    assert notification_id is not None
    Client.of(program).settled(notification_id[1])
    seen = subprocess.run(shlex.split(ready["see"]), capture_output=True, check=True, text=True)
    assert notification_id[1] in seen.stdout
    for page in ("docs", "console", "inbox"):
        with urllib.request.urlopen(ready[page], timeout=30) as answer:  # noqa: S310 - what our own program printed
            assert "text/html" in answer.headers["Content-Type"]


@pytest.mark.parametrize(
    ("channel", "recipient"),
    [
        ("push", "device-1"),
        ("sms", "+4915112345678"),
        ("email", "ada@example.org"),
        ("inApp", "ada"),
        ("webhook", "https://hooks.example.org/in"),
    ],
)
def test_welcome_exists_for_every_channel(client: Client, channel: str, recipient: str) -> None:
    accepted = client.send(channel=channel, recipient=recipient)
    assert accepted.status == 202
    story = client.settled(accepted.body["notificationId"])
    (route,) = story["routes"]
    assert story["status"] == "delivered"
    assert route["channel"] == channel
    assert "Ada" in route["message"]["text"]
    provider = "inbox" if channel == "inApp" else "sandbox"
    assert [(attempt["provider"], attempt["outcome"]) for attempt in route["attempts"]] == [(provider, "sent")]


@pytest.mark.req("P-1320")
@pytest.mark.parametrize(
    ("fields", "policy", "attempts"),
    [
        ({}, "*/webhook", 10),
        ({"isBulk": True}, "*/webhook", 10),
        ({"priority": "high"}, "*/webhook", 3),
        ({"channel": "email", "recipient": "ada@example.org"}, "*/*", 6),
    ],
)
def test_webhooks_have_ten_attempts_over_days(
    client: Client, fields: dict[str, Any], policy: str, attempts: int
) -> None:
    body = WELCOME | {"channel": "webhook", "recipient": "https://hooks.example.org/in"} | fields
    said = client.call("POST", "/api/v1/notifications/explain", body).body
    (found,) = [each["detail"] for each in said["steps"] if each["step"] == "policy"]
    assert (found["policy"], found["maxAttempts"]) == (policy, attempts)


def test_the_story_of_a_route_that_failed_twice(client: Client) -> None:
    accepted = client.send(metadata={"sandbox": {"outcome": "unavailable", "times": 2}})
    story = client.settled(accepted.body["notificationId"])
    (route,) = story["routes"]
    assert story["status"] == "delivered"
    assert route["attemptCount"] == 3
    told = [(attempt["number"], attempt["outcome"], attempt["verdict"]) for attempt in route["attempts"]]
    assert told == [(1, "unavailable", "retry"), (2, "unavailable", "retry"), (3, "sent", "finish")]
    assert all(attempt["durationMs"] >= 0 for attempt in route["attempts"])
    assert route["attempts"][0]["nextTryInMs"] > 0


def test_a_refused_message_becomes_a_dead_letter_and_is_redriven(client: Client, program: Program) -> None:
    accepted = client.send(metadata={"sandbox": {"outcome": "refused", "times": 1}})
    notification_id = accepted.body["notificationId"]
    assert client.settled(notification_id)["status"] == "failed"
    (letter,) = client.get("/api/v1/dead-letters").body["items"]
    assert letter["notificationId"] == notification_id
    item = {"notificationId": notification_id, "routeId": letter["routeId"]}
    mark = program.mark()
    assert client.call("POST", "/api/v1/dead-letters/redrive", {"items": [item]}).body == {"redriven": 1}
    program.wait_for("route_attempted", lambda line: line["verdict"] == "finish", since=mark)
    assert client.settled(notification_id)["status"] == "delivered"


def test_a_scheduled_notification_waits(client: Client) -> None:
    accepted = client.send(scheduledFor="2096-01-01T00:00:00Z")
    after = client.send()
    client.settled(after.body["notificationId"])
    (route,) = client.story(accepted.body["notificationId"])["routes"]
    assert route["status"] == "queued"
    assert route["attemptCount"] == 0
    assert route["nextAttemptAt"].startswith("2096-01-01T00:00:00")


@pytest.mark.req("G-06")
def test_sigterm_ends_with_zero_and_nothing_leased(environment: dict[str, str], tmp_path: Path) -> None:
    with Program("serve", env=environment, cwd=tmp_path) as program:
        client = Client.of(program)
        for _ in range(50):
            client.send()
        program.terminate()
        assert program.wait() == 0
        assert program.noise == []


def test_several_processes_share_one_port(environment: dict[str, str], tmp_path: Path) -> None:
    environment["CARILLON_HTTP__PORT"] = str(free_port())
    with Program("serve", "--processes", "3", env=environment, cwd=tmp_path) as program:
        wait_until(lambda: len(program.events("ready")) == 3, timeout=60, what="three processes to be ready")
        client = Client.of(program)
        ids = [client.send(key=f"k-{number}").body["notificationId"] for number in range(30)]
        assert {client.settled(one)["status"] for one in ids} == {"delivered"}
        program.terminate()
        assert program.wait() == 0


def test_several_processes_do_not_join_a_port_that_is_taken(environment: dict[str, str], program: Program) -> None:
    environment["CARILLON_HTTP__PORT"] = program.wait_ready()["addresses"][0].rpartition(":")[2]
    several = [*carillon_command(), "serve", "--processes", "2"]
    ended = subprocess.run(several, env=os.environ | environment, capture_output=True, check=False, text=True)
    assert ended.returncode == 2
    assert "cannot listen" in ended.stderr


def test_roles_split_the_work(environment: dict[str, str], tmp_path: Path) -> None:
    with Program("serve", "--roles", "doors,upkeep", env=environment, cwd=tmp_path) as doors:
        client = Client.of(doors)
        one = client.send().body["notificationId"]
        assert client.story(one)["status"] == "queued"
        with Program("serve", "--roles", "outbound", env=environment, cwd=tmp_path) as outbound:
            assert client.settled(one)["status"] == "delivered"
            assert Client.of(outbound).send().status == 404
        assert doors.events("route_attempted") == []


def test_a_dead_child_is_replaced(environment: dict[str, str], tmp_path: Path) -> None:
    environment |= {"CARILLON_HTTP__PORT": str(free_port()), "CARILLON_FAULTPOINTS": "after_claim=exit9"}
    with Program("serve", "--processes", "2", env=environment, cwd=tmp_path) as program:
        wait_until(lambda: len(program.events("ready")) == 2, timeout=60, what="two processes to be ready")
        # The process may die before it has answered.
        with contextlib.suppress(ConnectionError, http.client.HTTPException):
            Client.of(program).send()
        wait_until(lambda: len(program.events("ready")) >= 3, timeout=60, what="a replacement to be ready")


def test_the_wished_language_is_followed_as_far_as_templates_exist(client: Client) -> None:
    accepted = client.call("POST", "/api/v1/notifications/send", WELCOME, {"Accept-Language": "en-GB, en;q=0.8"})
    (route,) = client.settled(accepted.body["notificationId"])["routes"]
    assert route["locale"] == "en-US"


def test_the_command_is_installed() -> None:
    shown = subprocess.run([*carillon_command(), "--help"], capture_output=True, check=True, text=True)
    for word in ("serve", "send", "doctor", "config", "migrate", "dead-letters"):
        assert word in shown.stdout


def test_routes_survive_the_loss_of_their_provider(environment: dict[str, str], tmp_path: Path) -> None:
    config = tmp_path / "two.toml"
    config.write_text('extends = "local"\n[channels]\npush = ["other"]\n[providers.other]\nkind = "sandbox"\n')
    with Program("serve", "--config", str(config), "--roles", "doors", env=environment, cwd=tmp_path) as before:
        accepted = Client.of(before).send().body["notificationId"]
    with Program("serve", env=environment, cwd=tmp_path) as after:
        assert after.wait_for("rehomed")["routes"] == 1
        assert Client.of(after).settled(accepted)["status"] == "delivered"


def test_a_port_in_use_is_one_line_and_no_ready(program: Program, environment: dict[str, str], tmp_path: Path) -> None:
    environment["CARILLON_HTTP__PORT"] = program.wait_ready()["addresses"][0].rpartition(":")[2]
    with Program("serve", env=environment, cwd=tmp_path) as second:
        assert second.wait() == 2
        (line,) = second.lines
        assert line["event"] == "start_failed"
        assert "cannot listen" in line["message"]
        assert "CARILLON_HTTP__PORT" in line["message"]
        assert second.noise == []


@pytest.mark.req("P-1023")
def test_the_wait_for_a_turn_is_no_part_of_how_long_a_call_took(environment: dict[str, str], tmp_path: Path) -> None:
    # The sandbox takes many messages in one call, and a rate lets that call wait.
    paced = {"CARILLON_POLICY__RATE__SANDBOX__PER_SECOND": "40", "CARILLON_PROVIDERS__SANDBOX__DELAY_SECONDS": "0.05"}
    with Program("serve", env={**environment, **paced}, cwd=tmp_path) as program:
        client = Client.of(program)
        batch = {"notifications": [WELCOME for _ in range(60)]}
        sent = client.call("POST", "/api/v1/notifications/batch", batch).body["results"]
        stories = [client.settled(one["notificationId"]) for one in sent]
    took = [route["attempts"][0]["durationMs"] for story in stories for route in story["routes"]]
    assert len(took) == 60
    assert min(took) >= 45, sorted(took)[:5]
