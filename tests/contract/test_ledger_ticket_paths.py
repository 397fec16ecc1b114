"""What ends a waiting route beside the workers asks for its row of `due`: reached goals and stopped redrives."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from carillon.domain.admin import AdminAction, RedrivePlan
from carillon.domain.claims import Claim, Settled
from carillon.domain.decide import barred
from carillon.domain.receipts import Receipt, ReceiptKind
from carillon.domain.verdicts import Skip
from carillon.ledger.opening import Ledger
from tests.contract.test_ledger_chains import RULES, chain
from tests.contract.test_ledger_skipped import again, suppressed
from tests.support.ledger_builders import REDRIVE, bury, enrolment, finish, retry, route, want
from tests.support.ledger_engines import Engine, PostgresEngine, engine_fixture, ledger_fixture
from tests.support.ledger_postgres import connected, until_waiting

engine = engine_fixture()
ledger = ledger_fixture()

End = Callable[[], Coroutine[Any, Any, int]]
Made = tuple[list[tuple[str, str]], End]
"""Two routes that are due, and what ends them while nobody holds them; it answers how many it ended."""


async def of_a_chain(ledger: Ledger) -> Made:
    """Two people whose next channel is due; both have read the message in the channel before."""
    await ledger.enrol([chain("ann", "bob")])
    first = await ledger.claim([want(provider="inApp")], 10, "w")
    await ledger.settle([finish(claim) for claim in first])
    await ledger.hasten(5e9)

    async def reached() -> int:
        told = [
            Receipt(provider=one.provider, kind=ReceiptKind.OPENED, idempotency_key=one.idempotency_key)
            for one in first
        ]
        taken = await ledger.take_receipts(told, RULES)
        return sum(gone.channel == "push" for each in taken for gone in each.reached)

    return [(claim.notification_id, f"push:{claim.recipient_ref}") for claim in first], reached


async def of_the_skipped(ledger: Ledger) -> Made:
    """Two that a lifted suppression let go; an operator stops the redrive."""
    await suppressed(ledger, "ann", "bob")
    for name in ("ann", "bob"):
        assert await ledger.unsuppress("email", f"{name}@example.com", "")
    return await _redriven(ledger, (await again(ledger)).action_id)


async def of_dead_letters(ledger: Ledger) -> Made:
    await ledger.enrol([enrolment(route("ann"), route("bob"))])
    claims = await ledger.claim([want()], 10, "w")
    await ledger.settle([bury(claim) for claim in claims])
    done = await ledger.redrive({"letters": [claim.key for claim in claims]}, RedrivePlan(), 10, REDRIVE)
    return await _redriven(ledger, done.action_id)


async def _redriven(ledger: Ledger, action_id: int | None) -> Made:
    assert action_id is not None
    stop = AdminAction(actor="ops", action="stop_redrive", reason="wrong", subject=str(action_id))
    stories, _ = await ledger.search({}, 10, 0)
    keys = [(row["notification_id"], row["route_id"]) for story in stories for row in story.routes]
    return keys, lambda: ledger.stop_redrive(action_id, stop)


MAKERS = {of_a_chain: "push", of_the_skipped: "mailer", of_dead_letters: "mailer"}
made = pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)


async def one_held(ledger: Ledger, make: Callable[[Ledger], Awaitable[Made]]) -> tuple[Claim, End]:
    """Both have tickets: a worker holds one, the other stands in `due`."""
    _, end = await make(ledger)
    (held,) = await ledger.claim([want(1, provider=MAKERS[make])], 1, "w")  # type: ignore[index]
    return held, end


async def waiting(engine: Engine) -> int:
    return len(await engine.rows("due"))


async def tickets(engine: Engine) -> dict[tuple[str, str], Any]:
    rows = await engine.execute("SELECT notification_id, route_id, ticket FROM routes")
    return {(row["notification_id"], row["route_id"]): row["ticket"] for row in rows}


@made
@pytest.mark.req("P-521")
async def test_what_stands_in_due_is_ended_and_what_a_worker_holds_goes_on(
    engine: Engine, ledger: Ledger, make: Callable[[Ledger], Awaitable[Made]]
) -> None:
    held, end = await one_held(ledger, make)
    assert await waiting(engine) == 1
    assert await end() == 1
    assert await waiting(engine) == 0, "its row left `due` with it"
    left = {key: ticket for key, ticket in (await tickets(engine)).items() if ticket is not None}
    assert left == {held.key: held.token}
    assert await ledger.claim([want(provider=held.provider)], 10, "heir") == []
    assert await ledger.settle([finish(held)]) == [Settled.APPLIED]
    assert (await ledger.lost_tickets(0, 100))[0] == []


@made
@pytest.mark.req("P-521")
async def test_done_twice_it_changes_nothing_more(
    engine: Engine, ledger: Ledger, make: Callable[[Ledger], Awaitable[Made]]
) -> None:
    held, end = await one_held(ledger, make)
    assert [await end() for _ in range(2)] == [1, 0]
    await ledger.settle([retry(held, 0.0)])
    (later,) = await ledger.claim([want(provider=held.provider)], 10, "w")
    assert (later.key, later.attempt) == (held.key, 2), "it was tried: that is a retry, and no part of what was stopped"
    assert isinstance(barred(later), Skip) is (make is of_a_chain), "the next claim finds the goal reached"
    assert await waiting(engine) == 0


@pytest.mark.req("P-521")
async def test_a_lease_that_ran_out_protects_nothing_from_a_reached_goal(engine: Engine, ledger: Ledger) -> None:
    held, end = await one_held(ledger, of_a_chain)
    await engine.expire_leases()
    assert await end() == 2
    (row,) = [each for each in await engine.rows("routes") if each["route_id"] == held.route_id]
    assert (row["status"], row["attempt_count"]) == ("skipped", 1), "the attempt of the dead worker counts"
    assert await ledger.claim([want(provider="push")], 10, "heir") == []
    assert await ledger.settle([retry(held)]) == [Settled.STALE]
    assert (await waiting(engine), (await ledger.lost_tickets(0, 100))[0]) == (0, [])


BLIND = {
    of_a_chain: ("chain_reached", "w.ticket IN (SELECT ticket FROM taken)", "TRUE"),
    of_the_skipped: ("unskip_stop", "r.ticket IN (SELECT ticket FROM taken)", "TRUE"),
    of_dead_letters: ("stop_redrive", "r.ticket IN (SELECT ticket FROM taken)", "TRUE"),
}


async def beside_a_claim(engine: PostgresEngine, make: Any, *, blind: bool) -> int:
    """A claim has both rows of `due`, and is not committed yet."""
    name, clause, without = BLIND[make]
    statements = engine.statements({name: (clause, without)} if blind else {})
    async with engine.ledger(statements=statements) as ledger, connected(engine.dsn) as worker:
        held, end = await one_held(ledger, make)
        await ledger.settle([retry(held, 3600.0)])
        async with worker.transaction():
            await worker.execute(
                "WITH gone AS (DELETE FROM due RETURNING ticket) INSERT INTO leases "
                "SELECT 99, NULL, 'w', now(), now() + interval '1 h', array_agg(ticket) FROM gone"
            )
            late = asyncio.create_task(end())
            if make is of_a_chain:
                # It passes over what is locked; the route that waits for its retry is skipped.
                return await late - 1
            await until_waiting(engine.dsn, 1)
        return await late


@made
@pytest.mark.req("P-521")
async def test_what_a_claim_has_taken_meanwhile_goes_on(ledger_dsn: str, make: Any) -> None:
    assert await beside_a_claim(PostgresEngine(ledger_dsn), make, blind=False) == 0


@made
@pytest.mark.req("P-521")
async def test_control_a_statement_that_does_not_ask_for_the_row(ledger_dsn: str, make: Any) -> None:
    assert await beside_a_claim(PostgresEngine(ledger_dsn), make, blind=True) == 1
