"""The compose file of billing, read as Compose reads it, and started by its own commands and health checks.

There is no container engine here: each service is a process on loopback, and the names of the file are its addresses.
"""

import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Self

import jwt
import pytest
import redis
import yaml

from carillon.compose import access
from carillon.compose.billing import BillingRole, Neighbours
from carillon.config.reading import load
from tests.deploy.dockerfile import stages, variables
from tests.support.client import Client
from tests.support.ports import free_port
from tests.support.process import Program
from tests.support.servers import Postgres, Redis, find_binary
from tests.support.sources import ROOT
from tests.support.waiting import wait_until

FILE = ROOT / "deploy" / "billing.compose.yaml"
IMAGE = stages(ROOT / "deploy" / "Dockerfile")[-1]
_NEEDED = re.compile(r"\$\{(?P<name>\w+):\?[^}]+\}")
CHOSEN = {
    "WEBHOOK_SIGNING_SECRET": "invented-for-the-test",
    "SERVICE_TOKEN": "invented-too",
    "JWT_SECRET_KEY": "invented-with-at-least-32-characters",
    "POSTGRES_PASSWORD": "invented",
}


@pytest.fixture(scope="module")
def compose() -> Any:
    return yaml.safe_load(FILE.read_text())


def environment(service: Any) -> dict[str, str]:
    """With everything filled in that the operator must choose; nothing has a default."""
    return {
        name: _NEEDED.sub(lambda found: CHOSEN[found["name"]], text) for name, text in service["environment"].items()
    }


@pytest.mark.req("S3-95")
def test_the_services_wait_for_a_healthy_redis_and_database(compose: Any) -> None:
    assert set(compose["services"]) == {"payment", "subscription", "redis", "postgres"}
    for name, service in compose["services"].items():
        assert service["healthcheck"]["test"], name
        assert service["restart"] == "unless-stopped", name
    for name in BillingRole:
        gates = compose["services"][name]["depends_on"]
        assert gates == {
            "redis": {"condition": "service_healthy"},
            "postgres": {"condition": "service_healthy"},
        }
    assert "noeviction" in compose["services"]["redis"]["command"]
    kept = {
        volume.partition(":")[0] for name in ("redis", "postgres") for volume in compose["services"][name]["volumes"]
    }
    assert kept == set(compose["volumes"]), "what a restart must not lose is on a volume"


@pytest.mark.req("S3-95")
@pytest.mark.parametrize("name", list(BillingRole))
def test_each_service_would_start_with_what_it_is_given(compose: Any, name: BillingRole) -> None:
    service = compose["services"][name]
    given = environment(service)
    assert not any("$" in value for value in given.values())
    of_image = {name: value for name, value in variables(IMAGE).items() if name.startswith("CARILLON_")}
    settings = load("billing", environ={**of_image, **given})
    access.refuse_open_door(settings)
    *start, option, words = service["command"]
    assert (start, option) == (["serve", "--blueprint", "billing"], "--roles")
    assert service["build"] == {"context": "..", "dockerfile": "deploy/Dockerfile"}
    assert service["read_only"]
    assert words == name
    assert settings.billing is not None
    neighbours = Neighbours(settings.billing, frozenset({words}))
    other = next(each for each in BillingRole if each is not name)
    where = neighbours.subscription() if name is BillingRole.PAYMENT else neighbours.payment()
    assert where == f"http://{other}:{settings.http.port}", (
        "by the other's name in this file, on the port it listens on"
    )
    assert service["ports"][0].endswith(f":{settings.http.port}")


class FileRedis(Redis):
    """Redis by the file's command; its folder is the volume."""

    def __init__(self, command: list[str]) -> None:
        super().__init__()
        self._command = command

    def command(self) -> list[str]:
        name, *options = self._command
        return [find_binary(name), *options, "--bind", "127.0.0.1", "--port", str(self.port), "--dir", str(self.folder)]


class Compose:
    """`up` and `down` of the file; `unhealthy` says which services' own checks fail."""

    def __init__(self, services: Any, folder: Path) -> None:
        self._services = services
        self._folder = folder
        self.redis = FileRedis(services["redis"]["command"])
        self.postgres = Postgres()
        self.ports = {"redis": self.redis.port, "postgres": self.postgres.port}
        self.ports |= {name: free_port() for name in BillingRole}
        self.programs: dict[str, Program] = {}
        self.started: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for program in self.programs.values():
            program.close()
        self.redis.close()
        self.postgres.close()

    def healthy(self, name: str) -> bool:
        kind, *words = self._services[name]["healthcheck"]["test"]
        command = shlex.split(words[0]) if kind == "CMD-SHELL" else words
        command = [word.replace(":8080/", f":{self.ports[name]}/") for word in command]
        program = sys.executable if command[0] == "python" else find_binary(command[0])
        more = ["-p", str(self.ports[name])] if command[0] in {"redis-cli", "pg_isready"} else []
        where = ["-h", "127.0.0.1"] if more else []
        said = subprocess.run([program, *where, *more, *command[1:]], capture_output=True, text=True, check=False)
        return said.returncode == 0

    def unhealthy(self) -> set[str]:
        return {name for name in self._services if not self.healthy(name)}

    def up(self) -> None:
        """Each service once those it depends on are healthy, whatever the order of the file."""
        waiting = [name for name in self._services if name not in self.started]
        while waiting:
            name = next(each for each in waiting if set(self._services[each].get("depends_on", {})) <= {*self.started})
            for need in self._services[name].get("depends_on", {}):
                wait_until(partial(self.healthy, need), timeout=60, what=f"{need} healthy")
            self._start(name)
            self.started.append(name)
            waiting.remove(name)
        wait_until(lambda: not self.unhealthy(), timeout=60, what="every service healthy")

    def _start(self, name: str) -> None:
        if name == "redis":
            self.redis.start()
        elif name == "postgres":
            self._start_postgres(environment(self._services[name]))
        else:
            given = {key: self._placed(value) for key, value in environment(self._services[name]).items()}
            own = {"CARILLON_HTTP__HOST": "127.0.0.1", "CARILLON_HTTP__PORT": str(self.ports[name])}
            # Servers of tests do not write through to the disk, and nobody waits a minute for a retry here.
            unsafe = {"CARILLON_LEDGER__ALLOW_UNSAFE": "true", "CARILLON_QUEUE__DEFAULT__BASE_DELAY_SECONDS": "0.2"}
            command = self._services[name]["command"]
            self.programs[name] = Program(*command, env={**given, **own, **unsafe}, cwd=self._folder)

    def _start_postgres(self, given: dict[str, str]) -> None:
        fresh = not self.postgres.data.exists()
        self.postgres.start()
        if fresh:
            # As the image does it at its first start.
            self.postgres.execute(f"CREATE ROLE {given['POSTGRES_USER']} SUPERUSER LOGIN")
            self.postgres.execute(f"CREATE DATABASE {given['POSTGRES_DB']} OWNER {given['POSTGRES_USER']}")

    def _placed(self, value: str) -> str:
        """The address of a service under its name in the file."""
        return re.sub(
            r"\b(redis|postgres|payment|subscription):(\d+)", lambda found: f"127.0.0.1:{self.ports[found[1]]}", value
        )

    def down(self) -> None:
        """Ours end by SIGTERM within their time, then the servers; volumes stay."""
        for name, program in self.programs.items():
            program.terminate()
            seconds = float(self._services[name]["stop_grace_period"].removesuffix("s"))
            assert program.wait(seconds) == 0, program.tail()
        self.redis.stop()
        self.postgres.stop()
        self.started.clear()

    def client(self, name: str) -> Client:
        return Client(f"http://127.0.0.1:{self.ports[name]}")


@pytest.fixture
def running(compose: Any, tmp_path: Path) -> Iterator[Compose]:
    with Compose(compose["services"], tmp_path) as found:
        yield found


def bearer() -> dict[str, str]:
    now = int(time.time())
    said = {"sub": "ada", "role": "admin", "iat": now, "exp": now + 3000}
    return {"Authorization": f"Bearer {jwt.encode(said, CHOSEN['JWT_SECRET_KEY'], algorithm='HS256')}"}


def created(running: Compose) -> str:
    asked = {"plan_id": "basic", "user_id": "ada", "trial": False}
    reply = running.client("subscription").call("POST", "/v1/subscriptions", asked, bearer())
    assert reply.status == 201, reply
    return str(reply.body["id"])


def until_active(running: Compose, subscription_id: str) -> None:
    def active() -> bool:
        path = f"/v1/subscriptions/{subscription_id}"
        return bool(running.client("subscription").get(path, bearer()).body["status"] == "active")

    wait_until(active, timeout=60, what=f"{subscription_id} to be active")


@pytest.mark.timeout(300)
@pytest.mark.req("S3-95")
def test_the_file_starts_both_services_and_starts_them_again(running: Compose) -> None:
    assert running.unhealthy() == {"payment", "subscription", "redis", "postgres"}, "the checks tell the difference"
    running.up()
    assert {*running.started[:2]} == {"redis", "postgres"}, "nobody starts before both are healthy"
    first = created(running)
    until_active(running, first)
    # One of ours is killed and started again, as the file's restart policy has it.
    running.programs["payment"].kill()
    assert running.unhealthy() == {"payment"}
    second = created(running)
    running.started.remove("payment")
    running.up()
    until_active(running, second)
    # Everything is restarted: what was paid stays paid, and what waited in the queue is carried out.
    running.programs["payment"].kill()
    running.started.remove("payment")
    third = created(running)
    with redis.Redis(port=running.redis.port) as client:
        wait_until(
            lambda: any(third.encode() in text for key in client.keys("q:sub:*") for text in texts(client, key)),
            timeout=60,
            what="a message that waits",
        )
    running.programs.pop("payment")
    running.down()
    assert running.unhealthy() == {"payment", "subscription", "redis", "postgres"}
    running.up()
    for subscription_id in (first, second):
        path = f"/v1/subscriptions/{subscription_id}"
        assert running.client("subscription").get(path, bearer()).body["status"] == "active"
    until_active(running, third)


def texts(client: "redis.Redis", key: bytes) -> list[bytes]:
    kind: Any = client.type(key)
    found: Any = client.lrange(key, 0, -1) if kind == b"list" else client.zrange(key, 0, -1)
    return list(found)
