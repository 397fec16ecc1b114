"""Redis killed and started again under load: with its log it loses nothing, without it we keep what we accepted."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.chaos import galaxy_promises as promises
from tests.chaos.properties import hold
from tests.support.galaxy_faults import FaultyGalaxy
from tests.support.galaxy_stand import GATEWAY, INTENTS, MAIL, PASSWORD
from tests.support.process import Program
from tests.support.servers import Postgres, Redis
from tests.support.waiting import until

RECORDS = "SELECT count(*) FROM records"
AT_ONCE = 1000
"""Routes that one process has in hand at most."""


@pytest.fixture
def own_redis(request: pytest.FixtureRequest) -> Iterator[Redis]:
    """Not the one that other tests share: this one dies."""
    with Redis(password=PASSWORD, appendonly=request.param) as server:
        yield server


@asynccontextmanager
async def galaxy_on(folder: Path, postgres: Postgres, redis: Redis) -> AsyncIterator[FaultyGalaxy]:
    dsn = postgres.database()
    async with FaultyGalaxy(folder, dsn, redis) as stand:
        yield stand
    postgres.drop(dsn)


async def outage(stand: FaultyGalaxy, program: Program) -> None:
    """Redis is gone for as many failures as would have spent every budget several times over."""
    since = program.mark()
    await asyncio.to_thread(stand.server.kill)

    async def suffered() -> bool:
        troubles = [line for line in program.lines[since:] if line.get("event") == "trouble"]
        return "redis_stream" in {line["where"] for line in troubles} and len(troubles) >= 6

    await until(suffered, timeout=60, what="a process that misses its Redis")
    await stand.redis_returns()


async def restarted_under_load(
    stand: FaultyGalaxy, number: int, kills: int, mutant: str | None = None
) -> tuple[Program, int, int]:
    """Intents arrive, Redis goes and comes; returns the process, the repeats, and the routes with a second attempt."""
    program = await stand.run(mutant=mutant)
    producing = asyncio.create_task(stand.insist(range(number)))
    for turn in range(1, kills + 1):
        await stand.has(RECORDS, turn * number // (kills + 2))
        await outage(stand, program)
    await producing
    await stand.flowed(number)
    hold("heals_alone", program.returncode is None, program.returncode)
    paid = await promises.no_budget_spent(stand, kills)
    await promises.nothing_lost(stand)
    repeated = await promises.repeats(stand, kills * AT_ONCE)
    hold("repeats_bounded", repeated <= paid, f"{repeated} repeats, {paid} routes with a second attempt")
    return program, repeated, paid


@pytest.mark.req("S1-66", "S1-123")
@pytest.mark.parametrize("own_redis", [True], indirect=True)
async def test_redis_restarted_with_its_log_loses_nothing(
    tmp_path: Path, postgres: Postgres, own_redis: Redis, figures: Callable[..., None]
) -> None:
    number, kills = 400, 2
    async with galaxy_on(tmp_path, postgres, own_redis) as stand:
        program, repeated, paid = await restarted_under_load(stand, number, kills)
        assert program.events("stream_trimmed") == []
        last = (await stand.redis.xinfo_stream(INTENTS))["last-generated-id"].decode()
        await stand.offset_reaches(last)
        figures(intents=number, kills=kills, repeats=repeated, second_attempts=paid)


@pytest.mark.req("S1-66", "S1-123")
@pytest.mark.parametrize("own_redis", [True], indirect=True)
async def test_an_offset_that_redis_never_stored_is_not_called_lost(
    tmp_path: Path, postgres: Postgres, own_redis: Redis
) -> None:
    """Redis goes while the first entries are written, and returns with its log before their offset is stored."""
    async with galaxy_on(tmp_path, postgres, own_redis) as stand:
        door = await stand.run(roles="doors")
        async with stand.locked("routes"):
            ids = await stand.intents(range(30))
            await stand.somebody_waits()
            await asyncio.to_thread(stand.server.kill)
        await stand.has(RECORDS, 1)
        await door.until("trouble", lambda line: line["where"] == "redis_stream")
        await stand.redis_returns()
        await stand.offset_reaches(ids[-1])
        assert await stand.number(RECORDS) == len(ids)
        assert door.events("stream_trimmed") == []


@pytest.mark.req("S1-63", "S1-66")
@pytest.mark.parametrize("own_redis", [False], indirect=True)
async def test_redis_restarted_empty_keeps_what_was_accepted(
    tmp_path: Path, postgres: Postgres, own_redis: Redis, figures: Callable[..., None]
) -> None:
    accepted, new, repeated = 150, 60, 30
    async with galaxy_on(tmp_path, postgres, own_redis) as stand:
        door = await stand.run(roles="doors")
        ids = await stand.intents(range(accepted))
        await stand.offset_reaches(ids[-1])
        await asyncio.to_thread(stand.server.kill)
        await door.until("trouble", timeout=40)
        await stand.redis_returns()
        assert await stand.redis.dbsize() == 0
        # Nothing of these is in Redis any more; and producers repeat some that they are not sure about.
        await stand.intents(range(accepted - repeated, accepted))
        last = (await stand.intents(range(accepted, accepted + new)))[-1]
        await stand.offset_reaches(last)
        await door.until("stream_trimmed", timeout=40)
        worker = await stand.run(roles="outbound")
        await stand.flowed(accepted + new)
        await promises.nothing_lost(stand)
        assert await stand.number(RECORDS) == accepted + new
        assert await promises.repeats(stand) == 0
        assert await stand.redis.xlen(GATEWAY) == await stand.redis.xlen(MAIL) == 2 * (accepted + new)
        await promises.no_budget_spent(stand, 0)
        assert (door.returncode, worker.returncode) == (None, None)
        figures(accepted=accepted, new=new, repeated_by_producers=repeated, published=4 * (accepted + new), repeats=0)
