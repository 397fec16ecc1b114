"""Making waiting routes due earlier, in tests and drills."""

from carillon.domain.claims import Settlement
from carillon.domain.verdicts import Retry
from carillon.ledger.opening import Ledger
from tests.support.ledger_builders import enrolment, finish, route, want
from tests.support.ledger_engines import engine_fixture, ledger_fixture
from tests.support.ledger_properties import claim_one

engine = engine_fixture()
ledger = ledger_fixture()


async def test_what_waits_becomes_due(ledger: Ledger) -> None:
    await ledger.enrol([enrolment(route("ann"))])
    await ledger.settle([Settlement(claim=await claim_one(ledger), verdict=Retry(500.0))])
    assert await ledger.claim([want()], 10, "w") == []
    assert await ledger.hasten(400) == 1
    assert await ledger.claim([want()], 10, "w") == []
    assert await ledger.hasten(101) == 1
    assert len(await ledger.claim([want()], 10, "w")) == 1


async def test_what_a_worker_holds_keeps_its_lease(ledger: Ledger) -> None:
    await ledger.enrol([enrolment(route("ann"))])
    claim = await claim_one(ledger)
    assert await ledger.hasten(10_000) == 0
    assert await ledger.claim([want()], 10, "other") == []
    assert [str(settled) for settled in await ledger.settle([finish(claim)])] == ["applied"]
