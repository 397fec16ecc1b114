"""Every operation of each blueprint's OpenAPI document, called by everybody: each sees and changes what is theirs.

Every caller makes every call on both engines. On SQLite each blueprint has a process of its own. On PostgreSQL, which
several blueprints can share, they are in one process; local, which is not among those, is alone there too.
"""

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.support.client import Client
from tests.support.declared import declared
from tests.support.fcm_stub import SERVER_KEY, FcmStub
from tests.support.galaxy_stand import PASSWORD, Users
from tests.support.matrix import (
    ABOUT,
    SECRET,
    Planted,
    Violation,
    everybody,
    guards_of,
    judged,
    known_calls,
    made,
    strangers,
)
from tests.support.planted import notifications, pushes, streams, subscriptions
from tests.support.ports import free_port
from tests.support.process import Program
from tests.support.push_broker import Broker, reset
from tests.support.push_messages import TemplateStub
from tests.support.rabbitmq import RabbitMQ
from tests.support.servers import Redis
from tests.support.sources import ROOT
from tests.support.tenants import Call
from tests.support.waiting import wait_until

LIMITS = (
    "[http]\nport = 0\nanonymous_requests_per_second = 0\nauth_failures_per_minute = 0\nkey_requests_per_second = 0\n"
)
FAST = "[drill]\ntime_scale = 0.01\n"
SETTINGS = {
    "local": LIMITS + FAST,
    "listo": LIMITS + FAST,
    "sse": LIMITS + '[task_picker]\npoll_interval = "100ms"\n',
    "billing": LIMITS + "[beat]\npump_seconds = 0.05\n",
    "push-worker": LIMITS + "[drill]\ntime_scale = 0.05\n",
    "galaxy": "",
}
TOGETHER = ("listo", "sse", "billing", "push-worker", "galaxy")
PROBES = {"healthz", "readyz"}


class World:
    """The servers and neighbours of all blueprints."""

    def __init__(self, folder: Path, redis_server: Redis, stack: ExitStack) -> None:
        self.folder = folder
        self.redis_server = redis_server
        self.redis_url = f"redis://:{PASSWORD}@127.0.0.1:{redis_server.port}/0"
        self.redis: Any = redis.Redis.from_url(self.redis_url)
        stack.callback(self.redis.close)
        self.redis.flushall()
        self._stack = stack
        self.broker: Broker | None = None
        self.more: dict[str, str] = {}

    def with_rabbitmq(self, rabbit: RabbitMQ) -> None:
        fcm = self._stack.enter_context(FcmStub(self.folder / "fcm.jsonl"))
        templates = self._stack.enter_context(TemplateStub(self.folder / "templates.jsonl"))
        self.broker = self._stack.enter_context(Broker(rabbit.url))
        reset(self.broker)
        self.more |= {
            "RABBITMQ_URL": rabbit.url,
            "TEMPLATE_SERVICE_URL": templates.url,
            "FCM_API": "legacy",
            "FCM_BASE_URL": fcm.url,
            "FCM_SERVER_KEY": SERVER_KEY,
        }

    def with_galaxy(self, dsn: str) -> str:
        """The address of galaxy's probes."""
        users = self._stack.enter_context(Users(self.folder / "users.jsonl"))
        port = free_port()
        self.more |= {
            "NOTIFICATION_REDIS_MASTER_ADDR": f"127.0.0.1:{self.redis_server.port}",
            "NOTIFICATION_REDIS_PASSWORD": PASSWORD,
            "NOTIFICATION_POSTGRES_PRIMARY_DSN": f"{dsn}?search_path=notification",
            "NOTIFICATION_USER_SERVICE_BASE_URL": users.url,
            "NOTIFICATION_INTERNAL_HTTP_ADDR": f"127.0.0.1:{port}",
        }
        return f"http://127.0.0.1:{port}"

    def start(self, *names: str, url: str, mutable: bool = False) -> dict[str, Client]:
        """One program; the listener of each blueprint."""
        files: list[str] = []
        for name in names:
            config = self.folder / f"{name}.toml"
            config.write_text(f'extends = "{name}"\n{SETTINGS[name]}')
            files += ["--config", str(config)]
        given = {
            "JWT_SECRET_KEY": SECRET,
            "DATABASE_URL": url,
            "CARILLON_ALLOW_SANDBOX": "1",
            "CARILLON_LEDGER__ALLOW_UNSAFE": "true",
            # A line for each of ten thousand requests is written by one process and parsed by another.
            "CARILLON_LOG__LEVEL": "warning",
            "WEBHOOK_SIGNING_SECRET": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            "PYTHONPATH": str(ROOT),
        }
        given |= {"REDIS_URL": self.redis_url} if {"billing", "push-worker"} & {*names} else {}
        command = [sys.executable, "-m", "tests.support.guard_mutant"] if mutable else None
        program = Program("serve", *files, env=given | self.more, cwd=self.folder, command=command)
        self._stack.enter_context(program)
        wait_until(lambda: len(program.events("ready")) == len(names) or program.has_ended, timeout=90, what="a start")
        assert not program.has_ended, program.tail()
        clients = {line["blueprint"]: Client(line["addresses"][0], keeps=True) for line in program.events("ready")}
        for client in clients.values():
            self._stack.callback(client.close)
        return clients

    def planted(self, name: str, client: Client, url: str) -> Planted:
        if name == "billing":
            return subscriptions(client, url, self.redis.lpush)
        if name == "push-worker":
            assert self.broker is not None
            return pushes(client, url, self.broker.publish)
        return streams(client, url) if name == "sse" else notifications(client, url)


@pytest.fixture
def world(tmp_path: Path, galaxy_redis: Redis) -> Iterator[World]:
    with ExitStack() as stack:
        yield World(tmp_path, galaxy_redis, stack)


@pytest.fixture
def own_file(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'ledger.db'}"


def calls_of(planted: Planted) -> dict[str, list[Call]]:
    return {one.told["operationId"]: known_calls(one, planted.aims) for one in planted.operations()}


def check(planted: Planted) -> None:
    """Strangers first, each with every call; then those who may, who have to see what is there."""
    every = calls_of(planted)
    reads = {name: several for name, several in every.items() if several[0].operation.method == "GET"}
    found: list[Violation] = []
    for who in planted.strangers:
        found += strangers(planted, who, [call for several in every.values() for call in several])
    for who in planted.owners_themselves:
        seen: set[str] = set()
        for name, several in reads.items():
            for call in several:
                reply, said = made(planted, call, who)
                found += judged(planted, call, who, reply, said)
                seen |= {name} if reply.status < 300 and any(mark in said for mark in planted.of_the_tenant) else set()
        missing = planted.shown.get(who.kind, frozenset()) - seen
        found += [Violation(who.name, name, "does not see what is there to be seen") for name in missing]
    for who in planted.owners_themselves:
        for name in every.keys() - reads.keys():
            for call in every[name]:
                found += judged(planted, call, who, *made(planted, call, who))
    assert not found, "\n".join(map(str, found))


def check_probes_alone(client: Client) -> None:
    """Nothing that is declared is served but the probes, for any caller."""
    for who in everybody(None):
        for one in declared():
            if one.name not in PROBES:
                status = client.call(
                    one.method, one.path.replace("{", "").replace("}", ""), headers=who.headers()
                ).status
                assert status in {404, 405}, (one.name, who.name, status)
        assert client.get("/openapi.json", who.headers()).status == 404


@pytest.mark.req("S2-117", "S2-126")
@pytest.mark.parametrize("name", ["local", "listo", "sse", "billing"])
def test_everybody_sees_and_changes_what_is_theirs(name: str, own_file: str, world: World) -> None:
    client = world.start(name, url=own_file)[name]
    check(world.planted(name, client, own_file))


@pytest.mark.req("S2-117", "S2-126")
def test_the_same_holds_for_local_on_postgres(ledger_dsn: str, world: World) -> None:
    client = world.start("local", url=ledger_dsn)["local"]
    check(world.planted("local", client, ledger_dsn))


def test_the_same_holds_for_a_push_worker(own_file: str, world: World, rabbitmq: RabbitMQ) -> None:
    world.with_rabbitmq(rabbitmq)
    client = world.start("push-worker", url=own_file)["push-worker"]
    check(world.planted("push-worker", client, own_file))


def test_galaxy_serves_nothing_but_probes(postgres_dsn: str, world: World) -> None:
    address = world.with_galaxy(postgres_dsn)
    world.start("galaxy", url=postgres_dsn)
    check_probes_alone(Client(address))


@pytest.mark.req("S2-117", "S2-126")
def test_the_same_holds_for_all_of_them_in_one_process(postgres_dsn: str, world: World, rabbitmq: RabbitMQ) -> None:
    world.with_rabbitmq(rabbitmq)
    world.with_galaxy(postgres_dsn)
    clients = world.start(*TOGETHER, url=postgres_dsn)
    check_probes_alone(clients.pop("galaxy"))
    for name, client in clients.items():
        check(world.planted(name, client, postgres_dsn))


@pytest.mark.parametrize("name", ["listo", "sse", "billing"])
def test_control_without_any_one_guard_somebody_sees_or_does_more(name: str, tmp_path: Path, world: World) -> None:
    url = f"sqlite:///{tmp_path / 'mutable.db'}"
    planted = world.planted(name, world.start(name, url=url, mutable=True)[name], url)
    every = calls_of(planted)
    # Reads first: without a guard, changes change what there is to be seen. An erasure last: it leaves nothing.
    order = sorted(every, key=lambda one: (every[one][0].operation.method != "GET", one == "erasePerson"))
    tried = [(operation, guard) for operation in order for guard in guards(planted, operation)]
    unseen = [f"{guard} before {operation}" for operation, guard in tried if not red(planted, every[operation], guard)]
    assert not unseen, "\n".join(unseen)
    assert {guard for _, guard in tried} >= {"credentials", "role", "named_tenant", "named_person", "owned_tenant"}


@pytest.mark.parametrize(("name", "change"), [("listo", "cancelNotification"), ("sse", "markRead")])
def test_control_a_row_that_a_stranger_changes_is_seen(name: str, change: str, tmp_path: Path, world: World) -> None:
    url = f"sqlite:///{tmp_path / 'mutable.db'}"
    planted = world.planted(name, world.start(name, url=url, mutable=True)[name], url)
    several = calls_of(planted)[change]
    elsewhere = next(who for who in planted.strangers if who.kind == "administrator")
    assert strangers(planted, elsewhere, several) == []
    guard = {"X-Mutant": "owned_tenant" if name == "listo" else "reach_tenant"}
    assert [one for one in strangers(planted, elsewhere, several, guard) if one.what.startswith("changed")]


def guards(planted: Planted, operation: str) -> list[str]:
    """Those that are declared, and, where Ada's things are shown, what limits the handler's reach."""
    found = list(guards_of(operation))
    about = ABOUT[operation]
    if about.owned is not None or operation not in planted.shown["administrator"]:
        return found
    found.append("reach_tenant")
    if about.shared:
        found += ["reach_person", "reach_sender"]
    return found


def red(planted: Planted, several: list[Call], guard: str) -> bool:
    """Whether the matrix complains when this guard is taken away from these calls."""
    return any(
        judged(planted, call, who, *made(planted, call, who, {"X-Mutant": guard}))
        for who in planted.everybody[:-1]
        for call in several
    )
