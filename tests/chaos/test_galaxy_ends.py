"""SIGTERM while something else is silent: the end comes all the same, in time and with exit code 0."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.chaos import galaxy_promises as promises
from tests.chaos.properties import ends_in_time
from tests.support.galaxy_faults import READER_LEASE, FaultyGalaxy
from tests.support.servers import Postgres, Redis
from tests.support.vendor import Reply

NUMBER = 300
# The end takes no longer than it was told, the door's last statement and the cut included.
SHUTDOWN = 5.0
PATIENCE = {"NOTIFICATION_POSTGRES_OPERATION_TIMEOUT": "2s"}


@pytest.mark.req("S1-189")
@pytest.mark.parametrize("away", ["redis", "postgres", "users"])
async def test_sigterm_while_something_is_silent(
    tmp_path: Path, own_postgres: Postgres, own_galaxy_redis: Redis, away: str, figures: Callable[..., None]
) -> None:
    async with FaultyGalaxy(tmp_path, own_postgres.database(), own_galaxy_redis, **PATIENCE) as stand:
        program = await stand.run()
        await stand.intents(range(NUMBER))
        await stand.has("SELECT count(*) FROM routes WHERE status = 'published'", 10)
        if away == "users":
            stand.users.default = Reply(hang=True)
            asked = len(stand.users.entries)
            await stand.intents(range(NUMBER, NUMBER + 50))
            await stand.users.until(asked + 1)
            ending = await asyncio.to_thread(ends_in_time, program, SHUTDOWN)
            stand.users.default = stand.users.known
        else:
            server = own_galaxy_redis if away == "redis" else own_postgres
            server.pause()
            ending = await asyncio.to_thread(ends_in_time, program, SHUTDOWN, server)
        await stand.redis.delete(READER_LEASE)
        await stand.run()
        await stand.flowed(len(stand.keys))
        await promises.nothing_lost(stand)
        repeated = await promises.repeats(stand, 1000)
        figures(away=away, repeats=repeated, **ending.figures())
