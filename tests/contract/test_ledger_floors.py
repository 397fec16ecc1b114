"""Floors: beside an old snapshot a claim does not read again what was taken long ago, and nothing waits for long."""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from carillon.domain.claims import Want
from carillon.domain.groups import Turns
from carillon.ledger.opening import Ledger
from carillon.ledger.postgres import floors
from carillon.ledger.postgres.ledger import PostgresLedger
from tests.contract import test_ledger_guards as guards
from tests.contract import test_ledger_turns as turns
from tests.support.ledger_builders import LANE, PROVIDER, enrolment, route
from tests.support.ledger_engines import PostgresEngine, ledger_fixture
from tests.support.ledger_mutants import NOTICED, Change
from tests.support.ledger_postgres import connected
from tests.support.servers import Postgres

GROUP = 5
DEAD = 10_000
LAY = (
    f"INSERT INTO due SELECT {LANE}, '{PROVIDER}', {{group}}, now() - interval '1 h', -n"  # noqa: S608 - of this file
    f" FROM generate_series(1, {DEAD}) AS n"
)
LEASES = """
INSERT INTO leases (lease_id, owner, claimed_at, expires_at, tickets)
SELECT -n, 'w', now() - interval '2 h', now() - interval '1 h', '{{}}' FROM generate_series(1, {many}) AS n
"""
EARLIER = """
WITH earlier AS (
    UPDATE routes SET next_attempt_at = next_attempt_at - interval '{age}'
    WHERE recipient_ref = ANY ('{{{names}}}') RETURNING *
)
UPDATE due d SET due_at = earlier.next_attempt_at FROM earlier WHERE d.ticket = earlier.ticket
"""
TAKE_OUT = """
DELETE FROM due d USING routes r WHERE r.ticket = d.ticket AND r.recipient_ref = 'user:late'
RETURNING format('(%s, %L, %s, %L, %s)', d.lane, d.provider, d.grp, d.due_at, d.ticket) AS row
"""
PUT_BACK = "INSERT INTO due (lane, provider, grp, due_at, ticket) VALUES "
SCHEDULED = "UPDATE routes SET ticket = NULL WHERE recipient_ref = 'user:late'"
LOCK = "SELECT FROM due d JOIN routes r ON r.ticket = d.ticket WHERE r.recipient_ref = 'user:late' FOR UPDATE OF d"
_PLAN = re.compile(r"plan:\n((?:\t.*\n)+)")


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    settings = {
        "shared_preload_libraries": "auto_explain",
        "auto_explain.log_analyze": "on",
        "auto_explain.log_buffers": "on",
        "auto_explain.log_timing": "off",
        "auto_explain.log_format": "json",
        "autovacuum": "off",
    }
    with Postgres(settings=settings) as started:
        yield started


@pytest.fixture
async def explained(server: Postgres) -> AsyncIterator[PostgresEngine]:
    """A database whose server writes the plan of each statement to its log."""
    dsn = server.database()
    yield PostgresEngine(dsn)
    server.drop(dsn)


ledger = ledger_fixture("function")


@pytest.fixture
def engine(ledger_dsn: str) -> PostgresEngine:
    return PostgresEngine(ledger_dsn)


@pytest.fixture(autouse=True)
def every_claim_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each claim leaves floors that stand as long as a floor may."""
    monkeypatch.setattr(floors, "SLOW_SECONDS", -1.0)
    monkeypatch.setattr(floors, "PAUSE_FACTOR", 1e9)


async def claimed(ledger: Ledger, most: int = 10, *excluded: int) -> list[str]:
    given = Turns(excluded=frozenset(excluded))
    return [claim.recipient_ref for claim in await ledger.claim([Want(LANE, PROVIDER, most, given)], most, "w")]


async def accept(engine: PostgresEngine, ledger: Ledger, age: str, *names: str, **changes: Any) -> None:
    """Routes that have been due for so long."""
    await ledger.enrol([enrolment(route(name, **{"group": GROUP, **changes})) for name in names])
    # A replica fires no triggers: the routes do not leave the turns.
    async with connected(engine.dsn, session_replication_role="replica") as connection:
        await connection.execute(EARLIER.format(age=age, names=",".join(f"user:{name}" for name in names)))


# What a claim reads.


@asynccontextmanager
async def beside_an_old_snapshot(engine: PostgresEngine, *groups: int) -> AsyncIterator[None]:
    """Each group has many rows that are gone, and that PostgreSQL keeps for a transaction."""
    async with connected(engine.dsn) as sleeper, sleeper.transaction(isolation="repeatable_read", readonly=True):
        await sleeper.fetchval("SELECT count(*) FROM due")
        for group in groups:
            await engine.execute(LAY.format(group=group))
        await engine.execute(LEASES.format(many=4 * DEAD))
        await engine.execute("DELETE FROM due WHERE ticket < 0")
        await engine.execute("DELETE FROM leases WHERE lease_id < 0")
        yield


async def pages_of_claims(server: Postgres, engine: PostgresEngine, claims: int, **options: Any) -> list[int]:
    """Two groups with many rows that are gone, and one between them: the pages that each of some claims reads."""
    async with engine.ledger():
        pass
    ledger = await PostgresLedger.open(
        f"{engine.dsn}?options=-c%20auto_explain.log_min_duration%3D0", allow_unsafe=True, **options
    )
    try:
        async with beside_an_old_snapshot(engine, 3, 7):
            for group in (3, 7):
                await ledger.enrol([enrolment(route(f"r{group}-{n}", group=group)) for n in range(40)])
            before = len(server.log.read_text())
            for number in range(claims):
                # Less than its share: the others get what it leaves.
                await ledger.enrol([enrolment(route(f"r5-{number}", group=5))])
                assert len(await claimed(ledger, 12)) == 12
            return [pages for text in _PLAN.findall(server.log.read_text()[before:]) for pages in claim_pages(text)]
    finally:
        await ledger.aclose()


def claim_pages(text: str) -> list[int]:
    plan = json.loads(text)
    if "Races: other claimers" not in plan["Query Text"]:
        return []
    return [plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"]]


@pytest.mark.req("P-1360")
async def test_a_claim_beside_an_old_snapshot_reads_past_old_rows_once(
    server: Postgres, explained: PostgresEngine
) -> None:
    plain, first, *behind_floors = await pages_of_claims(server, explained, 5)
    assert max(behind_floors) * 5 < min(plain, first)


@pytest.mark.req("P-1360")
async def test_control_without_floors_each_claim_reads_past_old_rows(
    server: Postgres, explained: PostgresEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(floors, "SLOW_SECONDS", 1e9)
    plain, *later = await pages_of_claims(server, explained, 3)
    assert min(later) * 2 > plain


PAGES: dict[str, tuple[str, str]] = {
    "what others leave is taken behind the floor": ("(d.due_at, d.ticket) > (fuller.since, fuller.passed)", "TRUE"),
    "the first claims of a group begin behind its floor": ("(d.due_at, d.ticket) > (ring.since, ring.passed)", "TRUE"),
    "the head of a group is looked for behind its floor": ("(d.due_at, d.ticket) > (f.since, f.passed)", "TRUE"),
    "a claim looks for leases that ran out lately": ("- $23::float8 *", "- (1e9 + $23::float8) *"),
    "the walk stops before a group with a floor": (
        "d.grp <= coalesce(known.grp - 1, part.to_grp)",
        "d.grp <= part.to_grp",
    ),
}


@pytest.mark.req("P-1360")
@pytest.mark.parametrize("name", PAGES)
async def test_each_clause_saves_pages(server: Postgres, explained: PostgresEngine, name: str) -> None:
    statements = explained.statements({"claim": PAGES[name]})
    plain, first, *behind_floors = await pages_of_claims(server, explained, 5, statements=statements)
    assert max(behind_floors) * 5 > min(plain, first)


# What comes late with an older time.


Step = Callable[[], Awaitable[None]]
Late = Callable[[PostgresEngine, Step, Step], Awaitable[None]]


async def committed_late(engine: PostgresEngine, floor: Step, _: Step) -> None:
    """An acceptance that has written its time, and commits after the floor has passed it."""
    ((row,),) = [tuple(found.values()) for found in await engine.execute(TAKE_OUT)]
    await floor()
    await engine.execute(PUT_BACK + row)


async def put_into_the_turns_by_another(engine: PostgresEngine, floor: Step, another_claims: Step) -> None:
    """A retry, a schedule or the end of a lease: another process gives it a ticket, and it keeps its time."""
    await engine.execute(TAKE_OUT)
    await floor()
    await engine.execute(SCHEDULED)
    await another_claims()


async def locked_and_left(engine: PostgresEngine, floor: Step, _: Step) -> None:
    """A row that somebody has locked is passed over, and the other one rolls back."""
    async with connected(engine.dsn) as somebody:
        transaction = somebody.transaction()
        await transaction.start()
        await somebody.execute(LOCK)
        await floor()
        await transaction.rollback()


LATE = (committed_late, put_into_the_turns_by_another, locked_and_left)


async def seconds_until_found(engine: PostgresEngine, late: Late, patience: float) -> float:
    """How long what came late waits for a process that has a floor behind it, and that always finds something else."""
    async with engine.ledger() as ledger, engine.ledger() as other:
        await accept(engine, ledger, "2 minutes", "late")
        await accept(engine, ledger, "1 minute", *(f"r{n}" for n in range(30)))

        async def floor() -> None:
            # The first claim is a plain one; the second leaves the floor.
            found = [*await claimed(ledger), *await claimed(ledger)]
            assert len(found) == 20
            assert "user:late" not in found

        async def another_claims() -> None:
            assert await claimed(other, 1, GROUP) == []

        await late(engine, floor, another_claims)
        began = time.monotonic()
        while "user:late" not in await claimed(ledger, 1):
            if time.monotonic() - began > patience:
                return patience
            await asyncio.sleep(0.02)
        return time.monotonic() - began


@pytest.mark.req("P-1361")
@pytest.mark.parametrize(("age", "seconds"), [("1 second", 0.0), ("1 hour", 0.5)])
async def test_a_lease_that_ran_out_is_found(
    engine: PostgresEngine, ledger: Ledger, monkeypatch: pytest.MonkeyPatch, age: str, seconds: float
) -> None:
    monkeypatch.setattr(floors, "LONGEST_SECONDS", seconds)
    await accept(engine, ledger, "1 second", *(f"r{n}" for n in range(4)))
    assert [await claimed(ledger, 1) for _ in range(3)] == [["user:r0"], ["user:r1"], ["user:r2"]]
    await engine.execute(f"UPDATE leases SET expires_at = now() - interval '{age}'")  # noqa: S608 - of this file
    found: set[str] = set()
    while found < {"user:r0", "user:r1", "user:r2", "user:r3"}:
        found |= {*await claimed(ledger, 1)}


@pytest.mark.req("P-1361")
@pytest.mark.parametrize("late", LATE)
async def test_what_comes_late_with_an_older_time_is_found_when_the_floor_ends(
    engine: PostgresEngine, monkeypatch: pytest.MonkeyPatch, late: Late
) -> None:
    monkeypatch.setattr(floors, "LONGEST_SECONDS", 0.5)
    assert await seconds_until_found(engine, late, 20.0) < 20.0


@pytest.mark.req("P-1361")
@pytest.mark.parametrize("late", LATE)
async def test_control_behind_a_floor_without_end_it_is_lost(
    engine: PostgresEngine, monkeypatch: pytest.MonkeyPatch, late: Late
) -> None:
    monkeypatch.setattr(floors, "LONGEST_SECONDS", 1e9)
    assert await seconds_until_found(engine, late, 2.0) == 2.0


async def found_at_once(engine: PostgresEngine, lag: tuple[str, str]) -> bool:
    """Whether an acceptance is found that took a moment longer than the one that left the floor."""
    async with engine.ledger(statements=engine.statements({"claim": lag})) as ledger:
        await ledger.enrol([enrolment(route("late", group=GROUP))])
        ((row,),) = [tuple(found.values()) for found in await engine.execute(TAKE_OUT)]
        await ledger.enrol([enrolment(route(f"r{n}", group=GROUP)) for n in range(2)])
        assert [await claimed(ledger, 1), await claimed(ledger, 1)] == [["user:r0"], ["user:r1"]]
        await engine.execute(PUT_BACK + row)
        return await claimed(ledger, 1) == ["user:late"]


@pytest.mark.req("P-1362")
async def test_an_acceptance_that_takes_a_moment_longer_is_found_at_once(engine: PostgresEngine) -> None:
    # A busy machine needs more than half a second for this.
    assert await found_at_once(engine, ("now - interval '0.5 s'", "now - interval '20 s'"))


@pytest.mark.req("P-1362")
async def test_control_a_floor_as_late_as_the_last_row(engine: PostgresEngine) -> None:
    assert not await found_at_once(engine, ("now - interval '0.5 s'", "now"))


# Turns.


@pytest.mark.req("P-1363")
@pytest.mark.parametrize("other", [{"lane": 1}, {"provider": "second"}, {"group": GROUP + 1}])
async def test_a_floor_is_of_its_lane_provider_and_group_alone(
    engine: PostgresEngine, ledger: Ledger, other: dict[str, Any]
) -> None:
    """The group of another lane waits for longer than the floor says."""
    await accept(engine, ledger, "1 minute", *(f"r{n}" for n in range(80)))
    assert len([*await claimed(ledger), *await claimed(ledger)]) == 20
    await accept(engine, ledger, "2 minutes", *(f"o{n}" for n in range(30)), **other)
    lines = dict.fromkeys([(LANE, PROVIDER), (other.get("lane", LANE), other.get("provider", PROVIDER))])
    found: list[str] = []
    for _ in range(10):
        found += [claim.recipient_ref for claim in await ledger.claim([Want(*line, 10) for line in lines], 20, "w")]
    assert sorted(found) == sorted([f"user:o{n}" for n in range(30)] + [f"user:r{n}" for n in range(20, 80)])


@pytest.mark.req("P-1363")
async def test_a_claim_goes_once_round_the_groups(ledger: Ledger) -> None:
    for group in range(1, 6):
        await ledger.enrol([enrolment(route(f"{group}-{n}", group=group)) for n in range(10)])
    # The last one begins behind the third group, and has room for all.
    found = [
        *await claimed(ledger, 5),
        *await claimed(ledger, 5),
        *await claimed(ledger, 3),
        *await claimed(ledger, 50),
    ]
    assert len(found) == 50 == len(set(found))


TURNS = (
    guards.test_groups_of_other_lanes_and_providers_use_up_no_turn,
    guards.test_what_a_group_leaves_goes_to_those_that_have_more,
    turns.test_every_group_gets_the_same_and_the_rest_goes_where_more_waits,
    turns.test_a_newcomer_waits_for_one_claim_at_most,
    turns.test_claims_begin_after_the_group_that_was_served_last,
    turns.test_few_places_go_round_among_many_groups,
    turns.test_inside_a_group_the_oldest_comes_first,
    turns.test_a_weight_is_a_number_of_turns,
    turns.test_lanes_stay_above_groups,
    turns.test_groups_that_a_worker_excludes_are_passed_over,
    turns.test_a_group_never_has_more_claims_than_its_cap,
)


async def play(test: Callable[..., Awaitable[None]], engine: PostgresEngine, ledger: Ledger) -> None:
    given = {"engine": engine, "ledger": ledger}
    # Every claim after the first one has the text with floors.
    assert await claimed(ledger) == []
    await test(**{name: part for name, part in given.items() if name in test.__annotations__})


@pytest.mark.req("P-1363")
@pytest.mark.parametrize("test", TURNS)
async def test_turns_are_the_same_behind_floors(
    engine: PostgresEngine, ledger: Ledger, test: Callable[..., Awaitable[None]]
) -> None:
    await play(test, engine, ledger)


ORDER: Change = {
    "claim": (
        "(want.served, 9223372036854775807), ('-9223372036854775808'::bigint, want.served)",
        "('-9223372036854775808'::bigint, want.served), (want.served, 9223372036854775807)",
    )
}


@pytest.mark.req("P-1363")
async def test_control_a_walk_that_begins_with_the_first_group(engine: PostgresEngine) -> None:
    async with engine.ledger(statements=engine.statements(ORDER)) as ledger:
        with pytest.raises(NOTICED):
            await play(turns.test_claims_begin_after_the_group_that_was_served_last, engine, ledger)
