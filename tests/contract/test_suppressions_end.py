"""A suppression ends at one millisecond, and every place that asks agrees; the test owns the ledger's clock."""

from collections.abc import Callable
from typing import Any

import pytest

from carillon.domain.admin import RedrivePlan
from carillon.domain.notifications import Accepted
from carillon.domain.suppressions import Suppression
from carillon.ledger.opening import Ledger
from tests.support.ledger_builders import REDRIVE, bury, enrolment, route, want
from tests.support.ledger_engines import Engine, bare_engine_fixture
from tests.support.ledger_mutants import NOTICED

engine = bare_engine_fixture()

NOW_MS = 1_800_000_000_000
END_MS = NOW_MS + 60_000
ANN = "ann@example.com"
_FUNCTION = """
CREATE FUNCTION owned_now() RETURNS timestamptz LANGUAGE sql VOLATILE AS
'SELECT to_timestamp(at_ms / 1000.0) FROM owned_clock'
"""
PREPARED = {
    "postgres": (
        "CREATE TABLE owned_clock (at_ms bigint)",
        _FUNCTION,
    ),
    "sqlite": ("CREATE TABLE owned_clock (at_ms INTEGER)",),
}
SAYING = ("list", "accept", "accept and wait", "claim", "explain", "count of dead letters", "redrive", "by number")
Change = Callable[[str, str], str]
"""From a statement's name and text to the text that is used."""


def _as_it_is(_name: str, text: str) -> str:
    return text


async def owned(engine: Engine, change: Change = _as_it_is) -> dict[str, str]:
    """Statements that read the time from a table."""
    for statement in (*PREPARED[engine.dialect], f"INSERT INTO owned_clock VALUES ({NOW_MS})"):  # noqa: S608 - a number
        await engine.execute(statement)
    sql = {name: change(name, text) for name, text in engine.statements().items()}
    if engine.dialect == "sqlite":
        return sql | {"clock": "SELECT at_ms FROM owned_clock"}
    return {name: text.replace("clock_timestamp()", "owned_now()") for name, text in sql.items()}


async def set_clock(engine: Engine, at_ms: int) -> None:
    await engine.execute(f"UPDATE owned_clock SET at_ms = {at_ms}")  # noqa: S608 - a number


async def prepared(ledger: Ledger) -> None:
    """A suppression of a minute; a route that waits and a dead letter, both from before it."""
    await ledger.enrol([enrolment(route(lane=1), tenant_id="acme")])
    await ledger.settle([bury(claim) for claim in await ledger.claim([want(lane=1)], 1, "w")])
    await ledger.enrol([enrolment(tenant_id="acme")])
    await ledger.suppress([Suppression("email", ANN, "acme", "asked", "operator", 60.0)])


async def said(ledger: Ledger) -> dict[str, bool]:
    """Whether it holds, by each place that asks; pruning comes last."""
    rows, total = await ledger.suppressions({"address": ANN, "tenant_id": "acme"}, 10, 0)
    (answer,) = await ledger.enrol([enrolment(route(lane=3), tenant_id="acme")])
    (waiting,) = await ledger.enrol_claimed([enrolment(route(lane=3), tenant_id="acme")], "me", 60.0)
    (claim,) = await ledger.claim([want()], 10, "w")
    assert isinstance(answer, Accepted)
    found = {
        "list": bool(rows) and total == 1,
        "accept": bool(answer.suppressed),
        "accept and wait": not waiting.claims,
        "claim": claim.suppressed,
        "explain": await ledger.suppression_in_force("email", ANN, "acme", None) is not None,
        "count of dead letters": (await ledger.failed_counts({})).suppressed == 1,
        "redrive": (await ledger.redrive({}, RedrivePlan(), 10, REDRIVE)).count == 0,
    }
    if rows:
        found["by number"] = await ledger.suppression(rows[0]["suppression_id"]) is not None
    await ledger.prune(1e9, 1e9, 10)
    return found


async def check(engine: Engine, at_ms: int, *, holds: bool, change: Change = _as_it_is) -> None:
    async with engine.ledger(statements=await owned(engine, change)) as ledger:
        await prepared(ledger)
        (row,) = await engine.rows("suppressions")
        assert (row["created_at"], row["expires_at"]) == (NOW_MS, END_MS)
        await set_clock(engine, at_ms)
        assert await said(ledger) == dict.fromkeys(SAYING if holds else SAYING[:-1], holds)
        assert len(await engine.rows("suppressions")) == int(holds)


@pytest.mark.parametrize(("at_ms", "holds"), [(END_MS - 1, True), (END_MS, False), (END_MS + 1, False)])
async def test_everybody_agrees_about_the_millisecond(engine: Engine, at_ms: int, holds: bool) -> None:  # noqa: FBT001 - a row of a table
    await check(engine, at_ms, holds=holds)


def changed(statement: str, old: str, new: str) -> Change:
    def change(name: str, text: str) -> str:
        if name != statement:
            return text
        assert old in text
        return text.replace(old, new)

    return change


PLACES = {
    "postgres": ("enrol", "claim", "suppressions", "suppression_in_force", "failed_counts", "redrive"),
    "sqlite": ("enrol_route", "claim_candidates", "suppressions", "suppression_in_force", "failed_counts", "redrive"),
}


@pytest.mark.parametrize("place", range(6))
async def test_control_a_place_that_counts_one_more_is_found_out(engine: Engine, place: int) -> None:
    change = changed(PLACES[engine.dialect][place], "s.expires_at >", "s.expires_at >=")
    with pytest.raises(NOTICED):
        await check(engine, END_MS, holds=False, change=change)


async def test_control_a_pruning_that_is_early_or_late_is_found_out(engine: Engine) -> None:
    with pytest.raises(NOTICED):
        await check(engine, END_MS, holds=False, change=changed("prune_suppressions", "<=", "<"))


async def test_an_end_that_was_named_is_the_end(engine: Engine) -> None:
    async with engine.ledger(statements=await owned(engine)) as ledger:
        named: Any = Suppression("email", ANN, "acme", "asked", "operator", until_ms=END_MS + 123)
        await ledger.suppress([named])
        assert (await engine.only("suppressions"))["expires_at"] == END_MS + 123
        await set_clock(engine, END_MS + 122)
        (held,) = await ledger.enrol([enrolment(tenant_id="acme")])
        assert isinstance(held, Accepted)
        assert [each.suppression.until_ms for each in held.suppressed] == [END_MS + 123]


async def test_one_that_was_over_begins_anew_and_one_in_force_keeps_its_beginning(engine: Engine) -> None:
    async with engine.ledger(statements=await owned(engine)) as ledger:
        brief = Suppression("email", ANN, "acme", "asked", "operator", 60.0)
        await ledger.suppress([brief])
        await set_clock(engine, END_MS - 1)
        await ledger.suppress([brief])
        row = await engine.only("suppressions")
        assert (row["created_at"], row["expires_at"]) == (NOW_MS, END_MS - 1 + 60_000)
        await set_clock(engine, END_MS - 1 + 60_000)
        await ledger.suppress([brief])
        row = await engine.only("suppressions")
        assert (row["created_at"], row["expires_at"]) == (END_MS - 1 + 60_000, END_MS - 1 + 120_000)
