"""Breakers in the ledger: they follow the state machine, a fleet shares them, and an absent ledger stops no call."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given

from carillon.domain.breaker import Admission, BreakerPolicy
from carillon.domain.errors import LedgerUnavailable
from carillon.domain.events import Trouble
from tests.contract.test_breakers import Step, differing_answer, ledger_home, steps
from tests.support.examples import examples
from tests.support.ledger_engines import Engine, PostgresEngine, SqliteEngine


@pytest.mark.parametrize("provider", ["fcm", "wide"])
@examples(25, HealthCheck.function_scoped_fixture)
@given(story=steps)
async def test_the_ledger_answers_like_the_machine(
    ledger_dsn: str, tmp_path: Path, provider: str, story: list[Step]
) -> None:
    for engine in (PostgresEngine(ledger_dsn), SqliteEngine(tmp_path / "ledger.db")):
        async with engine.ledger() as ledger:
            await engine.execute("DELETE FROM breakers")
            assert await differing_answer(ledger_home(ledger, engine), provider, story) is None


@pytest.mark.req("S2-62")
@pytest.mark.parametrize("dialect", ["postgres", "sqlite"])
async def test_a_fleet_shares_one_state_and_one_probe(
    request: pytest.FixtureRequest, tmp_path: Path, dialect: str
) -> None:
    engine: Engine = SqliteEngine(tmp_path / "ledger.db")
    if dialect == "postgres":
        engine = PostgresEngine(request.getfixturevalue("ledger_dsn"))
    async with engine.ledger() as first, engine.ledger() as second:
        homes = [ledger_home(first, engine), ledger_home(second, engine)]
        for number in range(5):
            await homes[number % 2].breakers.record("smtp", ok=False)
        assert [await home.breakers.admit("smtp") for home in homes] == [Admission.STOP] * 2
        await homes[0].pass_time(61.0)
        answers = await asyncio.gather(*(home.breakers.admit("smtp") for home in homes for _ in range(20)))
        assert answers.count(Admission.PROBE) == 1
        assert answers.count(Admission.STOP) == 39


async def test_without_the_ledger_each_process_has_its_own(tmp_path: Path) -> None:
    engine = SqliteEngine(tmp_path / "ledger.db")
    home = ledger_home(_Away(), engine)
    await home.open("smtp")
    assert await home.breakers.admit("smtp") is Admission.STOP
    assert [event for event in home.events if isinstance(event, Trouble)]


class _Away:
    async def breaker_step(self, service: str, provider: str, verb: str, policy: BreakerPolicy) -> Any:
        del service, provider, verb, policy
        raise LedgerUnavailable("gone")
