"""Rehearsals over HTTP: the terminal's figures, one at a time, in a child that is bounded and ends with its caller."""

import http.client
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import msgspec
import pytest

from carillon.config.reading import load
from carillon.upkeep.rehearsals.child import RehearsalBounds, RehearsalLine, playing
from carillon.upkeep.rehearsals.plan import RehearsalQuestion
from tests.support.client import Client
from tests.support.process import Program, run_carillon
from tests.support.waiting import wait_until

pytestmark = pytest.mark.req("P-630")

PATH = "/api/v1/rehearsals"
SETTINGS = """
extends = "local"
[http]
port = 0
[channels]
sms = ["first", "second"]
[providers.first]
kind = "sandbox"
[providers.second]
kind = "sandbox"
[policy.retry."*/*"]
max_attempts = 6
base_delay_seconds = 5
failover_after_attempts = 2
on_open = "defer"
"""
SHORT = {"load": "20/min", "for": "8m", "mix": ["sms"], "outages": ["first 3m at 3m"], "prices": ["first=0.01"]}
LONG = {"load": "1000/s", "for": "30d", "mix": ["sms"], "most": 20_000}
SECRET = "canary-7f3e"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("rehearsals")
    (made / "carillon.toml").write_text(SETTINGS)
    return made


@pytest.fixture(scope="module")
def program(folder: Path) -> Iterator[Program]:
    with started(folder) as running:
        yield running


@contextmanager
def started(folder: Path, name: str = "c") -> Iterator[Program]:
    environment = {"DATABASE_URL": f"sqlite:///{folder}/{name}.db", "AWS_SECRET_ACCESS_KEY": SECRET}
    with Program("serve", "--config", "carillon.toml", env=environment, cwd=folder) as running:
        running.wait_ready(60)
        yield running


class Played:
    """One rehearsal over its connection."""

    def __init__(self, program: Program, question: Any) -> None:
        address = urlsplit(program.wait_ready()["addresses"][0])
        self._connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=120)
        body = json.dumps(question)
        self._connection.request("POST", PATH, body, {"Content-Type": "application/json"})
        self.answer = self._connection.getresponse()
        self.status = self.answer.status

    def events(self) -> Iterator[tuple[str, Any]]:
        name = ""
        for line in self.answer:
            if line.startswith(b"event: "):
                name = line[7:].strip().decode()
            elif line.startswith(b"data: "):
                yield name, json.loads(line[6:])

    def close(self) -> None:
        self.answer.close()
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def children(program: Program) -> list[int]:
    """The child processes of a server that play."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            words = (entry / "cmdline").read_bytes()
        except (OSError, ValueError, IndexError):
            continue
        if parent == program.pid and b"carillon.rehearsal" in words:
            found.append(int(entry.name))
    return found


def alive(pid: int) -> bool:
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def test_the_result_is_what_the_terminal_prints(program: Program, folder: Path) -> None:
    with Played(program, SHORT) as played:
        assert played.status == 200
        events = list(played.events())
    *before, (name, found) = events
    assert name == "result"
    assert {one for one, _ in before} == {"progress"}
    assert [told["of"] for _, told in before] == [480.0] * len(before)
    options = [
        "--load",
        "20/min",
        "--for",
        "8m",
        "--mix",
        "sms",
        "--outage",
        "first 3m at 3m",
        "--price",
        "first=0.01",
    ]
    said = run_carillon(["rehearse", "--config", "carillon.toml", *options, "--json"], cwd=folder)
    assert found == json.loads(said.stdout)
    assert found["failedOver"] > 0
    with Played(program, {**SHORT, "seed": 2}) as again:
        assert list(again.events())[-1][1] != found, "another seed throws other dice"


def test_one_at_a_time_and_a_caller_who_leaves_ends_it(program: Program) -> None:
    with Played(program, LONG) as first:
        next(first.events())
        (child,) = children(program)
        with Played(program, SHORT) as second:
            assert second.status == 409
            assert b"under way" in second.answer.read()
        assert children(program) == [child]
        # The process that serves goes on with its real work.
        client = Client.of(program)
        sent = client.send(channel="sms", recipient="+491701234567").body
        assert client.settled(sent["notificationId"])["status"] == "delivered"
    wait_until(lambda: not alive(child), timeout=20, what="the end of the child")
    with Played(program, SHORT) as third:
        assert list(third.events())[-1][0] == "result"


def test_the_child_is_bounded_and_knows_no_secret(program: Program) -> None:
    with Played(program, LONG) as played:
        next(played.events())
        (child,) = children(program)
        place = Path(f"/proc/{child}")
        limits = {line[:25].strip(): line[25:].split()[0] for line in (place / "limits").read_text().splitlines()[1:]}
        assert limits["Max cpu time"] == "120"
        assert limits["Max data size"] == str(1024**3)
        assert limits["Max file size"] == str(1024**3)
        assert os.getpriority(os.PRIO_PROCESS, child) > os.getpriority(os.PRIO_PROCESS, program.pid)
        assert b"PATH=" in (place / "environ").read_bytes()
        assert SECRET.encode() not in (place / "environ").read_bytes()
        assert b"first" not in (place / "cmdline").read_bytes(), "the settings go through a pipe"


@pytest.mark.parametrize("way", ["terminate", "kill"])
def test_the_child_ends_with_its_server(folder: Path, way: str) -> None:
    with started(folder, way) as program, Played(program, LONG) as played:
        next(played.events())
        (child,) = children(program)
        getattr(program, way)()
        program.wait(30)
        wait_until(lambda: not alive(child), timeout=20, what="the end of the child")


WRONG = {
    "outages": ({**SHORT, "outages": ["nobody 5m"]}, "outages", "the providers are"),
    "too late": ({**SHORT, "outages": ["first 5m at 9h"]}, "outages", "after the last notification"),
    "load": ({**SHORT, "load": "often"}, "load", "is not a rate"),
    "for": ({**SHORT, "for": "soon"}, "for", "is not a duration"),
    "mix": ({**SHORT, "mix": ["fax"]}, "mix", "no channel 'fax'"),
    "prices": ({**SHORT, "prices": ["first=much"]}, "prices", "is not a price"),
    "latencies": ({**SHORT, "latencies": ["nobody=1s"]}, "latencies", "write NAME=VALUE"),
    "most": ({**SHORT, "most": 20_001}, "most", "plays at most 20000"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_said_with_its_field_before_anything_is_started(program: Program, name: str) -> None:
    question, field, words = WRONG[name]
    reply = Client.of(program).call("POST", PATH, question)
    assert reply.status == 400
    (detail,) = reply.body["error"]["details"]
    assert detail["field"] == field
    assert words in detail["message"]
    assert "--" not in reply.body["error"]["message"].partition("`")[0]
    assert children(program) == []


def test_the_example_of_the_document_plays(program: Program) -> None:
    document = Client.of(program).get("/openapi.json").body
    operation = document["paths"][PATH]["post"]
    (example,) = operation["requestBody"]["content"]["application/json"]["examples"].values()
    with Played(program, example["value"]) as played:
        assert list(played.events())[-1][0] == "result"


async def told(folder: Path, question: RehearsalQuestion, bounds: RehearsalBounds) -> RehearsalLine:
    settings = load(None, folder / "carillon.toml", {})
    async with playing(msgspec.json.encode(settings), question, bounds) as child:
        return [line async for line in child.lines()][-1]


@pytest.mark.parametrize(
    ("bounds", "words"),
    [
        (RehearsalBounds(seconds=0.2), "took longer than 0.2 s"),
        (RehearsalBounds(cpu_seconds=2), "used up its 2 s of processor time"),
        (RehearsalBounds(megabytes=1), "1 MB"),
    ],
)
async def test_a_rehearsal_that_needs_too_much_says_so(folder: Path, bounds: RehearsalBounds, words: str) -> None:
    line = await told(folder, RehearsalQuestion(load="1000/s", lasts="30d", mix=["sms"], most=20_000), bounds)
    assert line.event == "problem"
    assert words in msgspec.json.decode(line.data)


def test_a_rehearsal_exports_no_metrics_and_no_spans(folder: Path) -> None:
    """A collector would take the played outage for a real one."""
    exported = {"OTEL_METRICS_EXPORTER": "console", "OTEL_TRACES_EXPORTER": "console"}
    options = ["--load", "1/s", "--for", "1m", "--mix", "sms", "--json"]
    said = run_carillon(["rehearse", "--config", "carillon.toml", *options], cwd=folder, env={**os.environ, **exported})
    assert json.loads(said.stdout)["accepted"] > 0
    assert said.stderr == ""
