"""Pushed means written to a live connection: an entry that is only in the log is not pushed, and is not lost."""

from pathlib import Path

import pytest

from tests.support.sse_stand import SseStand
from tests.support.waiting import until

SETTINGS = """
[sse]
heartbeat_seconds = 0.5
write_seconds = 60
buffer = 1000
[providers.sse]
written_seconds = 0.5
[task_picker]
poll_interval = "100ms"
max_retries = 500
"""
LARGE = {"text": "x" * 200_000}
NUMBER = 40
"""Of large ones: more than the kernel keeps for a reader who does not read."""


def stand(folder: Path, settings: str = SETTINGS) -> SseStand:
    made = SseStand(folder, f"sqlite:///{folder / 'sse.db'}")
    (folder / "sse.toml").write_text(f'extends = "sse"\n{settings}')
    return made


async def words(sse: SseStand, told: list[str]) -> list[str]:
    return [str((await sse.row(each))["status"]) for each in told]


@pytest.mark.req("S4-52", "S4-28")
async def test_a_half_closed_connection_tells_nobody(tmp_path: Path) -> None:
    async with stand(tmp_path) as sse:
        await sse.start()
        reader = await sse.read("ada")
        reader.half_close()
        await reader.closed()
        told = await sse.tell("ada")
        assert (await sse.until_row(told, status="not_pushed", last_error="not connected"))["seq"] is None
        again = await sse.read("ada", headers={"Last-Event-ID": reader.last_id})
        await again.number(1)
        await sse.until_row(told, status="pushed")


@pytest.mark.req("S4-52", "S4-68")
async def test_entries_that_a_stalled_reader_did_not_get_go_to_the_next_reader(tmp_path: Path) -> None:
    async with stand(tmp_path) as sse:
        await sse.start()
        stalled = await sse.read("ada", receive_buffer=4096)
        await stalled.stall()
        told = [await sse.tell("ada", payload=LARGE) for _ in range(NUMBER)]

        async def all_tried() -> bool:
            return None not in [(await sse.row(each))["seq"] for each in told]

        await until(all_tried, timeout=60, what="everything in the log")

        async def some_pushed() -> bool:
            return "pushed" in await words(sse, told)

        await until(some_pushed, timeout=40, what="what the kernel still took to be pushed")
        found = await words(sse, told)
        unheard = [each for each, word in zip(told, found, strict=True) if word != "pushed"]
        assert unheard
        await stalled.leave()
        # Without a number: a page that was loaded anew.
        fresh = await sse.read("ada")

        async def all_pushed() -> bool:
            return set(await words(sse, told)) == {"pushed"}

        async def all_heard() -> bool:
            return set(unheard) <= {frame.json["notification_id"] for frame in fresh.told}

        await until(all_pushed, timeout=60, what="everything pushed")
        # What the kernel took is on its way to the reader.
        await until(all_heard, timeout=40, what="the fresh reader to hear what nobody heard")
        heard = [frame.json["notification_id"] for frame in fresh.told]
        assert len(heard) == len(set(heard))
        numbers = [int(frame.id or 0) for frame in fresh.told]
        assert numbers == sorted(numbers)


@pytest.mark.parametrize("mutant", ["sent_when_appended", "begins_at_the_end"])
async def test_control_without_the_guard_something_is_pushed_to_nobody(tmp_path: Path, mutant: str) -> None:
    async with stand(tmp_path) as sse:
        await sse.start(mutant=mutant)
        stalled = await sse.read("ada", receive_buffer=4096)
        await stalled.stall()
        told = [await sse.tell("ada", payload=LARGE) for _ in range(NUMBER)]

        async def in_the_log() -> bool:
            return None not in [(await sse.row(each))["seq"] for each in told]

        await until(in_the_log, timeout=60, what="everything in the log")
        await stalled.leave()
        fresh = await sse.read("ada")

        async def all_pushed() -> bool:
            return set(await words(sse, told)) == {"pushed"}

        await until(all_pushed, timeout=60, what="everything called pushed")
        assert len({frame.json["notification_id"] for frame in (*stalled.told, *fresh.told)}) < NUMBER


@pytest.mark.req("S4-28", "S4-27", "S4-66")
async def test_to_the_documents_letter_who_is_away_fails(tmp_path: Path) -> None:
    settings = '[task_picker]\npoll_interval = "100ms"\noffline_policy = "fail"\n'
    async with stand(tmp_path, settings) as sse:
        await sse.start()
        told = await sse.tell("ada")
        row = await sse.until_row(told, status="failed", retry_count=3)
        assert "not connected" in row["last_error"]


@pytest.mark.req("S4-28")
async def test_control_nobody_is_woken(tmp_path: Path) -> None:
    async with stand(tmp_path) as sse:
        await sse.start(mutant="nobody_is_woken")
        told = await sse.tell("ada")
        await sse.until_row(told, status="not_pushed", last_error="not connected")
        reader = await sse.read("ada")
        await reader.until(lambda frames: sum(frame.event == "heartbeat" for frame in frames) >= 4)
        assert reader.told == []
