"""The sse blueprint's statements, run by hand against its table."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, TypeAlias

import asyncpg
import pytest

from carillon.domain.claims import Settled
from carillon.ledger.opening import Ledger
from tests.support.ledger_builders import finish, retry
from tests.support.ledger_engines import PostgresEngine, ledger_fixture
from tests.support.ledger_postgres import connected
from tests.support.stream_builders import claimed, told
from tests.support.waiting import until

ledger = ledger_fixture("function")
Sql: TypeAlias = "asyncpg.Connection[Any]"

# As the document has it, but for the lock that ClickHouse does not know and the spelling of an interval.
CLAIM = """
UPDATE notifications.notifications
SET status = 'processing', processing_by = $1, processing_started_at = now(),
    processing_lease_expires_at = now() + INTERVAL '30 SECOND', updated_at = now()
WHERE notification_id IN (
    SELECT notification_id FROM notifications.notifications
    WHERE (status = 'not_pushed' OR (status = 'processing' AND processing_lease_expires_at < now()))
      AND retry_count < 3
    ORDER BY priority ASC, notification_received_timestamp ASC
    LIMIT 100)
RETURNING notification_id, user_id, event_type, priority, payload
"""
SETTLE = """
UPDATE notifications.notifications
SET status = $3, notification_pushed_timestamp =
        CASE WHEN $3 = 'pushed' THEN now() ELSE notification_pushed_timestamp END,
    retry_count = CASE WHEN $3 = 'failed' THEN retry_count + 1 ELSE retry_count END, updated_at = now()
WHERE notification_id = $1 AND processing_by = $2 AND status = 'processing'
"""
RESET = """
UPDATE notifications.notifications
SET status = 'not_pushed', processing_by = NULL, processing_started_at = NULL, processing_lease_expires_at = NULL,
    retry_count = retry_count + 1, updated_at = now()
WHERE status = 'processing' AND processing_lease_expires_at < now() AND retry_count < 3
"""
ADD = "INSERT INTO notifications.notifications (notification_id, user_id, event_type, priority, payload) VALUES "
TWICE = "('00000000-0000-0000-0000-0000000000ff', 'a', 'x', 'LOW', '{}')"


@pytest.fixture
def engine(ledger_dsn: str) -> PostgresEngine:
    return PostgresEngine(ledger_dsn)


@pytest.fixture
async def sql(engine: PostgresEngine, ledger: Ledger) -> AsyncIterator[Sql]:
    assert ledger is not None, "the tables are there"
    async with connected(engine.dsn) as connection:
        yield connection


async def row(sql: Sql) -> Any:
    (found,) = await sql.fetch("SELECT * FROM notifications.notifications")
    return found


@pytest.mark.req("S4-15", "S4-31")
async def test_the_document_s_own_claim_and_settlement(sql: Sql, ledger: Ledger) -> None:
    await ledger.enrol([told("ann", priority=3), told("bob", priority=1)])
    taken = await sql.fetch(CLAIM, "go-1")
    assert {(each["user_id"], each["priority"]) for each in taken} == {("ann", "LOW"), ("bob", "HIGH")}
    assert await claimed(ledger) == [], "our pickers leave it alone"
    assert await sql.execute(SETTLE, taken[0]["notification_id"], "go-2", "pushed") == "UPDATE 0"
    assert await sql.execute(SETTLE, taken[0]["notification_id"], "go-1", "pushed") == "UPDATE 1"
    assert await sql.execute(SETTLE, taken[1]["notification_id"], "go-1", "failed") == "UPDATE 1"
    rows = await sql.fetch(
        "SELECT status, retry_count, processing_latency_ms >= 0 AS timed FROM notifications.notifications"
    )
    assert {tuple(each) for each in rows} == {("pushed", 0, True), ("failed", 1, None)}
    assert await sql.fetchval("SELECT count(*) FROM dead_letters") == 1


@pytest.mark.req("S4-31", "S4-32")
async def test_a_stolen_row_is_the_thief_s(sql: Sql, ledger: Ledger) -> None:
    ann, bob = await claimed(ledger, told("ann"), told("bob"))
    await sql.execute("UPDATE notifications.notifications SET processing_by = 'thief' WHERE user_id = 'ann'")
    assert await ledger.settle([retry(ann)]) == [Settled.STALE]
    assert await ledger.extend([ann, bob]) == [ann]
    stolen = await sql.fetchrow("SELECT * FROM notifications.notifications WHERE user_id = 'ann'")
    assert stolen is not None
    assert (stolen["status"], stolen["processing_by"], stolen["retry_count"]) == ("processing", "thief", 0)
    assert stolen["claim_token"] not in {ann.token, bob.token}


@pytest.mark.req("S4-16", "S4-37")
async def test_a_lease_ended_by_hand_is_claimable_and_resettable(sql: Sql, ledger: Ledger) -> None:
    (claim,) = await claimed(ledger, told("ann"))
    await sql.execute(
        "UPDATE notifications.notifications SET processing_lease_expires_at = now() - interval '1 second'"
    )
    assert (await row(sql))["claim_token"] == claim.token, "ending a lease takes nothing over"
    (again,) = await claimed(ledger)
    assert again.attempt == 2
    await sql.execute(
        "UPDATE notifications.notifications SET processing_lease_expires_at = now() - interval '1 second'"
    )
    assert await sql.execute(RESET) == "UPDATE 1"
    found = await row(sql)
    assert (found["status"], found["retry_count"], found["processing_by"]) == ("not_pushed", 2, None)
    assert await ledger.settle([finish(again)]) == [Settled.ADOPTED]


@pytest.mark.req("S4-16", "S4-17")
async def test_rows_written_by_hand_are_claimed_like_any_other(sql: Sql, ledger: Ledger) -> None:
    states = (
        ("low", "LOW", "not_pushed", 0, None),
        ("high", "HIGH", "not_pushed", 0, None),
        ("spent", "HIGH", "failed", 3, None),
        ("expired", "MEDIUM", "processing", 1, "-1 second"),
        ("held", "HIGH", "processing", 0, "1 hour"),
        ("pushed", "HIGH", "pushed", 0, None),
    )
    for user, priority, status, retries, lease in states:
        await sql.execute(
            "INSERT INTO notifications.notifications (user_id, event_type, priority, payload, status, retry_count,"
            " processing_by, processing_lease_expires_at) VALUES ($1, 'job.new', $2::text::notification_priority,"
            " '{\"a\": 1}', $3, $4, $5, now() + $6::text::interval)",
            *(user, priority, status, retries, "go-1" if lease else None, lease),
        )
    rows = await sql.fetch("SELECT user_id, status, retry_count FROM notifications.notifications")
    assert {each["user_id"]: (each["status"], each["retry_count"]) for each in rows} == {
        user: (status, retries) for user, _, status, retries, _ in states
    }
    assert [claim.user_id for claim in await claimed(ledger)] == ["high", "expired", "low"]


async def test_what_no_status_is_is_refused(sql: Sql, ledger: Ledger) -> None:
    await ledger.enrol([told("ann")])
    with pytest.raises(asyncpg.CheckViolationError):
        await sql.execute("UPDATE notifications.notifications SET status = 'lost'")
    with pytest.raises(asyncpg.UniqueViolationError):
        await sql.execute(", ".join([ADD + TWICE, TWICE]))


@pytest.mark.req("X4-1", "S4-15")
async def test_two_pickers_of_one_moment_never_get_the_same_row(
    engine: PostgresEngine, sql: Sql, ledger: Ledger
) -> None:
    """The document's statement looks, then takes: both look before either takes."""
    await ledger.enrol([told(f"user-{n}", priority=n % 3 + 1) for n in range(150)])
    async with connected(engine.dsn) as other:
        first, second = sql.transaction(), other.transaction()
        await first.start()
        await second.start()
        taken = {row["user_id"] for row in await sql.fetch(CLAIM, "go-1")}
        # The first has not committed: the second sees its rows as free, and does not wait for them.
        async with asyncio.timeout(20):
            meanwhile = {row["user_id"] for row in await other.fetch(CLAIM, "go-2")}
        await first.commit()
        await second.commit()
        rest = {row["user_id"] for row in await other.fetch(CLAIM, "go-2")}
    assert (len(taken), taken & meanwhile, taken & rest) == (100, set(), set())
    assert taken | meanwhile | rest == {f"user-{n}" for n in range(150)}
    held = await sql.fetch("SELECT user_id, processing_by FROM notifications.notifications WHERE status = 'processing'")
    assert {row["user_id"] for row in held if row["processing_by"] == "go-1"} == taken


@pytest.mark.req("X4-1", "S4-31")
async def test_what_another_changed_after_the_look_is_passed_over(
    engine: PostgresEngine, sql: Sql, ledger: Ledger
) -> None:
    """A settlement waits for a reset that is under way, and then finds that the row is not its own any more."""
    await ledger.enrol([told("ann"), told("bob")])
    taken = await sql.fetch(CLAIM, "go-1")
    async with connected(engine.dsn) as other:
        reset = other.transaction()
        await reset.start()
        back = (
            "UPDATE notifications.notifications SET status = 'not_pushed', processing_by = NULL WHERE user_id = 'ann'"
        )
        assert await other.execute(back) == "UPDATE 1"
        settling = asyncio.create_task(sql.execute(PUSHED, [row["notification_id"] for row in taken]))

        async def waits() -> bool:
            return bool(await other.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"))

        await until(waits, timeout=30, what="a settlement that waits")
        await reset.commit()
        assert await settling == "UPDATE 1"
    rows = await sql.fetch("SELECT user_id, status FROM notifications.notifications")
    assert {row["user_id"]: row["status"] for row in rows} == {"ann": "not_pushed", "bob": "pushed"}


PUSHED = """
UPDATE notifications.notifications SET status = 'pushed'
WHERE notification_id = ANY ($1) AND processing_by = 'go-1' AND status = 'processing'
"""


@pytest.mark.slow
@pytest.mark.req("X4-1")
async def test_a_statement_over_thousands_of_rows_writes_every_one(sql: Sql) -> None:
    many = 3000
    await sql.execute(
        "INSERT INTO notifications.notifications (user_id, event_type, priority, payload)"
        " SELECT 'user-' || n, 'x', 'LOW', '{}' FROM generate_series(1, $1::int) AS n",
        many,
    )
    counted = (
        "SELECT count(*) FROM notifications.notifications WHERE status = $1 AND last_error IS NOT DISTINCT FROM $2"
    )
    assert await sql.fetchval(counted, "not_pushed", None) == many
    failed = "UPDATE notifications.notifications SET status = 'failed', last_error = 'by ' || user_id"
    assert await sql.execute(failed) == f"UPDATE {many}"
    assert await sql.fetchval("SELECT count(*) FROM dead_letters") == many
    again = "UPDATE notifications.notifications SET status = 'not_pushed', last_error = NULL, retry_count = 0"
    assert await sql.execute(f"{again} WHERE user_id <> 'user-7'") == f"UPDATE {many - 1}"
    assert (await sql.fetchval(counted, "not_pushed", None), await sql.fetchval(counted, "failed", "by user-7")) == (
        many - 1,
        1,
    )
    assert await sql.fetchval("SELECT count(*) FROM dead_letters") == 1
