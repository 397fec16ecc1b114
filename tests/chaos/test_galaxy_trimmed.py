"""A stream trimmed past the offset is an alarm; trimming what was read is housekeeping."""

import asyncio

import pytest

from tests.chaos.properties import hold
from tests.support.galaxy_faults import READER_LEASE, FaultyGalaxy
from tests.support.galaxy_stand import INTENTS
from tests.support.process import Program


async def trim(stand: FaultyGalaxy, *, unread: int, mutant: str | None = None) -> Program:
    """Forty are read; forty more come while nobody reads, and so many of these are gone when somebody does."""
    first = await stand.run()
    read = await stand.intents(range(40))
    await stand.offset_reaches(read[-1])
    await asyncio.to_thread(first.kill)
    await stand.redis.delete(READER_LEASE)
    rest = await stand.intents(range(40, 80))
    stand.keys = stand.keys[:40] + stand.keys[40 + unread :]
    await stand.redis.xtrim(INTENTS, minid=(rest[unread] if unread < 40 else f"{rest[-1]}1"), approximate=False)
    heir = await stand.run(mutant=mutant)
    newest = await stand.intents([80])
    await stand.offset_reaches(newest[-1])
    if unread and mutant is None:
        await heir.until("stream_trimmed", timeout=40)
    alarms = heir.events("stream_trimmed")
    if unread:
        hold("alarm_raised", len(alarms) == 1, alarms)
        found = {"stream": INTENTS, "offset": read[-1], "lost": unread}
        hold("alarm_raised", {name: alarms[0][name] for name in found} == found, alarms[0])
        hold("alarm_raised", alarms[0]["level"] in ("error", "critical"), alarms[0])
    else:
        hold("no_false_alarm", not alarms, alarms)
    await stand.flowed(81 - unread)
    return heir


@pytest.mark.req("S1-64", "S1-66")
@pytest.mark.parametrize("unread", [17, 40])
async def test_a_stream_trimmed_past_the_offset_is_an_alarm(galaxy: FaultyGalaxy, unread: int) -> None:
    await trim(galaxy, unread=unread)
    assert await galaxy.number("SELECT count(*) FROM records") == 81 - unread


async def test_trimming_what_was_read_is_no_alarm(galaxy: FaultyGalaxy) -> None:
    await trim(galaxy, unread=0)
    assert await galaxy.number("SELECT count(*) FROM records") == 81
