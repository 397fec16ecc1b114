"""The public API of queues as a program meets it: enqueue, run, inspect, requeue, refuse."""

import asyncio
import json
import logging
import math
import time
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis as Client

from carillon.domain.errors import ConfigurationError, LedgerUnavailable
from carillon.queues import BadMessage, Depth, Job, Permanent, Policy, Queues, QueueUpkeep
from tests.support.ports import free_port
from tests.support.queue_stand import QUEUE, envelope
from tests.support.waiting import until

FAST = Policy(max_retries=1, base_delay_seconds=0.02, jitter_seconds=0.0)


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Any]:
    client = Client.from_url(redis_url)
    yield client
    await client.aclose()


@pytest.fixture
async def queues(redis_url: str, tmp_path: Path) -> AsyncIterator[Queues]:
    async with Queues(
        redis_url,
        database_url=f"sqlite:///{tmp_path / 'jobs.db'}",
        policies={QUEUE: FAST},
        beat=QueueUpkeep(pump_seconds=0.02),
        service="shop",
    ) as made:
        yield made


async def run_until(queues: Queues, condition: Any) -> None:
    stop, ready = asyncio.Event(), asyncio.Event()
    running = asyncio.create_task(queues.run(stop, ready.set))
    try:
        await asyncio.wait({running, asyncio.create_task(ready.wait())}, return_when=asyncio.FIRST_COMPLETED)
        await until(condition, timeout=40, what="the condition")
    finally:
        stop.set()
        async with asyncio.timeout(40):
            await running


@pytest.mark.req("S3-08", "S3-09")
async def test_what_is_enqueued_is_the_documents_envelope(queues: Queues, redis: Any) -> None:
    plain = await queues.enqueue(QUEUE, {"a": 1}, action="initial")
    full = await queues.enqueue(
        QUEUE, {}, action="renewal", correlation_id="sub-1", idempotency_key="evt-1", max_attempts=7, id="my own"
    )
    second, first = [json.loads(text) for text in await redis.lrange(QUEUE, 0, -1)]
    assert str(uuid.UUID(plain)) == plain
    made = first.pop("created_at")
    assert made.endswith("+00:00")
    assert first == {
        "id": plain,
        "action": "initial",
        "correlation_id": None,
        "idempotency_key": None,
        "attempts": 0,
        "max_attempts": None,
        "payload": {"a": 1},
    }
    assert full == second["id"] == "my own"
    assert (second["correlation_id"], second["idempotency_key"], second["max_attempts"]) == ("sub-1", "evt-1", 7)


@pytest.mark.req("S3-88")
async def test_an_enqueued_message_is_logged_as_received(queues: Queues) -> None:
    sent = await queues.enqueue(QUEUE, {}, action="initial", correlation_id="sub-1")

    async def logged() -> bool:
        rows = await queues.job_logs(correlation_id="sub-1")
        return [(row["message_id"], row["status"], row["service"]) for row in rows] == [(sent, "received", "shop")]

    # A producer that never runs anything still tells.
    await until(logged, timeout=40, what="its row")


async def test_a_delayed_message_waits_for_its_time(queues: Queues, redis: Any) -> None:
    before = time.time()
    await queues.enqueue(QUEUE, {"n": 1}, action="a", delay_seconds=3600)
    await queues.enqueue_raw(QUEUE, {"n": 2}, delay_seconds=3600)
    await queues.enqueue_raw(QUEUE, {"n": 2}, delay_seconds=3600)
    found = await redis.zrange(f"{QUEUE}:delayed", 0, -1, withscores=True)
    assert [json.loads(text).get("n") for text, _ in found] == [None, 2, 2]
    assert all(before + 3599 < score < time.time() + 3601 for _, score in found)
    ran: list[Job] = []
    queues.handler(QUEUE)(ran.append)
    await queues.enqueue_raw(QUEUE, {"n": 3}, delay_seconds=0.05)

    async def once() -> bool:
        return len(ran) == 1

    await run_until(queues, once)
    assert ran[0].payload == {"n": 3}


async def test_inspect_failed_and_requeue(queues: Queues) -> None:
    gate = [True]

    @queues.handler(QUEUE)
    async def handle(_job: Job) -> None:
        if gate[0]:
            raise Permanent("closed")

    ids = [await queues.enqueue(QUEUE, {"n": n}, action="a") for n in range(3)]

    async def all_failed() -> bool:
        return (await queues.inspect())[QUEUE].failed == 3

    await run_until(queues, all_failed)
    failed = await queues.failed(QUEUE, 2)
    assert [(each.id, each.message.payload if each.message else None) for each in failed] == [
        (ids[2], {"n": 2}),
        (ids[1], {"n": 1}),
    ]
    gate[0] = False
    assert await queues.requeue(QUEUE, ids=[ids[1]]) == 1
    assert await queues.requeue(QUEUE, limit=1) == 1
    assert await queues.requeue("q:nobody") == 0
    depth = (await queues.inspect())[QUEUE]
    assert (depth.main, depth.failed) == (2, 1)
    assert depth.oldest_seconds is not None

    async def emptied() -> bool:
        return await queues.inspect() == {QUEUE: Depth(0, 0, 0, 1, None)}

    await run_until(queues, emptied)


@pytest.mark.req("S3-19")
async def test_a_queue_without_a_policy_has_the_default(redis_url: str) -> None:
    assert Queues(redis_url).policy("q:any") == Policy()
    assert Queues(redis_url, policies={"*": FAST}).policy("q:any") == FAST


@pytest.mark.parametrize(
    "wrong",
    [
        {"action": ""},
        {"payload": {"x": object()}},
        {"payload": {"x": "y" * 2_000_000}},
        {"delay_seconds": -1.0},
        {"delay_seconds": math.nan},
        {"queue": ""},
    ],
)
async def test_what_is_no_message_is_refused_and_nothing_written(
    queues: Queues, redis: Any, wrong: dict[str, Any]
) -> None:
    with pytest.raises(BadMessage):
        await queues.enqueue(**{"queue": QUEUE, "payload": {}, "action": "a", **wrong})
    assert await redis.keys("*") == []


async def test_a_key_of_another_kind_refuses_only_its_own_messages(queues: Queues, redis: Any) -> None:
    await redis.set("q:broken", "no list")
    answers = await asyncio.gather(
        queues.enqueue("q:broken", {}, action="a"), queues.enqueue(QUEUE, {}, action="a"), return_exceptions=True
    )
    assert isinstance(answers[0], BadMessage)
    assert isinstance(answers[1], str)


async def test_a_redis_that_is_not_there_is_said_so() -> None:
    async with Queues(f"redis://127.0.0.1:{free_port()}/0") as queues:
        with pytest.raises(LedgerUnavailable, match="Redis"):
            await queues.enqueue(QUEUE, {}, action="a")


@pytest.mark.parametrize("name", ["", "q:a:processing", "q:a:delayed", "q:a:failed"])
async def test_names_that_would_meet_other_keys_are_refused(queues: Queues, name: str) -> None:
    with pytest.raises(ConfigurationError):
        queues.handler(name)


async def test_a_queue_has_one_handler_and_a_run_at_least_one(queues: Queues) -> None:
    with pytest.raises(ConfigurationError, match="no queue has a handler"):
        await queues.run(asyncio.Event())

    @queues.handler(QUEUE)
    async def handle(_job: Job) -> None: ...

    with pytest.raises(ConfigurationError, match="handle"):
        queues.handler(QUEUE)
    assert queues.handlers == {QUEUE: "handle"}


async def test_job_logs_need_a_database(redis_url: str) -> None:
    async with Queues(redis_url) as queues:
        with pytest.raises(ConfigurationError, match="database_url"):
            await queues.job_logs()


@pytest.mark.req("P-1325")
async def test_failures_are_told_to_python_logging(
    queues: Queues, redis: Any, caplog: pytest.LogCaptureFixture
) -> None:
    @queues.handler(QUEUE)
    async def handle(_job: Job) -> None:
        raise ValueError("on purpose")

    await redis.lpush(QUEUE, json.dumps(envelope(id="m1")))

    async def failed() -> bool:
        return (await queues.inspect())[QUEUE].failed == 1

    with caplog.at_level(logging.WARNING, "carillon.queues"):
        await run_until(queues, failed)
    assert caplog.messages[0] == f"{QUEUE} renewal m1, run 1: ValueError: on purpose; again in 0.0 s"
    assert caplog.messages[1].endswith("Last error: ValueError: on purpose; given up")
    assert {record.name for record in caplog.records} == {"carillon.queues"}


async def test_it_may_be_stopped_and_run_again(queues: Queues) -> None:
    ran: list[str] = []
    queues.handler(QUEUE)(lambda job: ran.append(job.id))
    for number in range(1, 4):
        await queues.enqueue(QUEUE, {}, action="a")

        async def enough(number: int = number) -> bool:
            return len(ran) == number

        await run_until(queues, enough)
