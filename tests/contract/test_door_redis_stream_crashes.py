"""Readers of a Redis stream as processes: killed at every point, frozen past their lease, and taken over from."""

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from redis.asyncio import Redis

from tests.support.process import Program
from tests.support.servers import Redis as RedisServer
from tests.support.sources import ROOT
from tests.support.stream_door import LEASE, OFFSET, STREAM, add, becomes, client, offset_becomes
from tests.support.stream_reader import Journal
from tests.support.waiting import until

pytestmark = pytest.mark.slow


class Fleet:
    """Reader processes over one journal."""

    def __init__(self, server: RedisServer, folder: Path, stack: ExitStack) -> None:
        self._arguments = (str(server.port), str(folder / "journal.db"))
        self._stack = stack
        self.journal = Journal(folder / "journal.db")
        stack.callback(self.journal.close)

    def start(self, faults: str = "") -> Program:
        command = [sys.executable, "-m", "tests.support.stream_reader"]
        environment = {"CARILLON_FAULTPOINTS": faults}
        return self._stack.enter_context(Program(*self._arguments, env=environment, cwd=ROOT, command=command))

    async def until_written(self, ids: list[str]) -> None:
        await becomes(lambda: len(self.journal.ids()) >= len(ids), f"{len(ids)} rows", seconds=60)
        assert self.journal.ids() == ids


@pytest.fixture
def fleet(redis_server: RedisServer, tmp_path: Path) -> Iterator[Fleet]:
    redis_server.flush()
    with ExitStack() as stack:
        yield Fleet(redis_server, tmp_path, stack)


@pytest.fixture
async def redis(redis_server: RedisServer) -> AsyncIterator[Redis]:
    async with client(redis_server.port) as found:
        yield found


POINTS = ("after_stream_read", "after_accept_commit", "before_stream_offset")
HITS = {1: 350, 2: 350, 10: 1200}
"""Which pass of a point is hit, and how many entries make sure that it comes; a batch has a hundred."""


async def never_ahead(fleet: Fleet, redis: Redis) -> None:
    done = (await redis.get(OFFSET)) or "0-0"
    assert done == "0-0" or done in fleet.journal.ids(), "the offset is never ahead of what is written"


@pytest.mark.req("S1-60", "S1-65", "S1-66")
@pytest.mark.parametrize("point", POINTS)
async def test_death_at_every_point_loses_nothing_and_doubles_nothing(fleet: Fleet, redis: Redis, point: str) -> None:
    ids: list[str] = []
    for hit, entries in HITS.items():
        ids += await add(redis, *range(entries))
        program = fleet.start(f"{point}=exit9@{hit}")
        assert await asyncio.to_thread(program.wait, 60) == -9, f"{point}@{hit} was not hit"
        await never_ahead(fleet, redis)
    fleet.start()
    await fleet.until_written(ids)
    await offset_becomes(redis, ids[-1])


@pytest.mark.req("P-660")
@pytest.mark.parametrize("point", POINTS)
async def test_an_error_at_every_point_is_gone_over(fleet: Fleet, redis: Redis, point: str) -> None:
    ids: list[str] = []
    for hit, entries in HITS.items():
        program = fleet.start(f"{point}=raise@{hit}")
        ids += await add(redis, *range(entries))
        await fleet.until_written(ids)
        await offset_becomes(redis, ids[-1])
        assert f"faultpoint {point}: raise" in program.noise, f"{point}@{hit} was not hit"
        program.terminate()
        assert await asyncio.to_thread(program.wait, 60) == 0


def _said(program: Program, text: str) -> bool:
    return text in program.noise


@pytest.mark.req("P-660")
@pytest.mark.parametrize("point", POINTS)
async def test_a_hang_at_every_point_moves_nothing_back(fleet: Fleet, redis: Redis, point: str) -> None:
    ids: list[str] = []
    for hit, entries in HITS.items():
        ids += await add(redis, *range(entries))
        zombie = fleet.start(f"{point}=stop@{hit}")
        await becomes(partial(_said, zombie, f"faultpoint {point}: stop"), f"{point}@{hit}", seconds=60)
        heir = fleet.start()
        # Its lease has to end first.
        await fleet.until_written(ids)
        await offset_becomes(redis, ids[-1])
        zombie.cont()
        ids += await add(redis, *range(50))
        await fleet.until_written(ids)
        await offset_becomes(redis, ids[-1])
        for program in (zombie, heir):
            program.terminate()
            assert await asyncio.to_thread(program.wait, 60) == 0


@pytest.mark.req("S1-56", "S1-67", "S1-70")
async def test_three_readers_whose_active_one_keeps_being_killed(fleet: Fleet, redis: Redis) -> None:
    readers = [fleet.start() for _ in range(3)]
    ids: list[str] = []
    for _ in range(3):
        ids += await add(redis, *range(800))
        active = await _active(redis, readers)
        active.kill()
        readers.remove(active)
        readers.append(fleet.start())
    ids += await add(redis, *range(100))
    await fleet.until_written(ids)
    await offset_becomes(redis, ids[-1])
    assert await redis.xinfo_groups(STREAM) == []


async def _active(redis: Redis, readers: list[Program]) -> Program:
    """The holder of the lease, once a living process holds it."""
    found: list[Program] = []

    async def held() -> bool:
        holder = await redis.get(LEASE)
        found[:] = [reader for reader in readers if holder == f"pid-{reader.pid}"]
        return bool(found)

    await until(held, timeout=40, what="a living reader with the lease")
    return found[0]


async def test_a_reader_that_slept_through_its_lease_moves_nothing_back(fleet: Fleet, redis: Redis) -> None:
    readers = [fleet.start(), fleet.start()]
    ids = await add(redis, *range(50))
    await fleet.until_written(ids)
    sleeper = await _active(redis, readers)
    sleeper.stop()
    ids += await add(redis, *range(50))
    heir = await _active(redis, [reader for reader in readers if reader is not sleeper])
    await fleet.until_written(ids)
    await offset_becomes(redis, ids[-1])
    before = sleeper.mark()
    sleeper.cont()
    await sleeper.until("part_stopped", since=before, timeout=40)
    assert await redis.get(OFFSET) == ids[-1]
    assert await _active(redis, readers) is heir
    ids += await add(redis, *range(50))
    await fleet.until_written(ids)


@pytest.mark.req("S1-189")
async def test_a_terminated_reader_leaves_no_lease(fleet: Fleet, redis: Redis) -> None:
    reader = fleet.start()
    ids = await add(redis, *range(50))
    await offset_becomes(redis, ids[-1])
    reader.terminate()
    assert await asyncio.to_thread(reader.wait, 60) == 0
    assert await redis.exists(LEASE) == 0
