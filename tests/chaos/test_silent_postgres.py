"""SIGTERM while PostgreSQL is frozen: no statement is waited for beyond the time to shut down, and nothing is lost."""

import asyncio
from collections.abc import Callable
from datetime import datetime
from functools import partial
from pathlib import Path

import pytest

from tests.chaos import galaxy_promises as promises
from tests.chaos import properties
from tests.chaos.properties import ViolationError, ends_in_time, hold
from tests.chaos.test_drain import answered
from tests.support.ending import Ending
from tests.support.galaxy_faults import READER_LEASE, FaultyGalaxy
from tests.support.process import Program
from tests.support.servers import Postgres, Redis
from tests.support.stand import Rules, Stand
from tests.support.vendor import Reply
from tests.support.waiting import until

# A statement may take far longer than the end, and the end no longer than it was told.
STATEMENT, SHUTDOWN, CLOSING = "300s", 5.0, 0.5
NUMBER = 300


def stopped_at(program: Program, part: str) -> float:
    (line,) = (line for line in program.events("part_stopped") if line["part"] == part)
    return datetime.fromisoformat(line["timestamp"]).timestamp()


async def galaxy_ended(stand: FaultyGalaxy, server: Postgres, mutant: str | None = None) -> Ending:
    """In the midst of reading and publishing, and then gone through by an heir."""
    program = await stand.run(mutant=mutant)
    await stand.intents(range(NUMBER))
    await stand.has("SELECT count(*) FROM routes WHERE status = 'published'", 10)
    server.pause()
    ending = await asyncio.to_thread(ends_in_time, program, SHUTDOWN, server)
    # By the program's own clock, which begins when it hears the signal.
    parts = stopped_at(program, "email_publisher") - stopped_at(program, "http")
    hold("ends_in_time", parts < SHUTDOWN - CLOSING, f"the last part ended after {parts:.1f} s")
    await stand.redis.delete(READER_LEASE)
    await stand.run()
    await stand.flowed(NUMBER)
    await promises.nothing_lost(stand)
    return ending


def galaxy_on(folder: Path, postgres: Postgres, redis: Redis) -> FaultyGalaxy:
    return FaultyGalaxy(folder, postgres.database(), redis, NOTIFICATION_POSTGRES_OPERATION_TIMEOUT=STATEMENT)


@pytest.mark.req("S1-161", "S1-189")
async def test_a_galaxy_ends_in_time(
    tmp_path: Path, own_postgres: Postgres, own_galaxy_redis: Redis, figures: Callable[..., None]
) -> None:
    async with galaxy_on(tmp_path, own_postgres, own_galaxy_redis) as stand:
        ending = await galaxy_ended(stand, own_postgres)
        repeated = await promises.repeats(stand, 1000)
        figures(shutdown=SHUTDOWN, statement=STATEMENT, repeats=repeated, **ending.figures())


async def test_a_process_that_waits_for_the_server_is_missed(
    tmp_path: Path, own_postgres: Postgres, own_galaxy_redis: Redis
) -> None:
    async with galaxy_on(tmp_path, own_postgres, own_galaxy_redis) as stand:
        with pytest.raises(ViolationError) as caught:
            await galaxy_ended(stand, own_postgres, "left_late")
    assert caught.value.promise == "ends_in_time"


@pytest.mark.req("G-06")
async def test_with_requests_and_calls_under_way(
    tmp_path: Path, own_postgres: Postgres, figures: Callable[..., None]
) -> None:
    """One call hangs, others wait to be settled, and eight requests wait to be accepted."""
    rules = Rules(lease=20, timeout=15, concurrency=100, drain=SHUTDOWN)
    async with Stand(tmp_path / "stand", own_postgres.database(), rules) as stand:
        program = await stand.start(env={"CARILLON_LEDGER__OPERATION_TIMEOUT_SECONDS": STATEMENT})
        stand.vendor.default = Reply(hang=True)
        await stand.send(stand.webhooks(["hanging"]))
        await stand.vendor.until(1)
        stand.vendor.default = Reply(delay=0.1)
        names = [f"m{place}" for place in range(NUMBER)]
        producing = asyncio.create_task(stand.send(stand.webhooks(names), at_once=8, within=120))
        await until(partial(answered, stand, NUMBER // 3), timeout=40, what="answers under load")
        own_postgres.pause()
        ending = await asyncio.to_thread(ends_in_time, program, SHUTDOWN, own_postgres)
        await stand.start()
        await producing
        await stand.until_terminal(NUMBER + 1)
        await properties.nothing_lost(stand)
        await properties.all_published(stand)
        figures(shutdown=SHUTDOWN, statement=STATEMENT, **ending.figures())
