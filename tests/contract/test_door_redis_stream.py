"""The Redis stream door: what it reads, when its offset moves, and what stops it."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from carillon.domain.events import DoorStopped, PartStarted, PartStopped, StreamTrimmed, Trouble
from carillon.doors.redis_stream import door as stream_door
from carillon.doors.redis_stream.door import RedisStreamRules
from tests.support.stream_door import LEASE, OFFSET, SECONDS, STREAM, Home, Ledger, add, becomes, home, offset_becomes
from tests.support.waiting import until


@pytest.fixture(params=[2, 3], ids=["RESP2", "RESP3"])
async def redis(request: pytest.FixtureRequest, redis_url: str) -> AsyncIterator[Redis]:
    async with Redis.from_url(redis_url, decode_responses=True, protocol=request.param) as client:
        yield client


@pytest.mark.req("S1-24", "S1-62", "S1-63")
async def test_what_was_there_before_the_first_start_is_read_without_a_group(redis: Redis) -> None:
    ids = await add(redis, *range(5))
    async with redis.monitor() as monitor, home(redis, rules=RedisStreamRules(stream=STREAM)) as here:
        await here.until_accepted(5)
        said = [""]
        while not said[-1].startswith("XREAD"):
            said.append((await monitor.next_command())["command"])
        assert said[-1] == f"XREAD COUNT 500 BLOCK 2000 STREAMS {STREAM} 0-0"
        assert here.ledger.accepted == ids
    assert await redis.xinfo_groups(STREAM) == []


@pytest.mark.req("S1-64")
async def test_the_offset_is_the_plain_id_of_the_last_entry_for_ever(redis: Redis) -> None:
    ids = await add(redis, *range(5))
    async with home(redis):
        await offset_becomes(redis, ids[-1])
    assert OFFSET == "notification:stream_offsets:bm90aWZpY2F0aW9uOmludGVudHM"
    assert await redis.ttl(OFFSET) == -1


@pytest.mark.req("S1-65")
async def test_the_offset_moves_after_the_ledger_has_answered(redis: Redis) -> None:
    ids = await add(redis, *range(3))
    ledger = Ledger()
    ledger.open.clear()
    async with home(redis, ledger):
        await becomes(lambda: bool(ledger.offered), "an offer")
        assert await redis.get(OFFSET) is None
        ledger.open.set()
        await offset_becomes(redis, ids[-1])


@pytest.mark.req("S1-65")
@pytest.mark.parametrize("fault", ["away", "broken"])
async def test_a_ledger_that_fails_is_asked_again_until_it_does_not(redis: Redis, fault: str) -> None:
    ids = await add(redis, *range(3))
    ledger = Ledger()
    setattr(ledger, fault, True)
    async with home(redis, ledger) as here:
        await becomes(lambda: len(here.seen(Trouble)) >= 3, "three troubles")
        assert await redis.get(OFFSET) is None
        setattr(ledger, fault, False)
        await offset_becomes(redis, ids[-1])
        assert [event.retry_in_seconds for event in here.seen(Trouble)[:3]] == [0.1, 0.2, 0.4]
        assert {event.where for event in here.seen(Trouble)} == {"redis_stream"}
        assert not here.seen(DoorStopped)


@pytest.mark.req("S1-66")
async def test_a_restart_goes_on_behind_the_offset(redis: Redis) -> None:
    before = await add(redis, *range(3))
    async with home(redis) as first:
        await first.until_accepted(3)
        await offset_becomes(redis, before[-1])
    after = await add(redis, *range(3))
    async with home(redis) as second:
        await second.until_accepted(3)
        assert second.ledger.accepted == after
    assert [entry for offer in second.ledger.offered for entry in offer] == after
    assert not second.seen(StreamTrimmed)


@pytest.mark.req("S1-67")
async def test_entries_are_offered_in_order_and_each_once(redis: Redis) -> None:
    ids = await add(redis, *range(950))
    async with home(redis) as here:
        ids += await add(redis, *range(50))
        await here.until_accepted(1000)
        assert here.ledger.accepted == ids
    assert [entry for offer in here.ledger.offered for entry in offer] == ids
    assert max(map(len, here.ledger.offered)) == 100


@pytest.mark.req("S1-68", "S1-69")
async def test_a_stop_keeps_the_rest_and_heals_by_itself(redis: Redis) -> None:
    ids = await add(redis, 0, 1, "wait", 3, 4)
    ledger = Ledger()
    ledger.stop_at = "wait"
    async with home(redis, ledger) as here:
        await becomes(lambda: len(here.seen(DoorStopped)) >= 3, "three stops")
        assert await redis.get(OFFSET) == ids[1]
        assert ledger.accepted == ids[:2]
        assert ledger.offered[:3] == [ids, ids[2:], ids[2:]]
        first, *_ = here.seen(DoorStopped)
        assert first == DoorStopped(
            door="redis_stream",
            stream_entry_id=ids[2],
            reason="the directory answered 503",
            retry_in_seconds=0.1,
        )
        assert [event.retry_in_seconds for event in here.seen(DoorStopped)[:3]] == [0.1, 0.2, 0.4]
        # What is in hand is not lost to a trim.
        await redis.xtrim(STREAM, 0)
        ledger.stop_at = None
        await offset_becomes(redis, ids[4])
        assert ledger.accepted == ids
    assert not here.seen(StreamTrimmed)


@pytest.mark.req("S1-68")
async def test_a_restart_tries_the_stopped_entry_again(redis: Redis) -> None:
    ids = await add(redis, 0, "wait", 2)
    ledger = Ledger()
    ledger.stop_at = "wait"
    async with home(redis, ledger) as here:
        await becomes(lambda: bool(here.seen(DoorStopped)), "a stop")
    async with home(redis) as again:
        await again.until_accepted(2)
        assert again.ledger.accepted == ids[1:]


@pytest.mark.req("S1-58")
async def test_a_bad_entry_stops_nobody(redis: Redis) -> None:
    ids = await add(redis, 0, "poison", "bad", 3)
    no_fields_we_know = await redis.xadd(STREAM, {"other": "1"})
    ids += await add(redis, 4)
    async with home(redis) as here:
        await here.until_accepted(3)
        await offset_becomes(redis, ids[-1])
        assert here.ledger.accepted == [ids[0], ids[3], ids[4]]
        codes = {entry: parked.failure_code for entry, parked in here.ledger.parked.items()}
        assert codes == {
            ids[1]: "invalid_envelope",
            ids[2]: "invalid_payload",
            str(no_fields_we_know): "invalid_envelope",
        }
        assert here.ledger.parked[ids[1]].failure_message == "RecursionError: too deep"
        assert here.ledger.parked[ids[1]].raw_fields == {"n": "poison"}


@pytest.mark.req("P-1342", "S1-58")
async def test_an_entry_over_which_we_stumble_stops_nobody(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_door, "STRANGE_TRIES", 2)
    ids = await add(redis, 0, 1, "bug", 3, 4)
    ledger = Ledger()
    ledger.bug = "bug"
    async with home(redis, ledger) as here:
        await offset_becomes(redis, ids[-1])
        assert here.ledger.accepted == [one for one in ids if one != ids[2]]
        (parked,) = here.ledger.parked.values()
        assert (parked.stream_entry_id, parked.failure_code) == (ids[2], "invalid_payload")
        assert parked.failure_message == "KeyError: 'a bug of ours'"
        assert (parked.raw_fields, parked.notification_type) == ({"n": "bug"}, "game.turn.ready")
        assert len(here.ledger.offered[-1]) > 1, "what comes behind it is offered together again"


@pytest.mark.req("S1-59")
async def test_bytes_that_are_no_text_are_kept_as_far_as_they_are(redis: Redis) -> None:
    await redis.xadd(STREAM, {"n": "bad", b"\xff\xfe": b"caf\xc3\xa9 \xed\xa0\x80 \x00"})
    async with home(redis) as here:
        await becomes(lambda: bool(here.ledger.parked), "a parked entry")
        (parked,) = here.ledger.parked.values()
        assert parked.raw_fields == {"n": "bad", "\ufffd\ufffd": "café \ufffd\ufffd\ufffd \x00"}
        str(parked.raw_fields).encode()


async def _blocked(redis: Redis) -> bool:
    # A reader of an earlier test may still be leaving.
    return bool(await redis.exists(LEASE)) and int((await redis.info("clients"))["blocked_clients"]) == 1


@pytest.mark.req("S1-189")
async def test_a_stop_is_prompt_and_gives_the_lease_back(redis: Redis) -> None:
    async with home(redis, rules=RedisStreamRules(stream=STREAM, block_seconds=4 * SECONDS)) as here:
        await until(lambda: _blocked(redis), timeout=SECONDS, what="a blocking read")
        assert await redis.exists(LEASE)
        async with asyncio.timeout(SECONDS):
            here.door.stop()
            await here.task
            await here.door.aclose()
    assert await redis.keys("*") == []


@pytest.mark.req("S1-65", "S1-189")
async def test_a_stop_lets_the_offer_under_way_finish(redis: Redis) -> None:
    ids = await add(redis, *range(3))
    ledger = Ledger()
    ledger.open.clear()
    async with home(redis, ledger) as here:
        await becomes(lambda: bool(ledger.offered), "an offer")
        here.door.stop()
        ledger.open.set()
        await here.task
        assert await redis.get(OFFSET) == ids[-1]
        assert len(here.seen(PartStarted)) == len(here.seen(PartStopped)) == 1


@pytest.mark.req("S1-175")
async def test_the_age_of_the_oldest_unprocessed_entry(redis: Redis) -> None:
    ledger = Ledger()
    ledger.stop_at = "wait"
    async with home(redis, ledger) as here:
        age = here.door.oldest_unprocessed_age_ms
        assert await age() == 0
        seconds, _ = await redis.time()
        (done,) = await add(redis, 1, entry_id=f"{(seconds - 500) * 1000}-0")
        await offset_becomes(redis, done)
        assert await age() == 0
        await add(redis, "wait", entry_id=f"{(seconds - 100) * 1000}-0")
        await add(redis, 2)
        await becomes(lambda: bool(here.seen(DoorStopped)), "a stop")
        first = await age()
        assert first is not None
        assert 99_000 <= first <= 130_000
        await until(lambda: _older(here, first), timeout=SECONDS, what="the gauge growing")
        ledger.stop_at = None
        await here.until_accepted(3)
        await until(lambda: _nothing(here), timeout=SECONDS, what="the gauge at rest")
        await add(redis, 3, entry_id="99999999999999-0")
        assert await age() == 0, "an id of the future is not older than now"


async def _older(here: Home, than: int) -> bool:
    age = await here.door.oldest_unprocessed_age_ms()
    return age is not None and age > than


async def _nothing(here: Home) -> bool:
    return await here.door.oldest_unprocessed_age_ms() == 0


async def test_an_age_that_redis_cannot_say(redis: Redis) -> None:
    await redis.set(STREAM, "no stream")
    async with home(redis) as here:
        assert await here.door.oldest_unprocessed_age_ms() is None
