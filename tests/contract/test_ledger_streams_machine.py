"""Any sequence of pushes, repeats, reads and removals leaves people's logs as the model has them."""

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from carillon.domain.claims import Claim
from carillon.domain.streams import Bounds, Entry, InboxCounts
from carillon.ledger.opening import Ledger
from tests.support.ledger_builders import finish
from tests.support.ledger_engines import Engine, SqliteEngine, engine_fixture
from tests.support.stream_builders import claimed, told

pytestmark = pytest.mark.slow

engine = engine_fixture()

PEOPLE = ("ann", "bob")
PERSON = st.sampled_from(PEOPLE)
PICKS = st.integers(0, 9)
DAY = 86_400


class Log:
    """What one person's log should hold."""

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        self.last = self.pruned = 0

    def after(self, number: int) -> list[Entry]:
        return sorted((each for each in self.entries.values() if each.seq > number), key=lambda each: each.seq)


class StreamMachine(RuleBasedStateMachine):
    """Every rule asks the ledger and the model the same thing; readers resume from wherever they were."""

    runner: asyncio.Runner
    engine: Engine
    ledger: Ledger

    def run(self, work: Any) -> Any:
        return self.runner.run(work)

    @initialize()
    def start(self) -> None:
        self.logs = {person: Log() for person in PEOPLE}
        self.pushed: list[Claim] = []
        self.open: set[str] = set()
        self.run(self.engine.empty())

    @rule(people=st.lists(PERSON, min_size=1, max_size=4))
    def push(self, people: list[str]) -> None:
        claims = self.run(claimed(self.ledger, *(told(person) for person in people)))
        entries = self.run(self.ledger.append(claims))
        for claim, entry in zip(claims, entries, strict=True):
            log = self.logs[claim.user_id]
            log.last += 1
            assert (entry.seq, entry.user_id) == (log.last, claim.user_id)
            log.entries[claim.notification_id] = entry
            self.open.add(claim.notification_id)
        self.pushed += claims

    @rule(picks=st.lists(PICKS, min_size=1, max_size=3))
    def push_again(self, picks: list[int]) -> None:
        known = [claim for claim in map(self.picked, picks) if claim and self.entry(claim) is not None]
        found = self.run(self.ledger.append(known))
        assert found == [self.entry(claim) for claim in known], "a repeat keeps its number"

    @rule(pick=PICKS)
    def settle(self, pick: int) -> None:
        claim = self.picked(pick)
        if claim is not None and claim.notification_id in self.open:
            self.run(self.ledger.settle([finish(claim)]))
            self.open.discard(claim.notification_id)

    @rule(pick=PICKS, person=PERSON)
    def acknowledge(self, pick: int, person: str) -> None:
        claim = self.picked(pick)
        name = "nothing" if claim is None else claim.notification_id
        entry = self.logs[person].entries.get(name)
        assert self.run(self.ledger.acknowledge(person, name)) == (entry is not None)
        if entry is not None:
            self.logs[person].entries[name] = msgspec.structs.replace(entry, delivered=True)

    @rule(person=PERSON, picks=st.none() | st.lists(PICKS, max_size=3))
    def mark_read(self, person: str, picks: list[int] | None) -> None:
        log = self.logs[person]
        chosen = None if picks is None else {claim.notification_id for claim in map(self.picked, picks) if claim}
        unread = [name for name, each in log.entries.items() if not each.read and (chosen is None or name in chosen)]
        assert self.run(self.ledger.mark_read(person, None if chosen is None else sorted(chosen))) == len(unread)
        for name in unread:
            log.entries[name] = msgspec.structs.replace(log.entries[name], read=True)

    @rule()
    def a_month_passes(self) -> None:
        self.run(self.engine.grow_old("records", "accepted_at", 31 * DAY))
        self.run(self.ledger.prune(30.0 * DAY, 90.0 * DAY, 1000))
        for log in self.logs.values():
            for name in log.entries.keys() - self.open:
                log.pruned = max(log.pruned, log.entries.pop(name).seq)

    @rule(person=PERSON, number=st.integers(0, 12), limit=st.integers(1, 20))
    def resume(self, person: str, number: int, limit: int) -> None:
        assert self.run(self.ledger.read(person, number, limit)) == self.logs[person].after(number)[:limit]

    def picked(self, pick: int) -> Claim | None:
        return self.pushed[-1 - pick % len(self.pushed)] if self.pushed else None

    def entry(self, claim: Claim) -> Entry | None:
        return self.logs[str(claim.user_id)].entries.get(claim.notification_id)

    @invariant()
    def logs_agree(self) -> None:
        if not hasattr(self, "logs"):
            return
        bounds = self.run(self.ledger.bounds(PEOPLE))
        for person, log in self.logs.items():
            entries = log.after(0)
            unsettled = min((each.seq for each in entries if each.notification_id in self.open), default=0)
            expected = Bounds(log.pruned + 1, log.last, unsettled) if log.last else Bounds()
            assert bounds[person] == expected
            assert self.run(self.ledger.newest_first(person, 100)) == entries[::-1]
            unread = sum(not each.read for each in entries)
            assert self.run(self.ledger.inbox_counts(person)) == InboxCounts(len(entries), unread)


def agree(engine: Engine, statements: Mapping[str, str] | None = None) -> None:
    rules = settings(
        # A control ends with the first example that shows the fault, so it may look for long.
        max_examples=400 if statements else 25 if engine.dialect == "sqlite" else 8,
        stateful_step_count=15,
        derandomize=True,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        ledger = runner.run(stack.enter_async_context(engine.ledger(statements=statements)))
        try:
            machine = type("Machine", (StreamMachine,), {"runner": runner, "engine": engine, "ledger": ledger})
            run_state_machine_as_test(machine, settings=rules)
        finally:
            runner.run(stack.aclose())


@pytest.mark.req("S4-48", "S4-49")
@pytest.mark.timeout(300)
def test_no_sequence_of_events_leaves_the_model(engine: Engine) -> None:
    agree(engine)


@pytest.mark.parametrize(
    "change",
    [
        {"prune_stream_note": ("max(pruned_seq, (", "min(pruned_seq, (")},
        {"bounds": (" AND r.status IN ('pending', 'failed')", "")},
    ],
    ids=["no gap is reported", "everything unsettled"],
)
@pytest.mark.timeout(300)
def test_the_machine_finds_a_missing_clause(tmp_path: Path, change: dict[str, tuple[str, str]]) -> None:
    engine = SqliteEngine(tmp_path / "ledger.db")
    with pytest.raises(AssertionError):
        agree(engine, engine.statements(change))
