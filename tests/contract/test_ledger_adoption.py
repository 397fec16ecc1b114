"""Databases that had tables before Carillon came: rows stay, what is missing is added, nothing is left half-created."""

import asyncpg
import pytest

from carillon.domain.admin import AuditRow
from carillon.domain.errors import ConfigurationError
from carillon.ledger.migrate import PARTS
from carillon.ledger.postgres.ledger import PostgresLedger
from tests.support.ledger_engines import Engine, bare_engine_fixture

engine = bare_engine_fixture()

# As the documents describe them, in the words of each dialect; the first column is the author's own.
TABLES = {
    "audit_logs": {
        "postgres": "CREATE TABLE audit_logs (id serial PRIMARY KEY, trace_id varchar(64) NOT NULL, user_id text,"
        " notification_type varchar(20), template_id varchar(100), status varchar(20), metadata jsonb,"
        " created_at timestamptz DEFAULT now());"
        "INSERT INTO audit_logs (trace_id, user_id, status) VALUES ('kept', 'ada', 'sent')",
        "sqlite": "CREATE TABLE audit_logs (id INTEGER PRIMARY KEY, trace_id VARCHAR(64), user_id TEXT,"
        " notification_type TEXT, template_id TEXT, status TEXT, metadata JSON, created_at INTEGER);"
        "INSERT INTO audit_logs (trace_id, user_id, status, created_at) VALUES ('kept', 'ada', 'sent', 1)",
    },
    "job_logs": {
        "postgres": "CREATE TABLE job_logs (id bigserial PRIMARY KEY, queue varchar(100), message_id varchar(64),"
        " correlation_id text, idempotency_key text, status text, attempts integer, last_error text,"
        " next_retry_at timestamptz, action text, created_at timestamptz, updated_at timestamptz);"
        "INSERT INTO job_logs (queue, message_id, status) VALUES ('q:pay:x', 'kept', 'success')",
        "sqlite": "CREATE TABLE job_logs (id INTEGER PRIMARY KEY, queue TEXT, message_id TEXT, status TEXT,"
        " updated_at INTEGER);"
        "INSERT INTO job_logs (queue, message_id, status) VALUES ('q:pay:x', 'kept', 'success')",
    },
    "payment_webhook_requests": {
        "postgres": "CREATE TABLE payment_webhook_requests (id serial PRIMARY KEY, event_id varchar(255) UNIQUE,"
        " payload jsonb, processed boolean, processed_at timestamptz, error_message text, retry_count integer);"
        "INSERT INTO payment_webhook_requests (event_id, payload) VALUES ('kept', '{}')",
        "sqlite": "CREATE TABLE payment_webhook_requests (id INTEGER PRIMARY KEY, event_id TEXT UNIQUE, payload TEXT);"
        "INSERT INTO payment_webhook_requests (event_id, payload) VALUES ('kept', '{}')",
    },
}
KEPT = {"audit_logs": "trace_id", "job_logs": "message_id", "payment_webhook_requests": "event_id"}
MISFITS = {
    "a type that does not fit": (
        {
            "postgres": "CREATE TABLE audit_logs (trace_id uuid, created_at timestamptz)",
            "sqlite": "CREATE TABLE audit_logs (trace_id BLOB, created_at INTEGER)",
        },
        r"table audit_logs is there, and its column trace_id does not fit: it is (uuid|blob), and must be text or ",
    ),
    "a column that nobody fills": (
        dict.fromkeys(("postgres", "sqlite"), "CREATE TABLE audit_logs (trace_id text, campaign text NOT NULL)"),
        r"table audit_logs is there, and its column campaign does not fit: it is NOT NULL without a default",
    ),
    "somebody else's table": (
        dict.fromkeys(("postgres", "sqlite"), "CREATE TABLE templates (id integer)"),
        r"already has a table templates that is not Carillon's",
    ),
    "the same message twice": (
        dict.fromkeys(
            ("postgres", "sqlite"),
            "CREATE TABLE job_logs (queue text, message_id text); INSERT INTO job_logs VALUES ('q', 'm'), ('q', 'm')",
        ),
        r"table job_logs is there and cannot be adopted: several of its rows have the same queue, message_id \(q, m\)",
    ),
    "the same event twice": (
        dict.fromkeys(
            ("postgres", "sqlite"),
            "CREATE TABLE payment_webhook_requests (event_id text);"
            "INSERT INTO payment_webhook_requests VALUES ('e-1'), ('e-2'), ('e-2'), (NULL), (NULL)",
        ),
        r"payment_webhook_requests is there and cannot be adopted: several of its rows have the same event_id \(e-2\)",
    ),
}


async def run(engine: Engine, statements: str) -> None:
    for statement in statements.split(";"):
        await engine.execute(statement)


async def catalogue(engine: Engine) -> list[object]:
    """Everything in the database that has a name."""
    asked = {
        "postgres": "SELECT nspname || '.' || relname AS name FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace"
        " WHERE nspname !~ '^(pg_|information)' UNION ALL SELECT nspname FROM pg_namespace ORDER BY 1",
        "sqlite": "SELECT name || coalesce(sql, '') AS name FROM sqlite_master ORDER BY 1",
    }
    return [row["name"] for row in await engine.execute(asked[engine.dialect])]


@pytest.mark.req("X0-4")
@pytest.mark.parametrize("table", TABLES)
async def test_a_documents_table_is_adopted_with_its_rows(engine: Engine, table: str) -> None:
    await run(engine, TABLES[table][engine.dialect])
    async with engine.ledger() as ledger:
        assert await ledger.migrate() == []
        (row,) = await engine.execute(f"SELECT * FROM {table}")  # noqa: S608 - a name from above
        assert (row["id"], row[KEPT[table]]) == (1, "kept")
        if table == "audit_logs":
            written = AuditRow(
                audit_key="k",
                trace_id="t" * 200,
                user_id="u",
                notification_type="push",
                template_id="w",
                status="sent",
                metadata_json="{}",
            )
            await ledger.write_audit([written])
            await ledger.write_audit([written])
            found = await engine.execute("SELECT * FROM audit_logs ORDER BY id")
            assert [row["trace_id"] for row in found] == ["kept", "t" * 200]


@pytest.mark.req("X0-4")
async def test_two_replicas_adopt_one_table_once(engine: Engine) -> None:
    await run(engine, TABLES["audit_logs"][engine.dialect])
    async with engine.ledger(), engine.ledger():
        assert len(await engine.execute("SELECT * FROM audit_logs")) == 1


@pytest.mark.req("X0-4", "X0-5", "X0-6")
@pytest.mark.parametrize("case", MISFITS)
async def test_what_does_not_fit_is_said_in_one_line_and_leaves_the_database_as_it_was(
    engine: Engine, case: str
) -> None:
    statements, said = MISFITS[case]
    await run(engine, statements[engine.dialect])
    before = await catalogue(engine)
    ledger = await engine.open()
    try:
        # The doctor's question finds the same, and changes nothing.
        with pytest.raises(ConfigurationError, match=said):
            await ledger.foreseen()
        with pytest.raises(ConfigurationError, match=said) as raised:
            await ledger.migrate()
        assert "\n" not in str(raised.value)
    finally:
        await ledger.aclose()
    assert await catalogue(engine) == before


@pytest.mark.req("X0-5")
async def test_a_migration_that_fails_half_way_leaves_the_database_as_it_was(engine: Engine) -> None:
    before = await catalogue(engine)
    ledger = await engine.open(statements=engine.statements({"parts_note": ("schema_parts", "nowhere")}))
    try:
        with pytest.raises(Exception, match="nowhere"):
            await ledger.migrate()
    finally:
        await ledger.aclose()
    assert await catalogue(engine) == before


OLD_NOTIFICATIONS = """
CREATE SCHEMA notifications;
CREATE TABLE notifications.notifications (
    notification_id uuid PRIMARY KEY, user_id text NOT NULL, event_type text, priority text, payload jsonb,
    status text, retry_count integer, created_at timestamptz, notification_pushed_timestamp timestamptz, mine text);
INSERT INTO notifications.notifications VALUES
    ('11111111-1111-4111-8111-111111111111', 'ada', 'order', 'HIGH', '{"a": 1}', 'not_pushed', 0, now(), NULL, 'x'),
    ('22222222-2222-4222-8222-222222222222', 'bob', 'order', 'LOW', '{}', 'pushed', 1, now(), now(), 'y')
"""


@pytest.mark.req("X0-4")
async def test_the_notifications_of_document_004_are_read_and_written_as_before(postgres_dsn: str) -> None:
    connection = await asyncpg.connect(postgres_dsn)
    try:
        await connection.execute(OLD_NOTIFICATIONS)
        ledger = await PostgresLedger.open(postgres_dsn, allow_unsafe=True)
        try:
            await ledger.migrate()
        finally:
            await ledger.aclose()
        rows = await connection.fetch(
            "SELECT user_id, priority::text, status FROM notifications.notifications ORDER BY user_id"
        )
        assert [tuple(row) for row in rows] == [("ada", "HIGH", "not_pushed"), ("bob", "LOW", "pushed")]
        assert (
            await connection.fetchval("SELECT count(*) FROM notifications.notifications_before WHERE mine <> ''") == 2
        )
        assert await connection.fetchval("SELECT count(*) FROM routes WHERE next_attempt_at IS NOT NULL") == 1
    finally:
        await connection.close()


UNFIT = {
    "a type": (
        "CREATE TABLE {home}.notifications (notification_id uuid, user_id text, payload bytea)",
        r"the table notifications is there, and its column payload does not fit: it is bytea, and must be jsonb or ",
    ),
    "a number for a priority": (
        "CREATE TABLE {home}.notifications (notification_id uuid, user_id text, priority smallint)",
        r"the table notifications is there, and its column priority does not fit: it is smallint, and must be text or ",
    ),
    "nobody's": (
        "CREATE TABLE {home}.notifications (notification_id uuid, person text)",
        r"the table notifications is there, and it has no column user_id",
    ),
}


@pytest.mark.req("X0-4", "X0-5", "X0-6")
@pytest.mark.parametrize("home", ["notifications", "own"])
@pytest.mark.parametrize("case", UNFIT)
async def test_notifications_that_do_not_fit_are_named_before_the_start_and_at_the_start(
    postgres_dsn: str, case: str, home: str
) -> None:
    statement, said = UNFIT[case]
    url = postgres_dsn if home == "notifications" else f"{postgres_dsn}?search_path=own"
    connection = await asyncpg.connect(postgres_dsn)
    try:
        await connection.execute(f"CREATE SCHEMA {home}; {statement.format(home=home)}")
        before = await connection.fetch(SHAPE)
        ledger = await PostgresLedger.open(url, allow_unsafe=True)
        try:
            for question in (ledger.foreseen, ledger.migrate):
                with pytest.raises(ConfigurationError, match=said) as raised:
                    await question()
                assert "\n" not in str(raised.value)
        finally:
            await ledger.aclose()
        assert await connection.fetch(SHAPE) == before
        assert await connection.fetchval("SELECT to_regclass('records') IS NULL AND to_regclass('own.records') IS NULL")
    finally:
        await connection.close()


@pytest.mark.req("X0-4", "X0-5", "X0-6")
async def test_a_value_that_no_notification_can_have_leaves_the_database_as_it_was(postgres_dsn: str) -> None:
    connection = await asyncpg.connect(postgres_dsn)
    try:
        await connection.execute(OLD_NOTIFICATIONS.replace("'LOW'", "'URGENT'"))
        ledger = await PostgresLedger.open(postgres_dsn, allow_unsafe=True)
        try:
            # The types fit, so that the doctor says what becomes of the table.
            (plan,) = [plan for plan in await ledger.foreseen() if plan.adopts is not None]
            assert (plan.adopts, plan.renamed) == ("notifications", "notifications_before")
            with pytest.raises(ConfigurationError, match=r"the table notifications is there and cannot be .*URGENT"):
                await ledger.migrate()
        finally:
            await ledger.aclose()
        assert await connection.fetchval("SELECT count(*) FROM notifications.notifications WHERE mine <> ''") == 2
        assert await connection.fetchval("SELECT to_regclass('records')") is None
    finally:
        await connection.close()


SHAPE = """
SELECT format('%s %s %s', c.relname, a.attname, format_type(a.atttypid, a.atttypmod)) AS said
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE c.relnamespace IN ('public'::regnamespace, to_regnamespace('notifications'))
UNION ALL SELECT indexdef FROM pg_indexes WHERE schemaname = 'public'
UNION ALL SELECT proname FROM pg_proc WHERE pronamespace = 'public'::regnamespace
UNION ALL SELECT typname FROM pg_type WHERE typnamespace = 'public'::regnamespace AND typtype = 'e'
UNION ALL SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE connamespace = 'public'::regnamespace
ORDER BY 1
"""


@pytest.mark.req("X1-1")
async def test_parts_that_come_later_make_the_same_ledger(engine: Engine) -> None:
    if engine.dialect == "sqlite":
        shape = "SELECT type || ' ' || name || ' ' || coalesce(sql, '') AS said FROM sqlite_master ORDER BY 1"
    else:
        shape = SHAPE
    async with engine.ledger(parts=()):
        alone = [row["said"] for row in await engine.execute(shape)]
    for part in sorted(PARTS, reverse=True):
        async with engine.ledger(parts=(part,)):
            pass
    late = [row["said"] for row in await engine.execute(shape)]
    assert len(alone) < len(late)
    async with engine.ledger() as whole:
        assert await whole.migrate() == []
    assert late == [row["said"] for row in await engine.execute(shape)]
