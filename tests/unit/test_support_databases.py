"""A prepared database comes back empty, whatever a test left in it, and not at all once its tables were changed."""

import asyncio
from collections.abc import Iterator

import asyncpg
import pytest

from carillon.ledger.postgres.ledger import PostgresLedger
from tests.support import tables
from tests.support.databases import Databases
from tests.support.ledger_builders import enrolment, want
from tests.support.ledger_engines import WarmPostgresEngine
from tests.support.servers import Postgres
from tests.support.waiting import until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def databases(postgres: Postgres) -> Iterator[Databases]:
    """None that other tests have used."""
    kept = Databases(postgres)
    yield kept
    kept.close()


async def state(dsn: str) -> tuple[int, int, int]:
    """Rows, the next number, and connections of others."""
    connection = await asyncpg.connect(dsn)
    try:
        return (
            await connection.fetchval("SELECT (SELECT count(*) FROM records) + (SELECT count(*) FROM routes)"),
            await connection.fetchval("SELECT nextval('claim_tokens')"),
            await connection.fetchval(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
                " AND backend_type = 'client backend' AND application_name <> 'psql' AND pid <> pg_backend_pid()"
            ),
        )
    finally:
        await connection.close()


async def test_rows_numbers_and_connections_do_not_stay(databases: Databases) -> None:
    dsn, give_back = databases.take()
    ledger = await PostgresLedger.open(dsn, allow_unsafe=True)
    await ledger.enrol([enrolment() for _ in range(3)])
    await ledger.claim([want()], 3, "worker")
    rows, number, others = await state(dsn)
    assert (rows, number) == (6, 5)
    assert others > 0
    give_back()
    again, give_back = databases.take()
    assert again == dsn
    assert await state(again) == (0, 1, 0)
    give_back()
    ledger.cut_off()
    await ledger.aclose()


async def test_a_statement_under_way_changes_nothing_later(databases: Databases) -> None:
    dsn, give_back = databases.take()
    late = await asyncpg.connect(dsn)
    writing = asyncio.create_task(late.execute("INSERT INTO seal_keys SELECT pg_sleep(2)::text, now()"))
    watcher = await asyncpg.connect(dsn)
    while not await watcher.fetchval("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"):  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    await watcher.close()
    await asyncio.to_thread(give_back)
    with pytest.raises((asyncpg.AdminShutdownError, asyncpg.ConnectionDoesNotExistError)):
        await writing
    again, give_back = databases.take()
    assert again == dsn
    assert (await state(again))[2] == 0
    give_back()


async def test_a_large_table_gives_its_pages_back(databases: Databases) -> None:
    dsn, give_back = databases.take()
    connection = await asyncpg.connect(dsn)
    await connection.execute("INSERT INTO replicas SELECT number::text, now() FROM generate_series(1, 20000) AS number")
    await connection.close()
    give_back()
    again, give_back = databases.take()
    assert again == dsn
    connection = await asyncpg.connect(again)
    assert await connection.fetchval("SELECT pg_relation_size('replicas')") == 0
    await connection.close()
    give_back()


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE records DROP CONSTRAINT records_key",
        "ALTER TABLE routes ALTER COLUMN status DROP NOT NULL",
        "ALTER TABLE routes ALTER COLUMN status SET DEFAULT 'lost'",
        "CREATE INDEX another ON routes (status)",
        "CREATE SCHEMA another",
        "CREATE TABLE another (name text)",
        "ALTER FUNCTION notification_payload(text) VOLATILE",
        "DROP TABLE queue_outbox",
        "GRANT SELECT ON routes TO pg_monitor",
        "INSERT INTO schema_migrations (version) VALUES (9999)",
        "UPDATE schema_migrations SET version = version WHERE version = 1",
    ],
)
async def test_a_database_with_other_tables_is_not_used_again(databases: Databases, change: str) -> None:
    dsn, give_back = databases.take()
    connection = await asyncpg.connect(dsn)
    await connection.execute(change)
    await connection.close()
    give_back()
    other, give_back = databases.take()
    assert other != dsn
    give_back()


async def test_connections_that_wait_stay_while_a_database_is_emptied(databases: Databases) -> None:
    dsn, give_back = databases.take()
    waits, works = await asyncpg.connect(dsn), await asyncpg.connect(dsn)
    # A transaction that is open may still write.
    await works.execute("BEGIN")
    ledger = await PostgresLedger.open(dsn, allow_unsafe=True)
    await ledger.enrol([enrolment()])
    await ledger.aclose()
    assert databases.emptied(dsn)
    assert await waits.fetchval("SELECT count(*) FROM records") == 0
    assert await waits.fetchval("SELECT nextval('claim_tokens')") == 1
    with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError)):
        await works.execute("COMMIT")
    await waits.execute("ALTER TABLE records ADD COLUMN another integer")
    assert not databases.emptied(dsn)
    await asyncio.gather(waits.close(), works.close())
    give_back()


async def test_ledgers_one_after_the_other_have_the_same_connections(databases: Databases) -> None:
    dsn, give_back = databases.take()
    engine = WarmPostgresEngine(dsn)
    async with engine.ledger() as ledger:
        await ledger.enrol([enrolment()])
        first = await pids(dsn)
    async with engine.ledger() as ledger, engine.ledger() as other:
        await asyncio.gather(ledger.enrol([enrolment()]), other.enrol([enrolment()]))
        assert first < await pids(dsn)
    # What a ledger leaves unfinished is not handed on.
    async with engine.ledger() as ledger:
        assert isinstance(ledger, PostgresLedger)
        pools = ledger._pools  # noqa: SLF001 - to leave something unfinished
        await pools.intake._pool.acquire()  # noqa: SLF001 - as above
        pools.intake._pool.terminate()  # noqa: SLF001 - as above
    async with engine.ledger() as ledger:
        await ledger.enrol([enrolment()])
    assert len(await engine.rows("records")) == 4
    await engine.aclose()

    async def gone() -> bool:
        return await pids(dsn) == set()

    await until(gone, timeout=40, what="the end of every connection")
    give_back()


async def pids(dsn: str) -> set[int]:
    connection = await asyncpg.connect(dsn)
    try:
        rows = await connection.fetch(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
            " AND application_name LIKE 'carillon-%' AND pid <> pg_backend_pid()"
        )
    finally:
        await connection.close()
    return {row["pid"] for row in rows}


async def test_tables_are_read_through_one_connection_until_it_is_gone(databases: Databases) -> None:
    dsn, give_back = databases.take()
    asked = "SELECT pg_backend_pid() AS n"
    first = await tables.number(dsn, asked)
    assert await tables.number(dsn, asked) == first
    both = {await each for each in [asyncio.create_task(tables.number(dsn, asked)) for _ in range(2)]}
    assert first in both
    assert len(both) == 2
    await tables.write(dsn, f"SELECT pg_terminate_backend({first})")
    assert await tables.number(dsn, asked) != first
    with pytest.raises(asyncpg.UndefinedTableError):
        await tables.read(dsn, "SELECT * FROM nothing_of_that_name")
    assert await tables.number(dsn, asked) != first
    give_back()
