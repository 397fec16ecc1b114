"""Entries of Redis streams: what is written, what each answer of Redis means, and that nothing is written twice."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec
import pytest
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from carillon.domain.claims import Claim, Dispatch
from carillon.domain.decide import Standing, decide
from carillon.domain.errors import ConfigurationError
from carillon.domain.outcomes import Outcome, Sent, Unavailable, Unknown
from carillon.domain.policy import RetryPolicy
from carillon.domain.verdicts import Bury
from carillon.domain.verdicts import Retry as TryAgain
from carillon.providers import Tools, load
from carillon.providers.http import HttpClient
from carillon.providers.redis_stream import AT_ONCE, RedisStream
from tests.support import servers
from tests.support.dispatches import LoopClock, dispatch
from tests.support.ports import free_port
from tests.support.proxy import FaultProxy
from tests.support.waiting import until

STREAM = "gateway:client-events"
FAILED = "gateway_stream_publish_failed"


def encode(claim: Claim) -> Mapping[str, str | bytes]:
    payload = msgspec.json.decode(claim.payload_json)
    if "table" not in payload:
        raise ValueError("the stored payload names no table")
    return {"event_id": claim.idempotency_key, "payload_bytes": b"\x00\xff" + str(payload["table"]).encode()}


def make(redis: Redis | None, **options: Any) -> RedisStream:
    encoders: dict[str, Any] = {"event": encode, "none": lambda _: {"a": None}, "half": lambda _: {"a": "\ud800"}}
    tools = Tools(LoopClock(), lambda: 0.5, HttpClient(), redis=redis, encoders=encoders)
    given = {"stream": STREAM, "encoder": "event", "failure": FAILED} | options
    provider = load("push", "redis_stream", given, tools)
    assert isinstance(provider, RedisStream)
    return provider


def calls(many: int, timeout_seconds: float = 30.0, **fields: Any) -> list[Dispatch]:
    return [
        dispatch(timeout_seconds=timeout_seconds, route_id=f"push:user:user-{n}", token=n, **fields)
        for n in range(many)
    ]


def client(port: int, **options: Any) -> Redis:
    return Redis(port=port, retry=Retry(NoBackoff(), 0), **options)


@pytest.fixture(params=[False, True], ids=["bytes", "text"])
async def redis(request: pytest.FixtureRequest, redis_url: str) -> AsyncIterator[Redis]:
    async with Redis.from_url(redis_url, decode_responses=request.param, encoding_errors="replace") as found:
        yield found


async def test_each_message_is_an_entry_and_its_id_the_answer(redis: Redis, redis_url: str) -> None:
    outcomes = await make(redis).send_many(calls(3))
    async with Redis.from_url(redis_url) as plain:
        entries: Any = await plain.xrange(STREAM)
    assert outcomes == [Sent(entry_id.decode()) for entry_id, _ in entries]
    assert [fields[b"event_id"].decode() for _, fields in entries] == [d.claim.idempotency_key for d in calls(3)]
    assert entries[0][1][b"payload_bytes"] == b"\x00\xff7"


async def commands_of(redis: Redis, provider: RedisStream) -> list[str]:
    async with redis.monitor() as monitor:
        assert isinstance(await provider.send(calls(1)[0]), Sent)
        await redis.echo("the end")
        seen: list[str] = []
        async for said in monitor.listen():
            command = said["command"]
            if command.startswith("ECHO"):
                return seen
            if command.startswith("XADD"):
                seen.append(command)
    return seen


@pytest.mark.req("S1-127")
async def test_a_bounded_stream_is_trimmed_about(redis_url: str) -> None:
    async with Redis.from_url(redis_url) as redis:
        (said,) = await commands_of(redis, make(redis, max_len=1024))
        assert said.startswith(f"XADD {STREAM} MAXLEN ~ 1024 * event_id ")
        provider = make(redis, max_len=10)
        for _ in range(4):
            await provider.send_many(calls(AT_ONCE))
        assert await redis.xlen(STREAM) < 500


@pytest.mark.req("S1-147")
async def test_an_unbounded_stream_is_a_plain_xadd(redis_url: str) -> None:
    async with Redis.from_url(redis_url) as redis:
        (said,) = await commands_of(redis, make(redis, stream="mail:delivery_commands"))
        assert said.startswith("XADD mail:delivery_commands * event_id ")


async def test_more_than_one_round_trip_holds(redis: Redis) -> None:
    outcomes = await make(redis).send_many(calls(2 * AT_ONCE + 1))
    assert len({outcome.message_id for outcome in outcomes if isinstance(outcome, Sent)}) == 2 * AT_ONCE + 1
    assert await make(redis).send_many([]) == []


@pytest.mark.req("S1-157", "S1-158")
@pytest.mark.parametrize(
    ("options", "fields", "said"),
    [
        ({}, {"payload_json": '{"chair":1}'}, "the stored payload names no table"),
        ({}, {"payload_json": "{"}, "truncated"),
        ({"encoder": "none"}, {}, "TypeError"),
        ({"encoder": "half"}, {}, "surrogates"),
    ],
)
async def test_what_cannot_be_encoded_fails_alone(
    redis: Redis, options: dict[str, Any], fields: dict[str, Any], said: str
) -> None:
    first, *_ = calls(3)
    bad = msgspec.structs.replace(first, claim=msgspec.structs.replace(first.claim, **fields))
    provider = make(redis, **options)
    outcome = await provider.send(bad)
    assert isinstance(outcome, Unavailable)
    assert (outcome.classification, said in outcome.error) == ("payload_encoding_failed", True)
    if not options:
        kinds = [type(found) for found in await provider.send_many([first, bad, first])]
        assert kinds == [Sent, Unavailable, Sent]


@pytest.mark.req("S1-157")
@pytest.mark.parametrize("failure", [FAILED, "mail_stream_publish_failed"])
async def test_a_key_of_the_wrong_type_is_a_failure_of_every_entry(redis: Redis, failure: str) -> None:
    await redis.set(STREAM, "no stream")
    outcomes = await make(redis, failure=failure).send_many(calls(3))
    assert [(type(o), getattr(o, "classification", None)) for o in outcomes] == [(Unavailable, failure)] * 3
    assert "WRONGTYPE" in str(outcomes[0])
    await redis.delete(STREAM)
    assert isinstance(await make(redis).send(calls(1)[0]), Sent), "the connection is in step"


async def test_a_full_or_read_only_redis_took_nothing() -> None:
    with servers.Redis(settings={"maxmemory": "1"}) as full:
        async with client(full.port) as redis:
            assert [type(o) for o in await make(redis).send_many(calls(2))] == [Unavailable] * 2
            await redis.config_set("maxmemory", "0")
            await redis.replicaof("127.0.0.1", str(free_port()))
            outcome = await make(redis).send(calls(1)[0])
            assert isinstance(outcome, Unavailable)
            assert "read only" in outcome.error


async def test_nobody_there_is_certain() -> None:
    async with client(free_port()) as redis:
        outcomes = await make(redis).send_many(calls(2))
    assert [(type(o), getattr(o, "classification", None)) for o in outcomes] == [(Unavailable, FAILED)] * 2


async def test_a_pool_that_is_used_up_is_certain(redis_url: str) -> None:
    async with Redis.from_url(redis_url, max_connections=1) as redis:
        pool: Any = redis.connection_pool
        held = await pool.get_connection()
        assert isinstance(await make(redis).send(calls(1)[0]), Unavailable)
        await pool.release(held)


async def broken_off(redis_server: servers.Redis, **options: Any) -> tuple[list[Outcome], int]:
    """Send through a connection that is cut after a hundred answers; also how many entries there are then."""
    redis_server.flush()
    async with FaultProxy("127.0.0.1", redis_server.port) as proxy, client(proxy.port, **options) as redis:
        await redis.ping()
        proxy.cut(2100)
        outcomes = await make(redis).send_many(calls(AT_ONCE))
        proxy.heal()
        assert isinstance(await make(redis, stream="other").send(calls(1)[0]), Sent), "the client heals"
        return outcomes, await redis.xlen(STREAM)


async def test_an_answer_that_never_came_is_unknown_and_nothing_is_repeated(redis_server: servers.Redis) -> None:
    # A client that retries by itself, as redis-py's does when nobody tells it otherwise.
    outcomes, entries = await broken_off(redis_server)
    kinds = [type(outcome) for outcome in outcomes]
    answered = kinds.count(Sent)
    assert kinds == [Sent] * answered + [Unknown] * (AT_ONCE - answered)
    assert answered < entries <= AT_ONCE
    assert {o.classification for o in outcomes if isinstance(o, Unknown)} == {FAILED}


async def test_the_clients_own_pipeline_would_repeat(redis_server: servers.Redis) -> None:
    """The control: why there is a pipeline of our own."""
    redis_server.flush()
    async with FaultProxy("127.0.0.1", redis_server.port) as proxy, Redis(port=proxy.port) as redis:
        await redis.ping()
        proxy.cut(2100)
        pipeline = redis.pipeline(transaction=False)
        for _ in range(AT_ONCE):
            pipeline.xadd(STREAM, {"a": "b"})
        call = asyncio.create_task(pipeline.execute())
        before = proxy.to_client
        await until(lambda: _is(proxy.to_client > before), timeout=30, what="the first answers")
        proxy.heal()
        await call
        assert await redis.xlen(STREAM) > AT_ONCE


async def _is(condition: bool) -> bool:  # noqa: FBT001 - what until() asks for
    return condition


async def test_a_redis_that_hangs_is_given_up_in_time(redis_server: servers.Redis) -> None:
    async with FaultProxy("127.0.0.1", redis_server.port) as proxy, client(proxy.port) as redis:
        await redis.ping()
        proxy.blackhole()
        async with asyncio.timeout(30):
            outcomes = await make(redis).send_many(calls(3, timeout_seconds=1.0))
        assert [type(outcome) for outcome in outcomes] == [Unknown] * 3
        proxy.heal()
        assert isinstance(await make(redis).send(calls(1)[0]), Sent)


async def test_a_cancelled_call_leaves_no_answers_to_the_next(redis_server: servers.Redis) -> None:
    async with FaultProxy("127.0.0.1", redis_server.port) as proxy, client(proxy.port, max_connections=1) as redis:
        await redis.ping()
        proxy.pause()
        call = asyncio.create_task(make(redis).send_many(calls(3)))
        before = proxy.received
        await until(lambda: _is(proxy.received > before), timeout=30, what="the request on its way")
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        proxy.resume()
        assert await redis.echo("mine") == b"mine"


@pytest.mark.parametrize("connected", [True, False])
async def test_a_cancelled_call_ends_at_once_though_redis_says_nothing(
    redis_server: servers.Redis, *, connected: bool
) -> None:
    """In the middle of an answer, or of a connection: the end of a process waits for no silent Redis."""
    async with FaultProxy("127.0.0.1", redis_server.port) as proxy, client(proxy.port, socket_timeout=30.0) as redis:
        if connected:
            await redis.ping()
        before = proxy.received
        proxy.blackhole()
        call = asyncio.create_task(make(redis).send_many(calls(3)))
        await until(lambda: _is(proxy.received > before), timeout=30, what="the request on its way")
        call.cancel()
        async with asyncio.timeout(5):
            with pytest.raises(asyncio.CancelledError):
                await call


@pytest.mark.req("S1-153", "S1-158")
@pytest.mark.parametrize("outcome", [Unavailable("no", "payload_encoding_failed"), Unknown("?", FAILED)])
def test_failures_of_either_kind_use_the_normal_budget(outcome: Outcome) -> None:
    policy = RetryPolicy(max_attempts=3)
    verdicts = [decide(outcome, policy, Standing(n, n, 3, 0.0, None, 0.0)) for n in (1, 2, 3)]
    assert [type(verdict) for verdict in verdicts] == [TryAgain, TryAgain, Bury]
    assert isinstance(outcome, Unavailable | Unknown)
    assert getattr(verdicts[2], "classification", None) == outcome.classification


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"encoder": "nobody"}, r"providers.push: encoder: no encoder 'nobody'; known: event, half, none"),
        ({"stream": ""}, r"providers.push.stream"),
        ({"max_len": 0}, r"providers.push.max_len"),
    ],
)
async def test_settings_that_cannot_work(redis: Redis, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        make(redis, **options)


def test_without_redis_there_is_no_stream() -> None:
    with pytest.raises(ConfigurationError, match=r"set redis\.url"):
        make(None)
