"""Every example of /openapi.json, sent to a running Carillon: it works, or names something that is not there."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.support.client import Client
from tests.support.process import Program

WORKS = range(200, 300)
# An example cannot know an id of this ledger, nor what exists in it: such a one is answered with one of these.
NOT_THERE = {404, 409}
STREAMS = {"text/event-stream"}
# What required parameters are given.
ASKED = {"channel": "email", "address": "ada@example.org"}
OF_PERSONS = {"own", "token", "/api/v1/preferences"}
"""Examples and paths for people, whose token says who they are; here nobody has one."""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    folder = tmp_path_factory.mktemp("examples")
    with Program("serve", env={"CARILLON_HTTP__PORT": "0"}, cwd=folder) as started:
        started.wait_ready()
        yield started


def operations(document: Any) -> Iterator[tuple[str, str, Any]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def requests(path: str, operation: Any) -> Iterator[tuple[str, str, object]]:
    """Each example with its address and its body."""
    headers = {each["name"]: each for each in operation.get("parameters", ()) if each["in"] == "path"}
    for name, parameter in headers.items():
        path = path.replace(f"{{{name}}}", quote(parameter["example"], safe=""))
    required = {each["name"] for each in operation.get("parameters", ()) if each["in"] == "query" and each["required"]}
    path += "?" + "&".join(f"{name}={quote(ASKED[name])}" for name in sorted(required)) if required else ""
    content = operation.get("requestBody", {}).get("content", {}).get("application/json")
    if content is None:
        yield "", path, None
    for name, example in (content or {}).get("examples", {}).items():
        if name not in OF_PERSONS:
            yield name, path, example["value"]


@pytest.mark.req("P-557")
def test_every_example_runs_and_every_answer_is_listed(program: Program) -> None:
    client = Client.of(program)
    document = client.get("/openapi.json").body
    document = document if isinstance(document, dict) else json.loads(document)
    wrong, seen = [], 0
    for method, path, operation in operations(document):
        if path in OF_PERSONS or any(
            STREAMS & set(answer.get("content", {})) for answer in operation["responses"].values()
        ):
            continue
        for name, address, body in requests(path, operation):
            override = {"X-Admin-Override": "true"}
            reply = client.call(method, address, body, override)
            seen += 1
            listed = str(reply.status) in operation["responses"]
            if not listed or (reply.status not in WORKS and reply.status not in NOT_THERE):
                wrong.append(f"{method} {path} {name}: {reply.status} {str(reply.body)[:200]}")
    assert not wrong, "\n".join(wrong)
    assert seen > 60


def test_an_example_that_is_refused_is_noticed(program: Program, tmp_path: Path) -> None:
    del tmp_path
    client = Client.of(program)
    reply = client.call("POST", "/api/v1/notifications/send", {"templateKey": "welcome", "rope": 1}, {})
    assert reply.status not in WORKS
    assert reply.status not in NOT_THERE
