"""SIGTERM while something else is silent: the end comes all the same, in time and with exit code 0."""

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.chaos import galaxy_promises as promises
from tests.chaos.properties import hold
from tests.support.galaxy_faults import READER_LEASE, FaultyGalaxy
from tests.support.galaxy_stand import PASSWORD
from tests.support.process import Program
from tests.support.servers import Postgres, Redis
from tests.support.vendor import Reply

NUMBER = 300
# The door's last statement, then the time to drain, then the cut; and a busy machine's own share.
STATEMENT, SHUTDOWN, CUT_OFF, BUSY = 2.0, 5.0, 2.0, 15.0
PATIENCE = {"NOTIFICATION_POSTGRES_OPERATION_TIMEOUT": f"{STATEMENT}s"}


@pytest.fixture
def own_postgres() -> Iterator[Postgres]:
    with Postgres() as server:
        yield server


@pytest.fixture
def own_redis() -> Iterator[Redis]:
    with Redis(password=PASSWORD, appendonly=True) as server:
        yield server


async def ended(program: Program) -> tuple[int, float]:
    began = time.monotonic()
    program.terminate()
    return await asyncio.to_thread(program.wait, 60), time.monotonic() - began


@pytest.mark.req("S1-189")
@pytest.mark.parametrize("away", ["redis", "postgres", "users"])
async def test_sigterm_while_something_is_silent(
    tmp_path: Path, own_postgres: Postgres, own_redis: Redis, away: str, figures: Callable[..., None]
) -> None:
    async with FaultyGalaxy(tmp_path, own_postgres.database(), own_redis, **PATIENCE) as stand:
        program = await stand.run()
        await stand.intents(range(NUMBER))
        await stand.has("SELECT count(*) FROM routes WHERE status = 'published'", 10)
        if away == "users":
            stand.users.default = Reply(hang=True)
            asked = len(stand.users.entries)
            await stand.intents(range(NUMBER, NUMBER + 50))
            await stand.users.until(asked + 1)
            code, took = await ended(program)
            stand.users.default = stand.users.known
        else:
            server = own_redis if away == "redis" else own_postgres
            server.pause()
            try:
                code, took = await ended(program)
            finally:
                server.resume()
        in_time = took < STATEMENT + SHUTDOWN + CUT_OFF + BUSY
        hold("ends_well", code == 0 and in_time, f"exit code {code} after {took:.1f} s")
        await stand.redis.delete(READER_LEASE)
        await stand.run()
        await stand.flowed(len(stand.keys))
        await promises.nothing_lost(stand)
        repeated = await promises.repeats(stand, 1000)
        figures(away=away, ended_after=round(took, 1), repeats=repeated)
