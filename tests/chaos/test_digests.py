"""Processes that die while events join and while digests close and are sent: each event is told in one digest."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.chaos import properties
from tests.chaos.conftest import MakeStand
from tests.support import tables
from tests.support.checker import read_lines
from tests.support.stand import Stand

EVENTS, PEOPLE, HITS = 24, 3, (1, 2)
POINTS = ("after_accept_commit", "after_digest_closed", "after_digest_stored", "after_provider_ok", "before_settle")
RULES: dict[str, Any] = {"lease": 2.0, "timeout": 1.6, "attempts": 10, "batch": 5, "sandbox": {"delay_seconds": 0.1}}


def events(stand: Stand) -> dict[str, dict[str, Any]]:
    """Events of few people: some fill a digest, some wait for its window."""
    digest = {"key": "news", "window": "1s", "max": 5}
    bodies = stand.pushes(f"m{place}" for place in range(EVENTS))
    return {
        key: {**body, "recipient": f"device-{place % PEOPLE}", "digest": digest}
        for place, (key, body) in enumerate(bodies.items())
    }


async def told(stand: Stand) -> dict[str, list[str]]:
    """The events of each digest that was stored as a notification."""
    rows = await tables.read(
        stand.url, "SELECT notification_id, metadata_json FROM records WHERE metadata_json IS NOT NULL"
    )
    found = {row["notification_id"]: json.loads(row["metadata_json"]) for row in rows}
    return {name: about["digest"]["members"] for name, about in found.items() if "digest" in about}


async def until_told(stand: Stand) -> None:
    async def open_ones() -> int:
        rows = await tables.read(stand.url, "SELECT digest_id FROM digests WHERE told_at IS NULL")
        waiting = await tables.read(stand.url, "SELECT route_id FROM routes WHERE status IN ('pending', 'failed')")
        return len(rows) + len(waiting)

    for _ in range(600):
        if not await open_ones():
            return
        await asyncio.sleep(0.1)
    raise TimeoutError("digests are still open")


async def each_told_once(stand: Stand) -> None:
    """What was promised, what the digests say and what the vendor got agree."""
    promised = {line["notification_id"] for line in stand.producer.lines if line["status"] == 202}
    digests = await told(stand)
    times = Counter(member for members in digests.values() for member in members)
    properties.hold("each_told_once", times == Counter(promised), times - Counter(promised))
    sent = {str(line["id"]).partition("/")[0] for line in read_lines(stand.ledger)}
    properties.hold("each_digest_sent", sent == set(digests), sent ^ set(digests))


@pytest.mark.req("P-303", "G-04")
@pytest.mark.parametrize("point", POINTS)
async def test_death_at_every_point_tells_each_event_once(
    make_stand: MakeStand, point: str, figures: Callable[..., None]
) -> None:
    async with make_stand(**RULES) as stand:
        producing = asyncio.create_task(stand.send(events(stand), at_once=4))
        for hit in HITS:
            program = stand.launch(faults=f"{point}=exit9@{hit}")
            code = await asyncio.to_thread(program.wait, 60)
            properties.hold("point_was_hit", code == -9, f"{point}@{hit}: exit code {code}")
            await stand.note_held(program.pid)
        await stand.start()
        await producing
        await until_told(stand)
        report = await properties.everything_holds(stand)
        await each_told_once(stand)
        figures(events=EVENTS, digests=len(await told(stand)), kills=2, repeats=report.duplicate_count)


@pytest.mark.req("P-303")
async def test_control_without_the_digests_id_events_are_told_twice(make_stand: MakeStand) -> None:
    async with make_stand(**RULES) as stand:
        producing = asyncio.create_task(stand.send(events(stand), at_once=4))
        program = stand.launch(faults="after_digest_stored=exit9", mutant="digest_without_id")
        assert await asyncio.to_thread(program.wait, 60) == -9
        await stand.start(mutant="digest_without_id")
        await producing
        await until_told(stand)
        with pytest.raises(properties.ViolationError, match="each_told_once"):
            await each_told_once(stand)
