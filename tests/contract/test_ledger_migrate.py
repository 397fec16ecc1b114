"""Migrations: embedded, repeatable, and safe when replicas start together."""

import asyncio

import pytest

from carillon.ledger.migrate import migrations
from tests.support.ledger_engines import Engine, engine_fixture

engine = engine_fixture()

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


async def test_a_newer_release_beside_us_is_tolerated(engine: Engine) -> None:
    async with engine.ledger() as ledger:
        await engine.execute("INSERT INTO schema_migrations (version) VALUES (9999)")
        assert await ledger.migrate() == []


def test_versions_are_numbered_without_gaps() -> None:
    for dialect in ("postgres", "sqlite"):
        steps = migrations(dialect)
        assert [step.version for step in steps] == list(range(1, len(steps) + 1))
    assert [step.name for step in migrations("postgres")] == [step.name for step in migrations("sqlite")]


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
        *("address", "lane", "provider", "provider_since", "policy", "budget_since", "message_json"),
        *("claim_token", "lease_owner", "provider_message_id", "settled_by"),
        *("receipt", "delivered_at", "opened_at", "clicked_at", "claimed_at"),
    }
