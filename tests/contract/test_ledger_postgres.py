"""What only PostgreSQL can do to us: plans, schemas, unsafe servers."""

import itertools
from datetime import UTC, datetime
from functools import partial
from typing import Any

import asyncpg
import pytest

from carillon.domain.claims import Claim
from carillon.domain.errors import ConfigurationError, LedgerUnavailable
from carillon.ledger.opening import open_ledger
from carillon.ledger.postgres import pools
from carillon.ledger.postgres.backlog import claim_text
from carillon.ledger.postgres.ledger import PostgresLedger
from carillon.ledger.postgres.pools import Address, Connection
from carillon.ledger.rows import RECOVERY_HINT, finished_columns, record_values, route_rows, settlement_values
from carillon.ledger.sealing import Codec
from carillon.ledger.statements import load, without
from tests.support.ledger_builders import LANE, PROVIDER, enrolment, finish, want
from tests.support.ledger_engines import PostgresEngine
from tests.support.ledger_postgres import claim_values, connected, floor_values, plan_of, until

# A backlog of every kind: due, waiting, leased, and history that must not be looked at.
BACKLOG = """
INSERT INTO records (notification_id, notification_type, producer, audience_kind, payload_json, request_fingerprint,
                     accepted_at, updated_at, origin, priority, is_bulk)
SELECT 'b-' || n, 't', 'p', 'user', '{}', 'f', now(), now(), 'system', 2, FALSE FROM generate_series(1, 50000) AS n;
INSERT INTO routes (notification_id, route_id, channel, recipient_ref, status, max_attempts, next_attempt_at,
                    created_at, updated_at, lane, provider, policy, budget_since, claim_token, address, ticket)
SELECT 'b-' || n, 'email:user:x', 'email', 'user:x', CASE WHEN n % 5 = 0 THEN 'published' ELSE 'pending' END, 3,
       CASE n % 5 WHEN 0 THEN NULL WHEN 1 THEN now() - n * interval '1 ms' ELSE now() + n * interval '1 minute' END,
       now(), now(), 2, 'mailer', '*/*', now(), CASE WHEN n % 5 = 2 THEN n END, 'x@example.com',
       CASE WHEN n % 5 = 1 THEN n + 1000000 END
FROM generate_series(1, 50000) AS n;
INSERT INTO due SELECT lane, provider, grp, next_attempt_at, ticket FROM routes WHERE ticket IS NOT NULL;
"""


@pytest.fixture
def engine(postgres_dsn: str) -> PostgresEngine:
    return PostgresEngine(postgres_dsn)


BY_INDEX = {f"enable_{kind}": "off" for kind in ("seqscan", "bitmapscan", "hashjoin", "mergejoin")} | {"jit": "off"}


def looks_only_at_what_it_takes(plan: str) -> None:
    picked, _, changed = plan.partition("CTE picked")[2].partition("CTE Scan on picked")
    assert "Index Scan using due_turns_idx on due" in picked
    assert "due_at <=" in picked.partition("CTE first")[2].partition("Index Cond")[2].partition("\n")[0]
    assert "Tid Scan on due" in changed
    assert "Index Scan using routes_due_idx on routes" in changed
    assert "Index Scan using records_pkey on records" in changed
    assert "Seq Scan" not in plan
    assert "Hash Join" not in plan
    ripe = plan.partition("CTE ripe")[2].partition("CTE moved")[0]
    assert "Index Scan using routes_due_idx on routes" in ripe
    assert "Sort" not in ripe
    # It stopped at its limit instead of looking at ten thousand due rows.
    assert "rows=100 loops" in picked


async def test_hot_statements_go_by_index_at_any_size(engine: PostgresEngine) -> None:
    async with engine.ledger():
        pass
    sql = engine.statements()
    claim = claim_values([1, LANE], PROVIDER, 200, 100)
    floor = floor_values(LANE, PROVIDER, 0, datetime(2020, 1, 1, tzinfo=UTC), 1)
    held = (["b-1"], ["email:user:x"], [1], [1], 30.0)
    await engine_filled(engine)
    async with connected(engine.dsn, **BY_INDEX) as connection:
        for preparation in ("SELECT", "ANALYZE"):
            await connection.execute(preparation)
            for mode in ("auto", "force_generic_plan", "force_custom_plan"):
                await connection.execute("SELECT set_config('plan_cache_mode', $1, FALSE)", mode)
                for capped, behind in itertools.product((False, True), ((), floor)):
                    text = claim_text(sql["claim"], capped=capped, floors=bool(behind))
                    looks_only_at_what_it_takes(await plan_of(connection, text, *claim, *behind))
                plan = await plan_of(connection, sql["extend"], *held)
                assert "Index Scan using routes_pkey" in plan
                assert "Seq Scan" not in plan


async def test_batches_go_by_index_too(engine: PostgresEngine) -> None:
    async with engine.ledger() as ledger:
        await engine_filled(engine)
        claims = await ledger.claim([want(5)], 5, "w")
    sql = engine.statements()
    given = [enrolment() for _ in range(5)]
    settled = columns([settlement_values(finish(claim), Codec()) for claim in claims])
    records = columns([(*record_values(each.notification, Codec()), place) for place, each in enumerate(given)])
    routes = columns([(*row, place) for place, each in enumerate(given) for row in route_rows(each, Codec())])
    async with connected(engine.dsn, plan_cache_mode="force_generic_plan", **BY_INDEX) as connection:
        plan = await plan_of(connection, sql["settle"], RECOVERY_HINT, *settled, 0, [7], [8], [9])
        assert "Index Scan using routes_pkey on routes r" in plan
        # A late success looks whether somebody else holds the route; there are few leases.
        assert "Seq Scan" not in plan.replace("Seq Scan on leases", "")
        text = without(without(sql["enrol"], "caps"), "first claims")
        plain = await plan_of(connection, text, *records, *routes, None, 30.0)
        text = without(sql["enrol"], "no first claims")
        capped = await plan_of(connection, text, *records, *routes, "w", 30.0, [-7], [8])
        for plan in (plain, capped):
            assert "Index Scan using suppressions_pkey" in plan
            assert "hashed SubPlan" in plan
            assert "Seq Scan" not in plan
        assert "routes_places_idx" in capped
        assert "leases_places_idx" in capped
        assert "slots" not in plain


async def test_the_short_way_of_settling_goes_by_place(engine: PostgresEngine) -> None:
    async with engine.ledger() as ledger:
        await engine_filled(engine)
        claims = await ledger.claim([want(5)], 5, "w")
    async with connected(engine.dsn, plan_cache_mode="force_generic_plan", **BY_INDEX) as connection:
        given = finished_columns([finish(claim) for claim in claims])
        plan = await plan_of(connection, engine.statements()["settle_finished"], *given, True, [7], [8], [9])  # noqa: FBT003 - as it is called
        assert "Tid Scan on routes r" in plan
        assert "Seq Scan" not in plan


async def engine_filled(engine: PostgresEngine) -> None:
    async with connected(engine.dsn) as connection:
        await connection.execute(BACKLOG)


def columns(rows: list[tuple[Any, ...]]) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)]


async def test_the_ledgers_own_connections_are_offered_no_other_plan(engine: PostgresEngine) -> None:
    async with engine.ledger() as ledger:
        assert isinstance(ledger, PostgresLedger)
        for pool in (ledger._pools.claims, ledger._pools.settlements, ledger._pools.intake):  # noqa: SLF001
            for name, value in (BY_INDEX | {"idle_in_transaction_session_timeout": "10s"}).items():
                assert await pool.run(partial(shown, name), repeatable=True) == value


async def custom_plans(connection: Connection) -> int:
    """How often this connection has planned its busiest statement anew."""
    return int(
        await connection.fetchval(
            "SELECT custom_plans FROM pg_prepared_statements ORDER BY generic_plans + custom_plans DESC LIMIT 1"
        )
    )


async def planned(engine: PostgresEngine, statements: dict[str, str] | None = None) -> list[int]:
    async with engine.ledger(statements=statements) as ledger:
        assert isinstance(ledger, PostgresLedger)
        own = ledger._pools  # noqa: SLF001
        for _ in range(40):
            await ledger.enrol([enrolment()])
            await ledger.claim([want()], 1, "w")
        return [await pool.run(custom_plans, repeatable=True) for pool in (own.intake, own.claims)]


async def test_hot_statements_are_never_planned_anew(engine: PostgresEngine) -> None:
    assert max(await planned(engine)) == 0


async def test_one_alone_is_not_planned_anew_each_time_where_the_planner_may_choose(
    engine: PostgresEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As in a pool that searches share. PostgreSQL plans a statement anew five times before it compares.
    monkeypatch.setitem(pools._BY_INDEX, "plan_cache_mode", "auto")  # noqa: SLF001
    assert 0 < max(await planned(engine)) <= 5


async def test_control_an_acceptance_whose_number_the_planner_sees_is_planned_anew(
    engine: PostgresEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(pools._BY_INDEX, "plan_cache_mode", "auto")  # noqa: SLF001
    sql = engine.statements()
    shown = sql["enrol"].replace("(SELECT $23::int[])", "$23::int[]").replace("(SELECT $40::int[])", "$40::int[]")
    assert shown != sql["enrol"]
    assert max(await planned(engine, sql | {"enrol": shown})) > 5


async def shown(name: str, connection: Connection) -> object:
    return await connection.fetchval("SELECT current_setting($1)", name)


async def test_a_claim_never_takes_more_than_its_limit(engine: PostgresEngine) -> None:
    async with engine.ledger() as ledger:
        await ledger.enrol([enrolment() for _ in range(200)])
        for _ in range(20):
            assert len(await ledger.claim([want(7), want(7)], 9, "w")) == 9


@pytest.mark.req("S1-107", "S1-109", "S1-110", "S1-114", "G-14")
async def test_times_are_stored_with_their_zone(engine: PostgresEngine) -> None:
    async with engine.ledger():
        pass
    rows = await engine.execute(
        "SELECT table_name, column_name, data_type FROM information_schema.columns "
        "WHERE table_schema = 'public' AND column_name ~ '(_at|_for|_since)$' AND column_name <> 'provider_since'"
    )
    assert len(rows) >= 19
    assert {row["data_type"] for row in rows} == {"timestamp with time zone"}


@pytest.mark.req("S1-107", "S1-110", "S1-111", "S1-112")
async def test_keys_indexes_and_checks_are_the_documented_ones(engine: PostgresEngine) -> None:
    async with engine.ledger():
        pass
    indexes = {row["indexname"]: row["indexdef"] for row in await engine.execute("SELECT * FROM pg_indexes")}
    later = "(ticket, lane, provider, next_attempt_at) WHERE (next_attempt_at IS NOT NULL)"
    assert indexes["routes_due_idx"].endswith(later)
    assert indexes["due_turns_idx"].endswith("(lane, provider, grp, due_at, ticket)")
    assert "(producer, idempotency_key)" in indexes["records_key"]
    # Those of live streams and of caps cost nothing where there are none; that of history is paid when a route ends,
    # and that of vendors' ids when a route ends with one.
    free = ("'sse'", "grp < 0")
    paid = {
        name for name, said in indexes.items() if name.startswith("routes") and not any(each in said for each in free)
    }
    assert paid == {"routes_pkey", "routes_due_idx", "routes_ended_idx", "routes_message_idx"} | {
        *("routes_receipt_due_idx", "routes_skipped_idx")
    }
    followed = "SELECT conrelid::regclass::text AS name FROM pg_constraint WHERE contype = 'f' AND confdeltype = 'c'"
    found = {row["name"] for row in await engine.execute(followed)}
    assert found == {"routes", "dead_letters", "redriven_routes", "digest_members"}, "they go with what they belong to"


@pytest.mark.req("S1-103", "S1-113")
async def test_a_terminal_route_cannot_be_due(engine: PostgresEngine) -> None:
    async with engine.ledger() as ledger:
        await ledger.enrol([enrolment()])
        for wrong in (
            "UPDATE routes SET status = 'published'",
            "UPDATE routes SET status = 'sent'",
            "UPDATE routes SET attempt_count = -1",
        ):
            with pytest.raises(asyncpg.CheckViolationError):
                await engine.execute(wrong)


@pytest.mark.req("S1-115")
async def test_the_schema_comes_from_the_dsn(engine: PostgresEngine) -> None:
    for name in ("notification", "Odd_Name"):
        ledger = await PostgresLedger.open(f"{engine.dsn}?search_path={name}", allow_unsafe=True)
        await ledger.migrate()
        await ledger.enrol([enrolment()])
        assert (await ledger.counts())["due"] == 1
        await ledger.aclose()
    rows = await engine.execute("SELECT schemaname FROM pg_tables WHERE tablename = 'records'")
    assert {row["schemaname"] for row in rows} == {"notification", "Odd_Name"}


@pytest.mark.req("S1-115", "S1-116")
async def test_a_role_that_may_not_create_needs_the_schema_to_exist(engine: PostgresEngine) -> None:
    role = "poor_" + engine.dsn.rpartition("_")[2]
    await engine.execute(f"CREATE ROLE {role} LOGIN")
    try:
        dsn = engine.dsn.replace("postgres@", f"{role}@") + "?search_path=notification"
        ledger = await PostgresLedger.open(dsn, allow_unsafe=True)
        with pytest.raises(ConfigurationError, match="may not apply the missing migrations"):
            await ledger.migrate()
        await engine.execute(f"CREATE SCHEMA notification AUTHORIZATION {role}")
        await ledger.migrate()
        assert len(await ledger.enrol([enrolment()])) == 1
        await ledger.aclose()
    finally:
        await engine.execute(f"DROP OWNED BY {role} CASCADE")
        await engine.execute(f"DROP ROLE {role}")


@pytest.mark.parametrize("bad", ["a-b", "", "a;drop", '"x"', "public,1x"])
def test_a_search_path_is_a_name(bad: str) -> None:
    with pytest.raises(ConfigurationError):
        Address.parse(f"postgresql://h/d?search_path={bad}&sslmode=disable")


def test_only_the_search_path_is_taken_out_of_the_dsn() -> None:
    address = Address.parse("postgresql://u:p%40@h:1/d?sslmode=disable&search_path=a,b&application_name=x")
    assert address.dsn == "postgresql://u:p%40@h:1/d?sslmode=disable&application_name=x"
    assert address.search_path == ("a", "b")
    assert address.settings("x")["search_path"] == '"a","b"'


async def test_a_server_that_may_forget_is_refused(engine: PostgresEngine) -> None:
    with pytest.raises(ConfigurationError, match="fsync=off, full_page_writes=off, synchronous_commit=off"):
        await open_ledger(engine.dsn)
    ledger = await open_ledger(engine.dsn, allow_unsafe=True)
    assert (await ledger.check())["durable"] is False
    await ledger.aclose()


async def test_what_cannot_be_reached_says_so(engine: PostgresEngine) -> None:
    with pytest.raises(ConfigurationError, match="does not exist"):
        await PostgresLedger.open(engine.dsn + "_nowhere")
    with pytest.raises(LedgerUnavailable):
        await PostgresLedger.open("postgresql://postgres@127.0.0.1:1/x")


async def test_the_queue_is_vacuumed_when_enough_rows_died(engine: PostgresEngine) -> None:
    async with engine.ledger() as ledger, connected(engine.dsn) as watcher:
        assert isinstance(ledger, PostgresLedger)
        ledger._vacuum.churned(1_000_000)  # noqa: SLF001 - a million settlements would take a while
        counter = "SELECT (pg_stat_get_vacuum_count('routes'::regclass) > 0) AND pg_stat_clear_snapshot() IS NOT NULL"
        await until(watcher, counter, answer=True)


async def test_old_transactions_are_reported(engine: PostgresEngine) -> None:
    async with engine.ledger() as ledger, connected(engine.dsn) as sleeper, sleeper.transaction():
        await sleeper.execute("SELECT pg_sleep(0.02)")
        assert (await ledger.check())["oldest_transaction_seconds"] >= 0.02


async def test_claims_come_in_the_order_of_the_structs_fields(postgres_dsn: str) -> None:
    ledger = await PostgresLedger.open(postgres_dsn, allow_unsafe=True)
    await ledger.migrate()
    await ledger.aclose()
    async with connected(postgres_dsn) as connection:
        for capped, floors in itertools.product((False, True), (False, True)):
            text = claim_text(load("postgres")["claim"], capped=capped, floors=floors)
            statement = await connection.prepare(text)
            names = [column.name for column in statement.get_attributes()]
            if floors:
                assert names.pop() == "due_at"
            # The link to leave a category and whether the call is a probe are found out later: no columns.
            assert (*names, "unsubscribe_url", "probe") == Claim.__struct_fields__
