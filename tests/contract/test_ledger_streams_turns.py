"""Turns: within a priority, a person gets notifications in the order of arrival, from any number of workers."""

from carillon.ledger.opening import Ledger
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
