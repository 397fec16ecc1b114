"""What the document says about pickers in numbers: replicas, polling, leases, ageing."""

import asyncio
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.support.picker_stand import PICKER, SINK, PickerStand
from tests.support.stream_builders import told

pytestmark = pytest.mark.slow
PATIENT = "timeout_seconds = 1000"


@pytest.mark.req("S4-61")
@pytest.mark.timeout(300)
async def test_three_replicas_deliver_faster_than_one(tmp_path: Path, postgres_dsn: str) -> None:
    """The sink takes half a second for each and a replica holds ten at once, so that replicas and not cores decide."""
    picker, sink = "batch_size = 10", "delay_seconds = 0.5"
    async with PickerStand(tmp_path, postgres_dsn, picker=picker, sink=sink) as stand:

        async def drained(replicas: int, many: int) -> float:
            """The seconds between the first and the last of so many that were taken."""
            before = len(stand.book())
            for _ in range(replicas - len(stand.programs)):
                await stand.start(*PICKER)
            await stand.seed(told(f"u{number % 50}", provider=SINK) for number in range(many))
            began = time.monotonic()
            await stand.until_status("pushed", before + many, within=120)
            return time.monotonic() - began

        await drained(1, 10)
        one = await drained(1, 90)
        await drained(3, 30)
        three = await drained(3, 90)
        assert len({line["pid"] for line in stand.book()}) == 3, "each took its part"
        # 90 in turns of 10 take one replica 4.5 s, three of them 1.5 s; a busy machine adds to both.
        assert three < one * 0.75, (one, three)


@pytest.mark.req("S4-60")
async def test_what_a_dead_picker_held_is_back_after_its_lease_and_one_look(tmp_path: Path, postgres_dsn: str) -> None:
    """Two die at once, one with the shortest lease of the document and one with the longest."""
    picker = 'batch_size = 5\nlease_cleanup_interval = "500ms"'
    async with PickerStand(tmp_path, postgres_dsn, picker=picker, sink="delay_seconds = 900", policy=PATIENT) as stand:
        await stand.seed(told(f"u{number}", provider=SINK) for number in range(10))
        for number, lease in enumerate(("10s", "60s"), start=1):
            names = {"CARILLON_TASK_PICKER__INSTANCE_ID": lease, "CARILLON_TASK_PICKER__LEASE_DURATION": lease}
            await stand.start(*PICKER, **names)
            await stand.until_status("processing", 5 * number)
        for victim in stand.programs:
            victim.kill()
        held = await stand.rows(where="status = 'processing'")
        assert Counter(row["processing_by"] for row in held) == {"10s": 5, "60s": 5}
        ends = {row["notification_id"]: (row["processing_by"], row["processing_lease_expires_at"]) for row in held}
        await stand.start(CARILLON_PROVIDERS__SINK__DELAY_SECONDS="0")
        back = await stand.until_status("pushed", 5)
        for row in back:
            assert row["notification_pushed_timestamp"] >= ends[row["notification_id"]][1], "nobody is early"
            assert row["retry_count"] == 1, "a death costs one attempt"
        # The long lease is not over when what had the short one is delivered: the second picker is not late.
        assert {ends[row["notification_id"]][0] for row in back} == {"10s"}
        waits = await stand.rows(where="processing_by = '60s'")
        assert {(row["status"], row["retry_count"]) for row in waits} == {("processing", 0)}
        assert len(waits) == 5


@pytest.mark.req("S4-57")
async def test_the_names_of_the_picker_work_from_the_environment(tmp_path: Path, postgres_dsn: str) -> None:
    """Each of three pickers holds its batch, so that none claims what a dead one held: only the cleanup finds it."""
    names = {"BATCH_SIZE": "3", "POLL_INTERVAL": "0.2s", "LEASE_DURATION": "20s"}
    rare, often = {"LEASE_CLEANUP_INTERVAL": "1h"}, {"LEASE_CLEANUP_INTERVAL": "300ms"}
    held = {"sink": "delay_seconds = 900", "policy": PATIENT}
    async with PickerStand(tmp_path, postgres_dsn, **held) as stand:
        await stand.seed(told(f"u{number}", provider=SINK) for number in range(9))
        for number, more in ((7, rare), (8, rare), (9, often)):
            given = names | more | {"INSTANCE_ID": f"picker-{number}"}
            roles = PICKER if number == 7 else ("--roles", "outbound,upkeep")
            await stand.start(*roles, **{f"CARILLON_TASK_PICKER__{name}": text for name, text in given.items()})
            rows = await stand.until_status("processing", 3 * (number - 6))
            assert Counter(row["processing_by"] for row in rows)[f"picker-{number}"] == 3, "a batch is three"
        newest = [row for row in rows if row["processing_by"] == "picker-9"]
        lengths = {row["processing_lease_expires_at"] - row["processing_started_at"] for row in newest}
        assert {round(length.total_seconds()) for length in lengths} == {20}
        dead, second, third = stand.programs
        dead.kill()
        reset = await stand.until_status("not_pushed", 3)
        assert {(row["retry_count"], row["last_error"]) for row in reset} == {(1, "Lease expired")}
        await third.until("leases_reset")
        assert not second.events("leases_reset"), "it looks every hour"
        # A notification keeps the number of the program that accepted it.
        await stand.start(CARILLON_TASK_PICKER__MAX_RETRIES="1", CARILLON_PROVIDERS__SINK__DELAY_SECONDS="0")
        spent = await stand.tell("bob", event_id="the only one", metadata={"sandbox": {"outcome": "unavailable"}})
        assert (await stand.until_row(spent, status="failed"))["retry_count"] == 1


@pytest.mark.req("S4-62")
@pytest.mark.parametrize("ageing", [False, True], ids=["strict", "ageing"])
async def test_low_waits_for_all_of_high_unless_it_ages(tmp_path: Path, postgres_dsn: str, *, ageing: bool) -> None:
    picker = f"batch_size = 10\nageing = {str(ageing).lower()}"
    async with PickerStand(tmp_path, postgres_dsn, picker=picker) as stand:
        low = told("ann", priority=3, provider=SINK)
        await stand.seed([low, *(told(f"u{number}", priority=1, provider=SINK) for number in range(60))])
        await stand.start(*PICKER)
        await stand.until_status("pushed", 61)
        place = [line["notification_id"] for line in stand.book()].index(low.notification.notification_id)
        # Calls of one batch run side by side: the last batch of strict priorities holds the last ones of HIGH too.
        assert place < 40 if ageing else place >= 50


@pytest.mark.req("S4-59")
async def test_a_priority_with_a_long_poll_interval_is_found_later(tmp_path: Path, postgres_dsn: str) -> None:
    """Nobody rings for what is written past the doors: only looking finds it, and LOW is looked for every hour."""
    picker = '[task_picker.poll_intervals]\nHIGH = "200ms"\nLOW = "1h"'
    async with PickerStand(tmp_path, postgres_dsn, picker=picker) as stand:

        async def found(*priorities: int) -> None:
            """Write these, and wait until those are pushed that nobody looks for in vain."""
            given = await stand.seed(told("ann", priority=priority, provider=SINK) for priority in priorities)
            for each in given:
                if each.notification.priority < 3:
                    await stand.until_row(each.notification.notification_id, status="pushed")

        hourly = await stand.start(*PICKER)
        await found(3, 1)
        await found(3, 1)
        await found(1, 2)
        # The first look is at all priorities and may have found the first LOW; no later look has found the second.
        waits = await stand.rows("priority", "status = 'not_pushed'")
        assert {row["priority"] for row in waits} == {"LOW"}
        hourly.terminate()
        assert await asyncio.to_thread(hourly.wait, 60) == 0
        # The same with another number: LOW is found by itself.
        await stand.start(*PICKER, CARILLON_TASK_PICKER__POLL_INTERVALS__LOW="200ms")
        await stand.until_status("pushed", 6)
        await found(1)
        await found(3)
        await stand.until_status("pushed", 8)
