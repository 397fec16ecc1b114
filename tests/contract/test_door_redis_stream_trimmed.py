"""Entries trimmed before they were read: reported once, counted where possible, and never reported falsely."""

from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from carillon.domain.events import StreamTrimmed, Trouble
from tests.support.stream_door import COUNT, OFFSET, STREAM, Ledger, add, becomes, home, offset_becomes


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    async with Redis.from_url(redis_url, decode_responses=True) as client:
        yield client


async def read_all(redis: Redis, ids: list[str]) -> None:
    """A first process reads and goes."""
    async with home(redis) as here:
        await offset_becomes(redis, ids[-1])
    assert not here.seen(StreamTrimmed)


@pytest.mark.parametrize("how", ["maxlen", "minid", "delete"])
async def test_trimming_what_was_read_is_no_alarm(redis: Redis, how: str) -> None:
    async with home(redis) as here:
        for _ in range(4):
            ids = await add(redis, *range(10))
            await offset_becomes(redis, ids[-1])
            match how:
                case "maxlen":
                    await redis.xtrim(STREAM, 0)
                case "minid":
                    await redis.xtrim(STREAM, minid=ids[-1], approximate=False)
                case _:
                    await redis.xdel(STREAM, *ids)
        ids = await add(redis, *range(10))
        await offset_becomes(redis, ids[-1])
        await redis.xtrim(STREAM, 0)
    async with home(redis) as again:
        ids = await add(redis, *range(3))
        await offset_becomes(redis, ids[-1])
    assert not here.seen(StreamTrimmed) + again.seen(StreamTrimmed)


async def test_trimming_past_a_reader_that_is_away_is_told_once_and_exactly(redis: Redis) -> None:
    ids = await add(redis, *range(10))
    await read_all(redis, ids)
    unread = await add(redis, *range(10))
    await redis.xtrim(STREAM, minid=unread[7], approximate=False)
    async with home(redis) as here:
        await here.until_accepted(3)
        assert here.ledger.accepted == unread[7:]
        await offset_becomes(redis, unread[-1])
        more = await add(redis, 1)
        await offset_becomes(redis, more[-1])
    told = StreamTrimmed(stream=STREAM, offset=ids[-1], first_entry_id=unread[7], lost=7)
    assert here.seen(StreamTrimmed) == [told]
    async with home(redis) as again:
        await becomes(lambda: bool(again.events), "reading")
    assert not again.seen(StreamTrimmed)


async def test_trimming_everything_unread_is_told(redis: Redis) -> None:
    ids = await add(redis, *range(3))
    await read_all(redis, ids)
    await add(redis, *range(4))
    await redis.xtrim(STREAM, 0, approximate=False)
    async with home(redis) as here:
        await becomes(lambda: bool(here.seen(StreamTrimmed)), "the alarm")
    assert here.seen(StreamTrimmed) == [StreamTrimmed(stream=STREAM, offset=ids[-1], lost=4)]


async def test_trimming_past_a_reader_at_work_is_told_and_counted(redis: Redis) -> None:
    ledger = Ledger()
    ledger.open.clear()
    ids = await add(redis, *range(5))
    async with home(redis, ledger) as here:
        await becomes(lambda: bool(ledger.offered), "an offer")
        late = await add(redis, *range(20))
        await redis.xtrim(STREAM, 5, approximate=False)
        ledger.open.set()
        await offset_becomes(redis, late[-1])
        assert ledger.accepted == ids + late[15:]
    assert [(event.offset, event.lost) for event in here.seen(StreamTrimmed)] == [(ids[-1], 15)]


async def test_a_stream_trimmed_before_anybody_came(redis: Redis) -> None:
    ids = await add(redis, *range(10))
    await redis.xtrim(STREAM, 2, approximate=False)
    async with home(redis) as here:
        await here.until_accepted(2)
    told = StreamTrimmed(stream=STREAM, offset="0-0", first_entry_id=ids[8], lost=8)
    assert here.seen(StreamTrimmed) == [told]


async def test_a_position_that_nobody_counted_is_told_without_a_number(redis: Redis) -> None:
    ids = await add(redis, *range(10))
    await redis.set(OFFSET, ids[4])
    await redis.xtrim(STREAM, 2, approximate=False)
    async with home(redis) as here:
        await here.until_accepted(2)
        await offset_becomes(redis, ids[-1])
    told = StreamTrimmed(stream=STREAM, offset=ids[4], first_entry_id=ids[8], lost=None)
    assert here.seen(StreamTrimmed) == [told]


async def test_an_offset_that_an_operator_moved_is_not_judged_by_its_old_count(redis: Redis) -> None:
    ids = await add(redis, *range(10))
    await read_all(redis, ids)
    assert await redis.get(COUNT) == f"{ids[-1]} 10"
    await redis.set(OFFSET, ids[4])
    async with home(redis) as here:
        await here.until_accepted(5)
        await offset_becomes(redis, ids[-1])
        assert await redis.get(COUNT) is None
        more = await add(redis, 1)
        await offset_becomes(redis, more[-1])
    assert not here.seen(StreamTrimmed)
    assert await redis.get(COUNT) == f"{more[-1]} 11", "at the end of the stream everything is counted again"


@pytest.mark.parametrize("running", [True, False])
async def test_a_stream_that_began_again_with_lower_ids_is_read_from_its_start(redis: Redis, *, running: bool) -> None:
    ids = await add(redis, *range(3))
    if not running:
        await read_all(redis, ids)
    async with home(redis) as here:
        if running:
            await offset_becomes(redis, ids[-1])
        else:
            await here.close()
        await redis.delete(STREAM)
        lower = await add(redis, 1, entry_id="5-1") + await add(redis, 2, entry_id="5-2")
        async with home(redis, here.ledger) as other:
            await becomes(lambda: set(lower) <= set(here.ledger.accepted), "the lower entries")
            await offset_becomes(redis, "5-2")
        alarms = here.seen(StreamTrimmed) + other.seen(StreamTrimmed)
    assert [(event.offset, event.lost) for event in alarms] == [(ids[-1], None)]


async def test_a_stream_that_began_again_with_higher_ids_is_told(redis: Redis) -> None:
    ids = await add(redis, *range(3))
    async with home(redis) as here:
        await offset_becomes(redis, ids[-1])
        async with redis.pipeline() as pipeline:
            pipeline.delete(STREAM)
            pipeline.xadd(STREAM, {"n": "new"})
            await pipeline.execute()
        await here.until_accepted(4)
        await becomes(lambda: bool(here.seen(StreamTrimmed)), "the alarm")
        more = await add(redis, *range(3))
        await offset_becomes(redis, more[-1])
    assert len(here.ledger.accepted) == 7
    assert [(event.offset, event.lost) for event in here.seen(StreamTrimmed)] in (
        [(ids[-1], None)],
        [(here.ledger.accepted[3], None)],
    )


async def test_a_redis_that_forgot_everything_is_told(redis: Redis) -> None:
    ids = await add(redis, *range(3))
    async with home(redis) as here:
        await offset_becomes(redis, ids[-1])
        await redis.flushall()
        await becomes(lambda: bool(here.seen(StreamTrimmed)), "the alarm")
        again = await add(redis, *range(2))
        await here.until_accepted(5)
        await offset_becomes(redis, again[-1])
    assert [(event.offset, event.lost) for event in here.seen(StreamTrimmed)] == [(ids[-1], None)]


async def test_an_offset_that_is_none_is_trouble_and_no_end(redis: Redis) -> None:
    ids = await add(redis, *range(3))
    await redis.set(OFFSET, "$")
    async with home(redis) as here:
        await here.until_accepted(3)
        await offset_becomes(redis, ids[-1])
    (trouble,) = here.seen(Trouble)
    assert "'$' is not an entry id" in trouble.error
