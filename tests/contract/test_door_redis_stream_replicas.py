"""Several readers of one stream: one is active, another takes over, and none moves the offset back."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from types import ModuleType

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from redis.asyncio import Redis

from carillon.domain.events import PartStarted, PartStopped, StreamTrimmed
from carillon.doors.redis_stream import offset as redis_stream_offset
from carillon.doors.redis_stream import wire as redis_stream_wire
from carillon.doors.redis_stream.offset import EntryId, Position, StoredOffset, id_text
from tests.support import stream_door
from tests.support.examples import examples
from tests.support.stream_door import (
    COUNT,
    FAST,
    LEASE,
    OFFSET,
    SECONDS,
    STREAM,
    Home,
    Ledger,
    add,
    becomes,
    home,
    offset_becomes,
)

pytestmark = pytest.mark.slow

Guarded = Callable[[Redis], Awaitable[None]]


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    async with Redis.from_url(redis_url, decode_responses=True) as client:
        yield client


@pytest.mark.req("S1-70")
async def test_one_of_three_reads(redis: Redis) -> None:
    ids = await add(redis, *range(250))
    ledger = Ledger()
    async with home(redis, ledger) as one, home(redis, ledger) as two, home(redis, ledger) as three:
        ids += await add(redis, *range(250))
        await one.until_accepted(500)
        assert ledger.accepted == ids
        assert sum(len(here.seen(PartStarted)) for here in (one, two, three)) == 1
    offered = [entry for offer in ledger.offered for entry in offer]
    assert offered == ids, "nothing was read twice"


@pytest.mark.req("S1-70")
async def test_without_the_lease_each_would_read_everything(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: what the lease is for; what is written down is right all the same."""
    script = redis_stream_wire._SCRIPT  # noqa: SLF001 - the mutant must stand exactly where the script stands
    monkeypatch.setattr(redis_stream_wire, "_SCRIPT", script.replace("if not holder then", "if true then"))
    ids = await add(redis, *range(500))
    ledger = Ledger()
    ledger.open.clear()
    async with home(redis, ledger) as one, home(redis, ledger):
        await becomes(lambda: len(ledger.offered) == 2, "two offers of the same")
        assert ledger.offered[0] == ledger.offered[1]
        ledger.open.set()
        await one.until_accepted(500)
        await offset_becomes(redis, ids[-1])
    assert ledger.accepted == ids


@pytest.mark.req("S1-70")
async def test_another_takes_over_from_a_reader_that_was_killed(redis: Redis) -> None:
    first = Home(redis, Ledger(), FAST)
    ids = await add(redis, *range(3))
    await first.until_accepted(3)
    await offset_becomes(redis, ids[-1])
    async with home(redis) as second:
        await first.kill()
        left = await redis.pttl(LEASE)
        assert 0 < left <= FAST.lease_seconds * 1000, "nothing gave it back"
        loop = asyncio.get_running_loop()
        began = loop.time()
        after = await add(redis, *range(3))
        await second.until_accepted(3)
        assert loop.time() - began < FAST.lease_seconds + 15.0
        assert second.ledger.accepted == after


@pytest.mark.req("S1-70", "S1-189")
async def test_another_takes_over_at_once_from_a_reader_that_stopped(redis: Redis) -> None:
    # Longer than anything here is waited for: who does not give its lease back is not followed in time.
    patient = FAST.__class__(stream=STREAM, block_seconds=0.2, lease_seconds=4 * SECONDS)
    async with home(redis, rules=patient) as first:
        ids = await add(redis, 1)
        await offset_becomes(redis, ids[-1])
    async with home(redis, rules=patient) as second:
        assert not first.seen(StreamTrimmed)
        await add(redis, 2)
        await second.until_accepted(1)


async def test_a_lost_lease_ends_the_reading_and_is_left_to_its_holder(redis: Redis) -> None:
    async with home(redis) as here:
        ids = await add(redis, 1)
        await offset_becomes(redis, ids[-1])
        await redis.set(LEASE, "another's", px=60_000)
        await becomes(lambda: bool(here.seen(PartStopped)), "the end of reading")
        await add(redis, 2)
        await here.close()
        assert len(here.ledger.accepted) == 1
    assert await redis.get(LEASE) == "another's"


async def test_a_reader_whose_lease_is_renewed_reads_on(redis: Redis) -> None:
    async with home(redis) as here:
        for number in range(5):
            (last,) = await add(redis, number)
            await offset_becomes(redis, last)
            await asyncio.wait_for(_renewed(redis), SECONDS)
        assert len(here.seen(PartStarted)) == 1
        assert not here.seen(PartStopped)


async def _renewed(redis: Redis) -> None:
    before = await redis.pttl(LEASE)
    while await redis.pttl(LEASE) <= before:
        before = min(before, await redis.pttl(LEASE))
        await asyncio.sleep(0.01)


async def test_a_reader_that_comes_late_neither_moves_back_nor_stays(redis: Redis) -> None:
    ids = await add(redis, *range(3))
    ledger = Ledger()
    ledger.open.clear()
    async with home(redis, ledger) as here:
        await becomes(lambda: bool(ledger.offered), "an offer")
        further = await add(redis, *range(2))
        await redis.set(OFFSET, further[0])
        ledger.open.set()
        await becomes(lambda: further[1] in ledger.accepted, "the entry behind the other's offset")
        assert further[0] not in ledger.accepted, "what another has dealt with is not read again"
        await offset_becomes(redis, further[1])
        assert len(here.seen(PartStarted)) == 2
        assert ledger.accepted == [*ids, further[1]]


@pytest.mark.parametrize(
    ("place", "change", "test"),
    [
        pytest.param(
            (redis_stream_wire, "_SCRIPT"),
            ("if holder == ARGV[2] then redis.call('DEL', KEYS[1]) end", "redis.call('DEL', KEYS[1])"),
            test_a_lost_lease_ends_the_reading_and_is_left_to_its_holder,
            id="a release that takes no look",
        ),
        pytest.param(
            (redis_stream_wire, "_SCRIPT"),
            ("return redis.call('PTTL', KEYS[1])", "redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])"),
            test_a_lost_lease_ends_the_reading_and_is_left_to_its_holder,
            id="a renewal that takes no look",
        ),
        pytest.param(
            (redis_stream_offset, "_OFFSET"),
            ("if stored and not ahead(ARGV[2], stored) then return stored end", ""),
            test_a_reader_that_comes_late_neither_moves_back_nor_stays,
            id="an offset that goes back",
        ),
    ],
)
async def test_a_guard_that_is_gone_would_be_noticed(
    redis: Redis, monkeypatch: pytest.MonkeyPatch, place: tuple[ModuleType, str], change: tuple[str, str], test: Guarded
) -> None:
    (module, name), (line, mutant) = place, change
    script = getattr(module, name)
    assert script.count(line) == 1
    monkeypatch.setattr(module, name, script.replace(line, mutant))
    # What is waited for in vain here need not be waited for long.
    monkeypatch.setattr(stream_door, "SECONDS", 5.0)
    with pytest.raises((AssertionError, TimeoutError)):
        await test(redis)


def offsets(redis: Redis) -> StoredOffset:
    return StoredOffset(redis, offset_key=OFFSET, count_key=COUNT, stream=STREAM)


NUMBERS = st.one_of(st.integers(0, 3), st.integers(2**53 - 2, 2**53 + 2), st.integers(2**64 - 3, 2**64 - 1))


@examples(150, HealthCheck.function_scoped_fixture)
@given(ids=st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=6))
def test_the_stored_offset_is_the_furthest_of_all_by_number(redis_url: str, ids: list[EntryId]) -> None:
    async def run() -> None:
        async with Redis.from_url(redis_url, decode_responses=True) as redis:
            await redis.delete(OFFSET, COUNT)
            furthest = ids[0]
            for number, entry in enumerate(ids):
                moved = await offsets(redis).advance(redis.execute_command, Position(entry, number))
                furthest = max(furthest, entry)
                assert moved is (furthest == entry)
                assert await redis.get(OFFSET) == id_text(furthest)

    asyncio.run(run())


async def test_comparing_ids_as_text_would_be_noticed(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    script = redis_stream_offset._OFFSET  # noqa: SLF001 - as above
    line = "if #a ~= #b then return #a < #b end"
    assert script.count(line) == 1
    monkeypatch.setattr(redis_stream_offset, "_OFFSET", script.replace(line, ""))
    async with Redis.from_url(redis_url, decode_responses=True) as redis:
        await offsets(redis).advance(redis.execute_command, Position((1, 9), 1))
        assert not await offsets(redis).advance(redis.execute_command, Position((1, 10), 2)), "9 is not more than 10"


@pytest.mark.parametrize("stored", ["7", "7-0", "007-00"])
async def test_an_offset_written_by_hand_is_understood(redis: Redis, stored: str) -> None:
    await redis.set(OFFSET, stored)
    assert await offsets(redis).load(redis.execute_command) == Position((7, 0), None)
    assert not await offsets(redis).advance(redis.execute_command, Position((6, 9), 6))
    assert await redis.get(OFFSET) == stored
    assert await offsets(redis).advance(redis.execute_command, Position((7, 1), 7))
    assert await offsets(redis).load(redis.execute_command) == Position((7, 1), 7)
