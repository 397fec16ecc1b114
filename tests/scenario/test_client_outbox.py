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
from tests.support.vendor import Reply, Vendor

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


def later(index: int, code: str) -> dict[str, Any]:
    return {"index": index, "status": "rejected", "error": {"code": code, "message": "said by the server"}}


@pytest.mark.req("P-1183")
def test_a_row_that_could_not_be_written_now_stays_beside_one_that_never_can(engine: Engine, tmp_path: Path) -> None:
    with Vendor(tmp_path / "carillon.jsonl") as vendor, Client(vendor.url) as client:
        relay = OutboxRelay(SqlAlchemyStore(engine), client)
        wish(engine, "ada", template="there.is.no.such")
        wish(engine, "bob")
        results = [later(0, "TEMPLATE_NOT_FOUND"), later(1, "UNAVAILABLE")]
        vendor.answer(Reply(422, body={"error": {"code": "BATCH_REJECTED", "message": "none"}, "results": results}))
        assert relay.run_once() == 1
        vendor.answer(Reply(202, body={"results": [{"index": 0, "status": "queued", "notificationId": "n-1"}]}))
        assert (relay.run_once(), relay.run_once()) == (1, 0)
    with engine.connect() as connection:
        kept = {row.notification_id: row.refused for row in connection.execute(select(table))}
    assert kept == {None: "TEMPLATE_NOT_FOUND: said by the server", "n-1": None}


@pytest.mark.req("P-1183")
def test_a_row_that_is_too_large_keeps_no_other_back(engine: Engine, client: Client) -> None:
    user = uuid.uuid4().hex
    with engine.begin() as connection:
        large = {**WELCOME, "data": {**WELCOME["data"], "more": "x" * 5_000_000}}
        connection.execute(outbox.send("welcome", user_id=user, **large))
    for _ in range(3):
        wish(engine, user)
    relay = OutboxRelay(SqlAlchemyStore(engine), client)
    assert (relay.run_once(), relay.run_once()) == (4, 0)
    assert heard(client, user) == 3
    with engine.connect() as connection:
        (refused,) = (row.refused for row in connection.execute(select(table)) if row.refused)
    assert refused.startswith("PAYLOAD_TOO_LARGE")


@pytest.mark.req("P-1220")
@pytest.mark.parametrize(
    ("about", "said"),
    [
        ({"priority": "urgent"}, "it is one of high, normal, low"),
        ({"channel": "pigeon"}, "it is one of push, sms, email, inApp, webhook"),
        ({"scheduled_for": "tomorrow"}, "Invalid RFC3339"),
        ({"data": {"name": "a\x00b", "link": "x"}}, "U+0000"),
        ({"idempotency_key": "two words"}, "ASCII characters without spaces"),
    ],
)
def test_a_row_that_is_wrong_keeps_no_other_back(
    engine: Engine, client: Client, about: dict[str, Any], said: str
) -> None:
    user = uuid.uuid4().hex
    wish(engine, user)
    with engine.begin() as connection:
        connection.execute(outbox.send("welcome", **{**WELCOME, "user_id": user, **about}))
    wish(engine, user)
    relay = OutboxRelay(SqlAlchemyStore(engine), client)
    assert (relay.run_once(), relay.run_once()) == (3, 0)
    assert heard(client, user) == 2
    with engine.connect() as connection:
        (refused,) = (row.refused for row in connection.execute(select(table)) if row.refused)
    assert refused.startswith("VALIDATION_ERROR: ")
    assert said in refused


@pytest.mark.req("P-1220")
@pytest.mark.parametrize("body", ["no JSON", "[]", "{}"])
def test_a_row_of_somebody_elses_making_keeps_no_other_back(engine: Engine, client: Client, body: str) -> None:
    user = uuid.uuid4().hex
    with engine.begin() as connection:
        connection.execute(table.insert().values(id=uuid.uuid4().hex, body=body))
    wish(engine, user)
    relay = OutboxRelay(SqlAlchemyStore(engine), client)
    assert (relay.run_once(), relay.run_once(), heard(client, user)) == (2, 0, 1)


@pytest.mark.req("P-1220")
def test_a_server_that_takes_less_than_usual_gets_the_rows_in_more_requests(engine: Engine, tmp_path: Path) -> None:
    environ = {"CARILLON_HTTP__PORT": "0", "CARILLON_HTTP__MAX_BODY_BYTES": "4000"}
    small = Program("serve", env=environ, cwd=tmp_path)
    with small, Client(str(small.wait_ready(60)["addresses"][0])) as client:
        for _ in range(20):
            wish(engine, "ada")
        large = {**WELCOME, "data": {**WELCOME["data"], "more": "x" * 5000}}
        with engine.begin() as connection:
            connection.execute(outbox.send("welcome", user_id="ada", **large))
        assert OutboxRelay(SqlAlchemyStore(engine), client).run_once() == 21
        assert heard(client, "ada") == 20


@pytest.mark.req("P-1183")
def test_a_relay_says_once_why_its_rows_wait(engine: Engine, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    stop = threading.Event()
    with Vendor(tmp_path / "carillon.jsonl") as vendor, Client(vendor.url) as client:
        wrong = Reply(401, body={"error": {"code": "UNAUTHORIZED", "message": "the token has expired"}})
        vendor.answer(wrong, wrong, wrong)
        vendor.default = Reply(202, body={"results": [{"index": 0, "status": "queued", "notificationId": "n-1"}]})
        wish(engine, "ada")
        relaying = threading.Thread(target=OutboxRelay(SqlAlchemyStore(engine), client).run, args=(stop, 0.05))
        relaying.start()
        try:
            for _ in range(600):
                if len(vendor.entries) == 4 or stop.wait(0.05):
                    break
        finally:
            stop.set()
            relaying.join()
    said = [record.getMessage() for record in caplog.records if record.name == "carillon.client.outbox"]
    assert said == ["rows wait in the outbox: UNAUTHORIZED: the token has expired", "rows leave the outbox again"]


@pytest.mark.req("P-1183")
@pytest.mark.parametrize(
    ("url", "said"),
    [("http://127.0.0.1:{port}", "carried 0; the others wait: 127.0.0.1"), ("carillon", "CARILLON_URL")],
)
async def test_djangos_command_says_in_one_line_what_is_wrong(tmp_path: Path, url: str, said: str) -> None:
    run = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", DJANGO, str(tmp_path / "django.db"), url.format(port=free_port()), "ada"],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": os.environ["PATH"]},
    )
    assert run.returncode == 1
    assert run.stderr.splitlines()[-1].startswith("django.core.management.base.CommandError: "), run.stderr
    assert said in run.stderr.splitlines()[-1]


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
