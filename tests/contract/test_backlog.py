"""What every backlog promises its worker, whether work waits in rows or in a queue."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from carillon.domain.claims import Claim, Settled, Want
from carillon.domain.ports import Backlog
from tests.support.backlogs import Kept, in_words, opened
from tests.support.ledger_builders import LANE, bury, defer, fail_over, finish, retry
from tests.support.ledger_engines import Engine, PostgresEngine, SqliteEngine
from tests.support.push_broker import Broker, reset
from tests.support.waiting import until

KINDS = ["postgres", "sqlite", "rabbitmq", "redis", "valkey"]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def engine(kind: str, request: pytest.FixtureRequest) -> Engine:
    if kind == "postgres":
        return PostgresEngine(request.getfixturevalue("ledger_dsn"))
    return SqliteEngine(request.getfixturevalue("tmp_path") / "ledger.db")


@pytest.fixture
def broker(kind: str, request: pytest.FixtureRequest) -> Iterator[Broker | None]:
    if kind != "rabbitmq":
        yield None
        return
    with Broker(request.getfixturevalue("rabbitmq").url) as broker:
        reset(broker)
        broker.declare("push.queue")
        yield broker


@pytest.fixture
def servers(kind: str, request: pytest.FixtureRequest) -> tuple[Any, Any]:
    if kind in {"redis", "valkey"}:
        server = request.getfixturevalue(f"{kind}_server")
        server.flush()
        return None, server
    if kind != "rabbitmq":
        return None, None
    request.getfixturevalue("redis_url")
    return request.getfixturevalue("rabbitmq"), request.getfixturevalue("redis_server")


@pytest.fixture
async def kept(kind: str, engine: Engine, broker: Broker | None, servers: tuple[Any, Any]) -> AsyncIterator[Kept]:
    async for each in opened(kind, engine, *servers, broker):
        yield each


@pytest.fixture
async def backlog(kept: Kept) -> Backlog:
    return await kept.claimer()


async def ends(kept: Kept, finished: int, buried: int) -> None:
    async def there() -> bool:
        return await kept.ended() == (finished, buried)

    await until(there, timeout=40, what=f"{finished} finished and {buried} buried")


async def test_a_claim_carries_everything_a_worker_needs(kept: Kept, backlog: Backlog) -> None:
    await kept.put(1)
    (claim,) = await kept.claim(backlog)
    assert (claim.attempt, claim.attempts_before, claim.max_attempts) == (1, 0, 3)
    assert (claim.lane, claim.provider) == (LANE, kept.provider)
    assert claim.trace_id
    assert claim.notification_type
    assert in_words(claim)["address"]
    assert isinstance(in_words(claim)["payload"], dict)
    assert (claim.abandoned, claim.suppressed) == (False, False)


@pytest.mark.parametrize(("limit", "total"), [(0, 10), (10, 0), (-1, 10)])
async def test_nothing_wanted_nothing_claimed(kept: Kept, backlog: Backlog, limit: int, total: int) -> None:
    await kept.put(1)
    assert await backlog.claim([Want(LANE, kept.provider, limit)], total, "w") == []
    assert await backlog.claim([], 10, "w") == []
    assert await backlog.claim([Want(LANE, "nobody", 10)], 10, "w") == []
    assert await backlog.claim([Want(LANE + 7, kept.provider, 10)], 10, "w") == []
    assert await backlog.extend([]) == []
    assert await backlog.settle([]) == []
    await kept.claim(backlog)


async def test_no_more_than_wanted_and_each_once(kept: Kept, backlog: Backlog) -> None:
    await kept.put(20)
    first = await kept.claim(backlog, 7)
    rest = await kept.claim(backlog, 13)
    claims = first + rest
    assert len({claim.key for claim in claims}) == 20
    assert [claim.token for claim in claims] == sorted({claim.token for claim in claims})
    await kept.nothing_comes(backlog)


async def test_rival_claimers_never_share_work(kept: Kept, backlog: Backlog) -> None:
    rival = await kept.claimer()
    await kept.put(200)
    taken: list[Claim] = []

    async def drain(mine: Backlog) -> None:
        while len(taken) < 200:
            taken.extend(await mine.claim([Want(LANE, kept.provider, 7)], 7, "w"))
            await asyncio.sleep(0)

    async with asyncio.timeout(90):
        await asyncio.gather(drain(backlog), drain(rival))
    assert len({claim.key for claim in taken}) == len(taken) == 200


async def test_what_is_finished_is_over(kept: Kept, backlog: Backlog) -> None:
    await kept.put(3)
    claims = await kept.claim(backlog, 3)
    assert await backlog.settle([finish(claim) for claim in claims]) == [Settled.APPLIED] * 3
    await ends(kept, 3, 0)
    await kept.nothing_comes(backlog)
    # Said twice, by a worker that did not hear the answer: it changes nothing.
    await backlog.settle([finish(claims[0])])
    await ends(kept, 3, 0)


async def test_what_is_retried_comes_when_it_is_due_and_counts(kept: Kept, backlog: Backlog) -> None:
    await kept.put(1)
    (claim,) = await kept.claim(backlog)
    assert await backlog.settle([retry(claim, 5.0)]) == [Settled.APPLIED]
    await kept.nothing_comes(backlog)
    (again,) = await kept.claim(backlog)
    assert (again.key, again.attempt, again.abandoned) == (claim.key, 2, False)
    assert again.token > claim.token
    await backlog.settle([retry(claim, 0.0)])
    await kept.nothing_comes(backlog)
    assert await backlog.settle([finish(again)]) == [Settled.APPLIED]
    await ends(kept, 1, 0)


async def test_what_is_deferred_comes_again_and_costs_nothing(kept: Kept, backlog: Backlog) -> None:
    await kept.put(1)
    (claim,) = await kept.claim(backlog)
    assert await backlog.settle([defer(claim, 0.1)]) == [Settled.APPLIED]
    (again,) = await kept.claim(backlog)
    assert (again.key, again.attempt) == (claim.key, 1)
    assert await backlog.settle([finish(again)]) == [Settled.APPLIED]
    await ends(kept, 1, 0)


async def test_a_given_up_message_is_a_dead_letter_once(kept: Kept, backlog: Backlog) -> None:
    await kept.put(2)
    one, two = await kept.claim(backlog, 2)
    assert await backlog.settle([bury(one), finish(two)]) == [Settled.APPLIED] * 2
    await backlog.settle([bury(one)])
    await ends(kept, 1, 1)
    await kept.nothing_comes(backlog)


async def test_a_claim_is_kept_by_extending_it(kept: Kept, backlog: Backlog) -> None:
    await kept.put(1)
    (claim,) = await kept.claim(backlog)
    assert await backlog.extend([claim]) == []
    await backlog.settle([finish(claim)])
    assert await backlog.extend([claim]) == [claim]


async def test_a_lost_claim_is_anothers_and_its_failure_changes_nothing(kept: Kept, backlog: Backlog) -> None:
    await kept.put(1)
    (zombie,) = await kept.claim(backlog)
    heirs = await kept.claimer()
    await kept.lose(backlog)
    (heir,) = await kept.claim(heirs)
    assert heir.key == zombie.key
    assert (heir.abandoned, heir.attempt) == (kept.tells_abandoned, 2 if kept.counts_crashes else 1)
    assert await backlog.extend([zombie]) == [zombie]
    for late in (retry(zombie), bury(zombie), defer(zombie)):
        assert await backlog.settle([late]) == [Settled.STALE]
    assert await heirs.settle([finish(heir)]) == [Settled.APPLIED]
    await ends(kept, 1, 0)


async def test_a_lost_claims_success_closes_what_is_open(kept: Kept, backlog: Backlog) -> None:
    await kept.put(1)
    (zombie,) = await kept.claim(backlog)
    heirs = await kept.claimer()
    await kept.lose(backlog)
    (heir,) = await kept.claim(heirs)
    assert await backlog.settle([finish(zombie)]) == [Settled.ADOPTED if kept.adopts_from_heirs else Settled.STALE]
    assert await heirs.settle([bury(heir)]) == [Settled.STALE if kept.adopts_from_heirs else Settled.APPLIED]
    await ends(kept, *((1, 0) if kept.adopts_from_heirs else (0, 1)))
    await kept.nothing_comes(heirs)


@pytest.mark.req("P-1344")
async def test_what_fails_over_is_claimed_for_the_next_provider(kept: Kept, backlog: Backlog) -> None:
    await kept.put(1)
    (claim,) = await kept.claim(backlog)
    assert await backlog.settle([fail_over(claim, "second")]) == [Settled.APPLIED]
    kept.provider = "second" if kept.fails_over else kept.provider
    (again,) = await kept.claim(backlog)
    assert (again.notification_id, again.attempt) == (claim.notification_id, 2)
    assert (again.provider, again.attempts_before) == (kept.provider, 1 if kept.fails_over else 0)
