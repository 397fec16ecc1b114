"""The tables as the galaxy blueprint freezes them, seen through information_schema of a started process's database."""

import asyncio
import re
import subprocess
from typing import Any

import pytest

from carillon.ledger.postgres.ledger import PostgresLedger
from tests.support.galaxy_seen import exit_of, intent
from tests.support.galaxy_stand import GATEWAY, Galaxy
from tests.support.process import run_carillon
from tests.support.servers import Postgres

pytestmark = pytest.mark.asyncio(loop_scope="module")

FROZEN = {
    "records": "notification_id notification_type producer audience_kind recipient_user_ids payload_json"
    " idempotency_key request_fingerprint request_id trace_id occurred_at accepted_at updated_at"
    " idempotency_expires_at",
    "routes": "notification_id route_id channel recipient_ref status attempt_count max_attempts next_attempt_at"
    " resolved_email resolved_locale last_error_classification last_error_message last_error_at created_at updated_at"
    " published_at dead_lettered_at skipped_at",
    "dead_letters": "notification_id route_id channel recipient_ref final_attempt_count max_attempts"
    " failure_classification failure_message recovery_hint created_at",
    "malformed_intents": "stream_entry_id notification_type producer idempotency_key failure_code failure_message"
    " raw_fields recorded_at",
}
KEYS = {
    "records": ["notification_id"],
    "routes": ["notification_id", "route_id"],
    "dead_letters": ["notification_id", "route_id"],
}


async def columns(stand: Galaxy, table: str) -> dict[str, Any]:
    rows = await stand.rows(
        "SELECT * FROM information_schema.columns WHERE table_schema = 'notification' AND table_name = $1", table
    )
    return {row["column_name"]: row for row in rows}


async def constraints(stand: Galaxy, table: str, kind: str) -> list[str]:
    rows = await stand.rows(
        "SELECT pg_get_constraintdef(oid) AS said FROM pg_constraint "
        'WHERE conrelid = $1::regclass AND contype = $2::"char"',
        table,
        kind.encode(),
    )
    return [row["said"] for row in rows]


@pytest.mark.req("S1-107", "S1-109", "S1-110", "S1-114")
@pytest.mark.parametrize("table", FROZEN)
async def test_every_frozen_column_is_there(running: Galaxy, table: str) -> None:
    found = await columns(running, table)
    assert set(FROZEN[table].split()) <= set(found)
    for name, column in found.items():
        if name.endswith("_at"):
            assert column["data_type"] == "timestamp with time zone", name
    assert not [name for name, column in found.items() if column["data_type"].startswith("timestamp without")]


@pytest.mark.req("S1-107", "S1-109", "S1-110")
async def test_keys(running: Galaxy) -> None:
    for table, names in KEYS.items():
        assert await constraints(running, table, "p") == [f"PRIMARY KEY ({', '.join(names)})"]
    assert "UNIQUE (producer, idempotency_key)" in await constraints(running, "records", "u")
    (cascade,) = await constraints(running, "dead_letters", "f")
    assert re.fullmatch(
        r"FOREIGN KEY \(notification_id, route_id\) REFERENCES routes\(notification_id, route_id\) ON DELETE CASCADE",
        cascade,
    )
    (cascade,) = await constraints(running, "routes", "f")
    assert cascade.endswith("REFERENCES records(notification_id) ON DELETE CASCADE")
    assert (await columns(running, "records"))["recipient_user_ids"]["data_type"] == "jsonb"


@pytest.mark.req("S1-108")
async def test_recipients_are_kept_for_users_alone(running: Galaxy) -> None:
    one = await running.publish(intent(recipient_user_ids_json='["user-2","user-1"]'))
    two = await running.publish(intent("game.generation_failed"))
    await running.routes(one, status="published")
    await running.routes(two, status="published")
    query = "SELECT recipient_user_ids AS ids FROM records WHERE notification_id = $1"
    assert (await running.rows(query, one))[0]["ids"] == '["user-1", "user-2"]'
    assert (await running.rows(query, two))[0]["ids"] is None


@pytest.mark.req("S1-112")
async def test_the_index_of_what_is_due(running: Galaxy) -> None:
    (row,) = await running.rows("SELECT indexdef FROM pg_indexes WHERE indexname = 'routes_due_idx'")
    assert "next_attempt_at" in row["indexdef"].partition(" WHERE ")[0]
    assert row["indexdef"].endswith("WHERE (next_attempt_at IS NOT NULL)")
    # The document's own question is answered from it, however many routes have ended.
    await running.execute("SET enable_seqscan = off")
    plan = await running.rows(
        "EXPLAIN SELECT notification_id, route_id FROM routes WHERE next_attempt_at IS NOT NULL"
        " AND next_attempt_at <= now() ORDER BY next_attempt_at ASC LIMIT 10"
    )
    await running.execute("RESET enable_seqscan")
    assert "routes_due_idx" in str(plan)


MANY = """
WITH made AS (
    INSERT INTO records (notification_id, notification_type, producer, audience_kind, payload_json, request_fingerprint,
                         accepted_at, updated_at, origin, priority, is_bulk)
    SELECT 'n-' || n, 't', 'p', 'user', '{}', 'f', now(), now(), 'system', 2, FALSE FROM generate_series(1, 100000) AS n
    RETURNING notification_id)
INSERT INTO routes (notification_id, route_id, channel, recipient_ref, status, max_attempts, next_attempt_at,
                    created_at, updated_at, lane, provider, policy, budget_since)
SELECT notification_id, 'push:user:u', 'push', 'user:u',
       CASE WHEN notification_id LIKE '%000' THEN 'failed' ELSE 'published' END, 3,
       CASE WHEN notification_id LIKE '%000' THEN now() - interval '1 minute' END,
       now(), now(), 2, 'gateway', '*/push', now()
FROM made
"""


@pytest.mark.req("S1-112")
async def test_what_is_due_is_found_beside_a_hundred_thousand_that_have_ended(galaxy: Galaxy) -> None:
    """By the document's own question, with the server's own settings."""
    program = galaxy.start()
    program.terminate()
    assert program.wait() == 0
    await galaxy.execute(MANY)
    await galaxy.execute("ANALYZE records, routes")
    plan = await galaxy.rows(
        "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, BUFFERS) SELECT notification_id, route_id FROM routes"
        " WHERE next_attempt_at IS NOT NULL AND next_attempt_at <= now() ORDER BY next_attempt_at ASC LIMIT 100"
    )
    said = "\n".join(row["QUERY PLAN"] for row in plan)
    assert "routes_due_idx" in said, said
    assert "Seq Scan" not in said, said
    pages = sum(
        int(number) for number in re.findall(r"(?:hit|read)=(\d+)", said.partition("Planning")[0].splitlines()[1])
    )
    assert pages < 300, said
    # All of them, and nothing else, is what the next process publishes or gives up.
    galaxy.start()
    await galaxy.row_once("SELECT 1 FROM routes WHERE next_attempt_at IS NOT NULL HAVING count(*) = 0")


@pytest.mark.req("S1-113", "S1-103")
async def test_only_open_routes_can_be_due(running: Galaxy) -> None:
    entry_id = await running.publish(intent())
    for row in (await running.routes(entry_id, status="published")).values():
        assert row["next_attempt_at"] is None
        assert row["published_at"] is not None
        assert (row["dead_lettered_at"], row["skipped_at"]) == (None, None)
    for word in ("published", "dead_letter", "skipped", "nonsense"):
        with pytest.raises(Exception, match="violates check constraint"):
            await running.execute(
                "UPDATE routes SET status = $2, next_attempt_at = now() WHERE notification_id = $1", entry_id, word
            )


@pytest.mark.req("S1-111")
async def test_a_deleted_record_takes_its_routes_and_dead_letters_along(running: Galaxy) -> None:
    entry_id = await running.publish(intent())
    await running.routes(entry_id, status="published")
    await running.execute(
        "INSERT INTO dead_letters SELECT notification_id, route_id, channel, recipient_ref, 1, 1, 'x', 'x', 'x', now() "
        "FROM routes WHERE notification_id = $1",
        entry_id,
    )
    await running.execute("DELETE FROM records WHERE notification_id = $1", entry_id)
    for table in ("routes", "dead_letters"):
        assert not await running.rows(f"SELECT 1 FROM {table} WHERE notification_id = $1", entry_id)  # noqa: S608 - two names


@pytest.mark.req("S1-115")
async def test_the_schema_is_the_dsns_and_made_if_the_role_may(galaxy: Galaxy) -> None:
    galaxy.dsn = galaxy.dsn.replace("search_path=notification", "search_path=elsewhere")
    galaxy.start()
    found = await galaxy.rows("SELECT table_schema FROM information_schema.tables WHERE table_name = 'routes'")
    assert [row["table_schema"] for row in found] == ["elsewhere"]
    entry_id = await galaxy.publish(intent())
    await galaxy.row_once("SELECT 1 FROM elsewhere.records WHERE notification_id = $1", entry_id)


@pytest.mark.req("S1-115", "S1-116", "S1-14")
async def test_a_role_that_may_not_create_ends_the_start(galaxy: Galaxy, postgres: Postgres) -> None:
    database = galaxy.dsn.rpartition("/")[2].partition("?")[0]
    postgres.execute(f"CREATE ROLE reader_{database} LOGIN", database=database)
    try:
        role = galaxy.dsn.replace("postgres@", f"reader_{database}@")
        code, said = exit_of(galaxy.launch(NOTIFICATION_POSTGRES_PRIMARY_DSN=role))
        assert code not in {0, None}
        assert "may not apply the missing migrations" in said
        assert "http started" not in said
    finally:
        postgres.execute(f"DROP OWNED BY reader_{database}", database=database)
        postgres.execute(f"DROP ROLE reader_{database}", database=database)


@pytest.mark.req("S1-115")
async def test_a_schema_that_is_there_needs_no_right_to_create_one(galaxy: Galaxy, postgres: Postgres) -> None:
    database = galaxy.dsn.rpartition("/")[2].partition("?")[0]
    role = f"owner_{database}"
    postgres.execute(f"CREATE ROLE {role} LOGIN", database=database)
    try:
        postgres.execute(f"CREATE SCHEMA notification AUTHORIZATION {role}", database=database)
        galaxy.start(NOTIFICATION_POSTGRES_PRIMARY_DSN=galaxy.dsn.replace("postgres@", f"{role}@"))
        entry_id = await galaxy.publish(intent())
        await galaxy.routes(entry_id, status="published")
    finally:
        for program in galaxy.programs:
            program.close()
        postgres.execute(f"DROP OWNED BY {role} CASCADE", database=database)
        postgres.execute(f"DROP ROLE {role}", database=database)


@pytest.mark.req("S1-116")
async def test_no_database_ends_the_start_when_its_time_is_over(galaxy: Galaxy) -> None:
    nowhere = re.sub(r":\d+/", ":1/", galaxy.dsn)
    code, said = exit_of(galaxy.launch(NOTIFICATION_POSTGRES_PRIMARY_DSN=nowhere, CARILLON_WORK__START_SECONDS="1"))
    assert code not in {0, None}
    assert "http started" not in said


NEEDED = {"attempts", "attempts_told", "claim_tokens", "collapses", "outbox", "schema_migrations", "schema_parts"} | {
    *("due", "erasures", "leases", "routes_held", "seal_keys", "slots", "suppressions", "targets")
}
"""What the engine needs beside the frozen tables."""


async def relations(stand: Galaxy) -> set[str]:
    rows = await stand.rows(
        "SELECT relname FROM pg_class WHERE relnamespace = 'notification'::regnamespace AND relkind IN ('r', 'v', 'S')"
    )
    return {row["relname"] for row in rows if not row["relname"].endswith("_seq")}


@pytest.mark.req("X1-1")
async def test_the_schema_holds_what_galaxy_needs_and_nothing_else(running: Galaxy) -> None:
    assert await relations(running) == {*FROZEN, *NEEDED}


@pytest.mark.req("X1-2")
async def test_a_ledger_with_every_table_loses_the_empty_ones_by_a_command_alone(galaxy: Galaxy) -> None:
    ledger = await PostgresLedger.open(galaxy.dsn, allow_unsafe=True)
    try:
        await ledger.migrate()
    finally:
        await ledger.aclose()
    everything = await relations(galaxy)
    assert {"payments", "subscriptions", "preferences", "stream_entries", "audit_logs"} <= everything
    await galaxy.execute("INSERT INTO job_effects (effect_key, holder, held_until) VALUES ('k', 'h', now())")
    program = galaxy.start()
    await galaxy.publish()
    await galaxy.published(GATEWAY, 2)
    assert await relations(galaxy) == everything
    refused = await tidied(galaxy)
    assert (refused.returncode, "the ledger is in use" in refused.stderr) == (1, True)
    program.terminate()
    assert program.wait() == 0
    looked = await tidied(galaxy, "--dry-run")
    assert "billing: would go: " in looked.stdout
    assert "queues: stays: job_effects (1 rows), job_logs" in looked.stdout
    assert await relations(galaxy) == everything
    done = await tidied(galaxy)
    assert (done.returncode, "billing: removed: " in done.stdout) == (0, True), done.stderr
    assert await relations(galaxy) == {*FROZEN, *NEEDED, "job_effects", "job_logs"}
    galaxy.start()
    await galaxy.publish(idempotency_key="after")
    await galaxy.published(GATEWAY, 4)


async def tidied(stand: Galaxy, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return await asyncio.to_thread(
        run_carillon,
        ["ledger", "tidy", "--blueprint", "galaxy", *arguments],
        env={"PATH": "/usr/bin:/bin", "COLUMNS": "200", **stand.environment()},
        cwd=stand.folder,
    )
