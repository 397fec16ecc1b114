"""Migrations: embedded, repeatable, and safe when replicas start together."""

import asyncio

import pytest

from carillon.domain.errors import LedgerNewer
from carillon.domain.notifications import Accepted
from carillon.ledger.migrate import migrations
from tests.support.ledger_builders import enrolment, want
from tests.support.ledger_engines import Engine, bare_engine_fixture

engine = bare_engine_fixture()

TABLES = {
    "attempts",
    "dead_letters",
    "malformed_intents",
    "records",
    "routes",
    "schema_migrations",
    "suppressions",
}


async def tables(engine: Engine) -> set[str]:
    catalogue = {
        "postgres": "SELECT tablename AS name FROM pg_tables WHERE schemaname = 'public'",
        "sqlite": "SELECT name FROM sqlite_master WHERE type = 'table'",
    }
    return {row["name"] for row in await engine.execute(catalogue[engine.dialect])}


@pytest.mark.req("G-13")
async def test_five_replicas_on_an_empty_database(engine: Engine) -> None:
    replicas = await asyncio.gather(*(engine.open() for _ in range(5)))
    try:
        steps = await asyncio.gather(*(replica.migrate() for replica in replicas))
    finally:
        await asyncio.gather(*(replica.aclose() for replica in replicas))
    names = [step.name for step in migrations(engine.dialect)]
    assert sorted(steps) == [[], [], [], [], names]
    assert await tables(engine) >= TABLES


async def test_beside_a_newer_release_we_go_on_and_do_not_start(engine: Engine) -> None:
    async with engine.ledger() as running:
        await running.refuse_newer()
        await engine.execute("INSERT INTO schema_migrations (version) VALUES (9999)")
        given = enrolment()
        assert await running.enrol([given]) == [Accepted(given.notification.notification_id)]
        assert len(await running.claim([want()], 10, "w")) == 1
        for allowed in (0, 9998):
            late = await engine.open(allow_migration=allowed)
            for ask in (late.migrate, late.refuse_newer):
                with pytest.raises(LedgerNewer, match=r"migration 9999, .*ledger\.allow_migration = 9999"):
                    await ask()
            await late.aclose()
    async with engine.ledger(allow_migration=9999) as back:
        await back.refuse_newer()


async def test_nothing_is_applied_to_a_ledger_that_is_newer(engine: Engine) -> None:
    """A release that has the number in between comes late: it must not fill the gap either."""
    async with engine.ledger():
        newest = migrations("sqlite")[-1].version
        await engine.execute(f"DELETE FROM schema_migrations WHERE version = {newest}")  # noqa: S608 - a number of ours
        await engine.execute("INSERT INTO schema_migrations (version) VALUES (9999)")
        late = await engine.open()
        with pytest.raises(LedgerNewer):
            await late.migrate()
        await late.aclose()
    versions = {row["version"] for row in await engine.execute("SELECT version FROM schema_migrations")}
    assert versions == {*range(1, newest), 9999}


async def test_an_empty_database_is_not_newer_and_stays_empty(engine: Engine) -> None:
    ledger = await engine.open()
    await ledger.refuse_newer()
    await ledger.aclose()
    assert await tables(engine) == set()


@pytest.mark.req("S1-103", "S1-104")
async def test_both_engines_have_the_same_columns(engine: Engine) -> None:
    async with engine.ledger():
        pass
    columns = {
        "postgres": "SELECT column_name AS name FROM information_schema.columns WHERE table_name = 'routes'",
        "sqlite": "SELECT name FROM pragma_table_xinfo('routes')",
    }
    names = {row["name"] for row in await engine.execute(columns[engine.dialect])}
    assert names == {
        *("notification_id", "route_id", "channel", "recipient_ref", "status", "attempt_count", "max_attempts"),
        *("next_attempt_at", "resolved_email", "resolved_locale", "last_error_classification", "last_error_message"),
        *("last_error_at", "created_at", "updated_at", "published_at", "dead_lettered_at", "skipped_at"),
        *("address", "lane", "provider", "provider_since", "policy", "budget_since", "message_json", "grp", "turn"),
        *("claim_token", "lease_owner", "provider_message_id", "settled_by", "finished_by", "took_ms", "ticket"),
        *("goal", "step", "not_before", "receipt_due"),
        *("receipt", "delivered_at", "opened_at", "clicked_at", "claimed_at"),
        *("suppression_id", "suppression_kind", "suppressed_until"),
    }
