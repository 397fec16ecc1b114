"""Job logs and effects in SQL: one row per message, one run per effect, from any number of writers."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis as Client

from carillon.domain.jobs import Effects, JobRow
from carillon.ledger.opening import Ledger
from carillon.ledger.redis.scripts import RedisEffects
from tests.support.ledger_engines import Engine, PostgresEngine, SqliteEngine, engine_fixture, ledger_fixture
from tests.support.waiting import until

engine = engine_fixture()
ledger = ledger_fixture()
COLUMNS = [
    *("id", "service", "queue", "message_id", "correlation_id", "idempotency_key", "status", "attempts", "last_error"),
    *("next_retry_at", "action", "created_at", "updated_at"),
]


def row(status: str, at: float, *, message_id: str = "m1", attempts: int = 0, **more: str | float | None) -> JobRow:
    said = {"correlation_id": "sub-1", "idempotency_key": "evt-1", "last_error": None, "next_retry_at": None, **more}
    return JobRow(
        service="payment",
        queue="q:pay:x",
        message_id=message_id,
        status=status,
        attempts=attempts,
        action="renewal",
        since=at,
        at=at,
        **said,  # type: ignore[arg-type]
    )


@pytest.mark.req("S3-85")
async def test_the_columns_are_the_documents(ledger: Ledger) -> None:
    await ledger.write_job_logs([row("received", 1000.0)])
    (found,) = await ledger.job_logs({}, 10)
    assert list(found) == [*COLUMNS, "place"], "and its place, for cursors"


@pytest.mark.req("S3-86")
@pytest.mark.usefixtures("ledger")
async def test_the_indexes_are_there(engine: Engine) -> None:
    if isinstance(engine, PostgresEngine):
        rows = await engine.execute("SELECT indexdef FROM pg_indexes WHERE tablename = 'job_logs'")
        found = [str(each["indexdef"]).partition("(")[2] for each in rows]
    else:
        assert isinstance(engine, SqliteEngine)
        rows = await engine.execute("SELECT sql FROM sqlite_master WHERE tbl_name = 'job_logs' AND sql LIKE '%INDEX%'")
        found = [str(each["sql"]).partition("(")[2] for each in rows]
    assert {"queue, status)", "correlation_id)", "idempotency_key)"} <= set(found)


@pytest.mark.req("S3-87", "S3-88")
async def test_one_row_lives_through_everything(ledger: Ledger) -> None:
    life = [
        row("received", 1000.0),
        row("processing", 1001.0),
        row("retry", 1002.0, attempts=1, last_error="ValueError: no", next_retry_at=1062.125),
        row("processing", 1063.0, attempts=1),
        row("failed", 1064.0, attempts=2, last_error="ValueError: again"),
        row("dead", 2000.0, attempts=2),
    ]
    for each in life:
        await ledger.write_job_logs([each])
        (found,) = await ledger.job_logs({}, 10)
        assert (found["status"], found["attempts"]) == (each.status, each.attempts)
        assert found["created_at"].timestamp() == 1000.0
        assert found["updated_at"].timestamp() == each.at
        retry_at = found["next_retry_at"]
        assert (None if retry_at is None else retry_at.timestamp()) == each.next_retry_at
    assert found["last_error"] == "ValueError: again"


async def test_what_is_written_late_about_earlier_changes_nothing(ledger: Ledger) -> None:
    await ledger.write_job_logs([row("success", 1005.0)])
    await ledger.write_job_logs([row("received", 1000.0), row("processing", 1004.0, message_id="m2")])
    found = {each["message_id"]: each["status"] for each in await ledger.job_logs({}, 10)}
    assert found == {"m1": "success", "m2": "processing"}


async def test_rivals_never_wait_for_each_other_in_a_circle(ledger: Ledger) -> None:
    names = [f"m{n}" for n in range(100)]
    batches = [
        [row("processing", 1000.0 + k, message_id=name) for name in names[:: -1 if k % 2 else 1]] for k in range(8)
    ]
    await asyncio.gather(*(ledger.write_job_logs(batch) for batch in batches))
    found = await ledger.job_logs({"queue": "q:pay:x"}, 1000)
    assert len(found) == 100
    assert {each["updated_at"].timestamp() for each in found} == {1007.0}


async def test_rows_are_found_newest_first_by_every_filter(ledger: Ledger) -> None:
    rows = [row("success", 1000.0 + n, message_id=f"m{n}", correlation_id=f"c{n % 2}") for n in range(6)]
    await ledger.write_job_logs([*rows, row("failed", 2000.0, message_id="other", idempotency_key="k")])
    assert [each["message_id"] for each in await ledger.job_logs({}, 3)] == ["other", "m5", "m4"]
    assert [each["message_id"] for each in await ledger.job_logs({"status": "failed"}, 9)] == ["other"]
    assert [each["message_id"] for each in await ledger.job_logs({"correlation_id": "c1"}, 9)] == ["m5", "m3", "m1"]
    assert [each["message_id"] for each in await ledger.job_logs({"idempotency_key": "k"}, 9)] == ["other"]
    assert await ledger.job_logs({"queue": "q:nobody"}, 9) == []


async def test_old_rows_and_effects_are_forgotten(ledger: Ledger) -> None:
    await ledger.write_job_logs([row("success", 1000.0, message_id=f"m{n}") for n in range(5)])
    await ledger.begin_effect("k", "h", 30.0)
    await ledger.finish_effect("k", "h")
    assert await ledger.prune_jobs(60.0, 3) == 3
    assert await ledger.prune_jobs(60.0, 3) == 2
    assert await ledger.begin_effect("k", "h", 30.0) == "done"
    await ledger.prune_jobs(-60.0, 3)
    assert await ledger.begin_effect("k", "h", 30.0) == "begun"


@pytest.mark.req("P-1213")
async def test_of_many_effects_of_one_message_all_are_forgotten(ledger: Ledger) -> None:
    """The upkeep asks again while something was left, and a message may have several effects."""
    await ledger.write_job_logs([row("success", 1000.0)])
    for number in range(7):
        await ledger.begin_effect(f"k{number}", "h", 30.0)
        await ledger.finish_effect(f"k{number}", "h")
    assert [await ledger.prune_jobs(-60.0, 3) for _ in range(4)] == [3, 3, 1, 0]


@pytest.fixture(params=["postgres", "sqlite", "redis"])
async def effects(request: pytest.FixtureRequest) -> AsyncIterator[Effects]:
    if request.param == "redis":
        client = Client.from_url(request.getfixturevalue("redis_url"))
        yield RedisEffects(client)
        await client.aclose()
        return
    if request.param == "postgres":
        engine: Engine = PostgresEngine(request.getfixturevalue("ledger_dsn"))
    else:
        engine = SqliteEngine(request.getfixturevalue("tmp_path") / "effects.db")
    async with engine.ledger() as ledger:
        yield ledger


@pytest.mark.req("S3-90")
async def test_an_effect_is_had_once(effects: Effects) -> None:
    assert await effects.begin_effect("refund:1", "q/m1", 30.0) == "begun"
    await effects.finish_effect("refund:1", "q/m1")
    assert await effects.begin_effect("refund:1", "q/m1", 30.0) == "done"
    assert await effects.begin_effect("refund:1", "q/m2", 30.0) == "done"
    assert await effects.begin_effect("refund:2", "q/m2", 30.0) == "begun"


@pytest.mark.req("S3-90")
async def test_an_effect_that_failed_is_tried_again(effects: Effects) -> None:
    await effects.begin_effect("k", "q/m1", 30.0)
    await effects.abandon_effect("k", "q/m1")
    assert await effects.begin_effect("k", "q/m2", 30.0) == "begun"
    # Not ours to give up, and what is done stays done.
    await effects.abandon_effect("k", "q/m1")
    assert await effects.begin_effect("k", "q/m3", 30.0) == "busy"
    await effects.finish_effect("k", "q/m2")
    await effects.abandon_effect("k", "q/m2")
    assert await effects.begin_effect("k", "q/m3", 30.0) == "done"


@pytest.mark.req("S3-90")
async def test_only_the_same_message_takes_over_what_was_begun(effects: Effects) -> None:
    await effects.begin_effect("k", "q/m1", 30.0)
    assert await effects.begin_effect("k", "q/m2", 30.0) == "busy"
    assert await effects.begin_effect("k", "q/m1", 0.05) == "begun"

    async def taken_over() -> bool:
        return await effects.begin_effect("k", "q/m2", 30.0) == "begun"

    await until(taken_over, timeout=20, what="the end of the other's time")


async def test_of_many_at_once_one_begins(effects: Effects) -> None:
    answers = await asyncio.gather(*(effects.begin_effect("k", f"q/m{n}", 30.0) for n in range(20)))
    assert sorted(answers) == ["begun"] + ["busy"] * 19
