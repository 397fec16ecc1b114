"""A release meets a ledger that a newer one has migrated: a start is refused, what runs already goes on."""

import asyncio
import contextlib
import http.client
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from carillon.domain.errors import LedgerNewer
from carillon.ledger.migrate import migrations
from carillon.queues import Queues
from tests.support import tables
from tests.support.blueprint_stand import database
from tests.support.client import Client
from tests.support.ports import free_port
from tests.support.process import Program, run_carillon
from tests.support.waiting import wait_until

NEXT = len(migrations("sqlite")) + 1
APPLIED = "INSERT INTO schema_migrations (version) VALUES ({version})"
SAYS = ("newer release", f"migration {NEXT}", "upgrade this program", "restore", f"ledger.allow_migration = {NEXT}")


class Home:
    """A ledger, and the commands that are run on it."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url
        self.environment = {
            "DATABASE_URL": url,
            "CARILLON_LEDGER__ALLOW_UNSAFE": "true",
            "CARILLON_HTTP__PORT": "0",
            "CARILLON_DRILL__TIME_SCALE": "0.001",
        }

    def serve(self, *arguments: str, **environment: str) -> Program:
        return Program("serve", *arguments, env=self.environment | environment, cwd=self.folder)

    def run(self, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
        return run_carillon(
            [*arguments],
            env={"PATH": "/usr/bin:/bin", "COLUMNS": "400", **self.environment, **environment},
            cwd=self.folder,
            timeout=100,
        )

    def upgrade(self) -> None:
        """What a newer release does: it only adds, and writes down that it did."""
        for statement in (
            "ALTER TABLE records ADD COLUMN novelty integer",
            "ALTER TABLE routes ADD COLUMN novelty integer",
            APPLIED.format(version=NEXT),
        ):
            asyncio.run(tables.write(self.url, statement))


@pytest.fixture(params=["sqlite", "postgres"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Home]:
    for url in database(request, tmp_path, tables=False):
        yield Home(tmp_path, url)


def test_a_start_is_refused_and_what_runs_goes_on(home: Home) -> None:
    with home.serve() as running:
        client = Client.of(running)
        home.upgrade()
        with home.serve() as late:
            assert late.wait() == 1
            (line,) = late.events("start_failed")
            assert all(words in line["message"] for words in SAYS), line
            assert not late.events("ready")
        sent = [client.send(key=f"k-{number}").body["notificationId"] for number in range(5)]
        assert {client.settled(one)["status"] for one in sent} == {"delivered"}
        running.terminate()
        assert running.wait() == 0
        assert not running.events("trouble")


@pytest.mark.parametrize("command", ["migrate", "doctor", "dead-letters list"])
def test_commands_say_the_same(home: Home, command: str) -> None:
    assert home.run("migrate").returncode == 0
    assert home.run(*command.split()).returncode == 0
    home.upgrade()
    refused = home.run(*command.split())
    assert refused.returncode == 1
    assert all(words in refused.stdout + refused.stderr for words in SAYS), refused
    assert "Traceback" not in refused.stderr


def test_doctor_on_an_empty_database_has_nothing_to_refuse(home: Home) -> None:
    asked = home.run("doctor", "--json")
    assert asked.returncode == 0, asked.stdout
    assert {one["verdict"] for one in json.loads(asked.stdout) if one["part"] == "Ledger"} <= {"ok", "warn"}
    assert home.run("migrate", "--json").stdout.count(".sql") == NEXT - 1, "it made no tables"


def test_going_back_is_allowed_up_to_a_migration(home: Home) -> None:
    assert home.run("migrate").returncode == 0
    home.upgrade()
    allowed = {"CARILLON_LEDGER__ALLOW_MIGRATION": str(NEXT)}
    assert home.run("doctor", **allowed).returncode == 0
    with home.serve(**allowed) as back:
        client = Client.of(back)
        assert client.settled(client.send().body["notificationId"])["status"] == "delivered"
    asyncio.run(tables.write(home.url, APPLIED.format(version=NEXT + 1)))
    refused = home.run("migrate", **allowed)
    assert (refused.returncode, f"ledger.allow_migration = {NEXT + 1}" in refused.stderr) == (1, True)


def test_a_child_that_may_not_start_again_takes_no_other_along(home: Home) -> None:
    several = {"CARILLON_HTTP__PORT": str(free_port()), "CARILLON_FAULTPOINTS": "after_claim=exit9"}
    with home.serve("--processes", "2", **several) as program:
        wait_until(lambda: len(program.events("ready")) == 2, timeout=60, what="two processes to be ready")
        home.upgrade()
        client = Client.of(program)
        with contextlib.suppress(ConnectionError, http.client.HTTPException):
            client.send()
        program.wait_for("start_failed")
        assert client.get("/readyz").status == 200
        assert program.returncode is None


def test_queues_of_your_own_may_go_back_too(home: Home, redis_url: str) -> None:
    assert home.run("migrate").returncode == 0
    home.upgrade()

    async def opened(**options: Any) -> None:
        async with Queues(redis_url, database_url=home.url, allow_unsafe=True, **options) as queues:
            await queues.job_logs()

    with pytest.raises(LedgerNewer, match=f"allow_migration = {NEXT}"):
        asyncio.run(opened())
    asyncio.run(opened(allow_migration=NEXT))
