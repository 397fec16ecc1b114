"""What the document says about pickers in numbers: replicas, polling, leases, ageing."""

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
    """A lease of 10 s, the shortest of the document: nobody is early, and the second picker is not late."""
    picker = 'lease_duration = "10s"\nlease_cleanup_interval = "500ms"'
    async with PickerStand(tmp_path, postgres_dsn, picker=picker, sink="delay_seconds = 900", policy=PATIENT) as stand:
        await stand.seed(told(f"u{number}", provider=SINK) for number in range(5))
        victim = await stand.start(*PICKER)
        held = await stand.until_status("processing", 5)
        victim.kill()
        heir = await stand.start(CARILLON_PROVIDERS__SINK__DELAY_SECONDS="0")
        rows = await stand.until_status("pushed", 5)
        ends = {row["notification_id"]: row["processing_lease_expires_at"] for row in held}
        late = [(row["notification_pushed_timestamp"] - ends[row["notification_id"]]).total_seconds() for row in rows]
        # The victim may have renewed its leases between our look and its death.
        assert min(late) >= 0
        assert max(late) < 10 + 8, "lease and one look, on a busy machine"
        assert heir.events("leases_reset") or {row["retry_count"] for row in rows} == {1}


@pytest.mark.req("S4-57")
async def test_the_names_of_the_picker_work_from_the_environment(tmp_path: Path, postgres_dsn: str) -> None:
    names = {
        "CARILLON_TASK_PICKER__INSTANCE_ID": "picker-7",
        "CARILLON_TASK_PICKER__BATCH_SIZE": "3",
        "CARILLON_TASK_PICKER__POLL_INTERVAL": "0.2s",
        "CARILLON_TASK_PICKER__LEASE_DURATION": "20s",
    }
    held = {"sink": "delay_seconds = 900", "policy": PATIENT}
    async with PickerStand(tmp_path, postgres_dsn, **held) as stand:
        await stand.seed(told(f"u{number}", provider=SINK) for number in range(9))
        await stand.start(*PICKER, **names)
        rows = await stand.until_status("processing", 3)
        assert {row["processing_by"] for row in rows} == {"picker-7"}
        lengths = {row["processing_lease_expires_at"] - row["processing_started_at"] for row in rows}
        assert {round(length.total_seconds()) for length in lengths} == {20}
        await stand.start(*PICKER, **{**names, "CARILLON_TASK_PICKER__INSTANCE_ID": "picker-8"})
        rows = await stand.until_status("processing", 6)
        assert Counter(row["processing_by"] for row in rows) == {"picker-7": 3, "picker-8": 3}, "a batch is three"


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
async def test_a_priority_with_a_slow_poll_is_found_later(tmp_path: Path, postgres_dsn: str) -> None:
    """Nobody rings for what is written past the doors: only looking finds it, and LOW is looked for every 15 s."""
    picker = '[task_picker.poll_intervals]\nHIGH = "200ms"\nLOW = "15s"'
    async with PickerStand(tmp_path, postgres_dsn, picker=picker) as stand:
        # The first look is at all priorities, and is done when this one is found.
        await stand.seed([told("first", priority=3, provider=SINK)])
        await stand.start(*PICKER)
        await stand.until_status("pushed", 1)
        low = told("ann", priority=3, provider=SINK)
        began = time.monotonic()
        await stand.seed([low, told("bob", priority=1, provider=SINK)])
        await stand.until_status("pushed", 2)
        if time.monotonic() - began < 10:
            (waits,) = await stand.rows("notification_id", "status = 'not_pushed'")
            assert str(waits["notification_id"]) == low.notification.notification_id
        await stand.until_status("pushed", 3)
