"""What a statement costs PostgreSQL beyond its rows: it is planned once, and compares no group with every other."""

import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from carillon.domain.claims import Claim, Want
from carillon.domain.groups import Turns
from carillon.ledger.opening import Ledger, open_ledger
from carillon.ledger.postgres import floors, pools
from carillon.ledger.postgres.ledger import PostgresLedger
from carillon.ledger.statements import load
from tests.support.ledger_builders import LANE, PROVIDER, enrolment, finish, retry, route
from tests.support.servers import Postgres

ROUNDS, GROUPS = 8, 300
CAPPED = Turns(cap=2, ahead={7: 2})
PLANNED = """
SELECT string_agg(left(regexp_replace(query, '\\s+', ' ', 'g'), 60) || ': ' || plans, '; ') FROM pg_stat_statements
WHERE calls >= 8 AND plans >= calls AND query NOT LIKE '%pg_stat_statements%' AND query ~* '(routes|due|leases|records)'
"""
ROWS_OF_A_STEP = 8 * GROUPS
"""A step of a plan reads so many rows at most; one that compares each group with every other reads GROUPS * GROUPS."""
_PLAN = re.compile(r"plan:\n((?:\t.*\n)+)")


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    settings = {
        "shared_preload_libraries": "pg_stat_statements,auto_explain",
        "pg_stat_statements.track_planning": "on",
        "auto_explain.log_analyze": "on",
        "auto_explain.log_timing": "off",
        "auto_explain.log_format": "json",
    }
    with Postgres(settings=settings) as started:
        yield started


@pytest.fixture
async def dsn(server: Postgres) -> AsyncIterator[str]:
    name = server.database()
    server.execute("CREATE EXTENSION pg_stat_statements", database=name.rpartition("/")[2])
    yield name
    server.drop(name)


async def planned_each_time(server: Postgres, dsn: str) -> str:
    """Accept, claim and settle again and again; gives the statements that are planned at each call."""
    ledger = await open_ledger(dsn, allow_unsafe=True)
    await ledger.migrate()
    try:
        server.execute("SELECT pg_stat_statements_reset()", database=dsn.rpartition("/")[2])
        for number in range(ROUNDS):
            await ledger.enrol([enrolment(route(f"r{number}", group=-7), route(f"s{number}", group=5))])
            for turns in (CAPPED, Turns()):
                for claim in await ledger.claim([Want(LANE, PROVIDER, 9, turns)], 9, "w"):
                    await ledger.settle([finish(claim) if claim.group == 5 else retry(claim)])
    finally:
        await ledger.aclose()
    return server.execute(PLANNED, database=dsn.rpartition("/")[2])


@pytest.mark.req("P-1081")
async def test_statements_of_the_queue_are_planned_once(server: Postgres, dsn: str) -> None:
    assert await planned_each_time(server, dsn) == ""


@pytest.mark.req("P-1081")
async def test_claims_behind_floors_are_planned_once(
    server: Postgres, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(floors, "SLOW_SECONDS", -1.0)
    assert await planned_each_time(server, dsn) == ""


@pytest.mark.req("P-1081")
async def test_control_a_pool_that_keeps_only_short_statements(
    server: Postgres, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "ANY_LENGTH", 15_360)
    assert "Races: other claimers" in await planned_each_time(server, dsn)


@asynccontextmanager
async def explained(dsn: str, statements: Mapping[str, str] | None = None) -> AsyncIterator[Ledger]:
    """A ledger whose connections write the plan of each statement to the server's log."""
    options = f"{dsn}?options=-c%20auto_explain.log_min_duration%3D0"
    ledger = await PostgresLedger.open(options, allow_unsafe=True, statements=statements)
    await ledger.migrate()
    try:
        yield ledger
    finally:
        await ledger.aclose()


async def many_groups(ledger: Ledger, turns: Turns) -> list[Claim]:
    """Routes of many groups, more than one claim takes: claimed, some of each group settled, then the rest."""
    batch = [enrolment(route(f"r{number}", group=number if turns.cap is None else -number)) for number in each_twice()]
    await ledger.enrol(batch)
    claims = await ledger.claim([Want(LANE, PROVIDER, GROUPS + 50, turns)], GROUPS + 50, "w")
    assert len({claim.group for claim in claims}) == GROUPS < len(claims)
    await ledger.settle([finish(claim) for claim in claims[:GROUPS]])
    await ledger.settle([retry(claim) for claim in claims[GROUPS:]])
    return claims


def each_twice() -> list[int]:
    return [number for number in range(1, GROUPS + 1) for _ in range(2)]


def most_rows(log: str) -> tuple[int, str]:
    """The most rows that a step of any plan has read, those included that it left out, and that step."""
    found = [(0, "")]
    for text in _PLAN.findall(log):
        plan = json.loads(text)
        # The driver's own question about types, once for a connection.
        if "typeinfo_tree" not in plan["Query Text"]:
            found += [(rows, f"{step}: {plan['Query Text'][:50]}") for rows, step in _steps(plan["Plan"])]
    return max(found)


def _steps(plan: dict[str, Any]) -> Iterator[tuple[int, str]]:
    left_out = sum(number for name, number in plan.items() if name.startswith("Rows Removed by"))
    yield round((plan["Actual Rows"] + left_out) * plan["Actual Loops"]), plan["Node Type"]
    for inner in plan.get("Plans", ()):
        yield from _steps(inner)


@pytest.mark.req("P-1083")
@pytest.mark.parametrize("turns", [Turns(), Turns(cap=2), Turns(cap=2, ahead=dict.fromkeys(range(1, GROUPS), 4))])
async def test_no_statement_of_the_queue_compares_each_group_with_every_other(
    server: Postgres, dsn: str, turns: Turns
) -> None:
    before = len(server.log.read_text())
    async with explained(dsn) as ledger:
        await many_groups(ledger, turns)
    rows, step = most_rows(server.log.read_text()[before:])
    assert 0 < rows <= ROWS_OF_A_STEP, step


@pytest.mark.req("P-1083")
async def test_control_a_claim_that_looks_for_each_fence_among_all(server: Postgres, dsn: str) -> None:
    statements = dict(load("postgres"))
    sorted_once = "max(joined.fence) OVER (PARTITION BY joined.grp) AS won"
    assert sorted_once in statements["claim"]
    looked_for = "(SELECT f.fence FROM fenced f WHERE f.grp = joined.grp) AS won"
    statements["claim"] = statements["claim"].replace(sorted_once, looked_for)
    before = len(server.log.read_text())
    async with explained(dsn, statements) as ledger:
        await many_groups(ledger, Turns(cap=2))
    rows, step = most_rows(server.log.read_text()[before:])
    assert rows > ROWS_OF_A_STEP, step
