"""The sse blueprint's task pickers: who claims what, in which order, and what is counted and said about it."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID

import pytest

from tests.support.ledger_postgres import connected
from tests.support.picker_stand import PICKER, SINK, PickerStand
from tests.support.process import Line, Program
from tests.support.servers import Postgres
from tests.support.stream_builders import told
from tests.support.waiting import until

HOLD = "delay_seconds = 900"
"""A sink that keeps what it was given, so that claims can be looked at."""
PATIENT = "timeout_seconds = 1000"


@pytest.mark.req("S4-15", "S4-61", "S4-63")
@pytest.mark.timeout(300)
async def test_of_three_pickers_each_notification_is_one_s(tmp_path: Path, postgres_dsn: str) -> None:
    async with PickerStand(tmp_path, postgres_dsn, picker="batch_size = 100", sink="delay_seconds = 0.02") as stand:
        pickers = [stand.launch(*PICKER) for _ in range(3)]
        await asyncio.gather(*(picker.until("ready", timeout=90) for picker in pickers))
        given = await stand.seed(told(f"u{number % 50}", provider=SINK) for number in range(10_000))
        await stand.until_status("pushed", 10_000, within=240)
        taken = Counter(line["notification_id"] for line in stand.book())
        assert taken == Counter(each.notification.notification_id for each in given), "one time each"
        shares = Counter(line["pid"] for line in stand.book())
        assert set(shares) == {picker.pid for picker in pickers}, "each took its part"


@pytest.mark.req("S4-17", "S4-18", "S4-21", "S4-22", "S4-29", "S4-30", "S4-61", "S4-65", "S4-67")
@pytest.mark.timeout(300)
async def test_the_example_of_the_document(tmp_path: Path, postgres_dsn: str) -> None:
    """A takes 100 HIGH, B the next 100 HIGH, C the MEDIUM that are left; nobody takes them away while they work."""
    settings = 'lease_duration = "12s"\n[work]\ndrain_seconds = 0.2'
    async with PickerStand(tmp_path, postgres_dsn, picker=settings, sink=HOLD, policy=PATIENT) as stand:
        mixed = [told("ann", priority=priority, provider=SINK) for _ in range(100) for priority in (3, 2, 1, 1)]
        await stand.seed(mixed)
        urgent = [each.notification.notification_id for each in mixed if each.notification.priority == 1]
        for name, number in (("A", 100), ("B", 200)):
            await stand.start(*PICKER, CARILLON_TASK_PICKER__INSTANCE_ID=name)
            await stand.until_status("processing", number)
        last = await stand.start(*PICKER)
        rows = await stand.until_status("processing", 300)
        held = {owner: {str(row["notification_id"]) for row in rows if row["processing_by"] == owner} for owner in "AB"}
        assert held == {"A": set(urgent[:100]), "B": set(urgent[100:])}, "the oldest first"
        others = [row for row in rows if row["processing_by"] not in "AB"]
        assert {row["priority"] for row in others} == {"MEDIUM"}
        (instance,) = {row["processing_by"] for row in others}
        assert str(UUID(instance)) == instance
        await self_renewed(stand, rows)
        last.terminate()
        assert await asyncio.to_thread(last.wait, 60) == 0
        waiting = await stand.until_status("not_pushed", 200)
        assert {row["retry_count"] for row in waiting} == {0}, "what a shutdown gives back has spent nothing"
        assert {row["processing_by"] for row in waiting} == {None}


async def self_renewed(stand: PickerStand, rows: list[dict[str, object]]) -> None:
    """Every lease has been renewed after its first end, and each claim is still the same."""
    tokens = {row["notification_id"]: row["claim_token"] for row in rows}

    async def renewed() -> bool:
        late = "processing_lease_expires_at > processing_started_at + interval '24 s'"
        return len(await stand.rows(where=f"status = 'processing' AND {late}")) == 300

    await until(renewed, timeout=90, what="leases renewed beyond their first end")
    now = await stand.rows("notification_id, claim_token, retry_count", "status = 'processing'")
    assert {row["notification_id"]: row["claim_token"] for row in now} == tokens, "nobody claimed a second time"
    assert {row["retry_count"] for row in now} == {0}


@pytest.mark.req("S4-58")
async def test_a_thousand_at_a_time(tmp_path: Path, postgres_dsn: str) -> None:
    async with PickerStand(tmp_path, postgres_dsn, picker="batch_size = 1000", sink=HOLD, policy=PATIENT) as stand:
        await stand.seed(told("ann", provider=SINK) for _ in range(1100))
        await stand.start(*PICKER)
        await stand.until_status("processing", 1000)
        assert len(await stand.rows(where="status = 'not_pushed'")) == 100


@pytest.fixture(scope="module")
def module_dsn(postgres: Postgres) -> str:
    return postgres.database()


@pytest.fixture
async def stand(tmp_path: Path, module_dsn: str) -> AsyncIterator[PickerStand]:
    async with PickerStand(tmp_path, module_dsn) as stand:
        await stand.start()
        yield stand


@pytest.mark.req("S4-25", "S4-26", "S4-27", "S4-33", "S4-34", "S4-66")
async def test_what_is_said_and_counted_about_deliveries(stand: PickerStand) -> None:
    program = stand.programs[0]
    good = await stand.tell("ann")
    row = await stand.until_row(good, status="pushed")
    assert row["retry_count"] == 0
    assert row["processing_latency_ms"] >= 0
    bad = await stand.tell("bob", metadata={"sandbox": {"outcome": "unavailable"}})
    shaky = await stand.tell("cid", metadata={"sandbox": {"outcome": "unavailable", "times": 2}})
    row = await stand.until_row(bad, status="failed")
    assert (row["retry_count"], row["processing_latency_ms"], row["notification_pushed_timestamp"]) == (3, None, None)
    assert "drill: unavailable" in row["last_error"]
    row = await stand.until_row(shaky, status="pushed")
    assert row["retry_count"] == 2
    (line,) = await said(program, good, 1)
    assert (line["message"], line["level"], line["user_id"]) == ("delivered", "info", "ann")
    lines = await said(program, bad, 3)
    assert [line["message"] for line in lines] == ["delivery failed"] * 3
    assert all("drill: unavailable" in line["error"] for line in lines)
    lines = await said(program, shaky, 3)
    assert [line["message"] for line in lines] == ["delivery failed", "delivery failed", "delivered"]


async def said(program: Program, notification_id: str, number: int) -> list[Line]:
    """The lines about its attempts, once there are so many."""

    def lines() -> list[Line]:
        return [line for line in program.events("route_attempted") if line["notification_id"] == notification_id]

    async def enough() -> bool:
        return len(lines()) >= number

    await until(enough, timeout=60, what=f"{number} lines about {notification_id}")
    return lines()


@pytest.mark.req("S4-27")
async def test_a_failure_may_be_the_end(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/sse.db"
    async with PickerStand(
        tmp_path, url, picker='delivery_failure = "terminal"', sink='outcome = "unavailable"'
    ) as stand:
        await stand.start()
        told_one = await stand.tell("ann")
        row = await stand.until_row(told_one, status="failed")
        assert row["retry_count"] == 1
        assert len(await said(stand.programs[0], told_one, 1)) == 1


@pytest.mark.req("S4-14")
async def test_what_is_older_than_thirty_days_is_removed(tmp_path: Path, postgres_dsn: str) -> None:
    async with PickerStand(tmp_path, postgres_dsn, CARILLON_RETENTION__INTERVAL_SECONDS="0.2") as stand:
        await stand.start("--roles", "doors,outbound,upkeep")
        old, young = await stand.tell("ann"), await stand.tell("ann")
        for name in (old, young):
            await stand.until_row(name, status="pushed")
        async with connected(postgres_dsn) as sql:
            for name, days in ((old, 31), (young, 29)):
                await sql.execute(
                    "UPDATE notifications.notifications SET created_at = created_at - $2 * interval '1 day'"
                    " WHERE notification_id = $1",
                    *(name, days),
                )

        async def removed() -> bool:
            return len(await stand.rows()) == 1

        await until(removed, timeout=60, what="the old one removed")
        assert [str(row["notification_id"]) for row in await stand.rows()] == [young]
