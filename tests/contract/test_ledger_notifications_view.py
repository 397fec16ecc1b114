"""The sse blueprint's table: its columns, its states and its counting, read from the ledger's own tables."""

from typing import Any

import pytest

from carillon.domain.claims import Claim, Settlement
from carillon.domain.outcomes import Throttled
from carillon.domain.verdicts import Bury, Defer, Retry
from carillon.ledger.migrate import migrations
from carillon.ledger.opening import Ledger
from carillon.ledger.postgres.ledger import PostgresLedger
from carillon.outbound.attempt import noted
from tests.support.ledger_builders import enrolment, failed_note, finish
from tests.support.ledger_engines import Engine, engine_fixture, ledger_fixture
from tests.support.ledger_postgres import connected
from tests.support.stream_builders import claimed, told

engine = engine_fixture()
ledger = ledger_fixture()

SEED = (
    *("notification_id", "user_id", "event_type", "priority", "payload", "status", "processing_by"),
    *("processing_started_at", "processing_lease_expires_at", "retry_count", "notification_received_timestamp"),
    *("notification_pushed_timestamp", "processing_latency_ms", "created_at", "updated_at"),
)
MORE = (
    *("event_timestamp", "notification_delivered_timestamp", "last_error", "is_read", "event_id", "seq", "claim_token"),
)
TABLE = {"postgres": "notifications.notifications", "sqlite": "notifications"}


async def shown(engine: Engine) -> list[dict[str, Any]]:
    return await engine.execute(f"SELECT * FROM {TABLE[engine.dialect]} ORDER BY event_id")  # noqa: S608 - a name above


async def only(engine: Engine) -> dict[str, Any]:
    (row,) = await shown(engine)
    return row


def failed(claim: Claim, *, last: bool = False) -> Settlement:
    return Settlement(claim=claim, verdict=Bury("unavailable", "gone") if last else Retry(0.0), note=failed_note())


@pytest.mark.req("S4-09")
async def test_the_columns_of_the_document(engine: Engine, ledger: Ledger) -> None:
    await ledger.enrol([told("ann")])
    columns = list(await only(engine))
    assert columns[: len(SEED) + len(MORE)] == [*SEED, *MORE]


@pytest.mark.req("S4-04", "S4-09", "S4-10")
async def test_what_was_accepted_is_not_pushed(engine: Engine, ledger: Ledger) -> None:
    given = told("ann", priority=1)
    await ledger.enrol([given])
    row = await only(engine)
    assert str(row["notification_id"]) == given.notification.notification_id
    assert (row["user_id"], row["event_type"], row["priority"]) == ("ann", "job.new", "HIGH")
    assert (row["status"], row["retry_count"], row["seq"], row["is_read"]) == ("not_pushed", 0, None, False)
    assert row["event_id"] == given.notification.idempotency_key
    assert row["event_timestamp"] == given.notification.occurred_at_ms
    empty = ("processing_by", "processing_started_at", "processing_lease_expires_at", "notification_pushed_timestamp")
    assert {row[name] for name in (*empty, "processing_latency_ms", "last_error", "claim_token")} == {None}
    assert row["created_at"] == row["notification_received_timestamp"] > 1_700_000_000_000


@pytest.mark.req("S4-18", "S4-19", "S4-22", "S4-29")
async def test_a_claim_shows_who_since_when_and_until_when(engine: Engine, ledger: Ledger) -> None:
    (claim,) = await claimed(ledger, told("ann"), owner="instance-7")
    first = await only(engine)
    assert (first["status"], first["processing_by"], first["retry_count"]) == ("processing", "instance-7", 0)
    assert first["claim_token"] == claim.token
    assert first["processing_lease_expires_at"] - first["processing_started_at"] == pytest.approx(30_000, abs=2)
    assert first["updated_at"] == first["processing_started_at"]
    assert await ledger.extend([claim]) == []
    renewed = await only(engine)
    assert renewed["processing_started_at"] == first["processing_started_at"]
    assert renewed["processing_lease_expires_at"] >= first["processing_lease_expires_at"]


@pytest.mark.req("S4-25", "S4-33", "S4-35")
async def test_a_success_shows_when_and_how_fast(engine: Engine, ledger: Ledger) -> None:
    (claim,) = await claimed(ledger, told("ann"))
    (entry,) = await ledger.append([claim])
    await ledger.settle([finish(claim)])
    row = await only(engine)
    assert (row["status"], row["retry_count"], row["seq"]) == ("pushed", 0, entry.seq)
    # Who pushed it stays; there is no lease any more.
    assert (row["processing_by"], row["processing_started_at"], row["processing_lease_expires_at"]) == (
        "picker",
        None,
        None,
    )
    took = row["notification_pushed_timestamp"] - row["notification_received_timestamp"]
    assert row["processing_latency_ms"] == pytest.approx(took, abs=2)
    assert row["updated_at"] == row["notification_pushed_timestamp"]


@pytest.mark.req("S4-11", "S4-36")
async def test_an_acknowledgement_makes_it_delivered_and_reading_it_read(engine: Engine, ledger: Ledger) -> None:
    (claim,) = await claimed(ledger, told("ann"))
    await ledger.append([claim])
    await ledger.acknowledge("ann", claim.notification_id)
    assert (await only(engine))["status"] == "processing", "it was faster than the settlement"
    await ledger.settle([finish(claim)])
    row = await only(engine)
    assert (row["status"], row["is_read"]) == ("delivered", False)
    assert row["notification_delivered_timestamp"] is not None
    await ledger.mark_read("ann", None)
    again = await only(engine)
    assert bool(again["is_read"])
    assert again["updated_at"] >= row["updated_at"]


@pytest.mark.req("S4-27", "S4-34", "S4-66")
async def test_three_failures_are_three_retries_and_the_end(engine: Engine, ledger: Ledger) -> None:
    await ledger.enrol([told("ann")])
    for number in (1, 2):
        (claim,) = await claimed(ledger)
        assert (await only(engine))["retry_count"] == number - 1
        await ledger.settle([failed(claim)])
        row = await only(engine)
        assert (row["status"], row["retry_count"], row["last_error"]) == ("not_pushed", number, "timed out")
    (claim,) = await claimed(ledger)
    await ledger.settle([failed(claim, last=True)])
    row = await only(engine)
    assert (row["status"], row["retry_count"], row["last_error"]) == ("failed", 3, "gone")
    assert (row["notification_pushed_timestamp"], row["processing_latency_ms"]) == (None, None)
    assert await claimed(ledger) == []


@pytest.mark.req("S4-33")
async def test_a_success_after_failures_keeps_their_number(engine: Engine, ledger: Ledger) -> None:
    (claim,) = await claimed(ledger, told("ann"))
    await ledger.settle([failed(claim)])
    (again,) = await claimed(ledger)
    await ledger.settle([finish(again)])
    row = await only(engine)
    assert (row["status"], row["retry_count"]) == ("pushed", 1)


@pytest.mark.req("S4-28")
async def test_waiting_for_somebody_costs_no_retry(engine: Engine, ledger: Ledger) -> None:
    (claim,) = await claimed(ledger, told("ann"))
    note = noted("sse", Throttled("ann is not connected"), 0.0)
    await ledger.settle([Settlement(claim=claim, verdict=Defer(3600.0), note=note)])
    row = await only(engine)
    assert (row["status"], row["retry_count"], row["last_error"]) == ("not_pushed", 0, "ann is not connected")


@pytest.mark.req("S4-20", "S4-37", "S4-38", "S4-41")
async def test_expiries_count_whether_reset_or_claimed_again(engine: Engine, ledger: Ledger) -> None:
    await claimed(ledger, told("ann"))
    await engine.expire_leases()
    assert (await only(engine))["status"] == "processing"
    await ledger.reset_expired(10)
    row = await only(engine)
    assert (row["status"], row["retry_count"], row["last_error"]) == ("not_pushed", 1, "Lease expired")
    assert (row["processing_by"], row["processing_started_at"], row["processing_lease_expires_at"]) == (None,) * 3
    await claimed(ledger)
    await engine.expire_leases()
    await claimed(ledger)
    assert (await only(engine))["retry_count"] == 2
    await engine.expire_leases()
    (beyond,) = await claimed(ledger)
    assert beyond.attempt > beyond.max_attempts, "it is claimed only to be given up"
    row = await only(engine)
    assert (row["status"], row["retry_count"]) == ("failed", 3)
    await ledger.settle([failed(beyond, last=True)])
    row = await only(engine)
    assert (row["status"], row["retry_count"]) == ("failed", 3)


@pytest.mark.req("S4-10", "S4-69")
async def test_the_monitoring_questions(engine: Engine, ledger: Ledger) -> None:
    given = [told("ann", priority=priority) for priority in (3, 1, 2, 1, 2, 3)]
    claims = await claimed(ledger, *given, total=3, owner="instance-1")
    await ledger.settle([failed(claims[0], last=True)])
    table = TABLE[engine.dialect]
    order = "priority" if engine.dialect == "postgres" else "priority_rank"
    pending = await engine.execute(
        f"SELECT priority, count(*) AS number FROM {table} WHERE status = 'not_pushed' GROUP BY {order}, priority"  # noqa: S608 - names above
        f" ORDER BY {order}"
    )
    assert [(row["priority"], row["number"]) for row in pending] == [("MEDIUM", 1), ("LOW", 2)]
    busy = await engine.execute(
        f"SELECT processing_by, count(*) AS number FROM {table} WHERE status = 'processing' GROUP BY 1"  # noqa: S608 - as above
    )
    assert [(row["processing_by"], row["number"]) for row in busy] == [("instance-1", 2)]
    broken = await engine.execute(
        f"SELECT event_type, count(*) AS number FROM {table} WHERE status = 'failed' GROUP BY 1"  # noqa: S608 - as above
    )
    assert [(row["event_type"], row["number"]) for row in broken] == [("job.new", 1)]
    everything = await engine.execute(f"SELECT priority FROM {table} ORDER BY {order}")  # noqa: S608 - as above
    assert [row["priority"] for row in everything] == ["HIGH"] * 2 + ["MEDIUM"] * 2 + ["LOW"] * 2


async def test_other_channels_are_not_shown(engine: Engine, ledger: Ledger) -> None:
    await ledger.enrol([enrolment()])
    assert await shown(engine) == []


@pytest.mark.req("S4-10", "S4-12")
async def test_its_types_in_postgresql(postgres_dsn: str) -> None:
    ledger = await _opened(postgres_dsn)
    try:
        strange = told("ann", notification_id="not-a-uuid", payload_json='{"zero":"\\u0000"}')
        await ledger.enrol([told("ann", payload_json='{"a":{"b":1}}'), strange])
    finally:
        await ledger.aclose()
    async with connected(postgres_dsn) as connection:
        columns = "SELECT column_name, data_type FROM information_schema.columns WHERE table_schema = 'notifications'"
        types = {row["column_name"]: row["data_type"] for row in await connection.fetch(columns)}
        assert types["notification_id"] == "uuid"
        assert (types["payload"], types["retry_count"], types["priority"]) == ("jsonb", "integer", "USER-DEFINED")
        inside = "SELECT payload #>> '{a,b}' FROM notifications.notifications WHERE payload ? 'a'"
        assert await connection.fetchval(inside) == "1"
        assert await connection.fetchval("SELECT count(*) FROM (SELECT * FROM notifications.notifications) AS n") == 2


async def test_a_ledger_in_a_schema_of_its_own_keeps_the_view_there(postgres_dsn: str) -> None:
    for name in ("first", "notifications"):
        ledger = await _opened(f"{postgres_dsn}?search_path={name}")
        await ledger.enrol([told("ann")])
        await ledger.aclose()
    async with connected(postgres_dsn) as connection:
        assert await connection.fetchval("SELECT count(*) FROM first.notifications") == 1
        assert await connection.fetchval("SELECT count(*) FROM notifications.notifications") == 1


async def test_a_role_that_may_not_make_schemas_can_still_migrate(postgres_dsn: str) -> None:
    async with connected(postgres_dsn) as connection:
        name = await connection.fetchval("SELECT current_database()")
        await connection.execute("DROP ROLE IF EXISTS modest")
        await connection.execute("CREATE ROLE modest LOGIN; GRANT ALL ON SCHEMA public TO modest")
        try:
            await connection.execute(f'REVOKE ALL ON DATABASE "{name}" FROM modest, public')
            await connection.execute(f'GRANT CONNECT ON DATABASE "{name}" TO modest')
            await connection.execute("SET ROLE modest")
            for step in _migrations():
                await connection.execute(step)
            assert await connection.fetchval("SELECT count(*) FROM sse_notifications") == 0
            await connection.execute("RESET ROLE")
        finally:
            await connection.execute("DROP OWNED BY modest; DROP ROLE modest")


def _migrations() -> list[str]:

    return [text for step in migrations("postgres") for text in step.statements()]


async def _opened(dsn: str) -> Ledger:

    ledger = await PostgresLedger.open(dsn, allow_unsafe=True)
    await ledger.migrate()
    return ledger
