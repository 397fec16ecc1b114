"""The upkeep of list queues, on Redis and on Valkey: pump, sweep, cleanup, depths, requeue."""

import asyncio
import json
import time
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis as Client

from carillon.domain.claims import Settled
from carillon.domain.queue_events import FailedTrimmed, MessageOverdue, MessageSwept, QueuePumped
from carillon.domain.queues import Depth, Policy
from carillon.ledger.redis.lists_upkeep import SWEEP_WINDOW
from tests.support.ledger_builders import bury, finish, retry
from tests.support.queue_lists import POLICY, Lists, counted
from tests.support.queue_stand import QUEUE, envelope
from tests.support.servers import Redis

DELAYED, FAILED, PROCESSING = f"{QUEUE}:delayed", f"{QUEUE}:failed", f"{QUEUE}:processing"


@pytest.fixture(params=["redis", "valkey"])
async def client(request: pytest.FixtureRequest) -> AsyncIterator[Client]:
    server: Redis = request.getfixturevalue(f"{request.param}_server")
    server.flush()
    client = Client.from_url(server.url())
    yield client
    await client.aclose()


@pytest.fixture
def lists(client: Client) -> Lists:
    return Lists(client)


def texts(number: int, **changes: object) -> list[bytes]:
    return [json.dumps(envelope(id=f"m{n}", **changes)).encode() for n in range(number)]


@pytest.mark.req("S3-39", "S3-33")
async def test_three_pumps_move_each_message_once(client: Client) -> None:
    pumps = [Lists(client).upkeep for _ in range(3)]
    due = time.time() - 5
    await client.zadd(DELAYED, {text: due + n / 1000 for n, text in enumerate(texts(1000, attempts=1))})
    moved = await asyncio.gather(*(pump.pump() for pump in pumps))
    assert sum(moved) == 1000
    main = await client.lrange(QUEUE, 0, -1)
    assert len(main) == len(set(main)) == 1000
    assert await client.zcard(DELAYED) == 0


@pytest.mark.req("S3-40")
async def test_what_was_due_first_comes_first(lists: Lists) -> None:
    shuffled = texts(250)
    scores = {text: 1000.0 + (n * 7919 % 250) for n, text in enumerate(shuffled)}
    await lists.redis.zadd(DELAYED, scores)
    assert await lists.upkeep.pump() == 250
    assert await lists.main() == sorted(shuffled, key=lambda text: scores[text])
    assert sum(event.moved for event in lists.told(QueuePumped)) == 250


async def test_what_is_not_due_stays(lists: Lists) -> None:
    await lists.redis.zadd(DELAYED, {b'{"id":"later"}': time.time() + 3600, b'{"id":"now"}': time.time() - 1})
    assert await lists.upkeep.pump() == 1
    assert [text for text, _ in await lists.delayed()] == [b'{"id":"later"}']


@pytest.mark.req("S3-43")
async def test_an_orphan_is_delayed_with_one_more_attempt(lists: Lists) -> None:
    await lists.redis.lpush(PROCESSING, *texts(1, attempts=1))
    assert await lists.sweep_all() == 1
    ((text, score),) = await lists.delayed()
    assert json.loads(text)["attempts"] == 2
    seconds, _ = await lists.redis.time()
    assert 100 < score - seconds < 150
    assert [(event.message_id, event.attempts, event.verdict) for event in lists.told(MessageSwept)] == [
        ("m0", 2, "retry")
    ]
    assert [entry["status"] for entry in await lists.log_entries()] == ["retry"]


@pytest.mark.req("S3-43")
@pytest.mark.parametrize(
    "raw",
    [json.dumps(envelope(id="m0", attempts=2)).encode(), json.dumps(envelope(max_attempts=0)).encode(), b"garbage"],
)
async def test_an_orphan_whose_budget_is_spent_fails(lists: Lists, raw: bytes) -> None:
    await lists.redis.lpush(PROCESSING, raw)
    assert await lists.sweep_all() == 1
    assert await lists.failed() == [raw]
    assert (await lists.processing(), await lists.delayed()) == ([], [])


@pytest.mark.req("S3-44")
async def test_one_look_is_not_enough(lists: Lists) -> None:
    (raw,) = texts(1)
    await lists.redis.lpush(PROCESSING, raw)
    assert await lists.upkeep.sweep() == 0
    lists.clock.now += 4.0
    assert await lists.upkeep.sweep() == 0
    # A worker that claimed it in two steps would have made the second one by now.
    await lists.redis.set(f"lock:{QUEUE}:m0", "a slow worker", ex=60)
    lists.clock.now += 60.0
    assert await lists.upkeep.sweep() == 0
    await lists.redis.delete(f"lock:{QUEUE}:m0")
    assert await lists.upkeep.sweep() == 0
    lists.clock.now += 5.0
    assert await lists.upkeep.sweep() == 1


@pytest.mark.req("S3-44", "S3-46")
@pytest.mark.parametrize("raw", [json.dumps(envelope(id="m0")).encode(), b'{"transaction_id": "t1"}', b'{"id": 7}'])
async def test_what_a_worker_holds_is_never_swept(lists: Lists, raw: bytes) -> None:
    await lists.put(raw)
    (claim,) = await lists.claim()
    assert await lists.sweep_all() == 0
    assert await lists.processing() == [raw]
    assert await lists.backlog.settle([finish(claim)]) == [Settled.APPLIED]


@pytest.mark.req("S3-45")
async def test_what_is_locked_for_too_long_is_reported_once_and_left_alone(lists: Lists) -> None:
    await lists.put(envelope(id="m0"))
    await lists.claim()
    await lists.upkeep.sweep()
    for _ in range(3):
        lists.clock.now += POLICY.visibility_timeout_seconds
        await lists.upkeep.sweep()
    assert [event.message_id for event in lists.told(MessageOverdue)] == ["m0"]
    assert len(await lists.processing()) == 1


async def test_sweepers_share_orphans_without_doubling_them(client: Client) -> None:
    sweepers = [Lists(client) for _ in range(3)]
    await client.lpush(PROCESSING, *texts(SWEEP_WINDOW + 100))
    for each in sweepers:
        await each.upkeep.sweep()
        each.clock.now += 60.0
    swept = await asyncio.gather(*(each.upkeep.sweep() for each in sweepers))
    swept2 = await asyncio.gather(*(each.upkeep.sweep() for each in sweepers))
    assert sum(swept) + sum(swept2) == SWEEP_WINDOW + 100
    assert await client.zcard(DELAYED) == SWEEP_WINDOW + 100
    assert await client.llen(PROCESSING) == 0


async def test_the_living_among_many_orphans_are_passed_over(lists: Lists) -> None:
    await lists.put(*texts(700))
    claims = [claim for _ in range(7) for claim in await lists.claim(100)]
    assert len(claims) == 700
    for claim in claims[::2]:
        await lists.redis.delete(f"lock:{QUEUE}:{claim.notification_id}")
    assert await lists.sweep_all() == 350
    assert len(await lists.processing()) == 350
    assert set(counted([text for text, _ in await lists.delayed()])) == {1}


@pytest.mark.req("S3-48")
async def test_too_many_failures_are_cut_to_the_newest(lists: Lists) -> None:
    failures = texts(1500)
    await lists.redis.lpush(FAILED, *failures)
    assert await lists.upkeep.cleanup() == 1400
    assert await lists.failed() == list(reversed(failures[-100:]))
    assert [event.messages for event in lists.told(FailedTrimmed)] == [1400]


@pytest.mark.req("S3-48")
async def test_a_thousand_failures_are_left_alone(lists: Lists) -> None:
    await lists.redis.lpush(FAILED, *texts(1000))
    assert await lists.upkeep.cleanup() == 0
    assert await lists.redis.llen(FAILED) == 1000


@pytest.mark.req("S3-96")
async def test_depths_are_what_the_playbooks_commands_say(lists: Lists) -> None:
    await lists.put(*texts(5, created_at="2025-01-01T00:00:00+00:00"))
    one, two, _ = await lists.claim(3)
    await lists.backlog.settle([retry(one), bury(two)])
    depth = (await lists.desk.depths([QUEUE]))[QUEUE]
    assert (depth.main, depth.processing, depth.delayed, depth.failed) == (
        await lists.redis.llen(QUEUE),
        await lists.redis.llen(PROCESSING),
        await lists.redis.zcard(DELAYED),
        await lists.redis.llen(FAILED),
    )
    assert (depth.main, depth.processing, depth.delayed, depth.failed) == (2, 1, 1, 1)
    assert depth.oldest_seconds is not None
    assert depth.oldest_seconds > 86_400
    assert await lists.desk.depths(["q:nobody"]) == {"q:nobody": Depth(0, 0, 0, 0, None)}


async def test_failed_messages_get_their_whole_budget_again(lists: Lists) -> None:
    await lists.redis.lpush(FAILED, *texts(1200, attempts=2), b"garbage")
    assert [found.id for found in await lists.desk.failed(QUEUE, 2)][1] == "m1199"
    assert await lists.desk.requeue(QUEUE, ids=["m7", "m1100", "nobody"]) == 2
    assert await lists.desk.requeue(QUEUE, limit=3) == 3
    assert [json.loads(text)["id"] for text in await lists.main()] == ["m7", "m1100", "m0", "m1", "m2"]
    assert set(counted(await lists.main())) == {0}
    assert await lists.desk.requeue(QUEUE) == 1196
    assert await lists.failed() == []
    assert (await lists.main())[-1] == b"garbage"


@pytest.mark.req("S3-84")
async def test_the_job_log_is_capped(lists: Lists) -> None:
    lists.scripts.log["log_keeps"] = 50
    await lists.put(*texts(60))
    for claim in await lists.claim(60):
        await lists.backlog.settle([finish(claim)])
    assert await lists.redis.llen("q:log:jobs") == 50
    newest = json.loads(await lists.redis.lindex("q:log:jobs", 0))
    assert (newest["message_id"], newest["status"]) == ("m59", "success")


@pytest.mark.req("S3-83")
async def test_a_job_log_that_cannot_be_written_affects_no_message(lists: Lists) -> None:
    await lists.redis.set("q:log:jobs", "no list")
    await lists.put(*texts(3))
    one, two, three = await lists.claim()
    settled = await lists.backlog.settle([finish(one), retry(two), bury(three)])
    assert settled == [Settled.APPLIED] * 3
    assert (len(await lists.delayed()), len(await lists.failed()), await lists.processing()) == (1, 1, [])


async def test_a_hundred_thousand_orphans_do_not_block_the_server(client: Client) -> None:
    """Windows bound what one step costs: each is timed by the server itself, the best of some tells the truth."""
    lists = Lists(client, policies={QUEUE: Policy()})
    batch = [b'{"id":"o%d","action":"a","payload":{}}' % n for n in range(1000)]
    for _ in range(100):
        await client.lpush(PROCESSING, *batch)
    spent = []
    for _ in range(10):
        await client.config_resetstat()
        window = await lists.upkeep._window(QUEUE, -1)  # noqa: SLF001 - one step of the sweep
        assert len(window) == SWEEP_WINDOW
        orphans = [(text, own_id) for _, text, own_id in window]
        assert await lists.upkeep._take_out(QUEUE, orphans) == SWEEP_WINDOW  # noqa: SLF001 - see above
        spent.append((await client.info("commandstats"))["cmdstat_lrem"]["usec_per_call"])
    assert min(spent) < 200, "an orphan is found at the tail, not by walking the list"
