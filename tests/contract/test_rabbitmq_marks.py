"""Marks of queued messages: who may send, decided in one step, and controls that notice when it is not."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis as Client

from carillon.domain.errors import LedgerUnavailable
from carillon.ledger.rabbitmq.marks import SCRIPT, MarkRules, Marks, MarkStep
from tests.support.servers import Redis

KEY, MARK, HOLDER = "k", "idempotency:k", "push_worker:holder:k"


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Client]:
    async with Client.from_url(redis_url, decode_responses=True) as client:
        yield client


def marks(redis: Client, name: str = "one", takeover: float = 300.0, script: str = SCRIPT) -> Marks:
    return Marks(redis, name, MarkRules(takeover_after_seconds=takeover), script)


async def word(of: Marks, verb: str, token: int = 1) -> str:
    (said,) = await of.run([MarkStep(verb, KEY, of.claim_name(token))])  # type: ignore[arg-type]
    return said.word


async def one_of_many(redis: Client, script: str = SCRIPT) -> None:
    many = [marks(redis, f"p{number}", script=script) for number in range(20)]
    for _ in range(20):
        await redis.flushall()
        words = await asyncio.gather(*(word(each, "take") for each in many))
        assert sorted(words) == ["busy"] * 19 + ["go"]


async def young_marks_are_left_alone(redis: Client, script: str = SCRIPT) -> None:
    await redis.set(MARK, "processing", ex=86_400 - 240)
    assert await word(marks(redis, script=script), "take") == "busy"
    await redis.set(MARK, "processing")
    assert await word(marks(redis, script=script), "take") == "busy"
    await redis.set(MARK, "processing", ex=86_400 - 301)
    assert await word(marks(redis, script=script), "take") == "go"


async def what_is_anothers_stays_anothers(redis: Client, script: str = SCRIPT) -> None:
    zombie, heir = marks(redis, "zombie", script=script), marks(redis, "heir", takeover=0.0, script=script)
    assert (await word(zombie, "take"), await word(heir, "take")) == ("go", "go")
    for verb in ("renew", "release", "failed"):
        assert await word(zombie, verb) == "lost"
    assert (await redis.get(MARK), await redis.get(HOLDER)) == ("processing", "heir/1")


PROPERTIES = [one_of_many, young_marks_are_left_alone, what_is_anothers_stays_anothers]


@pytest.mark.req("S0-17", "S0-18")
@pytest.mark.parametrize("holds", PROPERTIES)
async def test_marks_hold(redis: Client, holds: object) -> None:
    await holds(redis)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("holds", "old", "new"),
    [
        (one_of_many, "if not mine and not old", "if false"),
        (one_of_many, "set('processing')\n    return 'go'", "return 'go'"),
        (young_marks_are_left_alone, "left >= 0 and seconds", "seconds"),
        (young_marks_are_left_alone, ">= takeover", ">= 0"),
        (what_is_anothers_stays_anothers, "holder == claim and", "true and"),
    ],
)
async def test_a_script_with_a_piece_cut_out_is_noticed(redis: Client, holds: object, old: str, new: str) -> None:
    assert old in SCRIPT
    with pytest.raises(AssertionError):
        await holds(redis, SCRIPT.replace(old, new))  # type: ignore[operator]


@pytest.mark.req("S0-11", "S0-17", "S0-19", "S0-20")
@pytest.mark.parametrize(("verb", "value"), [("take", "processing"), ("sent", "sent"), ("failed", "failed")])
async def test_values_and_times_are_the_documents(redis: Client, verb: str, value: str) -> None:
    mine = marks(redis)
    await word(mine, "take")
    await word(mine, verb)
    assert await redis.get(MARK) == value
    assert 86_390 <= await redis.ttl(MARK) <= 86_400


async def test_a_mark_this_process_left_by_a_lost_answer_is_its_own(redis: Client) -> None:
    mine = marks(redis)
    assert (await word(mine, "take", 1), await word(mine, "take", 2)) == ("go", "go")
    # Names must not be mistaken for one another by their beginning.
    assert await word(marks(redis, "on"), "take") == "busy"


async def test_what_is_sent_stays_sent_and_tells_by_whom(redis: Client) -> None:
    mine = marks(redis)
    await word(mine, "take")
    assert await word(mine, "sent") == "done"
    for verb in ("renew", "release", "failed"):
        assert await word(mine, verb) == "lost"
    (said,) = await marks(redis, "two").run([MarkStep("take", KEY, "two/1")])
    assert (said.word, said.holder) == ("sent", "one/1")


async def test_a_failed_mark_and_a_strange_one_are_fresh_starts(redis: Client) -> None:
    await redis.set(MARK, "failed")
    assert await word(marks(redis), "take") == "go"
    await redis.flushall()
    await redis.lpush(MARK, "a list")
    assert await word(marks(redis), "take") == "go"


async def test_released_marks_are_gone(redis: Client) -> None:
    mine = marks(redis)
    await word(mine, "take")
    assert await word(mine, "release") == "done"
    assert await redis.keys("*") == []


async def test_without_redis_nothing_is_decided() -> None:
    with Redis() as server:
        client = Client.from_url(server.url())
        server.kill()
        with pytest.raises(LedgerUnavailable, match="Redis"):
            await word(marks(client), "take")
        await client.aclose()
