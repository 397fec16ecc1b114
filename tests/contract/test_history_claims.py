"""Why claims are not in ClickHouse: the sse blueprint's claim, run on the real engine and on PostgreSQL."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import clickhouse_connect
import pytest
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import DatabaseError

TABLE = """
CREATE TABLE notifications (
    notification_id UInt32, event_id String, status LowCardinality(String), processing_by String, priority UInt8,
    received UInt32, retry_count UInt8 DEFAULT 0
)
ENGINE = MergeTree ORDER BY notification_id
SETTINGS enable_block_number_column = 1, enable_block_offset_column = 1
"""
FILL = """
INSERT INTO notifications (notification_id, event_id, status, processing_by, priority, received)
SELECT number, toString(number), 'not_pushed', '', number % 3 + 1, number FROM numbers(1000)
"""
CANDIDATES = """
notification_id IN (
    SELECT notification_id FROM notifications WHERE status = 'not_pushed' AND retry_count < 3
    ORDER BY priority, received LIMIT 100)
"""
OWNED = "SELECT count() FROM notifications WHERE processing_by = {who:String}"


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    client = clickhouse_connect.get_client(interface="chdb", path=str(tmp_path / "ch"))
    try:
        client.command(TABLE)
        client.command(FILL)
        yield client
    finally:
        client.command("SYSTEM START MERGES notifications")
        client.close()


def owned(client: Client, who: str) -> int:
    return int(str(client.command(OWNED, parameters={"who": who})))


def claim_by_mutation(client: Client, who: str) -> None:
    change = f"ALTER TABLE notifications UPDATE status = 'processing', processing_by = '{who}' WHERE {CANDIDATES}"
    client.command(change, settings={"mutations_sync": 0})


@pytest.mark.req("S4-12", "S4-15")
@pytest.mark.parametrize(
    "statement",
    [
        f"UPDATE notifications SET status = 'processing' WHERE {CANDIDATES} RETURNING notification_id",  # noqa: S608 - our own words
        "SELECT notification_id FROM notifications WHERE status = 'not_pushed' LIMIT 100 FOR UPDATE SKIP LOCKED",
    ],
    ids=["returning", "skip_locked"],
)
def test_the_documents_claim_is_no_clickhouse(client: Client, statement: str) -> None:
    with pytest.raises(DatabaseError, match="Syntax error"):
        client.command(statement)


@pytest.mark.req("S4-12")
def test_a_claim_that_was_confirmed_is_taken_by_another(client: Client) -> None:
    # A background pool that is busy, made to stand still so that this test sees it every time.
    client.command("SYSTEM STOP MERGES notifications")
    claim_by_mutation(client, "A")
    assert owned(client, "A") == 0, "confirmed, and nobody holds anything"
    claim_by_mutation(client, "B")
    client.command("SYSTEM START MERGES notifications")
    # One that waits for its turn comes after the two before it.
    client.command("ALTER TABLE notifications UPDATE retry_count = retry_count WHERE 1", settings={"mutations_sync": 1})
    assert (owned(client, "A"), owned(client, "B")) == (0, 100)


@pytest.mark.req("S4-12", "S4-06")
def test_the_same_event_twice_is_two_rows(client: Client) -> None:
    client.command(FILL)
    assert int(str(client.command("SELECT count() FROM notifications WHERE event_id = '7'"))) == 2


@pytest.mark.req("S4-15")
async def test_postgresql_keeps_two_claims_apart(postgres_dsn: str) -> None:
    def claim(who: str) -> str:
        return f"""
            UPDATE notifications SET status = 'processing', processing_by = '{who}'
            WHERE notification_id = ANY (ARRAY(
                SELECT notification_id FROM notifications WHERE status = 'not_pushed' AND retry_count < 3
                ORDER BY priority, received LIMIT 100 FOR UPDATE SKIP LOCKED))
            RETURNING notification_id
        """  # noqa: S608 - our own words

    one, other = await asyncpg.connect(postgres_dsn), await asyncpg.connect(postgres_dsn)
    try:
        await one.execute(
            "CREATE TABLE notifications (notification_id int PRIMARY KEY, event_id text UNIQUE, status text,"
            " processing_by text, priority smallint, received int, retry_count int DEFAULT 0)"
        )
        await one.execute(
            "INSERT INTO notifications"
            " SELECT n, n::text, 'not_pushed', '', n % 3 + 1, n FROM generate_series(1, 1000) AS n"
        )
        # The first has not committed yet when the second asks.
        under_way = one.transaction()
        await under_way.start()
        mine = _ids(await one.fetch(claim("A")))
        yours = _ids(await other.fetch(claim("B")))
        await under_way.commit()
        assert len(mine) == len(yours) == 100
        assert not mine & yours
        with pytest.raises(asyncpg.UniqueViolationError):
            await one.execute("INSERT INTO notifications (notification_id, event_id) VALUES (5000, '7')")
    finally:
        await one.close()
        await other.close()


def _ids(rows: list[Any]) -> set[int]:
    return {row["notification_id"] for row in rows}
