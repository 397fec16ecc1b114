"""Wishes that commit with the caller's own rows: SQLAlchemy, Django and FastAPI against a running Carillon."""

import asyncio
import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from fastapi import FastAPI
from sqlalchemy import Engine, create_engine, select

import carillon.client
import carillon.queues
from carillon.client import Client, Unreachable
from carillon.client import outbox as outbox_module
from carillon.client import sqlalchemy as outbox
from carillon.client.exchange import Patience
from carillon.client.fastapi import Carillon, carillon_lifespan
from carillon.client.outbox import OutboxRelay, OutboxRow, Told
from carillon.client.sqlalchemy import SqlAlchemyStore, metadata, table
from tests.support.ports import free_port
from tests.support.process import Program

WELCOME: dict[str, Any] = {
    "channel": "email",
    "recipient": "ada@example.org",
    "data": {"name": "Ada", "link": "https://example.org/"},
}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("outbox")
    environment = {"DATABASE_URL": f"sqlite:///{folder}/c.db", "CARILLON_HTTP__PORT": "0"}
    with Program("serve", env=environment, cwd=folder) as running:
        yield str(running.wait_ready()["addresses"][0])


@pytest.fixture
def client(address: str) -> Iterator[Client]:
    with Client(address) as open_client:
        yield open_client


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    made = create_engine(f"sqlite:///{tmp_path}/app.db")
    metadata.create_all(made)
    yield made
    made.dispose()


def wish(engine: Engine, user: str, *, template: str = "welcome") -> None:
    with engine.begin() as connection:
        connection.execute(outbox.send(template, user_id=user, **WELCOME))


def heard(client: Client, user: str) -> int:
    return client.search(user_id=user).total_count or 0


def test_what_committed_leaves_and_what_rolled_back_does_not(engine: Engine, client: Client) -> None:
    user = uuid.uuid4().hex
    wish(engine, user)
    with engine.connect() as connection:
        connection.execute(outbox.send("welcome", user_id=user, **WELCOME))
        connection.rollback()
    relay = OutboxRelay(SqlAlchemyStore(engine), client)
    assert (relay.run_once(), relay.run_once()) == (1, 0)
    assert heard(client, user) == 1
    with engine.connect() as connection:
        kept = connection.execute(select(table)).one()
    assert (kept.notification_id is not None, kept.refused, kept.sent_at is not None) == (True, None, True)


class Forgetful(SqlAlchemyStore):
    """Dies after the notification was heard and before that is written down."""

    def tell(self, told: object) -> None:
        raise KeyboardInterrupt(str(told))


def test_a_relay_that_dies_after_sending_is_heard_once(engine: Engine, client: Client) -> None:
    user = uuid.uuid4().hex
    wish(engine, user)
    with pytest.raises(KeyboardInterrupt):
        OutboxRelay(Forgetful(engine), client).run_once()
    assert OutboxRelay(SqlAlchemyStore(engine), client).run_once() == 1
    assert heard(client, user) == 1


class Renaming(SqlAlchemyStore):
    """The negative control: a store whose rows have no name of their own."""

    def waiting(self, limit: int) -> list[OutboxRow]:
        return [OutboxRow(uuid.uuid4().hex, each.body) for each in super().waiting(limit)]

    def tell(self, told: object) -> None:
        raise KeyboardInterrupt(str(told))


def test_the_rows_name_is_what_makes_it_once(engine: Engine, client: Client) -> None:
    user = uuid.uuid4().hex
    wish(engine, user)
    for store in (Renaming(engine), Renaming(engine)):
        with pytest.raises(KeyboardInterrupt):
            OutboxRelay(store, client).run_once()
    assert heard(client, user) == 2


def test_what_is_refused_is_kept_with_its_reason_and_costs_no_other(engine: Engine, client: Client) -> None:
    user = uuid.uuid4().hex
    wish(engine, user, template="there.is.no.such")
    relay = OutboxRelay(SqlAlchemyStore(engine), client)
    assert relay.run_once() == 1
    wish(engine, user, template="there.is.no.such")
    wish(engine, user)
    assert (relay.run_once(), relay.run_once()) == (2, 0)
    assert heard(client, user) == 1
    with engine.connect() as connection:
        reasons = [each.refused for each in connection.execute(select(table)) if each.refused]
    assert len(reasons) == 2
    assert all("TEMPLATE_NOT_FOUND" in reason for reason in reasons)


def test_a_carillon_that_is_away_loses_nothing(engine: Engine, client: Client) -> None:
    user = uuid.uuid4().hex
    wish(engine, user)
    quick = Patience(tries=1, timeout_seconds=5)
    with Client(f"http://127.0.0.1:{free_port()}", patience=quick) as nobody, pytest.raises(Unreachable):
        OutboxRelay(SqlAlchemyStore(engine), nobody).run_once()
    stop = threading.Event()
    relaying = threading.Thread(target=OutboxRelay(SqlAlchemyStore(engine), client).run, args=(stop, 0.05))
    relaying.start()
    try:
        for _ in range(3):
            wish(engine, user)
        ends = threading.Event()
        for _ in range(600):
            if heard(client, user) == 4 or ends.wait(0.05):
                break
    finally:
        stop.set()
        relaying.join()
    assert heard(client, user) == 4


def test_nothing_told_is_nothing_written(engine: Engine) -> None:
    SqlAlchemyStore(engine).tell(list[Told]())


async def test_fastapi_hands_the_client_in(address: str) -> None:
    app = FastAPI(lifespan=carillon_lifespan(address))

    @app.post("/orders")
    async def order(carillon: Carillon) -> dict[str, str]:
        return {"id": (await carillon.send("welcome", **WELCOME)).notification_id}

    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    async with app.router.lifespan_context(app):
        scope = {"type": "http", "method": "POST", "path": "/orders", "headers": [], "query_string": b""}
        await app(scope, receive, send)
    assert sent[0]["status"] == 200
    assert b'"id"' in sent[1]["body"]


DJANGO = """
import os, sys
from django.conf import settings
settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": sys.argv[1]}},
    INSTALLED_APPS=["carillon.client.django"], CARILLON_URL=sys.argv[2], USE_TZ=True,
)
import django
django.setup()
from django.core.management import call_command
from django.db import transaction
from carillon.client.django.outbox import send
call_command("migrate", verbosity=0)
call_command("makemigrations", "carillon", check=True, dry_run=True, verbosity=0)
about = dict(channel="email", recipient="ada@example.org", user_id=sys.argv[3],
             data={"name": "Ada", "link": "https://example.org/"})
with transaction.atomic():
    send("welcome", **about)
try:
    with transaction.atomic():
        send("welcome", **about)
        raise RuntimeError
except RuntimeError:
    pass
call_command("carillon_relay", "--once")
call_command("carillon_relay", "--once")
"""


async def test_django(tmp_path: Path, client: Client, address: str) -> None:
    user = uuid.uuid4().hex
    run = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", DJANGO, str(tmp_path / "django.db"), address, user],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": os.environ["PATH"]},
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.split("\n")[:2] == ["carried 1", "carried 0"]
    assert heard(client, user) == 1


@pytest.mark.parametrize(
    ("module", "old", "now"),
    [
        (outbox_module, "Relay", OutboxRelay),
        (outbox_module, "Row", OutboxRow),
        (carillon.client, "Asked", carillon.client.ApiRequest),
        (carillon.queues, "Beat", carillon.queues.QueueUpkeep),
    ],
)
def test_an_old_name_works_and_warns(module: ModuleType, old: str, now: type) -> None:
    with pytest.warns(DeprecationWarning, match=f"{old} is called {now.__name__} now"):
        assert getattr(module, old) is now
    with pytest.raises(AttributeError, match="no attribute 'Other'"):
        _ = module.Other
