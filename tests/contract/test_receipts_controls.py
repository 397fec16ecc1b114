"""Negative controls: a ledger with one clause of its receipts cut out fails the property the clause is there for."""

import asyncio

import pytest

from carillon.domain.receipts import ReceiptKind, ReceiptRules
from carillon.domain.suppressions import SuppressionTerms
from tests.support.ledger_builders import enrolment
from tests.support.ledger_engines import Engine, engine_fixture
from tests.support.ledger_mutants import NOTICED, Mutants, mutilated
from tests.support.ledger_properties import Property, Statements, claim_one
from tests.support.receipt_builders import (
    ALONE,
    RULES,
    bounced,
    delivered,
    effect,
    failed,
    publish,
    receipt,
    resend,
    sent_as,
)

engine = engine_fixture()


async def a_report_counts_once(engine: Engine, statements: Statements = None) -> None:
    async with engine.ledger(statements=statements) as ledger:
        await publish(ledger)
        assert await effect(ledger, bounced(event_id="1")) == "failed_over"
        await resend(ledger, "s-1")
        assert await effect(ledger, bounced(event_id="1")) == "repeated"
        rows, _ = await ledger.suppressions({}, 10, 0)
        assert rows == []


async def an_early_report_is_not_lost(engine: Engine, statements: Statements = None) -> None:
    async with engine.ledger(statements=statements) as ledger:
        await ledger.enrol([enrolment()])
        claim = await claim_one(ledger)
        await effect(ledger, failed("m-1"))
        await ledger.settle([sent_as(claim, "m-1")])
        await ledger.take_waiting_receipts(RULES, 10)
        assert (await engine.only("routes"))["provider"] == "second"


async def strangers_hide_nobody(engine: Engine, statements: Statements = None) -> None:
    async with engine.ledger(statements=statements) as ledger:
        await ledger.take_receipts([delivered(f"stranger-{number}") for number in range(5)], RULES)
        await ledger.enrol([enrolment()])
        claim = await claim_one(ledger)
        await effect(ledger, delivered("m-1"))
        await ledger.settle([sent_as(claim, "m-1")])
        assert len(await ledger.take_waiting_receipts(RULES, 1)) == 1


async def another_vendors_id_is_not_ours(engine: Engine, statements: Statements = None) -> None:
    async with engine.ledger(statements=statements) as ledger:
        await publish(ledger, "m-1")
        await effect(ledger, delivered("m-1", provider="stranger"))
        assert (await engine.only("routes"))["receipt"] is None


async def the_first_time_stands(engine: Engine, statements: Statements = None) -> None:
    async with engine.ledger(statements=statements) as ledger:
        await publish(ledger)
        await effect(ledger, delivered(event_id="1"))
        await engine.grow_old("routes", "delivered_at", 60)
        before = (await engine.only("routes"))["delivered_at"]
        await effect(ledger, delivered(event_id="2"))
        assert (await engine.only("routes"))["delivered_at"] == before


async def a_finished_route_is_nobodys(engine: Engine, statements: Statements = None) -> None:
    async with engine.ledger(statements=statements) as ledger:
        await publish(ledger)
        await effect(ledger, failed())
        await effect(ledger, delivered("m-1"))
        row = await engine.only("routes")
        assert (row["status"], row["next_attempt_at"]) == ("published", None)


async def the_dead_are_counted(engine: Engine, statements: Statements = None) -> None:
    async with engine.ledger(statements=statements) as ledger:
        for number in (1, 2):
            await publish(ledger, f"m-{number}")
            await effect(ledger, bounced(f"m-{number}", recipient_gone=number == 2))
        assert (await ledger.suppressions({}, 10, 0))[1] == 0
        await publish(ledger, "m-3")
        await effect(ledger, bounced("m-3"))
        assert (await ledger.suppressions({}, 10, 0))[1] == 1


async def a_burial_has_its_letter(engine: Engine, statements: Statements = None) -> None:
    async with engine.ledger(statements=statements) as ledger:
        await publish(ledger, route={"max_attempts": 1})
        await effect(ledger, failed(), rules=ALONE)
        assert len(await engine.rows("dead_letters")) == 1
        await publish(ledger, "m-2")
        await effect(ledger, failed("m-2"))
        assert len(await engine.rows("dead_letters")) == 1


async def a_suppression_never_shrinks(engine: Engine, statements: Statements = None) -> None:
    brief = ReceiptRules(chains=RULES.chains, bounces_before_silence=1, suppressions=SuppressionTerms(bounced=1.0))
    ever = ReceiptRules(chains={}, bounces_before_silence=1, suppressions=SuppressionTerms(bounced=None))
    async with engine.ledger(statements=statements) as ledger:
        await publish(ledger, "m-1")
        await publish(ledger, "m-2")
        await effect(ledger, bounced("m-1"), rules=ever)
        await effect(ledger, bounced("m-2"), rules=brief)
        assert (await engine.only("suppressions"))["expires_at"] is None


async def what_waits_is_not_pruned(engine: Engine, statements: Statements = None) -> None:
    async with engine.ledger(statements=statements) as ledger:
        await effect(ledger, delivered("early"))
        await engine.grow_old("receipts", "received_at", 100)
        await ledger.prune(50.0, 50.0, 10)
        assert len(await engine.rows("receipts")) == 1


async def callbacks_at_once_fail_over_once(engine: Engine, statements: Statements = None) -> None:
    async with engine.ledger(statements=statements) as ledger:
        for number in range(15):
            await publish(ledger, f"m-{number}")
            told = [failed(f"m-{number}", event_id=f"{number}/{each}") for each in range(4)]
            told.append(receipt(ReceiptKind.SENT, f"m-{number}"))
            found = await asyncio.gather(*(ledger.take_receipts([each], RULES) for each in told))
            assert [answer[0].effect for answer in found].count("failed_over") == 1


MUTANTS: Mutants = {
    "every report is a new one": (
        a_report_counts_once,
        {"receipts_write": ("SELECT receipt_key,", "SELECT receipt_key || gen_random_uuid(),")},
        {"receipts_write": (":receipt_key, :provider, :kind", ":receipt_key || random(), :provider, :kind")},
    ),
    "orphans are dropped": (
        an_early_report_is_not_lost,
        {"receipts_write": ("'waiting'", "'ignored'")},
        {"receipts_write": ("'waiting'", "'ignored'")},
    ),
    "waiting in one line": (
        strangers_hide_nobody,
        {
            "receipts_waiting": (
                "OR EXISTS (\n           SELECT FROM attempts",
                "OR TRUE OR EXISTS (SELECT FROM attempts",
            )
        },
        {
            "receipts_waiting": (
                "OR EXISTS (\n           SELECT 1 FROM attempts",
                "OR 1 OR EXISTS (SELECT 1 FROM attempts",
            )
        },
    ),
    "ids of whichever vendor": (
        another_vendors_id_is_not_ours,
        {"receipts_messages": ("AND a.provider = named.provider", "")},
        {"receipts_messages": ("AND a.provider = :provider", "")},
    ),
    "the last time stands": (
        the_first_time_stands,
        {"receipts_change": ("coalesce(r.delivered_at, clock.now)", "clock.now")},
        {"receipts_change": ("coalesce(delivered_at, :now)", ":now")},
    ),
    "a finished route stays due": (
        a_finished_route_is_nobodys,
        {"receipts_change": ("WHEN NOT given.finished AND NOT given.buried THEN r.next", "ELSE r.next")},
        {"receipts_change": ("WHEN NOT :finished AND NOT :buried THEN next", "ELSE next")},
    ),
    "soft bounces count": (
        the_dead_are_counted,
        {"receipts_strikes": ("r.recipient_gone AND", "")},
        {"receipts_strikes": ("r.recipient_gone AND", "")},
    ),
    "every change is a burial": (
        a_burial_has_its_letter,
        {"receipts_change": ("WHERE buried\n", "WHERE TRUE\n")},
        {"receipts_dead_letter": ("FROM routes\nWHERE", "FROM routes\nWHERE 0 AND")},
    ),
    "the last suppression wins": (
        a_suppression_never_shrinks,
        {"suppress": ("WHERE s.expires_at < coalesce(excluded.expires_at, 'infinity')", "")},
        {"suppress": ("WHERE expires_at < coalesce(excluded.expires_at, 9223372036854775807)", "")},
    ),
    "retention takes what waits": (
        what_waits_is_not_pruned,
        {"prune_receipts": (" AND effect <> 'waiting'", "")},
        {"prune_receipts": (" AND effect <> 'waiting'", "")},
    ),
}
PROPERTIES = [*(each[0] for each in MUTANTS.values()), callbacks_at_once_fail_over_once]


@pytest.mark.req("S2-80", "S2-93")
@pytest.mark.parametrize("holds", PROPERTIES, ids=lambda each: each.__name__)
async def test_it_holds(engine: Engine, holds: Property) -> None:
    await holds(engine)


@pytest.mark.parametrize("name", MUTANTS)
async def test_a_mutilated_ledger_is_noticed(engine: Engine, name: str) -> None:
    holds, postgres, sqlite = MUTANTS[name]
    with pytest.raises(NOTICED):
        await holds(engine, mutilated(engine, postgres, sqlite))


async def test_callbacks_that_do_not_lock_their_route_are_noticed(engine: Engine) -> None:
    if engine.dialect != "postgres":
        pytest.skip("SQLite has one writer at a time")
    statements = engine.statements(
        {
            "receipts_routes": (
                "ORDER BY r.notification_id, r.route_id\nFOR NO KEY UPDATE OF r",
                "AND pg_sleep(0.2) IS NOT NULL",
            )
        }
    )
    with pytest.raises(AssertionError):
        await callbacks_at_once_fail_over_once(engine, statements)
