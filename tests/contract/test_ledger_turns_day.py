"""A day of virtual time with ten thousand groups, a hundred of which misbehave: nobody waits longer than a turn."""

from collections import Counter
from pathlib import Path
from random import Random

import pytest

from carillon.domain.claims import Claim, Settlement, Want
from carillon.domain.groups import Turns
from carillon.ledger.opening import Ledger
from carillon.ledger.statements import load
from carillon.ledger.turns import LOWEST, ClaimTurns
from tests.support.ledger_builders import LANE, PROVIDER, enrolment, finish, retry, route
from tests.support.ledger_engines import SqliteEngine

pytestmark = pytest.mark.slow

STEPS, STEP_SECONDS = 96, 900
GOOD = range(101, 10_001)
FLOODING, FAILING, BROKEN, HANGING = range(1, 26), range(26, 51), range(51, 76), range(76, 101)
"""Groups that always have more waiting, fail at once and retry, have an open breaker, and keep their calls."""
BATCH, CLAIMS_A_STEP = 32, 8
CAP = 2
CLOCK = "CREATE TABLE day (ms INTEGER NOT NULL)"


class Day:
    """One worker over a SQLite ledger whose clock is a table."""

    def __init__(self, engine: SqliteEngine, ledger: Ledger, seed: int) -> None:
        self._engine = engine
        self._ledger = ledger
        self._random = Random(seed)
        self.now = 1_800_000_000_000
        self.claims = 0
        self.due: dict[int, int] = {}
        """By good group, how many claims had been made when its message became due."""
        self.most_due = 0
        self.waited: Counter[int] = Counter()
        """How many messages of good groups waited for so many claims."""

    async def run(self, steps: int) -> None:
        sends = self._random.sample(GOOD, len(GOOD))
        each = len(sends) // STEPS + 1
        await self._arrive(dict.fromkeys(FAILING, 20) | {-number: 10 for number in HANGING})
        await self._arrive(dict.fromkeys(BROKEN, 10))
        for step in range(steps):
            new = sends[step * each : (step + 1) * each]
            await self._arrive(dict.fromkeys(FLOODING, 40 if not step else 8) | dict.fromkeys(new, 1))
            self.due |= dict.fromkeys(new, self.claims)
            self.most_due = max(self.most_due, len(self.due))
            for _ in range(CLAIMS_A_STEP):
                await self._claim()
            self.now += STEP_SECONDS * 1000

    async def _arrive(self, many: dict[int, int]) -> None:
        await self._engine.execute(f"UPDATE day SET ms = {self.now}")  # noqa: S608 - a number
        await self._ledger.enrol(
            [enrolment(route(f"user{group}", group=group)) for group, count in many.items() for _ in range(count)]
        )

    async def _claim(self) -> None:
        turns = Turns(CAP, excluded=frozenset(BROKEN))
        claims = await self._ledger.claim([Want(LANE, PROVIDER, BATCH, turns)], BATCH, "w")
        assert len(claims) == BATCH, "something waits all day"
        assert not {claim.group for claim in claims} & set(BROKEN)
        hanging = Counter(claim.group for claim in claims if claim.group < 0)
        assert max(hanging.values(), default=0) <= CAP
        for claim in claims:
            if claim.group in self.due:
                self.waited[self.claims - self.due.pop(claim.group)] += 1
        self.claims += 1
        await self._ledger.settle([self._settled(claim) for claim in claims if claim.group > 0])

    def _settled(self, claim: Claim) -> Settlement:
        return retry(claim, 0.0) if claim.group in FAILING else finish(claim)


async def day(folder: Path, steps: int = STEPS) -> Day:
    engine = SqliteEngine(folder / "ledger.db", prepared=True)
    statements = {**load("sqlite"), "clock": "SELECT ms FROM day"}
    async with engine.ledger():
        await engine.execute(CLOCK)
        await engine.execute("INSERT INTO day VALUES (0)")
    async with engine.ledger(statements=statements, lease_seconds=600.0) as ledger:
        found = Day(engine, ledger, seed=17)
        await found.run(steps)
    return found


def turn(found: Day) -> int:
    """How many claims one round over all groups takes that could be served at the worst time of the day."""
    servable = found.most_due + len(FLOODING) + len(FAILING) + len(HANGING)
    return -(-servable // BATCH) + 1


async def test_no_group_waits_longer_than_its_turn(tmp_path: Path) -> None:
    found = await day(tmp_path)
    assert sum(found.waited.values()) == len(GOOD)
    assert found.due == {}
    assert max(found.waited) <= turn(found) < CLAIMS_A_STEP


async def test_control_without_turns_the_misbehaving_groups_come_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ClaimTurns, "served", lambda *_: LOWEST)
    found = await day(tmp_path, steps=3)
    assert (len(found.due), sum(found.waited.values())) == (3 * (len(GOOD) // STEPS + 1), 0)
