"""`--json` everywhere: every command has it, and what it prints is one JSON document and nothing else."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from carillon.cli import app
from carillon.cli.options import print_json
from tests.support import docs_facts
from tests.support.client import Client
from tests.support.process import Program
from tests.support.servers import Redis
from tests.support.sources import ROOT

# The export is lines of JSON anyway.
WITHOUT = {"carillon serve", "carillon people export"}
"""Its lines are JSON where no terminal reads them; `--log-format json` says so."""
TEMPLATES = ROOT / "src" / "carillon" / "blueprints" / "local" / "templates"

MATRIX: dict[str, tuple[str, ...]] = {
    "carillon send": ("welcome", "--channel", "push", "--to", "d", "-d", "name=A", "-d", "link=l"),
    "carillon top": ("--once",),
    "carillon tail": ("--lines", "1"),
    "carillon load": ("--count", "3", "--url", "{url}"),
    "carillon doctor": (),
    "carillon migrate": (),
    "carillon version": (),
    "carillon config show": (),
    "carillon dead-letters list": (),
    "carillon dead-letters show": ("{dead}",),
    "carillon dead-letters redrive": ("--all", "--dry-run"),
    "carillon dead-letters stop": (),
    "carillon digests list": (),
    "carillon endpoints list": (),
    "carillon pause": (),
    "carillon resume": (
        "lane",
        "bulk",
    ),
    "carillon rehearse": ("--for", "1m", "--load", "1/s"),
    "carillon skipped redrive": ("--all", "--dry-run"),
    "carillon skipped stop": (),
    "carillon galaxy dead-letters": ("-b", "local"),
    "carillon history volume": (),
    "carillon history latency": (),
    "carillon history failures": (),
    "carillon history rewind": ("--since", "1h"),
    "carillon keys create": ("backend",),
    "carillon keys list": (),
    "carillon keys revoke": ("{key}",),
    "carillon people erase": ("nobody-knows-me", "--yes"),
    "carillon people quiet": ("ada",),
    "carillon people preferences": ("ada",),
    "carillon people holidays": (),
    "carillon queues list": ("--redis", "{redis}"),
    "carillon queues show": ("q:pay:order", "--redis", "{redis}"),
    "carillon queues failed": ("q:pay:order", "--redis", "{redis}"),
    "carillon queues requeue": ("q:pay:order", "--all", "--dry-run", "--redis", "{redis}"),
    "carillon queues logs": ("--redis", "{redis}"),
    "carillon suppressions list": (),
    "carillon suppressions add": ("email", "ann@example.org", "--tenant", "acme", "--days", "3"),
    "carillon suppressions lift": ("--all", "--dry-run"),
    "carillon templates check": (str(TEMPLATES),),
    "carillon templates push": (str(TEMPLATES), "--dry-run"),
    "carillon templates list": (),
    "carillon listo validate-templates": ("-b", "listo"),
    "carillon listo policies": ("-b", "listo"),
    "carillon listo backoff": ("-b", "listo"),
}
ELSEWHERE = {
    **dict.fromkeys(
        (f"carillon templates {name}" for name in ("diff", "pull", "preview", "examples", "test-send")),
        "tests/scenario/test_cli_templates.py has a folder of its own",
    ),
    "carillon people link": "tests/scenario/test_cli_people.py has a port for it",
    "carillon digests show": "tests/scenario/test_timing_digests.py has a digest",
    "carillon galaxy assets": "tests/scenario/test_galaxy_contracts.py has a folder",
    "carillon ledger tidy": "tests/scenario/test_galaxy_schema.py needs PostgreSQL",
    "carillon endpoints enable": "tests/scenario/test_endpoints.py has an endpoint in trouble",
    "carillon endpoints health": "tests/scenario/test_endpoint_replay.py has endpoints",
    "carillon endpoints replay": "as above",
    "carillon billing assign": "tests/scenario/test_tenants.py has a ledger with subscriptions",
    "carillon push replay-dlq": "tests/contract/test_push_replay.py needs RabbitMQ",
    "carillon ledger copy": "tests/contract/test_ledger_copy.py needs PostgreSQL",
}


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """What the commands are about: a running Carillon, a dead letter, a key, a queue, a folder of history."""
    folder = tmp_path_factory.mktemp("json")
    environment = {
        "DATABASE_URL": f"sqlite:///{folder}/carillon.db",
        "CLICKHOUSE_URL": f"chdb://{folder}/history",
        "CARILLON_HTTP__PORT": "0",
        "CARILLON_DRILL__TIME_SCALE": "0.001",
        "CARILLON_ALLOW_SANDBOX": "1",
    }
    serving = {name: value for name, value in environment.items() if name != "CLICKHOUSE_URL"}
    with Redis() as redis, Program("serve", env=serving, cwd=folder) as program:
        environment["CARILLON_URL"] = program.wait_ready(60)["addresses"][0]
        client = Client.of(program)
        dead = client.send(metadata={"sandbox": {"outcome": "refused", "times": 1}}).body["notificationId"]
        client.settled(dead)
        redis.execute("LPUSH q:pay:order {}")
        key = ran(("keys", "create", "json-matrix", "--json"), environment)["id"]
        environment["{url}"] = environment["CARILLON_URL"]
        yield {**environment, "{dead}": dead, "{key}": key, "{redis}": redis.url()}


def ran(args: tuple[str, ...], environment: dict[str, str]) -> Any:
    done = CliRunner().invoke(app, args, env=environment)
    assert done.exit_code in {0, 1}, done.output
    assert done.stdout, (done.stderr, done.exception)
    return json.loads(done.stdout)


def test_every_command_has_it() -> None:
    commands = docs_facts.commands()
    assert {name for name, options in commands.items() if "--json" not in options} == WITHOUT
    assert set(commands) == {*MATRIX, *ELSEWHERE, *WITHOUT}


@pytest.mark.parametrize("command", MATRIX)
def test_it_is_one_document(command: str, known: dict[str, str]) -> None:
    args = tuple(known.get(arg, arg) for arg in MATRIX[command])
    environment = {name: value for name, value in known.items() if not name.startswith("{")}
    found = ran((*command.split()[1:], *args, "--json"), environment)
    assert isinstance(found, dict | list)
    if command != "carillon config show":
        # Settings have the names under which one writes them; everything else has the API's.
        assert [name for name in names(found) if "_" in name] == []


def names(found: Any) -> list[str]:
    """The names of all fields, without what producers name themselves."""
    if isinstance(found, list):
        return [name for one in found for name in names(one)]
    if not isinstance(found, dict):
        return []
    inside = [one for name, one in found.items() if name not in {"data", "metadata", "payload"}]
    return [*found, *names(inside)]


@pytest.mark.req("P-563")
def test_names_are_those_of_the_api_and_a_producers_own_stay() -> None:
    given = [{"route_id": 1, "payload": {"order_day": 2}, "inner_part": {"last_error": 3}, "next": "a_b"}]
    done = CliRunner().invoke(_prints(given))
    wanted = [{"routeId": 1, "payload": {"order_day": 2}, "innerPart": {"lastError": 3}, "next": "a_b"}]
    assert json.loads(done.stdout) == wanted


def _prints(value: Any) -> typer.Typer:
    printing = typer.Typer()
    printing.command()(lambda: print_json(value))
    return printing
