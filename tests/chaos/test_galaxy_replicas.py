"""Three replicas and five thousand intents: one reads, all publish, and the reader is killed in the middle."""

import asyncio
from collections.abc import Callable

import pytest

from tests.chaos import galaxy_promises as promises
from tests.chaos.properties import hold
from tests.chaos.test_clocks import LIBRARY, wrong_clock
from tests.support.galaxy_faults import FaultyGalaxy
from tests.support.galaxy_stand import GATEWAY, MAIL
from tests.support.process import Program
from tests.support.waiting import until

INTENTS, REPLICAS = 5000, 3
HELD = "SELECT count(*) FROM routes_held WHERE held_by LIKE $1"
TIMES_OFF = """
SELECT count(*)
FROM records, unnest(ARRAY[accepted_at, updated_at, idempotency_expires_at - interval '168 hours']) AS t
WHERE abs(extract(epoch FROM now() - t)) > 120
"""


async def stopped_in_mid_publication(stand: FaultyGalaxy, program: Program) -> int:
    """SIGSTOP until it is met with routes in its hands; how many these are."""
    held: list[int] = []

    async def met() -> bool:
        program.stop()
        held.append(await stand.number(HELD, f"%/{program.pid}"))
        if held[-1] == 0:
            program.cont()
        return held[-1] > 0

    await until(met, timeout=60, what="a reader that publishes")
    return held[-1]


@pytest.mark.req("S1-56", "S1-70", "S1-122", "S1-123")
@pytest.mark.timeout(360)
async def test_three_replicas_and_a_killed_reader(galaxy: FaultyGalaxy, figures: Callable[..., None]) -> None:
    replicas = await asyncio.gather(*(galaxy.run() for _ in range(REPLICAS)))
    reader = await galaxy.active()
    await galaxy.intents(range(INTENTS))
    await galaxy.has("SELECT count(*) FROM records", INTENTS // 2)
    hold("one_reader", await galaxy.active() is reader, "the lease changed hands under load")
    held = await stopped_in_mid_publication(galaxy, reader)
    await asyncio.to_thread(reader.kill)
    await galaxy.flowed(INTENTS, within=200)
    heirs = [replica for replica in replicas if replica is not reader]
    assert await galaxy.active() in heirs
    assert await promises.nothing_lost(galaxy) == 4 * INTENTS
    assert await galaxy.number("SELECT count(*) FROM records") == INTENTS
    repeated = await promises.repeats(galaxy, held)
    figures(intents=INTENTS, replicas=REPLICAS, routes=4 * INTENTS, kills=1, repeats=repeated, in_flight=held)


@pytest.mark.req("S1-70", "S1-124")
@pytest.mark.skipif(LIBRARY is None, reason="libfaketime is not installed")
async def test_replicas_with_wrong_clocks_publish_once(galaxy: FaultyGalaxy, figures: Callable[..., None]) -> None:
    """One an hour ahead and one an hour behind: leases, waits and times written are PostgreSQL's and Redis's."""
    clocks: tuple[dict[str, str], ...] = ({}, wrong_clock("+1h"), wrong_clock("-1h"))
    replicas = await asyncio.gather(*(galaxy.run(env=clock) for clock in clocks))
    ids = await galaxy.intents(range(300))
    await galaxy.flowed(300)
    assert await promises.nothing_lost(galaxy) == 1200
    assert await promises.repeats(galaxy) == 0
    assert (await galaxy.redis.xlen(GATEWAY), await galaxy.redis.xlen(MAIL)) == (600, 600)
    await galaxy.offset_reaches(ids[-1])
    hold("times_are_postgres's", await galaxy.number(TIMES_OFF) == 0, "a time of a wrong clock was written")
    worked = [len(replica.events("route_attempted")) for replica in replicas]
    figures(intents=300, clocks="0 +1h -1h", repeats=0, attempts_by_replica=worked)
