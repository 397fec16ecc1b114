"""The list queue step by step, on Redis and on Valkey: each move is whole, and checked by token."""

import asyncio
import datetime as dt
import json
import time
from collections.abc import AsyncIterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis.asyncio import Redis as Client

from carillon.domain.claims import Settled, Want
from carillon.domain.decide import EXPIRY, barred
from carillon.domain.errors import LedgerUnavailable
from carillon.domain.events import Trouble
from carillon.domain.jobs import message_id
from carillon.domain.queues import Policy
from carillon.domain.rights import KnownPerson
from carillon.ledger.redis.lists_upkeep import still_names, take_out_failed
from carillon.ledger.redis.scripts import Scripts, hints_for
from tests.support.ledger_builders import bury, defer, finish, retry, settlement
from tests.support.queue_lists import Lists, counted
from tests.support.queue_stand import QUEUE, envelope
from tests.support.servers import Redis
from tests.support.waiting import until


@pytest.fixture(params=["redis", "valkey"])
def server(request: pytest.FixtureRequest) -> Redis:
    server: Redis = request.getfixturevalue(f"{request.param}_server")
    server.flush()
    return server


@pytest.fixture
async def client(server: Redis) -> AsyncIterator[Client]:
    client = Client.from_url(server.url())
    yield client
    await client.aclose()


@pytest.fixture
def lists(client: Client) -> Lists:
    return Lists(client)


@pytest.mark.req("S3-03", "S3-22", "S3-24", "S3-98")
async def test_a_claim_moves_the_exact_bytes_and_locks_them_in_one_step(lists: Lists) -> None:
    raw = b'{ "id": "m1",  "action":"renewal", "payload": {"price": 1.10} }'
    await lists.put(raw)
    (claim,) = await lists.claim()
    assert await lists.main() == []
    assert await lists.processing() == [raw]
    assert await lists.locks() == [f"lock:{QUEUE}:m1".encode()]
    assert 0 < await lists.redis.pttl(f"lock:{QUEUE}:m1") <= 30_000
    assert (claim.notification_id, claim.attempt, claim.max_attempts) == ("m1", 1, 3)


@pytest.mark.req("S3-02")
async def test_the_keys_are_the_documents_and_of_their_kinds(lists: Lists) -> None:
    await lists.put(*[envelope(id=f"m{n}") for n in range(4)])
    one, two, _ = await lists.claim(3)
    await lists.backlog.settle([retry(one), bury(two)])
    kinds = {key.decode(): (await lists.redis.type(key)).decode() for key in await lists.redis.keys("*")}
    assert kinds == {
        QUEUE: "list",
        f"{QUEUE}:processing": "list",
        f"{QUEUE}:delayed": "zset",
        f"{QUEUE}:failed": "list",
        f"lock:{QUEUE}:m2": "string",
        "q:log:jobs": "list",
    }


@pytest.mark.req("S3-23")
async def test_an_empty_queue_changes_nothing(lists: Lists) -> None:
    assert await lists.claim() == []
    assert await lists.redis.keys("*") == []


@pytest.mark.req("S3-06")
async def test_messages_are_taken_in_the_order_they_came(lists: Lists) -> None:
    await lists.put(*[envelope(id=f"m{n}") for n in range(100)])
    claims = [claim for _ in range(10) for claim in await lists.claim(10)]
    assert [claim.notification_id for claim in claims] == [f"m{n}" for n in range(100)]


@pytest.mark.req("S3-25")
async def test_a_locked_message_goes_back_and_costs_nothing(lists: Lists) -> None:
    await lists.redis.set(f"lock:{QUEUE}:m1", "somebody else", ex=60)
    await lists.put(envelope(id="m1", attempts=1), envelope(id="m2"))
    (claim,) = await lists.claim()
    assert claim.notification_id == "m2"
    assert counted(await lists.main()) == [1]
    assert len(await lists.processing()) == 1
    assert await lists.redis.get(f"lock:{QUEUE}:m1") == b"somebody else"
    busy = [entry for entry in await lists.log_entries() if entry["info"]]
    assert [(entry["status"], entry["attempts"], entry["info"]) for entry in busy] == [
        ("retry", 1, {"reason": "lock_unavailable"})
    ]


async def test_a_queue_of_nothing_but_locked_messages_rests(client: Client) -> None:
    lists = Lists(client, busy_pause=60.0)
    await lists.redis.set(f"lock:{QUEUE}:m1", "somebody else", ex=60)
    await lists.put(envelope(id="m1"))
    assert await lists.claim() == []
    assert lists.signal.paused(QUEUE)
    assert await lists.claim() == []
    assert len([entry for entry in await lists.log_entries() if entry["info"]]) == 1


@pytest.mark.req("S3-27", "S3-32")
async def test_a_success_leaves_nothing_behind(lists: Lists) -> None:
    await lists.put(envelope(id="m1"), envelope(id="m2"))
    one, two = await lists.claim()
    assert await lists.backlog.settle([finish(one)]) == [Settled.APPLIED]
    assert [json.loads(text)["id"] for text in await lists.processing()] == ["m2"]
    assert await lists.locks() == [f"lock:{QUEUE}:m2".encode()]
    assert await lists.backlog.settle([finish(two)]) == [Settled.APPLIED]
    assert [key for key in await lists.redis.keys("*") if key != b"q:log:jobs"] == []


@pytest.mark.req("S3-28", "S3-89", "S3-98")
async def test_a_retry_is_scored_by_the_servers_clock(lists: Lists) -> None:
    await lists.put(envelope(id="m1", extra={"kept": [1.10]}))
    (claim,) = await lists.claim()
    seconds, micros = await lists.redis.time()
    assert await lists.backlog.settle([retry(claim, 60.0)]) == [Settled.APPLIED]
    ((text, score),) = await lists.delayed()
    assert 59.9 < score - (seconds + micros / 1e6) < 90.0
    assert json.loads(text)["attempts"] == 1
    assert json.loads(text)["extra"] == {"kept": [1.10]}
    assert await lists.locks() == []
    assert await lists.processing() == []


@pytest.mark.req("S3-29", "S3-31")
async def test_a_failed_message_is_kept_as_it_was_last_claimed(lists: Lists) -> None:
    raw = json.dumps(envelope(id="m1", attempts=2)).encode()
    await lists.put(raw)
    (claim,) = await lists.claim()
    assert (claim.attempt, claim.max_attempts) == (3, 3)
    await lists.backlog.settle([bury(claim)])
    assert await lists.failed() == [raw]


@pytest.mark.req("S3-32")
async def test_a_worker_that_lost_its_lock_touches_nothing(lists: Lists) -> None:
    await lists.put(envelope(id="m1"))
    (zombie,) = await lists.claim()
    await lists.redis.set(f"lock:{QUEUE}:m1", "the heir")
    before = await lists.processing()
    for late in (retry(zombie), bury(zombie), defer(zombie, 0.0), defer(zombie, 5.0), finish(zombie)):
        assert await lists.backlog.settle([late]) == [Settled.STALE]
    assert await lists.processing() == before
    assert await lists.redis.get(f"lock:{QUEUE}:m1") == b"the heir"
    assert (await lists.delayed(), await lists.failed(), await lists.main()) == ([], [], [])


async def test_a_late_success_closes_what_nobody_has_begun(lists: Lists) -> None:
    await lists.put(envelope(id="m1"))
    (late,) = await lists.claim()
    await lists.expire()
    assert await lists.backlog.settle([retry(late)]) == [Settled.STALE]
    assert await lists.backlog.settle([finish(late)]) == [Settled.ADOPTED]
    assert await lists.processing() == []


async def test_renewing_is_by_token(lists: Lists) -> None:
    lost: list[str] = []
    lists.backlog.lost = lambda claim: lost.append(claim.notification_id)
    await lists.put(*[envelope(id=f"m{n}") for n in range(3)])
    claims = await lists.claim()
    for n in range(3):
        await lists.redis.pexpire(f"lock:{QUEUE}:m{n}", 5000)
    await lists.redis.set(f"lock:{QUEUE}:m1", "the heir", px=5000)
    assert await lists.backlog.extend(claims) == [claims[1]]
    assert lost == ["m1"]
    assert await lists.redis.pttl(f"lock:{QUEUE}:m0") > 5000
    assert await lists.redis.pttl(f"lock:{QUEUE}:m1") <= 5000


@pytest.mark.req("S3-33")
async def test_equal_messages_are_told_apart(lists: Lists) -> None:
    raw = b'{"transaction_id": "t1", "amount": 5}'
    await lists.put(raw, raw, raw)
    (first,) = await lists.claim()
    assert len(await lists.main()) == 2
    await lists.backlog.settle([retry(first, 30.0)])

    async def none_left() -> bool:
        for claim in await lists.claim():
            await lists.backlog.settle([retry(claim, 30.0)])
        return not await lists.main()

    await until(none_left, timeout=20, what="the others' turns")
    assert len(await lists.delayed()) == 3
    assert len({message_id(text) for text, _ in await lists.delayed()}) == 1
    await lists.make_due()
    assert await lists.upkeep.pump() == 3
    assert counted(await lists.main()) == [1, 1, 1]


@pytest.mark.req("S3-14")
async def test_garbage_goes_to_the_failed_ones_at_once(lists: Lists) -> None:
    garbage = [b"garbage", b"[1, 2]", b"\xff\xfe\x00", b'"text"', b""]
    await lists.put(*garbage, envelope(id="m1"))
    (claim,) = await lists.claim()
    assert claim.notification_id == "m1"
    assert sorted(await lists.failed()) == sorted(garbage)
    assert len(await lists.processing()) == 1
    failed = [entry for entry in await lists.log_entries() if entry["status"] == "failed"]
    assert [entry["info"] for entry in failed] == [{"error": "invalid_message"}] * 5


@pytest.mark.req("S3-11", "S3-46")
@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    found=st.one_of(
        st.dictionaries(st.sampled_from(["id", "a", "attempts"]), st.text() | st.integers() | st.none() | st.floats()),
        st.lists(st.integers()),
        st.text(),
    ),
    noise=st.sampled_from([b"", b" ", b"}"]),
)
def test_scripts_and_python_agree_on_every_id(server: Redis, found: object, noise: bytes) -> None:
    raw = json.dumps(found).encode() + noise

    async def asked() -> str:
        client = Client.from_url(server.url())
        try:
            await client.delete(f"{QUEUE}:processing")
            await client.lpush(f"{QUEUE}:processing", raw)
            look = {"queue": QUEUE, "first": 0, "last": 0, "hints": hints_for([raw])}
            (_, _, own_id) = await Scripts(client).run("look", look)
            return str(own_id.decode())
        finally:
            await client.aclose()

    assert asyncio.run(asked()) == message_id(raw)


async def test_a_key_of_another_kind_stops_nobody_else(client: Client) -> None:
    other = "q:test:other"
    lists = Lists(client, policies={QUEUE: Policy(), other: Policy()})
    await client.set(QUEUE, "no list")
    await lists.put(envelope(id="m1"), queue=other)
    wants = [Want(lists.lane, QUEUE, 5), Want(lists.lane, other, 5)]
    (claim,) = await lists.backlog.claim(wants, 5, "w")
    assert claim.provider == other
    assert [QUEUE in event.error for event in lists.told(Trouble)] == [True]


@pytest.mark.parametrize("kind", ["delayed", "failed"])
async def test_where_a_message_cannot_go_it_stays_where_it_is(lists: Lists, kind: str) -> None:
    await lists.redis.set(f"{QUEUE}:{kind}", "no list")
    await lists.put(envelope(id="m1"))
    (claim,) = await lists.claim()
    assert await lists.backlog.settle([retry(claim) if kind == "delayed" else bury(claim)]) == [Settled.STALE]
    assert len(await lists.processing()) == 1
    assert len(await lists.locks()) == 1


async def test_no_queue_starves_behind_a_full_one(client: Client) -> None:
    quiet = "q:test:quiet"
    lists = Lists(client, policies={QUEUE: Policy(), quiet: Policy()})
    await lists.put(*[envelope() for _ in range(100)])
    await lists.put(*[envelope() for _ in range(100)], queue=quiet)
    wants = [Want(lists.lane, QUEUE, 10), Want(lists.lane, quiet, 10)]
    claims = await lists.backlog.claim(wants, 10, "w")
    assert sorted(claim.provider for claim in claims) == [quiet] * 5 + [QUEUE] * 5


async def test_waiting_ends_with_the_first_message_and_takes_nothing(lists: Lists) -> None:
    waiting = asyncio.create_task(lists.signal.wait(30.0))

    async def blocked() -> bool:
        return int((await lists.redis.info("clients"))["blocked_clients"]) == 1

    await until(blocked, timeout=20, what="somebody who waits")
    await lists.put(envelope(id="m1"))
    async with asyncio.timeout(20):
        await waiting
    assert len(await lists.main()) == 1
    await lists.signal.aclose()


@pytest.mark.req("P-301")
async def test_a_job_that_has_expired_is_skipped_and_leaves_no_trace_but_its_log(lists: Lists) -> None:
    await lists.put(
        envelope(id="late", expires_at="2020-01-01T00:00:00Z"), envelope(id="fresh", expires_at="2090-01-01T00:00:00Z")
    )
    claims = {claim.notification_id: claim for claim in await lists.claim(2)}
    late = claims["late"]
    assert barred(late) == EXPIRY
    assert barred(claims["fresh"]) is None
    assert await lists.backlog.settle([settlement(late, EXPIRY)]) == [Settled.APPLIED]
    assert [message_id(raw) for raw in await lists.processing()] == ["fresh"]
    assert not await lists.redis.llen(f"{QUEUE}:failed")
    entries = [json.loads(entry) for entry in await lists.redis.lrange("q:log:jobs", 0, -1)]
    assert ("late", "skipped") in [(entry.get("id") or entry.get("message_id"), entry["status"]) for entry in entries]


@pytest.mark.req("P-533", "P-530")
@pytest.mark.parametrize("name", ["scheduled_for", "scheduledFor"])
async def test_a_job_waits_for_its_schedule_wherever_it_was_put(lists: Lists, name: str) -> None:
    soon, late = time.time() + 0.5, "2096-01-31T18:00:00Z"
    first = {**envelope(id="soon"), name: dt.datetime.fromtimestamp(soon, dt.UTC).isoformat()}
    raw = json.dumps({**envelope(id="late"), name: late}).encode()
    # As any producer does, without asking when it is due.
    await lists.put(first, raw, {**envelope(id="now"), name: "2020-01-31T18:00:00Z"}, {**envelope(id="odd"), name: "?"})
    assert {claim.notification_id for claim in await lists.claim()} == {"now", "odd"}
    delayed = dict(await lists.redis.zrange(f"{QUEUE}:delayed", 0, -1, withscores=True))
    assert delayed[raw] == pytest.approx(dt.datetime.fromisoformat(late).timestamp(), abs=5)
    assert sorted(await lists.locks()) == [f"lock:{QUEUE}:{one}".encode() for one in ("now", "odd")]

    async def due() -> bool:
        await lists.upkeep.pump()
        return [claim.notification_id for claim in await lists.claim()] == ["soon"]

    await until(due, timeout=30, what="the one that is due soon")
    assert time.time() >= soon


@pytest.mark.req("P-534")
async def test_the_failed_lists_forget_a_person_and_keep_the_others_in_order(lists: Lists, server: Redis) -> None:
    person = KnownPerson(tenant_id=None, person="canary-person", addresses=("canary@example.org",))
    told = [{"user": "canary-person"}, {"user": "bob"}, {"to": "canary@example.org"}, {"user": "canary-person-2"}]
    await lists.put(*[envelope(id=f"m{n}", payload=payload) for n, payload in enumerate(told)], b"about canary-person")
    await lists.backlog.settle([bury(claim) for claim in await lists.claim()])
    key = f"{QUEUE}:failed"
    before = await lists.redis.lrange(key, 0, -1)
    assert len(before) == len(told) + 1
    assert await take_out_failed(server.url(), [QUEUE, "q:none"], person.mentioned_in) == 3
    assert await lists.redis.lrange(key, 0, -1) == [raw for raw in before if b"bob" in raw or b"person-2" in raw]
    assert await take_out_failed(server.url(), [QUEUE], person.mentioned_in) == 0
    with pytest.raises(LedgerUnavailable):
        await take_out_failed("redis://127.0.0.1:1/0", [QUEUE], person.mentioned_in)


@pytest.mark.req("P-635")
async def test_what_waits_runs_or_is_put_off_is_found_and_left_alone(lists: Lists, server: Redis) -> None:
    person = KnownPerson(tenant_id=None, person="canary-person", addresses=("canary@example.org",))
    told = [{"user": "canary-person"}, {"user": "bob"}, {"to": "canary@example.org"}, {"user": "canary-person-2"}]
    raws = [json.dumps(envelope(id=f"m{n}", payload=payload)).encode() for n, payload in enumerate(told)]
    for place in (QUEUE, f"{QUEUE}:processing", f"{QUEUE}:delayed"):
        if place.endswith("delayed"):
            await lists.redis.zadd(place, dict.fromkeys(raws, 1e12))
        else:
            await lists.redis.lpush(place, *raws)
        before = {key: await lists.redis.dump(key) for key in await lists.redis.keys(f"{QUEUE}*")}
        assert await still_names(server.url(), QUEUE, person.mentioned_in) == 2
        assert {key: await lists.redis.dump(key) for key in await lists.redis.keys(f"{QUEUE}*")} == before
        await lists.redis.delete(*before)
        assert await still_names(server.url(), QUEUE, person.mentioned_in) == 0
    with pytest.raises(LedgerUnavailable):
        await still_names("redis://127.0.0.1:1/0", QUEUE, person.mentioned_in)
