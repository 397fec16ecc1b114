"""Ledgers with one clause of their SQL cut out, each beside the test that must notice."""

import sqlite3
from collections.abc import Callable, Mapping
from typing import Any

import asyncpg
import pytest

from carillon.ledger.opening import Ledger
from tests.support.ledger_engines import Engine

Change = Mapping[str, tuple[str, str]]
"""Per statement the text that is cut out of it and what stands there instead."""
Mutants = Mapping[str, tuple[Callable[..., Any], Change, Change]]
"""The test that goes red, and the change in PostgreSQL and in SQLite."""

NOTICED = (AssertionError, asyncpg.CheckViolationError, asyncpg.UniqueViolationError, sqlite3.IntegrityError)
"""The tables refuse as well what must not be. Narrow on purpose: what is no SQL any more does not count as noticed."""


def mutilated(engine: Engine, postgres: Change, sqlite: Change) -> dict[str, str]:
    """The engine's statements after the change in its dialect."""
    return engine.statements(postgres if engine.dialect == "postgres" else sqlite)


def clauses_needed(mutants: Mutants) -> Any:
    """Assigned to `test_each_clause_is_needed`: with each change its test goes red, given what it asks for by name."""

    @pytest.mark.parametrize("name", mutants)
    async def test_each_clause_is_needed(engine: Engine, name: str) -> None:
        test, postgres, sqlite = mutants[name]
        async with engine.ledger(statements=mutilated(engine, postgres, sqlite)) as ledger:
            there: dict[str, Engine | Ledger] = {"engine": engine, "ledger": ledger}
            given = {word: part for word, part in there.items() if word in test.__annotations__}
            with pytest.raises(NOTICED):
                await test(**given)

    return test_each_clause_is_needed
