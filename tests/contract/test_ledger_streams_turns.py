"""Turns: within a priority, a person gets notifications in the order of arrival, from any number of workers."""

from uuid import UUID

import pytest

from carillon.domain.claims import Settlement, Want
from carillon.domain.outcomes import Throttled
from carillon.domain.streams import log_of_claim
from carillon.domain.verdicts import Defer
from carillon.ledger.opening import Ledger
from carillon.outbound.attempt import noted
from tests.support.ledger_builders import bury
from tests.support.ledger_engines import engine_fixture, ledger_fixture
from tests.support.stream_builders import claimed, told

engine = engine_fixture()
ledger = ledger_fixture()


async def test_a_later_one_waits_for_an_earlier_one_that_is_not_in_the_log(ledger: Ledger) -> None:
    first, second, third = await claimed(ledger, told("ann"), told("ann"), told("ann"))
    assert await ledger.in_turn([second]) == []
    assert await ledger.in_turn([first]) == [first]
    assert await ledger.in_turn([third, second]) == []
    await ledger.append([first])
    assert await ledger.in_turn([second]) == [second]
    assert await ledger.in_turn([third]) == []


async def test_what_goes_together_waits_for_nobody_among_them(ledger: Ledger) -> None:
    claims = await claimed(ledger, told("ann"), told("ann"), told("bob"))
    assert await ledger.in_turn(claims[::-1]) == claims
    assert await ledger.in_turn([]) == []


async def test_other_people_priorities_and_tenants_have_turns_of_their_own(ledger: Ledger) -> None:
    one, *rest = await claimed(
        ledger,
        told("ann", priority=1),
        told("bob", priority=1),
        told("ann", priority=2),
        told("ann", priority=1, tenant_id="acme"),
    )
    assert one.recipient_ref == "user:ann"
    assert set(map(id, await ledger.in_turn(rest))) == set(map(id, rest))
    for claim in rest:
        assert await ledger.in_turn([claim]) == [claim], claim


async def test_what_was_given_up_holds_nobody_back(ledger: Ledger) -> None:
    first, second = await claimed(ledger, told("ann"), told("ann"))
    await ledger.settle([bury(first)])
    assert await ledger.in_turn([second]) == [second]


async def test_what_is_scheduled_for_later_has_not_come_yet(ledger: Ledger) -> None:
    far = 32_503_680_000_000
    (claim,) = await claimed(ledger, told("ann", scheduled_for_ms=far), told("ann"))
    assert await ledger.in_turn([claim]) == [claim]


@pytest.mark.req("S4-17", "S4-49")
async def test_the_order_is_that_of_the_claim_whatever_the_ids_say(ledger: Ledger) -> None:
    """As the records of several partitions come: accepted in one order, with ids of another."""
    backwards = [told("ann", notification_id=str(UUID(int=10**9 - number))) for number in range(6)]
    for pair in (backwards[:3], backwards[3:]):
        await ledger.enrol(pair)
    accepted = [each.notification.notification_id for each in backwards]
    first = await ledger.claim([Want(2, "sse", 4)], 4, "w")
    rest = await ledger.claim([Want(2, "sse", 4)], 4, "w")
    assert [claim.notification_id for claim in (*first, *rest)] == accepted
    assert await ledger.in_turn(rest) == []
    assert await ledger.in_turn(first[::-1]) == first
    assert await ledger.in_turn([*rest[::-1], *first[::-1]]) == [*first, *rest]
    entries = await ledger.append(await ledger.in_turn(first[::-1]))
    assert [entry.notification_id for entry in entries] == accepted[:4]
    assert [entry.seq for entry in entries] == [1, 2, 3, 4]
    assert await ledger.in_turn(rest) == rest


async def test_of_a_notification_for_two_people_each_has_a_turn(ledger: Ledger) -> None:
    """The first route of it in this batch says nothing about the other person's."""
    ann, bob = told("ann"), told("bob")
    both = type(ann)(ann.notification, (*ann.routes, *bob.routes))
    claims = await claimed(ledger, both, told("bob"))
    of_ann = next(claim for claim in claims if log_of_claim(claim) == "ann")
    later = claims[-1]
    assert log_of_claim(later) == "bob"
    assert await ledger.in_turn([of_ann, later]) == [of_ann]


async def test_what_was_sent_back_is_woken_in_its_order(ledger: Ledger) -> None:
    """Also what is due already: it was deferred in another order."""
    claims = await claimed(ledger, *(told("ann") for _ in range(4)))
    for claim in reversed(claims):
        note = noted("sse", Throttled("an earlier one is missing"), 0.0)
        await ledger.settle([Settlement(claim=claim, verdict=Defer(0.0), note=note)])
    await ledger.wake(["ann"])
    assert [claim.notification_id for claim in await claimed(ledger)] == [claim.notification_id for claim in claims]
