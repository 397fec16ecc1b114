"""Negative controls: a ledger with one clause cut out fails the property that the clause is there for."""

import pytest

from tests.support import ledger_properties as properties
from tests.support.ledger_engines import Engine, engine_fixture
from tests.support.ledger_mutants import NOTICED, Mutants, mutilated

engine = engine_fixture()

PROPERTIES = [
    properties.stale_failure_changes_nothing,
    properties.late_success_is_adopted,
    properties.terminal_stays,
    properties.stranger_cannot_extend,
    properties.crash_loop_uses_up_its_budget,
    properties.deferral_costs_nothing,
    properties.one_record_per_key,
    properties.key_in_one_batch_is_taken_once,
    properties.repeated_settlement_is_harmless,
    properties.pruning_keeps_live_work,
    properties.future_work_stands_in_nobodys_way,
    properties.dead_addresses_are_left_alone,
]

MUTANTS: Mutants = {
    "settle without its token": (
        properties.stale_failure_changes_nothing,
        {"settle": ("(r.ticket = given.token OR r.claim_token = given.token OR given.verdict = 'finish')", "TRUE")},
        {"settle_judge": ("r.ticket = :token", "TRUE")},
    ),
    "settle without adoption": (
        properties.late_success_is_adopted,
        {"settle": (" OR given.verdict = 'finish'", "")},
        {"settle_judge": ("WHEN :verdict = 'finish' THEN 'adopted'", "")},
    ),
    "settle over terminal rows": (
        properties.terminal_stays,
        {"settle": ("r.status IN ('pending', 'failed')\n", "TRUE\n")},
        {"settle_judge": ("WHEN r.status NOT IN ('pending', 'failed') THEN 'stale'", "")},
    ),
    "extend without its token": (
        properties.stranger_cannot_extend,
        {"extend": ("(r.ticket = held.token OR r.claim_token = held.token) AND", "")},
        {"extend": ("AND ticket = :token ", "")},
    ),
    "attempts counted at the settlement": (
        properties.crash_loop_uses_up_its_budget,
        {"claim": ("attempt_count = r.attempt_count + 1", "attempt_count = r.attempt_count")},
        {"lapse": ("attempt_count = attempt_count + 1", "attempt_count = attempt_count")},
    ),
    "deferral that spends an attempt": (
        properties.deferral_costs_nothing,
        {
            "settle": (
                "WHEN r.ticket = given.token THEN r.attempt_count ELSE",
                "WHEN r.ticket = given.token THEN r.attempt_count + 1 ELSE",
            )
        },
        {
            "settle": (
                "WHEN ticket IS :token THEN attempt_count ELSE",
                "WHEN ticket IS :token THEN attempt_count + 1 ELSE",
            )
        },
    ),
    "enrol without ON CONFLICT": (
        properties.one_record_per_key,
        {"enrol": ("ON CONFLICT DO NOTHING", "")},
        {"enrol": ("ON CONFLICT DO NOTHING", "")},
    ),
    "attempts without ON CONFLICT": (
        properties.repeated_settlement_is_harmless,
        {"settle": ("ON CONFLICT (notification_id, attempt_id) DO NOTHING", "")},
        {"settle_note": ("ON CONFLICT (attempt_id) DO NOTHING", "")},
    ),
    "prune without looking at routes": (
        properties.pruning_keeps_live_work,
        {
            "prune_candidates": ("r.status IN ('pending', 'failed')", "FALSE"),
            "prune": ("r.status IN ('pending', 'failed')", "FALSE"),
        },
        {"prune_candidates": ("r.status IN ('pending', 'failed')", "FALSE")},
    ),
    "claim that takes what is not due": (
        properties.future_work_stands_in_nobodys_way,
        {"claim": ("<= (SELECT now FROM clock)", "IS NOT NULL")},
        {
            "ripe": ("AND r.next_attempt_at <= :now", ""),
            "claimable": ("r.next_attempt_at <= :now", "TRUE"),
            "next_group": ("d.due_at <= :now AS due", "TRUE AS due"),
            "claim_candidates": ("AND d.due_at <= :now", ""),
        },
    ),
    "enrol without suppressions": (
        properties.dead_addresses_are_left_alone,
        {"enrol": ("s.address = given.address", "FALSE")},
        {"enrol_route": ("s.address = :address", "FALSE")},
    ),
}


@pytest.mark.parametrize("holds", PROPERTIES, ids=lambda holds: holds.__name__)
async def test_property_holds(engine: Engine, holds: properties.Property) -> None:
    await holds(engine)


@pytest.mark.parametrize("mutant", MUTANTS)
async def test_property_notices_the_missing_clause(engine: Engine, mutant: str) -> None:
    holds, postgres, sqlite = MUTANTS[mutant]
    with pytest.raises(NOTICED):
        await holds(engine, mutilated(engine, postgres, sqlite))


async def test_properties_notice_a_missing_reservation(engine: Engine) -> None:
    async with engine.ledger():
        pass
    reservation = {"postgres": "ALTER TABLE records DROP CONSTRAINT records_key", "sqlite": "DROP INDEX records_key"}
    await engine.execute(reservation[engine.dialect])
    with pytest.raises(AssertionError):
        await properties.one_record_per_key(engine)
