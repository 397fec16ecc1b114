"""A picker dies while it holds a person's earlier notification: the later one waits for it."""

from pathlib import Path

import asyncpg
import pytest

from tests.support.sse_reader import StreamReader
from tests.support.sse_stand import SseStand
from tests.support.waiting import until

HELD = "UPDATE routes SET claim_token = -7, lease_owner = 'dead', next_attempt_at = clock_timestamp() + interval '10 s'"
SETTINGS = 'offline_policy = "hold"\nlease_cleanup_interval = "500ms"\n'


async def heard(folder: Path, dsn: str, mutant: str | None = None) -> list[int]:
    """What somebody hears who comes while a dead picker still holds the first of two notifications."""
    async with SseStand(folder, dsn, SETTINGS) as stand:
        await stand.start(mutant=mutant)
        first = await stand.tell("ann", payload={"n": 1})

        async def is_held() -> bool:
            return (await stand.row(first))["last_error"] is not None

        await until(is_held, timeout=40, what="a notification that waits for its reader")
        connection = await asyncpg.connect(dsn)
        try:
            await connection.execute(HELD)
        finally:
            await connection.close()
        reader: StreamReader = await stand.read("ann")
        await stand.tell("ann", payload={"n": 2})

        async def both() -> bool:
            return len([frame for frame in reader.frames if frame.event == "notification"]) == 2

        await until(both, timeout=60, what="two notifications")
        return [frame.json["payload"]["n"] for frame in reader.frames if frame.event == "notification"]


@pytest.mark.req("S4-17", "S4-65")
async def test_the_later_one_waits(tmp_path: Path, postgres_dsn: str) -> None:
    assert await heard(tmp_path, postgres_dsn) == [1, 2]


async def test_without_turns_it_does_not(tmp_path: Path, postgres_dsn: str) -> None:
    assert await heard(tmp_path, postgres_dsn, "no_turns") == [2, 1]
