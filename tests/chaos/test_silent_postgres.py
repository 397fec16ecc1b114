"""SIGTERM while PostgreSQL is frozen: no statement is waited for beyond the time to shut down, and nothing is lost."""

import asyncio
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from pathlib import Path
from subprocess import TimeoutExpired

import pytest

from tests.chaos import galaxy_promises as promises
from tests.chaos import properties
from tests.chaos.properties import ViolationError, hold
from tests.chaos.test_drain import answered
from tests.support.galaxy_faults import READER_LEASE, FaultyGalaxy
from tests.support.galaxy_stand import PASSWORD
from tests.support.process import Program
from tests.support.servers import Postgres, Redis
from tests.support.stand import Rules, Stand
from tests.support.vendor import Reply
from tests.support.waiting import until

# A statement may take far longer than the end, and the end no longer than it was told; a busy machine has its share.
STATEMENT, SHUTDOWN, CLOSING, BUSY = "300s", 5.0, 0.5, 15.0
NUMBER = 300


@pytest.fixture
def own_postgres() -> Iterator[Postgres]:
    with Postgres(durable=True) as server:
        yield server


@pytest.fixture
def own_redis() -> Iterator[Redis]:
    with Redis(password=PASSWORD, appendonly=True) as server:
        yield server


async def ended(program: Program, server: Postgres) -> float:
    """How long it took; PostgreSQL answers again only when that is known."""
    began = time.monotonic()
    program.terminate()
    try:
        code: int | None = await asyncio.to_thread(program.wait, SHUTDOWN + BUSY)
    except TimeoutExpired:
        code = None
    finally:
        server.resume()
    took = time.monotonic() - began
    hold("ends_in_time", code == 0, f"exit code {code} after {took:.1f} s")
    return took


def stopped_at(program: Program, part: str) -> float:
    (line,) = (line for line in program.events("part_stopped") if line["part"] == part)
    return datetime.fromisoformat(line["timestamp"]).timestamp()


async def galaxy_ended(stand: FaultyGalaxy, server: Postgres, mutant: str | None = None) -> float:
    """In the midst of reading and publishing, and then gone through by an heir."""
    program = await stand.run(mutant=mutant)
    await stand.intents(range(NUMBER))
    await stand.has("SELECT count(*) FROM routes WHERE status = 'published'", 10)
    server.pause()
    took = await ended(program, server)
    # By the program's own clock, which begins when it hears the signal.
    parts = stopped_at(program, "email_publisher") - stopped_at(program, "http")
    hold("ends_in_time", parts < SHUTDOWN - CLOSING, f"the last part ended after {parts:.1f} s")
    await stand.redis.delete(READER_LEASE)
    await stand.run()
    await stand.flowed(NUMBER)
    await promises.nothing_lost(stand)
    return took


def galaxy_on(folder: Path, postgres: Postgres, redis: Redis) -> FaultyGalaxy:
    return FaultyGalaxy(folder, postgres.database(), redis, NOTIFICATION_POSTGRES_OPERATION_TIMEOUT=STATEMENT)


@pytest.mark.req("S1-161", "S1-189")
async def test_a_galaxy_ends_in_time(
    tmp_path: Path, own_postgres: Postgres, own_redis: Redis, figures: Callable[..., None]
) -> None:
    async with galaxy_on(tmp_path, own_postgres, own_redis) as stand:
        took = await galaxy_ended(stand, own_postgres)
        repeated = await promises.repeats(stand, 1000)
        figures(shutdown=SHUTDOWN, statement=STATEMENT, ended_after=round(took, 1), repeats=repeated)


async def test_a_process_that_waits_for_the_server_is_missed(
    tmp_path: Path, own_postgres: Postgres, own_redis: Redis
) -> None:
    async with galaxy_on(tmp_path, own_postgres, own_redis) as stand:
        with pytest.raises(ViolationError) as caught:
            await galaxy_ended(stand, own_postgres, "silence_waited_out")
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
        took = await ended(program, own_postgres)
        await stand.start()
        await producing
        await stand.until_terminal(NUMBER + 1)
        await properties.nothing_lost(stand)
        await properties.all_published(stand)
        figures(shutdown=SHUTDOWN, statement=STATEMENT, ended_after=round(took, 1))
