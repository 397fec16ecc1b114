"""Negative controls of people's logs: without each guard, the test that needs it goes red."""

import asyncio
from collections.abc import Mapping

import pytest

from carillon.ledger.statements import load
from tests.contract import test_ledger_presence as presence
from tests.contract import test_ledger_streams as streams
from tests.support.ledger_engines import PostgresEngine, engine_fixture
from tests.support.ledger_mutants import Mutants, clauses_needed
from tests.support.ledger_postgres import connected
from tests.support.stream_builders import claimed, told
from tests.support.tables import WAITING
from tests.support.waiting import until

engine = engine_fixture()


async def later_waits_for_earlier(engine: PostgresEngine, statements: Mapping[str, str]) -> None:
    """While somebody's number is not committed, the next one of that person is not to be seen either."""
    async with engine.ledger(statements=statements) as ledger:
        first, second, other = await claimed(ledger, told("ann"), told("ann"), told("bob"))
        async with connected(engine.dsn) as slow, connected(engine.dsn) as watcher:
            transaction = slow.transaction()
            await transaction.start()
            await slow.fetch(statements["append"], ["ann"], [first.notification_id], [first.route_id])
            late = asyncio.create_task(ledger.append([second]))

            async def decided() -> bool:
                return late.done() or await watcher.fetchval(WAITING) == 1

            await until(decided, timeout=30, what="the second append")
            assert await ledger.read("ann", 0, 10) == [], "the second number was seen before the first"
            (beside,) = await ledger.append([other])
            assert beside.seq == 1, "nobody waits for another person's log"
            await transaction.commit()
            assert (await late)[0].seq == 2
        assert [entry.seq for entry in await ledger.read("ann", 0, 10)] == [1, 2]


@pytest.mark.req("S4-49")
async def test_numbers_become_visible_in_their_order(ledger_dsn: str) -> None:
    await later_waits_for_earlier(PostgresEngine(ledger_dsn), load("postgres"))


async def test_a_sequence_would_not_do(ledger_dsn: str) -> None:
    engine = PostgresEngine(ledger_dsn)
    statement = load("postgres")["append"]
    begin, end = statement.index("INSERT INTO streams"), statement.index("), numbers AS")
    unlocked = statement.replace(
        statement[begin:end], "SELECT user_id, count(*) AS last_seq FROM given GROUP BY user_id\n"
    )
    drawn = "(of_person ->> user_id)::bigint - count(*) OVER (PARTITION BY user_id)"
    assert drawn in unlocked
    sequence = unlocked.replace(drawn, "nextval('claim_tokens') + 0 * count(*) OVER (PARTITION BY user_id)")
    with pytest.raises(AssertionError, match="seen before the first"):
        await later_waits_for_earlier(engine, {**load("postgres"), "append": sequence})


async def test_the_same_push_at_once_has_one_number(ledger_dsn: str) -> None:
    engine = PostgresEngine(ledger_dsn)
    async with engine.ledger() as ledger:
        (claim,) = await claimed(ledger, told("ann"))
        async with connected(engine.dsn) as zombie, connected(engine.dsn) as watcher:
            transaction = zombie.transaction()
            await transaction.start()
            await zombie.fetch(load("postgres")["append"], ["ann"], [claim.notification_id], [claim.route_id])
            late = asyncio.create_task(ledger.append([claim]))

            async def waiting() -> bool:
                return bool(await watcher.fetchval(WAITING) == 1)

            await until(waiting, timeout=30, what="the second append")
            await transaction.commit()
            (entry,) = await late
        assert entry.seq == 1
        assert [each.seq for each in await ledger.read("ann", 0, 10)] == [1]


MUTANTS: Mutants = {
    "acknowledged by anybody": (
        streams.test_an_acknowledgement_counts_once_and_only_from_its_person,
        {"acknowledge": ("AND e.user_id = $1", "AND $1::text IS NOT NULL")},
        {"acknowledge": (" AND user_id = :user_id", "")},
    ),
    "acknowledged again and again": (
        streams.test_an_acknowledgement_counts_once_and_only_from_its_person,
        {"acknowledge": ("AND r.delivered_at IS NULL", "")},
        {"acknowledge_route": (" AND delivered_at IS NULL", "")},
    ),
    "read again and again": (
        streams.test_reading_is_marked_once,
        {"mark_read": (" AND read_at IS NULL", "")},
        {"mark_read": (" AND read_at IS NULL", "")},
    ),
    "waking what waits for its time": (
        streams.test_waking_leaves_alone_what_does_not_wait_for_the_person,
        {"wake": (" AND r.last_error_classification = 'throttled'", "")},
        {"wake": (" AND last_error_classification = 'throttled'", "")},
    ),
    "waking the newest first": (
        streams.test_who_connects_wakes_what_was_held_for_them,
        {"wake": ("= r.budget_since", "= timestamptz '2000-01-01' + (now() - r.budget_since)")},
        {"wake": ("next_attempt_at = budget_since", "next_attempt_at = :now - rowid")},
    ),
    "waking another tenant's": (
        streams.test_who_connects_wakes_what_was_held_for_them,
        {"wake": ("IS NOT DISTINCT FROM person.tenant_id", "IS NOT DISTINCT FROM n.tenant_id")},
        {"wake": ("n.tenant_id IS :tenant_id", "n.tenant_id IS n.tenant_id")},
    ),
    "an unreported gap": (
        streams.test_retention_takes_the_log_along_and_leaves_a_gap_to_be_told_of,
        {"prune_stream_note": ("greatest(s.pruned_seq, gone.seq)", "s.pruned_seq")},
        {"prune_stream_note": ("max(pruned_seq, gone.seq)", "pruned_seq")},
    ),
    "the dead are everywhere": (
        presence.test_a_replica_that_says_nothing_is_connected_to_nobody,
        {"where": ("AND r.alive_until > clock_timestamp()", "")},
        {"where": ("AND r.alive_until > :now", "")},
    ),
}


test_each_clause_is_needed = clauses_needed(MUTANTS)
