"""`carillon top` and `carillon tail` as somebody at a terminal has them."""

import io
import json
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from rich.console import Console

from carillon.cli.top import screen
from tests.support.billing_stand import Billing
from tests.support.client import Client
from tests.support.ports import free_port
from tests.support.process import Program, carillon_command, run_carillon
from tests.support.servers import Redis
from tests.support.terminal import Terminal
from tests.support.waiting import wait_until

MOST = 400
SECRET = "the-secret-of-these-tests-0123456789abcdef"
REFUSED = {"sandbox": {"outcome": "refused", "times": 1}}


def carillon(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": "/usr/bin:/bin", "COLUMNS": "120", **env}
    return run_carillon([*args], env=environment, timeout=120)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    folder = tmp_path_factory.mktemp("terminal")
    environment = {"DATABASE_URL": f"sqlite:///{folder}/c.db", "CARILLON_HTTP__PORT": "0"}
    with Program("serve", env=environment, cwd=folder) as running:
        running.wait_ready(60)
        yield running


@pytest.fixture(scope="module")
def url(program: Program) -> str:
    return str(program.wait_ready()["addresses"][0])


@pytest.fixture(scope="module")
def dead(program: Program) -> str:
    client = Client.of(program)
    client.settled(client.send().body["notificationId"])
    given_up = str(client.send(metadata=REFUSED).body["notificationId"])
    client.settled(given_up)
    return given_up


def test_top_shows_everything_once(url: str, dead: str) -> None:
    seen = carillon("top", "--url", url, "--once")
    assert seen.returncode == 0, seen.stderr
    assert "dead letter" in seen.stdout
    assert dead in carillon("top", "--url", url, "--once", COLUMNS="200").stdout
    for part in ("FLOW", "LANES", "PROVIDERS", "NEWEST TROUBLES"):
        assert any(line.startswith(part) for line in seen.stdout.splitlines()), part
    told = json.loads(carillon("top", "--url", url, "--once", "--json").stdout)
    assert told["overview"]["deadLetters"] >= 1
    assert "sandbox" in {one["provider"] for one in told["providers"]}


def test_a_narrow_terminal_loses_no_row(url: str, dead: str) -> None:
    del dead
    seen = carillon("top", "--url", url, "--once", COLUMNS="60").stdout.splitlines()
    assert max(map(len, seen)) <= 60
    for row in ("accepted", "delivered", "retried", "failed", "p50/p99 ms"):
        assert any(line.startswith(f"{row} ") for line in seen), row


def test_top_lives_until_it_is_interrupted(url: str, program: Program, dead: str) -> None:
    del dead
    with Terminal("top", "--every", "0.3", env={"CARILLON_URL": url}) as terminal:
        client = Client.of(program)
        before = client.get("/api/v1/console/overview").body["deadLetters"]
        terminal.wait_for(f" {before} dead letter")
        client.settled(client.send(metadata=REFUSED).body["notificationId"])
        terminal.wait_for(f" {before + 1} dead letter")
        assert terminal.interrupt() == 0


def test_q_ends_top(url: str) -> None:
    with Terminal("top", "--every", "60", env={"CARILLON_URL": url}) as terminal:
        terminal.wait_for("PROVIDERS")
        assert terminal.press("q") == 0


def test_tail_tells_what_comes_and_what_becomes_of_it(url: str, program: Program) -> None:
    client = Client.of(program)
    with Terminal("tail", "-n", "0", "--every", "0.3", env={"CARILLON_URL": url}) as terminal:
        given_up: list[str] = []

        def told() -> bool:
            # Following begins at some moment after the start: one of these comes after it.
            if len(given_up) < MOST:
                given_up.append(client.send(metadata=REFUSED).body["notificationId"])
                client.settled(given_up[-1])
            seen = terminal.seen
            return any(f"{one} push:token:device-1 #1 sandbox refused, given up" in seen for one in given_up) and any(
                f"failed    {one} welcome push device-1: drill: refused" in seen for one in given_up
            )

        wait_until(told, timeout=60, what="a notification and an event about it")
        assert terminal.interrupt() == 0


def test_tail_keeps_to_its_filters(url: str, program: Program, dead: str) -> None:
    client = Client.of(program)
    mine = client.send(userId="tail-user").body["notificationId"]
    client.settled(mine)
    told = carillon("tail", "--user", "tail-user", "--lines", "1", "--json", "--url", url)
    assert told.returncode == 0, told.stderr
    (line,) = [json.loads(line) for line in told.stdout.splitlines()]
    assert (line["kind"], line["id"], line["status"]) == ("notification", mine, "delivered")
    failed = carillon("tail", "--status", "failed", "--only", "notifications", "--lines", "1", "--json", "--url", url)
    assert json.loads(failed.stdout)["status"] == "failed"
    assert dead


@pytest.mark.req("P-563")
def test_tail_follows_a_provider_a_template_and_a_tenant(url: str, program: Program) -> None:
    client = Client.of(program)
    client.settled(client.send(userId="tail-two").body["notificationId"])
    inbox = client.send(channel="inApp", recipient="tail-inbox", userId="tail-two").body["notificationId"]
    client.settled(inbox)

    def first(*filters: str) -> Any:
        told = carillon("tail", "--person", "tail-two", *filters, "--lines", "1", "--json", "--url", url)
        assert told.returncode == 0, told.stderr
        return json.loads(told.stdout)

    assert first("--provider", "inbox")["id"] == inbox
    assert first("--provider", "inbox", "--template", "welcome", "--channel", "inApp")["id"] == inbox
    refused = carillon("tail", "--tenant", "acme", "--only", "events", "--url", url)
    assert (refused.returncode, "events name no tenant" in refused.stderr) == (1, True)


SEEN: dict[str, Any] = {
    "at": "2030-01-01T00:00:00+00:00",
    "overview": {
        "routes": {"published": 7},
        "due": 3,
        "leased": 1,
        "scheduled": 0,
        "lanes": [{"name": "standard", "due": 3, "leased": 1, "oldestDueSeconds": 2.0}],
        "deadLetters": 0,
        "failing": [],
        "steps": [],
        "recent": [
            {
                "type": "route_attempted",
                "at": 1.0,
                "provider": "sandbox",
                "outcome": "refused",
                "verdict": "bury",
                "error": f"reason {number}",
                "route_id": "push:x",
                "attempt": 1,
                "notification_id": "n",
            }
            for number in range(30)
        ],
    },
    "providers": [
        {
            "channel": "push",
            "provider": "sandbox",
            "state": "closed",
            "attempts": 9,
            "failures": 2,
            "lastError": "drill",
        }
    ],
}


def drawn(seen: dict[str, Any], width: int, height: int) -> list[str]:
    out = io.StringIO()
    Console(width=width, height=height, file=out, emoji=False).print(
        screen(seen, "http://127.0.0.1:8080", width, height)
    )
    return [line.rstrip() for line in out.getvalue().splitlines()]


@pytest.mark.req("P-789", "P-860", "P-1028")
def test_top_says_events_in_the_words_of_the_console() -> None:
    changed = {"type": "breaker_changed", "at": 1.0, "provider": "north", "before": "open", "after": "half_open"}
    often = {"began": 1, "number": 9, "times": 1200}
    trouble = {"type": "trouble", "at": 1.0, "where": "outbound", "error": "the ledger is away"} | often
    failed = SEEN["overview"]["recent"]
    probed = changed | {"before": "half_open", "after": "open", "probes": 3}
    paused = {"type": "calls_paused", "at": 1.0, "what": "lane bulk", "by": "ops", "reason": "a fault"}
    overview = SEEN["overview"] | {"recent": [failed[0], failed[1] | often, trouble, changed, probed, paused]}
    seen = {**SEEN, "overview": overview, "providers": [SEEN["providers"][0] | {"attempts": 1}]}
    said = "\n".join(drawn(seen, 80, 34))
    assert "sandbox refused, given up: reason 0" in said
    assert "sandbox refused, given up 1,200 times: reason 1" in said
    assert "the ledger is away 1,200 times" in said
    assert "began" not in said
    assert "half open → open, after 3 failed probes" in said
    assert "lane bulk is paused by ops: a fault" in said
    assert " 1 call  " in said


@pytest.mark.req("P-563")
@pytest.mark.parametrize(("width", "height"), [(80, 24), (60, 20), (150, 40), (200, 60)])
def test_top_fills_its_terminal_and_no_more(width: int, height: int) -> None:
    lines = drawn(SEEN, width, height)
    assert len(lines) <= height
    assert max(map(len, lines)) <= width
    assert sum("reason" in line for line in lines) >= 2
    assert any("reason 20" in line for line in lines) == (height >= 40), "a tall one shows more troubles"
    # From some width on, providers stand beside the flow.
    assert any("FLOW" in line and "PROVIDERS" in line for line in lines) == (width >= 150)


@pytest.mark.req("P-563")
def test_top_says_in_one_sentence_what_is_wrong() -> None:
    """The server makes the sentences; those that the terminal can do something about name the command."""
    overview: dict[str, Any] = SEEN["overview"]
    fails = {"mood": "bad", "about": "failing", "text": "sms fails: 100 % of 20 calls to Twilio in 5 min"}
    dead = {"mood": "wait", "about": "dead-letters", "text": "1 dead letter waits for a decision"}
    sentences: dict[str, list[dict[str, Any]]] = {
        "✖ sms fails: 100 % of 20 calls to Twilio in 5 min": [fails, dead],
        "▲ 1 dead letter waits for a decision  carillon dead-letters list": [dead],
        "● Nothing needs attention. All is well.": [],
    }
    for sentence, notes in sentences.items():
        said = {"state": "calm", "text": "All is well.", "notes": notes}
        assert drawn(SEEN | {"overview": overview | {"attention": said}}, 80, 24)[1] == sentence
    # An older server says nothing, and nothing stands there in green.
    assert drawn(SEEN, 80, 24)[1].startswith("FLOW")


@pytest.mark.req("P-563")
def test_the_start_says_in_five_lines_what_runs_where_to_look_and_what_to_try(tmp_path: Path) -> None:
    environment = {"DATABASE_URL": f"sqlite:///{tmp_path}/c.db", "CARILLON_HTTP__PORT": str(free_port())}
    with Terminal("serve", env=environment) as terminal:
        terminal.wait_for("Ctrl-C ends this one")
        lines = [line for line in re.sub(r"\x1b\[[0-9;]*m", "", terminal.seen).splitlines() if line.strip()]
        assert len(lines) == 5
        assert "is ready on http://127.0.0.1:" in lines[0]
        assert [line.split()[0] for line in lines[1:]] == ["runs", "look", "try", "watch"]
        assert lines[2].endswith("/console  (also /inbox, /docs)")
        assert "send welcome --channel push --to demo-device" in lines[3]
        assert terminal.interrupt() == 0


@pytest.mark.parametrize("command", ["top", "tail"])
def test_without_a_server_it_says_what_to_start(command: str) -> None:
    failed = carillon(command, "--url", f"http://127.0.0.1:{free_port()}")
    assert failed.returncode == 1
    assert "carillon serve" in failed.stderr
    assert "Traceback" not in failed.stderr


@pytest.mark.parametrize("command", ["top"])
def test_without_a_console_it_says_why(command: str, tmp_path: Path) -> None:
    environment = {
        "DATABASE_URL": f"sqlite:///{tmp_path}/c.db",
        "CARILLON_HTTP__PORT": "0",
        "CARILLON_HTTP__CONSOLE": "false",
    }
    with Program("serve", env=environment, cwd=tmp_path) as running:
        failed = carillon(command, "--url", running.wait_ready(60)["addresses"][0])
    assert failed.returncode == 1
    assert "http.console" in failed.stderr


@pytest.mark.parametrize("command", [("tail",), ("send", "welcome", "--channel", "push", "--to", "x")])
def test_without_an_api_it_says_so(command: tuple[str, ...], tmp_path: Path) -> None:
    environment = {
        "DATABASE_URL": f"sqlite:///{tmp_path}/c.db",
        "CARILLON_HTTP__PORT": "0",
        "CARILLON_HTTP__SURFACE": "probes",
    }
    with Program("serve", env=environment, cwd=tmp_path) as running:
        failed = carillon(*command, "--url", running.wait_ready(60)["addresses"][0])
    assert failed.returncode == 1
    assert "serves no API" in failed.stderr


def test_who_is_refused_learns_what_to_give(tmp_path: Path) -> None:
    environment = {
        "DATABASE_URL": f"sqlite:///{tmp_path}/c.db",
        "CARILLON_HTTP__PORT": "0",
        "JWT_SECRET_KEY": SECRET,
    }
    with Program("serve", env=environment, cwd=tmp_path) as running:
        url = running.wait_ready(60)["addresses"][0]
        said = {
            "nobody": carillon("top", "--once", "--url", url),
            "somebody unknown": carillon("top", "--once", "--url", url, "--token", "abc"),
            "a user": carillon("top", "--once", "--url", url, "--token", token("user")),
            "an administrator": carillon("top", "--once", "--url", url, CARILLON_TOKEN=token("admin")),
        }
    assert [one.returncode for one in said.values()] == [1, 1, 1, 0]
    assert "CARILLON_TOKEN" in said["nobody"].stderr
    assert "wrong, expired or revoked" in said["somebody unknown"].stderr
    assert "administrator" in said["a user"].stderr


@pytest.mark.parametrize(
    "command",
    [
        ("top", "--once"),
        ("tail", "--lines", "1", "--only", "notifications"),
        (
            "send",
            "welcome",
            "--channel",
            "push",
            "--to",
            "x",
            "--data",
            "name=Ada",
            "--data",
            "link=https://example.org",
        ),
        ("load", "--count", "1"),
    ],
    ids=lambda words: words[0],
)
def test_a_token_need_not_stand_in_the_process_list(guarded: str, tmp_path: Path, command: tuple[str, ...]) -> None:
    file = tmp_path / "token"
    file.write_text(token("admin") + "\n")
    words = (*command, "--url", guarded)
    by_file = carillon(*words, "--token-file", str(file))
    by_variable = carillon(*words, CARILLON_TOKEN_FILE=str(file), CARILLON_TOKEN="wrong")
    by_stdin = subprocess.run(
        [*carillon_command(), *words, "--token-file", "-"],
        input=token("admin"),
        capture_output=True,
        text=True,
        check=False,
    )
    as_argument = carillon(*words, "--token", token("admin"))
    told = [by_file, by_variable, by_stdin, as_argument]
    assert [one.returncode for one in told] == [0, 0, 0, 0], [one.stderr for one in told]
    assert ["process" in one.stderr for one in told] == [False, False, False, True]


def test_a_token_s_file_must_hold_one_token(guarded: str, tmp_path: Path) -> None:
    for number, text in enumerate(("", "two words", "two\nlines")):
        file = tmp_path / str(number)
        file.write_text(text)
        failed = carillon("top", "--once", "--url", guarded, "--token-file", str(file))
        assert (failed.returncode, "one token" in failed.stderr) == (1, True), failed.stderr
    missing = carillon("top", "--once", "--url", guarded, "--token-file", str(tmp_path / "none"))
    assert "No such file" in missing.stderr
    both = carillon("top", "--once", "--url", guarded, "--token-file", str(file), "--token", "x")
    assert "give one of them" in both.stderr


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("guarded")
    environment = {
        "DATABASE_URL": f"sqlite:///{folder}/c.db",
        "CARILLON_HTTP__PORT": "0",
        "JWT_SECRET_KEY": SECRET,
    }
    with Program("serve", env=environment, cwd=folder) as running:
        address = str(running.wait_ready(60)["addresses"][0])
        # `tail` ends once it has seen a line.
        words = (
            "welcome",
            "--channel",
            "push",
            "--to",
            "x",
            "--data",
            "name=Ada",
            "--data",
            "link=https://example.org",
        )
        assert carillon("send", *words, "--url", address, CARILLON_TOKEN=token("admin")).returncode == 0
        yield address


def token(role: str) -> str:
    now = int(time.time())
    return jwt.encode({"sub": "ada", "role": role, "iat": now, "exp": now + 600}, SECRET, algorithm="HS256")


def test_top_shows_queues_where_those_are_worked_off(tmp_path: Path, redis_server: Redis) -> None:
    redis_server.flush()
    with Billing(tmp_path, redis_server=redis_server, url=f"sqlite:///{tmp_path}/c.db") as billing:
        url = billing.start_payment().wait_ready(60)["addresses"][0]
        seen = carillon("top", "--once", "--url", url)
    assert seen.returncode == 0, seen.stderr
    assert "QUEUE " in seen.stdout
    assert "q:pay:subscription_update" in seen.stdout
