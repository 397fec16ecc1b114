"""What the specification of the sse blueprint says of its table, its inbox and its heartbeat, seen from outside."""

import re
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from carillon.config.reading import load
from carillon.config.sections import SseSettings
from carillon.live.reader import StreamRules
from tests.support.blueprint_stand import database
from tests.support.sources import ROOT
from tests.support.sse_stand import SseStand
from tests.support.waiting import until

HEARTBEAT = 30.0


@pytest.fixture(params=["sqlite", "postgres"])
async def sse(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SseStand]:
    for url in database(request, tmp_path):
        async with SseStand(tmp_path, url, 'offline_policy = "hold"\ninstance_id = "picker-7"\n') as stand:
            yield stand


async def unread(sse: SseStand, user: str) -> tuple[int, int]:
    said = (await sse.ask("GET", f"/notifications/{user}/unread")).json
    return said["total"], said["unread"]


@pytest.mark.req("X4-2", "X4-3")
async def test_what_waits_is_unread_and_what_was_pushed_keeps_its_picker_and_no_error(sse: SseStand) -> None:
    await sse.start()
    told = [await sse.tell("ada", payload={"n": number}) for number in range(3)]
    await sse.tell("bob")
    row = await sse.until_row(told[0], status="not_pushed", retry_count=0)

    async def counted() -> bool:
        return await unread(sse, "ada") == (3, 3)

    await until(counted, timeout=40, what="what waits for ada is counted")
    assert await unread(sse, "bob") in {(0, 0), (1, 1)}
    assert await unread(sse, "carol") == (0, 0)
    reader = await sse.read("ada")
    await reader.number(3)
    for each in told:
        row = await sse.until_row(each, status="pushed")
        assert (row["processing_by"], row["last_error"]) == ("picker-7", None)
    assert await unread(sse, "ada") == (3, 3)
    await sse.ask("POST", "/notifications/ada/read", {"notification_ids": told[:1]})
    assert await unread(sse, "ada") == (3, 2)


@pytest.mark.req("X4-4", "S4-47")
async def test_the_heart_beats_every_thirty_seconds(tmp_path: Path) -> None:
    async with SseStand(tmp_path, f"sqlite:///{tmp_path / 'sse.db'}") as stand:
        await stand.start()
        began = time.monotonic()
        reader, other = await stand.read("ada"), await stand.read("bob")
        await reader.event("heartbeat")
        assert HEARTBEAT - 1 <= time.monotonic() - began <= HEARTBEAT + 10
        await other.event("heartbeat")
        assert sum(frame.event == "heartbeat" for frame in reader.frames) == 1


@pytest.mark.req("X4-4")
def test_the_heartbeat_is_one_number_everywhere() -> None:
    page = (ROOT / "docs" / "reference" / "settings.md").read_text()
    written = re.findall(r"\| `heartbeat_seconds` \| `([0-9.]+)` \|", page)
    blueprint = load("sse", None, {}).sse
    assert blueprint is not None
    found = [
        SseSettings().heartbeat_seconds,
        StreamRules().heartbeat_seconds,
        blueprint.heartbeat_seconds,
        *map(float, written),
    ]
    assert found == [HEARTBEAT] * 4
