"""A waiting route whose ticket stands in no queue is found, put back, sent, and counted; and no path loses one."""

import asyncio

import pytest

from carillon.domain.claims import Settled, Want
from carillon.domain.events import Event, TicketsLost
from carillon.domain.groups import Turns
from carillon.ledger.opening import Ledger
from carillon.upkeep import cleanup
from carillon.upkeep.cleanup import LostTickets
from tests.support.clocks import ManualClock
from tests.support.ledger_builders import LANE, PROVIDER, bury, enrolment, finish, redrive, retry, route, want
from tests.support.ledger_engines import Engine, PostgresEngine, engine_fixture, ledger_fixture
from tests.support.ledger_mutants import Mutants, clauses_needed
from tests.support.ledger_postgres import connected, plan_of, until_waiting
from tests.support.ledger_properties import claim_one

engine = engine_fixture()
ledger = ledger_fixture()

LEASE = 30.0
CAPPED = Want(LANE, PROVIDER, 50, Turns(2))


class Upkeep:
    """The loop of one process, with a clock that moves only when a test says so."""

    def __init__(self, ledger: Ledger) -> None:
        self.clock = ManualClock()
        self.events: list[Event] = []
        self.job = LostTickets(ledger, self.events.append, self.clock, LEASE)

    async def look(self, *, later: float = 0.0) -> int:
        self.clock.now += later
        return await self.job.look()


async def lost(ledger: Ledger) -> list[int]:
    return (await ledger.lost_tickets(0, 1000))[0]


@pytest.mark.req("P-520")
async def test_a_route_that_stands_in_no_queue_is_put_back_and_sent(engine: Engine, ledger: Ledger) -> None:
    await ledger.enrol([enrolment(), enrolment()])
    (kept,) = await ledger.claim([want(1)], 1, "w")
    await engine.execute("DELETE FROM due")
    assert await ledger.claim([want()], 10, "w") == [], "nobody finds it"
    upkeep = Upkeep(ledger)
    assert await upkeep.look() == 0, "its worker may be calling, if the ticket was lost from a lease"
    assert await upkeep.look(later=LEASE) == 1
    assert upkeep.events == [TicketsLost(routes=1)]
    (found,) = await ledger.claim([want()], 10, "w")
    assert (found.key != kept.key, found.attempt, found.abandoned) == (True, 1, False)
    assert await ledger.settle([finish(found), finish(kept)]) == [Settled.APPLIED] * 2
    assert await upkeep.look(later=LEASE) == 0
    assert len(upkeep.events) == 1


@pytest.mark.req("P-520")
async def test_a_success_under_a_lease_that_vanished_is_adopted_and_sent_once(engine: Engine, ledger: Ledger) -> None:
    await ledger.enrol([enrolment()])
    claim = await claim_one(ledger)
    await engine.execute("DELETE FROM leases")
    upkeep = Upkeep(ledger)
    await upkeep.look()
    assert await ledger.extend([claim]) == [claim], "the worker is told"
    assert await ledger.settle([finish(claim)]) == [Settled.APPLIED]
    assert await upkeep.look(later=LEASE) == 0
    assert await ledger.claim([want()], 10, "w") == []


@pytest.mark.req("P-520")
async def test_a_worker_that_died_under_a_lease_that_vanished(engine: Engine, ledger: Ledger) -> None:
    await ledger.enrol([enrolment()])
    dead = await claim_one(ledger)
    await engine.execute("DELETE FROM leases")
    upkeep = Upkeep(ledger)
    await upkeep.look()
    assert await upkeep.look(later=LEASE) == 1
    heir = await claim_one(ledger, "heir")
    assert heir.token != dead.token
    assert await ledger.settle([retry(dead)]) == [Settled.STALE], "what comes of it late changes nothing"
    assert await ledger.settle([finish(heir)]) == [Settled.APPLIED]


@pytest.mark.req("P-520")
async def test_what_waits_is_held_or_has_ended_is_not_lost(engine: Engine, ledger: Ledger) -> None:
    await ledger.enrol([enrolment(route(f"r{n}")) for n in range(6)])
    await ledger.enrol([enrolment(route(f"c{n}", group=-1, provider="capped")) for n in range(4)])
    await ledger.enrol([enrolment(route("s", channel="sse", provider="sse"))])
    await ledger.enrol([enrolment(route("later"), scheduled_for_ms=4_000_000_000_000)])
    sent, failed, given_up, *_ = await ledger.claim([want(5)], 5, "w")
    await ledger.settle([finish(sent), retry(failed), bury(given_up)])
    assert len(await ledger.claim([Want(LANE, "capped", 50, Turns(2))], 50, "w")) == 2
    assert await lost(ledger) == []
    await engine.make_due()
    await ledger.claim([want(1)], 1, "heir")
    assert await lost(ledger) == []
    await redrive(ledger, given_up.key)
    upkeep = Upkeep(ledger)
    assert [await upkeep.look(later=LEASE) for _ in range(3)] == [0, 0, 0]


@pytest.mark.req("P-520")
async def test_many_are_looked_at_slice_by_slice_and_from_the_first_one_again(
    engine: Engine, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleanup, "TICKET_BATCH", 4)
    monkeypatch.setattr(cleanup, "TICKET_BATCHES", 2)
    await ledger.enrol([enrolment(route(f"r{n}")) for n in range(20)])
    await engine.execute("DELETE FROM due WHERE ticket % 2 = 0")
    upkeep = Upkeep(ledger)
    looks = [await upkeep.look(later=LEASE) for _ in range(8)]
    assert (sum(looks), max(looks)) == (10, 4), looks
    assert await lost(ledger) == []
    assert sum(event.routes for event in upkeep.events if isinstance(event, TicketsLost)) == 10
    assert len(await ledger.claim([want()], 100, "w")) + len(await ledger.claim([want()], 100, "w")) == 20


@pytest.mark.req("P-1000")
async def test_what_is_not_lost_any_more_stays_where_it_is(engine: Engine, ledger: Ledger) -> None:
    """The look may be old: of what it has seen, one is held, one waits in its queue, and one has ended."""
    await ledger.enrol([enrolment(route("held"), route("waits"), route("ended"), route("lost"))])
    held, ended = await ledger.claim([want(2)], 2, "w")
    tickets = [row["ticket"] for row in await engine.rows("routes")]
    await ledger.settle([finish(ended)])
    before = await engine.rows("routes")
    assert await ledger.put_back(tickets) == 0
    assert await engine.rows("routes") == before
    await engine.execute("DELETE FROM due WHERE ticket = (SELECT max(ticket) FROM due)")
    # Its neighbour still waits for the same moment in the same queue.
    assert await lost(ledger) == [max(tickets)]
    assert (await ledger.put_back(tickets), len(await engine.rows("due"))) == (1, 1)
    assert await ledger.settle([finish(held)]) == [Settled.APPLIED]


@pytest.mark.req("P-520")
async def test_two_processes_count_it_once(engine: Engine, ledger: Ledger) -> None:
    await ledger.enrol([enrolment()])
    await engine.execute("DELETE FROM due")
    async with engine.ledger() as other:
        both = [Upkeep(ledger), Upkeep(other)]
        for each in both:
            await each.look()
        assert sum(await asyncio.gather(*(each.look(later=LEASE) for each in both))) == 1
    assert len(await ledger.claim([want()], 10, "w")) == 1


async def put_back_beside_a_cancellation(engine: PostgresEngine, statements: dict[str, str] | None = None) -> int:
    """Somebody ends the route, and has not committed yet, when upkeep puts it back."""
    async with engine.ledger(statements=statements) as ledger, connected(engine.dsn) as hand:
        await ledger.enrol([enrolment()])
        await engine.execute("DELETE FROM due")
        tickets = await lost(ledger)
        async with hand.transaction():
            await hand.execute("UPDATE routes SET status = 'skipped', next_attempt_at = NULL, ticket = NULL")
            late = asyncio.create_task(ledger.put_back(tickets))
            await until_waiting(engine.dsn, 1)
        return await late


@pytest.mark.req("P-520")
async def test_a_route_that_ended_meanwhile_stays_ended(ledger_dsn: str) -> None:
    assert await put_back_beside_a_cancellation(PostgresEngine(ledger_dsn)) == 0


@pytest.mark.req("P-520")
async def test_the_look_reads_indexes(ledger_dsn: str) -> None:
    """Thousands that are due at one moment in one group are looked up one by one, by their tickets."""
    engine = PostgresEngine(ledger_dsn)
    async with engine.ledger() as ledger, connected(engine.dsn) as reader:
        await ledger.enrol([enrolment(route(f"r{n}")) for n in range(400)])
        await reader.execute("UPDATE routes SET next_attempt_at = now(), ticket = ticket + 1000000")
        await reader.execute(
            "TRUNCATE due; INSERT INTO due SELECT lane, provider, grp, next_attempt_at, ticket FROM routes;"
            "ANALYZE routes, due"
        )
        text = engine.statements()["lost_tickets"].replace(":after", "$1").replace(":limit", "$2")
        plan = await plan_of(reader, text, 0, 100)
        assert await lost(ledger) == []
    assert "Index Scan using routes_due_idx" in plan
    looked_up = plan[plan.index("due_turns_idx") :]
    assert "(ticket = looked.ticket)" in looked_up.partition("Filter")[0], plan


MUTANTS: Mutants = {
    "what waits counts as lost": (
        test_what_waits_is_held_or_has_ended_is_not_lost,
        {"lost_tickets": ("d.ticket = looked.ticket", "FALSE")},
        {"lost_tickets": ("d.ticket = looked.ticket", "FALSE")},
    ),
    "what is held counts as lost": (
        test_what_waits_is_held_or_has_ended_is_not_lost,
        {"lost_tickets": ("(looked.ticket IN (SELECT unnest(l.tickets) FROM leases l)) IS NOT TRUE", "TRUE")},
        {"lost_tickets": ("looked.ticket NOT IN (SELECT t.value FROM leases l, json_each(l.tickets) t)", "TRUE")},
    ),
    "nothing is put back": (
        test_a_route_that_stands_in_no_queue_is_put_back_and_sent,
        {"put_back": ("r.next_attempt_at IS NOT NULL", "FALSE")},
        {"put_back": ("next_attempt_at IS NOT NULL", "FALSE")},
    ),
}

test_each_clause_is_needed = clauses_needed(MUTANTS)
