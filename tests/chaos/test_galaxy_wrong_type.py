"""An outgoing stream whose key is something else: budgets end in the dead letters, siblings do not notice."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.chaos import galaxy_promises as promises
from tests.chaos.properties import hold
from tests.support.galaxy_faults import FaultyGalaxy
from tests.support.galaxy_stand import GATEWAY, MAIL
from tests.support.waiting import until

BUDGETS = {"push": 3, "email": 7}
CLASSES = {"push": "gateway_stream_publish_failed", "email": "mail_stream_publish_failed"}
STREAMS = {"push": GATEWAY, "email": MAIL}
INTENTS = 20
# A push has few waits, so its first is long enough for a busy machine to catch it.
MINIMUM = {"push": 0.5, "email": 0.05}


async def waits_are_exact(stand: FaultyGalaxy, minimum: float, stop: asyncio.Event) -> set[int]:
    """Looks at every failed route it can catch: the wait after attempt N is the smallest, doubled N-1 times."""
    seen: set[int] = set()
    query = (
        "SELECT attempt_count AS n, (extract(epoch FROM next_attempt_at - last_error_at) * 1000)::float8 AS ms"
        " FROM routes WHERE status = 'failed' AND ticket IS NULL"
    )
    while not stop.is_set():
        for row in await stand.rows(query):
            wanted = 1000 * minimum * 2 ** (row["n"] - 1)
            hold("waits_are_exact", abs(row["ms"] - wanted) < 1, f"{row['ms']} ms after attempt {row['n']}")
            seen.add(row["n"])
        await asyncio.sleep(0.01)
    return seen


async def dead(stand: FaultyGalaxy, channel: str) -> list[dict[str, Any]]:
    return await stand.rows(
        "SELECT d.*, r.status, r.attempt_count, r.next_attempt_at, r.dead_lettered_at, r.max_attempts"
        " FROM dead_letters d JOIN routes r USING (notification_id, route_id) WHERE r.channel = $1",
        channel,
    )


@pytest.mark.req("S1-153", "S1-154", "S1-155", "S1-156", "S1-157", "S1-159", "S1-160")
@pytest.mark.parametrize("channel", ["push", "email"])
async def test_a_budget_ends_in_the_dead_letters(
    galaxy: FaultyGalaxy, channel: str, figures: Callable[..., None]
) -> None:
    other = next(name for name in STREAMS if name != channel)
    await galaxy.redis.set(STREAMS[channel], "no stream")
    minimum = MINIMUM[channel]
    await galaxy.run(env={"NOTIFICATION_ROUTE_BACKOFF_MIN": f"{minimum * 1000:.0f}ms"})
    stop = asyncio.Event()
    watching = asyncio.create_task(waits_are_exact(galaxy, minimum, stop))
    await galaxy.intents(range(INTENTS))
    await galaxy.flowed(INTENTS)
    stop.set()
    caught = await watching
    rows = await dead(galaxy, channel)
    assert len(rows) == 2 * INTENTS
    for row in rows:
        assert (row["status"], row["attempt_count"]) == ("dead_letter", BUDGETS[channel])
        assert (row["final_attempt_count"], row["max_attempts"]) == (BUDGETS[channel], BUDGETS[channel])
        assert row["failure_classification"] == CLASSES[channel]
        assert "WRONGTYPE" in row["failure_message"]
        assert row["next_attempt_at"] is None
        assert row["dead_lettered_at"] is not None
        assert row["recovery_hint"]
    siblings = await galaxy.rows("SELECT status, attempt_count FROM routes WHERE channel = $1", other)
    assert {(row["status"], row["attempt_count"]) for row in siblings} == {("published", 1)}
    entries = await galaxy.published(STREAMS[other], 2 * INTENTS)
    assert len(entries) == 2 * INTENTS
    assert await galaxy.redis.get(STREAMS[channel]) == b"no stream"
    assert caught
    figures(channel=channel, intents=INTENTS, dead_letters=len(rows), attempts=BUDGETS[channel], waits=sorted(caught))


@pytest.mark.req("S1-161", "S1-162")
@pytest.mark.parametrize("restart", [False, True])
async def test_a_stream_that_heals_within_the_budget_is_published_to(galaxy: FaultyGalaxy, restart: bool) -> None:  # noqa: FBT001 - parametrized
    """With a restart in mid-backoff as well: the count of attempts and the time of the next one are in PostgreSQL."""
    for stream in STREAMS.values():
        await galaxy.redis.set(stream, "no stream")
    first = await galaxy.run(env={"NOTIFICATION_ROUTE_BACKOFF_MIN": "4000ms"})
    await galaxy.intents(range(INTENTS))
    await galaxy.has("SELECT count(*) FROM routes WHERE status = 'failed' AND attempt_count = 1", 1)
    if restart:
        await asyncio.to_thread(first.kill)
    await galaxy.redis.delete(*STREAMS.values())
    if restart:
        await galaxy.run(env={"NOTIFICATION_ROUTE_BACKOFF_MIN": "4000ms"})
    await galaxy.flowed(INTENTS)
    await promises.nothing_lost(galaxy)
    assert await promises.repeats(galaxy) == 0
    counts = await galaxy.rows("SELECT DISTINCT attempt_count AS n FROM routes")
    assert max(row["n"] for row in counts) in (2, 3)
    assert await galaxy.number("SELECT count(*) FROM dead_letters") == 0


async def test_only_the_broken_stream_of_one_kind_costs_budget(galaxy: FaultyGalaxy) -> None:
    """The negative control of the two above: with both streams whole, no route needs a second attempt."""
    await galaxy.run()
    await galaxy.intents(range(INTENTS))
    await galaxy.flowed(INTENTS)

    async def quiet() -> bool:
        return not await galaxy.leases()

    await until(quiet, timeout=40, what="all leases given back")
    assert {row["n"] for row in await galaxy.rows("SELECT DISTINCT attempt_count AS n FROM routes")} == {1}
    await promises.nothing_left(galaxy)
