"""A ledger that commit a452e25 made opens, is migrated and goes on: on both engines, plain and sealed."""

import asyncio
import sqlite3
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from carillon.blueprints.billing.store import BillingStore
from carillon.domain.errors import ConfigurationError
from carillon.ledger.migrate import migrations
from carillon.ledger.opening import Ledger, open_ledger
from carillon.ledger.postgres.ledger import PostgresLedger
from carillon.ledger.statements import load
from tests.support.ledger_builders import enrolment, finish, redrive, route, want
from tests.support.ledger_postgres import connected, until_waiting
from tests.support.ledger_sealed import SEALS

pytestmark = pytest.mark.slow

LATEST = 9
"""The newest migration that commit knew."""
DUMPS = Path(__file__).parent / "ledger_a452e25"


@pytest.fixture(params=["plain", "sealed"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["postgres", "sqlite"])
async def url(request: pytest.FixtureRequest, kind: str, tmp_path: Path) -> str:
    """A database as that commit left it."""
    return await restored(request, (DUMPS / f"{kind}.{request.param}.dump").read_text(), tmp_path)


async def restored(request: pytest.FixtureRequest, script: str, tmp_path: Path) -> str:
    """The URL of a database with what a dump holds."""
    if request.param == "sqlite":
        with sqlite3.connect(tmp_path / "old.db") as file:
            file.executescript(script)
        return f"sqlite:///{tmp_path / 'old.db'}"
    dsn: str = request.getfixturevalue("postgres_dsn")
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(script)
    finally:
        await connection.close()
    return dsn


async def opened(url: str, **options: Any) -> Ledger:
    return await open_ledger(url, allow_unsafe=True, alerts=True, lease_seconds=30.0, **options)


async def what_was_written_is_there(ledger: Ledger) -> None:
    story = await ledger.story("n-1", None)
    assert story is not None
    assert (story.notification["payload_json"], story.routes[0]["status"], story.routes[0]["address"]) == (
        '{"name": "Name of delivered"}',
        "published",
        "delivered@example.org",
    )
    found, total = await ledger.search({"recipient": "buried@example.org"}, 10, 0)
    assert ([each.notification["notification_id"] for each in found], total) == (["n-2"], 1)
    silent, _ = await ledger.suppressions({"address": "silent@example.org"}, 10, 0)
    assert [row["address"] for row in silent] == ["silent@example.org"]
    (ann,) = await ledger.preferences([(None, "ann")])
    assert ann is not None
    assert (ann.contacts, ann.channels) == ({"email": "ann@example.org"}, {"sms": False})
    assert [each.template_key for each in await ledger.template_history("t-1")] == ["welcome"]
    assert [each.name for each in await ledger.api_keys()] == ["old"]
    assert [row["actor"] for row in (await ledger.actions({}, 10, 0))[0]] == ["ops"]


async def it_goes_on(ledger: Ledger) -> None:
    (claim,) = await ledger.claim([want()], 10, "new-worker")
    assert (claim.notification_id, claim.address, claim.message_json) == (
        "n-3",
        "waiting@example.org",
        '{"text": "Dear waiting"}',
    )
    assert [str(each) for each in await ledger.settle([finish(claim)])] == ["applied"]
    (alert,) = await ledger.due_alerts(10, 60.0)
    assert (alert.alert.notification_id, alert.alert.last_error) == ("n-2", "no such mailbox")
    dead = (await ledger.failed({}, 10, 0))[0]
    await redrive(ledger, *((row["notification_id"], row["route_id"]) for row in dead))
    (again,) = await ledger.claim([want()], 10, "new-worker")
    assert again.address == "buried@example.org"
    await ledger.settle([finish(again)])
    await ledger.enrol([enrolment(route("silent", address="silent@example.org"))])
    assert await ledger.claim([want()], 10, "new-worker") == [], "a suppression of that commit still holds"


async def test_it_opens_and_goes_on(url: str, kind: str) -> None:
    ledger = await opened(url, seals=SEALS if kind == "sealed" else None)
    try:
        assert await ledger.migrate() == [step.name for step in migrations("sqlite") if step.version > LATEST]
        await what_was_written_is_there(ledger)
        await it_goes_on(ledger)
        billing = BillingStore(ledger.engine)
        paid = await billing.payment("t1")
        assert paid is not None
        assert paid.tenant_id is None
        assert (paid.amount, [each.message_id for each in await billing.due_outgoing(10, 5.0)]) == (
            Decimal("9.99"),
            ["o1"],
        )
    finally:
        await ledger.aclose()


async def test_a_key_is_asked_for_or_seals_what_is_there(url: str, kind: str) -> None:
    ledger = await opened(url, seals=None if kind == "sealed" else SEALS)
    try:
        if kind == "sealed":
            with pytest.raises(ConfigurationError, match="this ledger is sealed with the key"):
                await ledger.migrate()
        else:
            await ledger.migrate()
            await what_was_written_is_there(ledger)
            await it_goes_on(ledger)
    finally:
        await ledger.aclose()


async def accepts_beside_a_migration_that_waits(dsn: str, statements: dict[str, str] | None = None) -> float:
    """The seconds of the slowest of thirty insertions while a migration waits for a table that somebody reads."""
    script = (DUMPS / "plain.postgres.dump").read_text()
    async with connected(dsn) as reader, connected(dsn) as writer:
        await writer.execute(script)
        ledger = await PostgresLedger.open(dsn, allow_unsafe=True, statements=statements)
        try:
            async with reader.transaction():
                await reader.fetchval("SELECT count(*) FROM records")
                migrating = asyncio.create_task(ledger.migrate())
                await until_waiting(dsn, 1)
                slowest = 0.0
                for _ in range(30):
                    began = time.monotonic()
                    await writer.execute(
                        "UPDATE records SET updated_at = updated_at WHERE notification_id = 'n-1'", timeout=3
                    )
                    slowest = max(slowest, time.monotonic() - began)
                    await asyncio.sleep(0.02)
            assert "0010_owners.sql" in await migrating
        finally:
            await ledger.aclose()
    return slowest


@pytest.mark.req("P-523")
async def test_nobody_waits_long_behind_a_migration_that_waits(postgres_dsn: str) -> None:
    assert await accepts_beside_a_migration_that_waits(postgres_dsn) < 1.0


@pytest.mark.req("P-523")
async def test_control_a_patient_migration_stops_everybody(postgres_dsn: str) -> None:
    patient = {**load("postgres"), "migrate_patience": "SET LOCAL lock_timeout = '60s'"}
    with pytest.raises(TimeoutError):
        await accepts_beside_a_migration_that_waits(postgres_dsn, patient)
