"""What waits stands in `due`, what is held in `leases`: who has the row has the route."""

import asyncio
import sqlite3

import asyncpg
import pytest

from carillon.domain.claims import Settled, Want
from carillon.domain.groups import Turns
from carillon.ledger.opening import Ledger
from tests.contract.test_ledger_turns import (
    test_rows_that_were_moved_into_the_future_by_hand_hide_nobody as moved_by_hand,
)
from tests.support.ledger_builders import LANE, PROVIDER, bury, enrolment, finish, redrive, retry, route, want
from tests.support.ledger_engines import Engine, PostgresEngine, engine_fixture, ledger_fixture
from tests.support.ledger_mutants import Mutants, clauses_needed
from tests.support.ledger_postgres import connected, until_waiting
from tests.support.ledger_properties import claim_one

engine = engine_fixture()
ledger = ledger_fixture()

TRIGGER = {"postgres": "DROP TRIGGER route_left_due ON routes", "sqlite": "DROP TRIGGER route_left_due"}
OLDER_CLAIM = (
    "UPDATE routes SET claim_token = -7, lease_owner = 'older', turn = NULL, attempt_count = attempt_count + 1"
)
CAPPED = Want(LANE, PROVIDER, 50, Turns(2))


async def sizes(engine: Engine) -> tuple[int, int]:
    """How many stand in `due`, and how many leases there are."""
    return len(await engine.rows("due")), len(await engine.rows("leases"))


async def test_a_claim_leaves_the_route_as_it_is(engine: Engine, ledger: Ledger) -> None:
    await ledger.enrol([enrolment(), enrolment()])
    before = await engine.execute("SELECT * FROM routes ORDER BY notification_id")
    assert await sizes(engine) == (2, 0)
    claims = await ledger.claim([want()], 10, "w")
    assert await sizes(engine) == (0, 1)
    assert await engine.execute("SELECT * FROM routes ORDER BY notification_id") == before
    assert await ledger.settle([finish(claim) for claim in claims]) == [Settled.APPLIED] * 2
    assert await sizes(engine) == (0, 0)


async def test_one_hangs_and_the_rest_is_settled(engine: Engine, ledger: Ledger) -> None:
    await ledger.enrol([enrolment(route(f"r{n}")) for n in range(20)])
    hanging, *rest = await ledger.claim([want()], 20, "w")
    assert await ledger.settle([finish(claim) for claim in rest]) == [Settled.APPLIED] * 19
    assert await ledger.extend([hanging]) == []
    assert await sizes(engine) == (0, 1)
    await engine.expire_leases()
    again = await claim_one(ledger, "heir")
    assert (again.key, again.attempt, again.abandoned) == (hanging.key, 2, True)
    assert again.token > hanging.token
    assert await ledger.settle([retry(hanging)]) == [Settled.STALE]
    assert await ledger.settle([finish(again)]) == [Settled.APPLIED]
    assert await sizes(engine) == (0, 0)


async def test_a_late_success_takes_the_route_out_of_due(engine: Engine, ledger: Ledger) -> None:
    await ledger.enrol([enrolment()])
    late = await claim_one(ledger)
    await engine.expire_leases()
    # A claim for another provider takes the lease apart; the route waits again.
    assert await ledger.claim([want(provider="second")], 1, "other") == []
    assert await sizes(engine) == (1, 0)
    assert await ledger.settle([finish(late)]) == [Settled.ADOPTED]
    assert await sizes(engine) == (0, 0)
    assert await ledger.claim([want()], 1, "heir") == []


async def test_settlements_of_one_lease_at_once_end_it(engine: Engine, ledger: Ledger) -> None:
    await ledger.enrol([enrolment(route(f"r{n}")) for n in range(8)])
    claims = await ledger.claim([want()], 8, "w")
    await asyncio.gather(*(ledger.settle([finish(claim)]) for claim in claims))
    await ledger.enrol([enrolment()])
    await ledger.settle([finish(await claim_one(ledger))])
    assert await sizes(engine) == (0, 0)


async def test_another_process_settles_and_the_lease_runs_out(engine: Engine, ledger: Ledger) -> None:
    await ledger.enrol([enrolment(), enrolment()])
    claims = await ledger.claim([want()], 2, "w")
    async with engine.ledger() as other:
        assert await other.settle([finish(claim) for claim in claims]) == [Settled.APPLIED] * 2
    await engine.expire_leases()
    assert await ledger.claim([want()], 2, "heir") == []
    assert await sizes(engine) == (0, 0)


async def test_each_settlement_frees_its_place_once(engine: Engine, ledger: Ledger) -> None:
    await ledger.enrol([enrolment(route(f"r{n}", group=-1)) for n in range(6)])
    first, second = await ledger.claim([CAPPED], 50, "w")
    assert first.lease == second.lease
    assert await ledger.claim([CAPPED], 50, "w") == []
    for _ in range(2):
        assert await ledger.settle([finish(first)]) == [Settled.APPLIED]
    assert len(await ledger.claim([CAPPED], 50, "w")) == 1
    async with engine.ledger() as other:
        assert await other.settle([bury(second)]) == [Settled.APPLIED]
    assert len(await ledger.claim([CAPPED], 50, "w")) == 1


async def test_redriven_twice_it_waits_once(engine: Engine, ledger: Ledger) -> None:
    await ledger.enrol([enrolment()])
    claim = await claim_one(ledger)
    await ledger.settle([bury(claim)])
    assert [await redrive(ledger, claim.key) for _ in range(2)] == [1, 0]
    assert len(await ledger.claim([want()], 10, "w")) == 1
    assert await sizes(engine) == (0, 1)


async def test_an_older_process_claims_what_waits_and_nothing_that_is_held(engine: Engine, ledger: Ledger) -> None:
    later = {"postgres": "now() + interval '1 h'", "sqlite": "4000000000000"}[engine.dialect]
    await ledger.enrol([enrolment()])
    await engine.execute(f"{OLDER_CLAIM}, next_attempt_at = {later}")
    assert await sizes(engine) == (0, 0)
    assert await ledger.claim([want()], 10, "w") == []
    await ledger.enrol([enrolment(route("bob"))])
    await claim_one(ledger)
    with pytest.raises(
        (asyncpg.LockNotAvailableError, sqlite3.IntegrityError), match="a newer release holds the route"
    ):
        await engine.execute(f"{OLDER_CLAIM}, next_attempt_at = {later} WHERE claim_token IS NULL")


async def test_a_time_written_by_hand_takes_nothing_from_its_worker(engine: Engine, ledger: Ledger) -> None:
    await ledger.enrol([enrolment()])
    claim = await claim_one(ledger)
    await engine.execute("UPDATE routes SET next_attempt_at = created_at, lane = lane, provider = provider")
    assert await ledger.claim([want()], 10, "other") == []
    assert await ledger.settle([retry(claim)]) == [Settled.APPLIED]


async def test_without_its_trigger_a_row_moved_by_hand_is_claimed(engine: Engine, ledger: Ledger) -> None:
    """Control: the trigger takes out of `due` what a statement by hand has moved."""
    await engine.execute(TRIGGER[engine.dialect])
    with pytest.raises(AssertionError):
        await moved_by_hand(engine, ledger)


MUTANTS: Mutants = {
    "a lease that nobody ends": (
        test_a_claim_leaves_the_route_as_it_is,
        {"settle_finished": ("(lease_id IN (SELECT unnest($7::bigint[]))) IS TRUE", "FALSE AND $7::bigint[] IS NULL")},
        {"end_leases": ("DELETE FROM leases WHERE", "DELETE FROM leases WHERE FALSE AND")},
    ),
    "a lapse that ignores tickets": (
        test_one_hangs_and_the_rest_is_settled,
        {"claim": ("SET ticket = nextval('claim_tokens'), next_attempt_at = held.expires_at", "SET ticket = r.ticket")},
        {"lapse": ("SET ticket = :ticket", "SET ticket = ticket")},
    ),
    "places that no settlement frees": (
        test_each_settlement_frees_its_place_once,
        {"settle_finished": ("(t.ticket IN (SELECT unnest($9::bigint[]))) IS NOT TRUE", "$9::bigint[] IS NOT NULL")},
        {"free_places": ("WHERE t.value NOT IN (SELECT value FROM json_each(:tokens))", "")},
    ),
}

test_each_clause_is_needed = clauses_needed(MUTANTS)


async def cancelled_beside_a_claim(engine: PostgresEngine, statements: dict[str, str] | None = None) -> int:
    """A claim has the row of `due`, and is not committed yet, when the producer cancels."""
    given = enrolment()
    async with engine.ledger(statements=statements) as ledger, connected(engine.dsn) as worker:
        await ledger.enrol([given])
        async with worker.transaction():
            await worker.execute(
                "WITH gone AS (DELETE FROM due RETURNING ticket) INSERT INTO leases "
                "SELECT 99, NULL, 'w', now(), now() + interval '1 h', array_agg(ticket) FROM gone"
            )
            late = asyncio.create_task(ledger.cancel(given.notification.notification_id))
            await until_waiting(engine.dsn, 1)
        return await late


async def test_a_cancellation_that_waited_for_a_claim_changes_nothing(ledger_dsn: str) -> None:
    assert await cancelled_beside_a_claim(PostgresEngine(ledger_dsn)) == 0


async def test_control_a_cancellation_that_does_not_ask_for_the_row(ledger_dsn: str) -> None:
    engine = PostgresEngine(ledger_dsn)
    blind = engine.statements({"stop_routes": ("r.ticket IN (SELECT ticket FROM taken)\n", "TRUE\n")})
    assert await cancelled_beside_a_claim(engine, blind) == 1


async def test_a_lease_that_its_worker_renews_is_not_taken_apart(ledger_dsn: str) -> None:
    """The renewal has locked the lease when a claim finds it expired."""
    engine = PostgresEngine(ledger_dsn)
    async with engine.ledger() as ledger, connected(engine.dsn) as worker:
        await ledger.enrol([enrolment()])
        claim = await claim_one(ledger)
        await engine.expire_leases()
        async with worker.transaction():
            await worker.execute("UPDATE leases SET expires_at = now() + interval '1 h'")
            assert await ledger.claim([want()], 1, "heir") == []
        assert await ledger.claim([want()], 1, "heir") == []
        assert await ledger.settle([finish(claim)]) == [Settled.APPLIED]
