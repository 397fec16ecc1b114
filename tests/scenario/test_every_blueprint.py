"""What holds for every blueprint and every broker's door: roles, a quiet end, dependencies, console and gauges."""

import re
import time
from collections.abc import Iterator
from typing import Any
from urllib.request import urlopen

import pytest

from tests.support.client import Client
from tests.support.every_blueprint import EVERY, PATIENCE, Blueprint, World, exported, loud
from tests.support.galaxy_stand import PASSWORD
from tests.support.kafka import Kafka
from tests.support.local_doors import DOORS
from tests.support.process import Program
from tests.support.rabbitmq import RabbitMQ
from tests.support.servers import Postgres, Redis
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(600)
BURST = 12
DRAIN_SECONDS = 20.0
"""How long a process lets requests finish by default; an open console must not use it up."""
UUID = "0198d2a4-5c1e-7d30-9a57-3f0c2b9e4d11"
EXPORTED = {
    "CARILLON_METRICS__STDOUT": "true",
    "OTEL_METRIC_EXPORT_INTERVAL": "200",
    "CARILLON_BEAT__DEPTH_SECONDS": "0.2",
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, postgres: Postgres, rabbitmq: RabbitMQ) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("every")
    with (
        Redis(password=PASSWORD) as redis_server,
        Kafka() as kafka,
        World(folder, postgres=postgres, redis_server=redis_server, rabbit=rabbitmq, kafka=kafka) as found,
    ):
        yield found


MATRIX: dict[str, type[Blueprint]] = {**EVERY, **DOORS}


@pytest.fixture(params=MATRIX)
def blueprint(request: pytest.FixtureRequest, world: World) -> Iterator[Blueprint]:
    world.redis.flushall()
    with MATRIX[request.param](world) as found:
        yield found


def end(blueprint: Blueprint, program: Program, *, within: float = PATIENCE) -> None:
    """SIGTERM: exit code 0, no warning, and nobody has a claim on anything."""
    since = program.mark()
    began = time.monotonic()
    program.terminate()
    assert program.wait() == 0, program.tail()
    assert time.monotonic() - began < within
    assert loud(program, since) == []
    assert program.noise == []
    assert blueprint.held() == []


def rehearsed(client: Client, surface: Any) -> None:
    """A blueprint can be rehearsed in its console, or the console says why it cannot."""
    question = {"load": "1/s", "for": "1m"}
    if "rehearsal" in surface["absent"]:
        assert "rehearsal" not in surface["pages"]
        assert surface["blueprint"] in surface["absent"]["rehearsal"]
        assert client.call("POST", "/api/v1/rehearsals", question).status == 404
        return
    assert "rehearsal" in surface["pages"]
    told = client.call("POST", "/api/v1/rehearsals", question, listen_seconds=PATIENCE).body
    assert b"event: result" in told, told


def test_doors_and_upkeep_send_and_consume_nothing(blueprint: Blueprint) -> None:
    waits = None if blueprint.needs_doors else blueprint.give(None)
    doors = blueprint.start("--roles", "doors,upkeep")
    given = waits or blueprint.give(doors)
    blueprint.until(lambda: blueprint.readiness(doors) == {"status": "ready"}, "a look at what it depends on")
    blueprint.until_doors_read(given)
    end(blueprint, doors)
    assert blueprint.untouched(given)
    # Idle, and with everything there is to see.
    whole = blueprint.start(**EXPORTED)
    blueprint.until_arrived(given)
    blueprint.until(lambda: blueprint.gauge in exported(whole), f"{blueprint.gauge} among {exported(whole)}")
    if blueprint.name != "galaxy":
        client = Client.of(whole)
        assert client.get("/console").status == 200
        surface = client.get("/api/v1/console/surface").body
        assert surface["pages"]
        rehearsed(client, surface)
        live = f"{whole.wait_ready()['addresses'][0]}/api/v1/console/live"
        with urlopen(live, timeout=PATIENCE) as console:  # noqa: S310 - the address of our own program
            assert console.readline().startswith(b"retry:")
            end(blueprint, whole, within=DRAIN_SECONDS / 2)
            assert console.read().endswith(b"\n"), "the stream ends after a whole event"
        return
    end(blueprint, whole)


def test_a_dependency_that_is_away_is_named_until_it_is_back(blueprint: Blueprint) -> None:
    program = blueprint.start()
    assert blueprint.ill() == set()
    for check, way in blueprint.ways.items():
        way.close()
        blueprint.until(lambda check=check: check in blueprint.readiness(program).get("away", []), f"{check} away")
        assert Client.of(program).get("/readyz").status == 200, "the process itself is ready"
        assert blueprint.found_ill[check] in blueprint.ill()
        needs_attention(program, check, known=blueprint.found_ill[check] != "Ledger")
        way.open()
        blueprint.until(lambda: blueprint.readiness(program) == {"status": "ready"}, f"{check} back")
    # Busy: the signal comes while most of it is still under way.
    given = [blueprint.give(program) for _ in range(BURST)]
    blueprint.until_arrived(given[0])
    end(blueprint, program)
    assert blueprint.ill() == set()


def needs_attention(program: Program, check: str, *, known: bool) -> None:
    """The console's overview and `top` name it, if there is an overview and its ledger answers."""
    seen = Client.of(program).get("/api/v1/console/overview")
    if seen.status == 404 or not known:
        assert seen.status in {404, 503}
        return
    notes = [note for note in seen.body["attention"]["notes"] if note["about"] == "dependency"]
    assert [note["name"] for note in notes] == [check], seen.body["attention"]
    assert notes[0]["text"].startswith(f"{check} does not answer")


def test_a_start_waits_for_what_is_away(blueprint: Blueprint) -> None:
    for way in blueprint.ways.values():
        way.close()
    given_up = _waiting(blueprint)
    given_up.terminate()
    assert given_up.wait() == 0, given_up.tail()
    program = _waiting(blueprint)
    for way in blueprint.ways.values():
        way.open()
    program.wait_ready(PATIENCE)
    blueprint.until_arrived(blueprint.give(program))
    end(blueprint, program)


FOREIGN = (
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
)
WRONG_TYPES = (
    "text/plain",
    "application/x-www-form-urlencoded; charset=utf-8",
    "multipart/form-data",
    "application/jsonx",
)


def test_pages_of_other_sites_and_wrong_types_are_refused(blueprint: Blueprint) -> None:
    """Over the document of the running process: nobody is asked for a token here."""
    program = blueprint.start()
    client = Client.of(program)
    document = client.get("/openapi.json")
    if blueprint.name == "galaxy":
        assert document.status == 404, "its listener answers probes only"
        return
    unsafe = [
        (method.upper(), re.sub(r"\{\w+\}", UUID, path), operation.get("requestBody", {}).get("content", {}))
        for path, operations in document.body["paths"].items()
        for method, operation in operations.items()
        if method in {"post", "put", "patch", "delete"}
    ]
    assert unsafe or blueprint.name == "push-worker"
    for method, path, content in unsafe:
        # A service proves itself first: who has no proof hears that, and no more.
        unproven = {401} if path.endswith("/internal/process") else set()
        for headers in FOREIGN:
            refused = client.call(method, path, b"{}", {**headers, "X-Admin-Override": "true"})
            assert refused.status in unproven | {403}, (method, path, refused)
        for kind in WRONG_TYPES:
            if content and kind.partition(";")[0] not in content:
                reply = client.call(method, path, b"{}", {"Content-Type": kind, "X-Admin-Override": "true"})
                assert reply.status in unproven | {415}, (method, path, reply)


def _waiting(blueprint: Blueprint) -> Program:
    """A program that has said what its start waits for."""
    program = blueprint.launch()
    said = program.wait_for("trouble", lambda line: bool(line["where"] in {"start", "rabbitmq"}), PATIENCE)
    assert said["error"]
    return program


def test_all_of_them_in_one_process(world: World) -> None:
    world.redis.flushall()
    several = [kind(world) for kind in EVERY.values()]
    environment = {name: value for each in several for name, value in each.environment().items()}
    files = [word for each in several for word in ("--config", str(each.config))]
    with Program("serve", *files, env=environment, cwd=world.folder) as program:
        wait_until(lambda: len(program.events("ready")) == len(several), timeout=PATIENCE, what="all of them ready")
        assert {line["blueprint"] for line in program.events("ready")} == set(EVERY)
        since = program.mark()
        program.terminate()
        assert program.wait() == 0, program.tail()
        assert loud(program, since) == []
