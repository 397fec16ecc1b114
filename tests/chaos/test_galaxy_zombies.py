"""A replica that is suspended for longer than its lease changes no route that another one holds by then."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.chaos import galaxy_promises as promises
from tests.chaos.properties import hold
from tests.chaos.test_zombies import is_stopped
from tests.support.galaxy_faults import READER_LEASE, FaultyGalaxy
from tests.support.galaxy_stand import GATEWAY, MAIL
from tests.support.process import Program
from tests.support.waiting import until

EMAILS_ONLY = "lobby.invite.expired"
THE_ROUTE = "SELECT * FROM routes WHERE attempt_count > 0"
LATER = "UPDATE routes SET next_attempt_at = now() + interval '1 hour' WHERE attempt_count = 0 AND status = 'pending'"
NOW = "UPDATE routes SET next_attempt_at = now() WHERE attempt_count = 0 AND status = 'pending'"


async def stops(program: Program) -> None:
    async def stopped() -> bool:
        return is_stopped(program)

    await until(stopped, timeout=60, what="a process stopped at its point")


async def end(program: Program) -> None:
    """Its last words to Redis and PostgreSQL are spoken when this returns."""
    program.cont()
    program.terminate()
    assert await asyncio.to_thread(program.wait, 60) == 0


async def zombie_with_one_route(stand: FaultyGalaxy, mutant: str | None) -> Program:
    """Stop a replica between its outcome and its settlement, with no other work for the next replica."""
    await stand.run(roles="doors")
    await stand.intents(["m"], EMAILS_ONLY)
    await stand.has("SELECT count(*) FROM records", 1)
    zombie = await stand.run(roles="outbound", mutant=mutant, faults="before_settle=stop")
    await stops(zombie)
    await stand.execute(LATER)
    return zombie


async def late_success(stand: FaultyGalaxy, mutant: str | None = None) -> None:
    """A stops behind its XADD, B publishes the route as well and settles; A is woken and has its say."""
    zombie = await zombie_with_one_route(stand, mutant)
    heir = await stand.run(roles="outbound")
    fresh = await stand.row_once(f"{THE_ROUTE} AND status = 'published'")
    await has_its_say(zombie)
    hold("zombie_changed_nothing", await stand.rows(THE_ROUTE) == [fresh], (fresh, await stand.rows(THE_ROUTE)))
    await stand.execute(NOW)
    await stand.flowed(1)
    await promises.nothing_lost(stand)
    await promises.repeats(stand, 1)
    assert heir.returncode is None


async def stale_failure(stand: FaultyGalaxy, mutant: str | None = None) -> None:
    """A stops with a failure in its hands, B has published the route and is about to settle when A is woken."""
    await stand.redis.set(MAIL, "no stream")
    zombie = await zombie_with_one_route(stand, mutant)
    await stand.redis.delete(MAIL)
    heir = await stand.run(roles="outbound", faults="before_settle=stop")
    await stops(heir)
    # However long A takes for its say, the route stays B's.
    for held in await stand.leases():
        await stand.redis.persist(held)
    (fresh,) = await stand.rows(THE_ROUTE)
    await has_its_say(zombie)
    hold("zombie_changed_nothing", await stand.rows(THE_ROUTE) == [fresh], (fresh, await stand.rows(THE_ROUTE)))
    heir.cont()
    await stand.execute(NOW)
    await stand.flowed(1)
    await promises.nothing_lost(stand)
    await promises.repeats(stand)


async def has_its_say(zombie: Program) -> None:
    zombie.cont()
    said = await zombie.until("route_attempted")
    await end(zombie)
    assert said["attempt"] == 1


@pytest.mark.req("S1-122")
@pytest.mark.parametrize("scenario", [late_success, stale_failure])
async def test_a_stale_holder_changes_no_row(
    galaxy: FaultyGalaxy, scenario: Callable[[FaultyGalaxy], Awaitable[None]]
) -> None:
    await scenario(galaxy)
    counts = await galaxy.rows("SELECT attempt_count AS n FROM routes WHERE status = 'published' ORDER BY 1")
    assert [row["n"] for row in counts] == [1, 2]


async def release_of_another(stand: FaultyGalaxy, mutant: str | None = None) -> None:
    """A stops before it settles, B has the route and stops too; A is woken and gives back what it believes to hold."""
    zombie = await zombie_with_one_route(stand, mutant)
    (held,) = await stand.leases()
    heir = await stand.run(roles="outbound", faults="before_settle=stop")
    await stops(heir)
    before = await stand.leases()
    hold("lease_untouched", set(before) == {held}, before)
    # Not by its own end but by A's hand, or not at all, may this lease go.
    await stand.redis.persist(held)
    await end(zombie)
    hold("lease_untouched", await stand.leases() == before, (before, await stand.leases()))


@pytest.mark.req("S1-118", "S1-119")
async def test_a_zombie_leaves_the_lease_of_its_heir_alone(galaxy: FaultyGalaxy) -> None:
    await release_of_another(galaxy)


async def reader_of_another(stand: FaultyGalaxy, mutant: str | None = None) -> None:
    """The active reader is stopped, another takes over; the first is woken to its end and must not end the other."""
    first = await stand.run(mutant=mutant)
    await stand.offset_reaches((await stand.intents(range(20)))[-1])
    # Nothing is in its hands but the reading: what it had begun to publish, another would rightly repeat.
    await stand.flowed(20)
    first.stop()
    # Its time is over, sooner than the clock would have it.
    await stand.redis.delete(READER_LEASE)
    second = await stand.run()
    last = (await stand.intents(range(20, 60)))[-1]
    await stand.offset_reaches(last)
    await stand.flowed(60)
    holder = await stand.reader()
    hold("reader_untouched", holder is not None and f"/{second.pid}" in holder, holder)
    second.stop()
    await stand.redis.persist(READER_LEASE)
    await end(first)
    hold("reader_untouched", await stand.reader() == holder, (holder, await stand.reader()))
    second.cont()
    await stand.offset_reaches((await stand.intents(range(60, 70)))[-1])
    await stand.flowed(70)
    await promises.nothing_lost(stand)
    await promises.repeats(stand)


@pytest.mark.req("S1-70")
async def test_a_woken_reader_leaves_its_heir_alone(galaxy: FaultyGalaxy) -> None:
    await reader_of_another(galaxy)
    assert await galaxy.redis.xlen(GATEWAY) == 140
