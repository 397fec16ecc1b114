"""Statements that PostgreSQL plans once: planning one at each call costs more than the claim that it makes."""

from collections.abc import AsyncIterator, Iterator

import pytest

from carillon.domain.claims import Want
from carillon.domain.groups import Turns
from carillon.ledger.opening import open_ledger
from carillon.ledger.postgres import pools
from tests.support.ledger_builders import LANE, PROVIDER, enrolment, finish, retry, route
from tests.support.servers import Postgres

ROUNDS = 8
CAPPED = Turns(cap=2, ahead={7: 2})
PLANNED = """
SELECT string_agg(left(regexp_replace(query, '\\s+', ' ', 'g'), 60) || ': ' || plans, '; ') FROM pg_stat_statements
WHERE calls >= 8 AND plans >= calls AND query NOT LIKE '%pg_stat_statements%' AND query ~* '(routes|due|leases|records)'
"""


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    counting = {"shared_preload_libraries": "pg_stat_statements", "pg_stat_statements.track_planning": "on"}
    with Postgres(settings=counting) as started:
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
async def test_control_a_pool_that_keeps_only_short_statements(
    server: Postgres, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "ANY_LENGTH", 15_360)
    assert "Races: other claimers" in await planned_each_time(server, dsn)
