"""A process killed between two of its steps: what it had promised is kept, what it repeats is recognised."""

import asyncio
from collections.abc import Callable

import pytest

from tests.chaos import galaxy_promises as promises
from tests.chaos.properties import hold
from tests.support.galaxy_faults import READER_LEASE, FaultyGalaxy
from tests.support.process import Program

_RECORDS = "SELECT notification_id, accepted_at FROM records ORDER BY notification_id"
NO_ADDRESS = {"email": "", "preferred_language": "en"}


async def dies(program: Program) -> None:
    assert await asyncio.to_thread(program.wait, 60) == -9


async def next_reader(stand: FaultyGalaxy) -> Program:
    """The heir, without waiting for the end of a dead reader's lease: that is another test's matter."""
    await stand.redis.delete(READER_LEASE)
    return await stand.run()


async def kill_after_publishing(stand: FaultyGalaxy, channel: str, point: str, mutant: str | None = None) -> int:
    """One intent of this channel alone, whose entry is in its stream when the process dies; returns the repeats."""
    if channel == "push":
        stand.users.people |= {"user-1": NO_ADDRESS, "user-2": NO_ADDRESS}
    await stand.intents(["m"], "game.turn.ready" if channel == "push" else "lobby.invite.expired")
    program = await stand.run(mutant=mutant, faults=f"{point}=exit9")
    await dies(program)
    (first,) = (await promises.published(stand)).values()
    assert len(first) == 1
    settled = await stand.number("SELECT count(*) FROM routes WHERE status = 'published'")
    hold("published_first", settled == (point == "after_settle"), f"{settled} routes settled before the kill")
    await stand.run(mutant=mutant)
    await stand.flowed(1)
    await promises.nothing_lost(stand)
    return await promises.repeats(stand, 1)


@pytest.mark.req("S1-121", "S1-123")
@pytest.mark.parametrize(
    ("channel", "point", "repeated"),
    [
        ("push", "after_provider_ok", 1),
        ("email", "after_provider_ok", 1),
        ("push", "before_settle", 1),
        ("email", "before_settle", 1),
        ("email", "after_settle", 0),
    ],
)
async def test_killed_between_xadd_and_commit(galaxy: FaultyGalaxy, channel: str, point: str, repeated: int) -> None:
    assert await kill_after_publishing(galaxy, channel, point) == repeated
    counts = await galaxy.rows("SELECT attempt_count AS n FROM routes WHERE status = 'published' ORDER BY 1")
    assert [row["n"] for row in counts] == [1, 1 + repeated]


async def kill_during_acceptance(stand: FaultyGalaxy, number: int, mutant: str | None = None) -> int:
    """The process dies in the midst of the statement that writes records and routes; returns how many it had read."""
    first = await stand.run(roles="doors")
    ids = await stand.intents(range(number))
    # The records are written before the offset: a reader that dies between the two is the subject of the next test.
    await stand.offset_reaches(ids[-1])
    async with stand.locked("routes"):
        await asyncio.to_thread(first.kill)
        await stand.redis.delete(READER_LEASE)
        before = await stand.offset()
        program = await stand.run(roles="doors", mutant=mutant)
        await stand.intents(range(number, 2 * number))
        await stand.somebody_waits()
        await asyncio.to_thread(program.kill)
    await promises.both_or_none(stand)
    written = await stand.number("SELECT count(*) FROM records") - number
    after = await stand.offset()
    await next_reader(stand)
    await stand.flowed(len(stand.keys) if mutant is None else number)
    await promises.nothing_lost(stand)
    hold("offset_behind_commit", written > 0 or after == before, f"{before} to {after} with nothing written")
    return await promises.repeats(stand)


@pytest.mark.req("S1-65", "S1-99")
async def test_killed_during_acceptance_leaves_both_or_none(galaxy: FaultyGalaxy) -> None:
    assert await kill_during_acceptance(galaxy, 100) == 0
    assert await promises.both_or_none(galaxy) == 200


@pytest.mark.req("S1-56", "S1-65", "S1-66")
@pytest.mark.parametrize("point", ["after_stream_read", "after_accept_commit", "before_stream_offset"])
async def test_killed_before_the_offset_is_written(
    galaxy: FaultyGalaxy, point: str, figures: Callable[..., None]
) -> None:
    """What was committed is read again and absorbed; what was not is accepted then."""
    ids = await galaxy.intents(range(120))
    await dies(galaxy.begin(roles="doors", faults=f"{point}=exit9"))
    assert await galaxy.offset() is None
    committed = await promises.both_or_none(galaxy)
    assert committed == (0 if point == "after_stream_read" else 120)
    before = await galaxy.rows(_RECORDS)
    await next_reader(galaxy)
    await galaxy.offset_reaches(ids[-1])
    await galaxy.flowed(120)
    await promises.nothing_lost(galaxy)
    assert await promises.repeats(galaxy) == 0
    after = await galaxy.rows(_RECORDS)
    assert [row for row in after if row in before] == before
    assert await galaxy.number("SELECT count(*) FROM malformed_intents") == 0
    figures(point=point, intents=120, committed=committed, repeats=0)
