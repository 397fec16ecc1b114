"""Routes whose provider or lane the settings lost."""

from carillon.ledger.opening import Ledger
from tests.support.ledger_builders import LANE, PROVIDER, enrolment, finish, route, want
from tests.support.ledger_engines import engine_fixture, ledger_fixture
from tests.support.ledger_properties import claim_one

engine = engine_fixture()
ledger = ledger_fixture()


async def test_waiting_routes_find_a_provider_and_a_lane_that_exist(ledger: Ledger) -> None:
    await ledger.enrol([enrolment(route("gone", provider="gone"), route("nowhere", lane=9), route("well"))])
    assert await ledger.rehome("email", [PROVIDER, "second"], [LANE], LANE) == 2
    claims = await ledger.claim([want()], 10, "w")
    assert sorted(claim.route_id for claim in claims) == ["email:user:gone", "email:user:nowhere", "email:user:well"]
    assert await ledger.rehome("email", [PROVIDER], [LANE], LANE) == 0


async def test_other_channels_and_finished_routes_are_left_alone(ledger: Ledger) -> None:
    await ledger.enrol([enrolment(route("ann"))])
    await ledger.settle([finish(await claim_one(ledger))])
    await ledger.enrol([enrolment(route("bob", channel="push", provider="gone"))])
    assert await ledger.rehome("email", ["new"], [LANE], LANE) == 0


async def test_a_route_in_a_workers_hands_can_still_be_settled(ledger: Ledger) -> None:
    await ledger.enrol([enrolment()])
    claim = await claim_one(ledger)
    assert await ledger.rehome("email", ["new"], [LANE], LANE) == 1
    assert [str(settled) for settled in await ledger.settle([finish(claim)])] == ["applied"]
