"""Claiming and renewing: who gets a route, and for how long."""

import asyncio

import msgspec
import pytest

from carillon.domain.claims import Claim, Settled
from carillon.ledger.opening import Ledger
from tests.support.ledger_builders import (
    enrolment,
    retry,
    route,
    want,
)
from tests.support.ledger_engines import LEASES, Engine, engine_fixture, ledger_fixture
from tests.support.ledger_properties import claim_one, lose_a_lease

engine = engine_fixture(LEASES)
ledger = ledger_fixture()


async def claimed(ledger: Ledger) -> Claim:
    await ledger.enrol([enrolment()])
    return await claim_one(ledger)


async def test_a_claim_carries_everything_a_worker_needs(ledger: Ledger) -> None:
    given = enrolment(
        route("ann", message_json='{"text":"hi"}', resolved_locale="de"),
        user_id="u",
        tenant_id="t",
        metadata_json='{"a":1}',
        request_id="r",
        trace_id="x",
    )
    await ledger.enrol([given])
    claim = await claim_one(ledger)
    assert claim.key == (given.notification.notification_id, "email:user:ann")
    assert (claim.channel, claim.address, claim.resolved_locale) == ("email", "ann@example.com", "de")
    assert (claim.user_id, claim.tenant_id, claim.request_id, claim.trace_id) == ("u", "t", "r", "x")
    assert (claim.attempt, claim.attempts_before, claim.max_attempts) == (1, 0, 3)
    assert (claim.lane, claim.provider, claim.policy) == (2, "mailer", "*/*")
    assert (claim.notification_type, claim.producer) == ("order.shipped", "shop")
    assert claim.payload_json == '{"order":7}'
    assert claim.metadata() == {"a": 1}
    assert 0 <= claim.age_seconds < 60
    assert not claim.abandoned
    assert not claim.suppressed


async def test_a_lease_is_a_date_in_the_future_and_a_token(engine: Engine, ledger: Ledger) -> None:
    claim = await claimed(ledger)
    row = await engine.only("routes")
    assert (row["status"], row["claim_token"], row["lease_owner"]) == ("pending", claim.token, "worker")
    assert row["next_attempt_at"] - row["claimed_at"] == pytest.approx(30_000, abs=1)
    assert await ledger.claim([want()], 10, "other") == []


async def test_wants_are_asked_in_order_each_up_to_its_limit(ledger: Ledger) -> None:
    await ledger.enrol([enrolment(route(f"{lane}{n}", lane=lane)) for lane in (1, 2, 3) for n in range(5)])
    wants = [want(2, lane=3), want(2, lane=1), want(9, lane=2)]
    claims = await ledger.claim(wants, 7, "w")
    assert [claim.lane for claim in claims] == [3, 3, 1, 1, 2, 2, 2]
    assert len({claim.token for claim in claims}) == len(claims)


async def test_a_second_round_takes_what_the_first_left(ledger: Ledger) -> None:
    await ledger.enrol(
        [enrolment(route(f"{lane}{n}", lane=lane)) for lane, many in ((1, 5), (3, 1)) for n in range(many)]
    )
    shares = [want(2, lane=1), want(2, lane=2), want(2, lane=3)]
    unweighted = [want(6, lane=lane) for lane in (1, 2, 3)]
    claims = await ledger.claim([*shares, *unweighted], 6, "w")
    assert [claim.lane for claim in claims] == [1, 1, 3, 1, 1, 1]
    assert len({claim.key for claim in claims}) == 6


async def test_the_longest_due_comes_first(engine: Engine, ledger: Ledger) -> None:
    for name in ("first", "second", "third"):
        await ledger.enrol([enrolment(route(name))])
        await engine.grow_old("routes", "next_attempt_at", 10)
    claims = await ledger.claim([want(2)], 2, "w")
    assert [claim.recipient_ref for claim in claims] == ["user:first", "user:second"]


@pytest.mark.parametrize(("limit", "total"), [(0, 10), (10, 0), (-1, 10)])
async def test_nothing_wanted_nothing_claimed(ledger: Ledger, limit: int, total: int) -> None:
    await ledger.enrol([enrolment()])
    assert await ledger.claim([want(limit)], total, "w") == []
    assert await ledger.claim([], total, "w") == []
    assert await ledger.extend([]) == []
    assert await ledger.settle([]) == []


@pytest.mark.req("S1-56", "S1-70")
async def test_rival_claimers_never_share_a_route(engine: Engine, ledger: Ledger) -> None:
    await ledger.enrol([enrolment(route(f"r{n}")) for n in range(300)])
    async with engine.ledger() as other:
        taken: list[Claim] = []

        async def drain(mine: Ledger, owner: str) -> None:
            while claims := await mine.claim([want(7)], 7, owner):
                taken.extend(claims)

        await asyncio.gather(*(drain(mine, f"w{n}") for n, mine in enumerate([ledger, other, ledger, other])))
    assert len(taken) == 300
    assert len({claim.key for claim in taken}) == len({claim.token for claim in taken}) == 300


@pytest.mark.req("G-05")
async def test_an_expired_lease_is_claimable_again_and_says_so(engine: Engine, ledger: Ledger) -> None:
    zombie, heir = await lose_a_lease(engine, ledger)
    assert heir.key == zombie.key
    assert heir.token > zombie.token
    assert heir.abandoned
    assert not zombie.abandoned


async def test_an_expired_lease_that_nobody_took_still_settles(engine: Engine, ledger: Ledger) -> None:
    claim = await claimed(ledger)
    await engine.expire_leases()
    assert await ledger.settle([retry(claim)]) == [Settled.APPLIED]


async def test_extending_pushes_the_lease(engine: Engine, ledger: Ledger) -> None:
    claim = await claimed(ledger)
    await engine.expire_leases()
    assert await ledger.extend([claim]) == []
    assert await ledger.claim([want()], 10, "other") == []
    gone = msgspec.structs.replace(claim, notification_id="nobody", token=10**9)
    assert await ledger.extend([gone, claim]) == [gone]
