"""Any sequence of calls, crashes and late answers leaves every engine where the model is."""

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any, TypeAlias

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from carillon.domain.claims import Claim
from carillon.domain.verdicts import Bury, Defer, FailOver, Finish, Retry, Verdict
from carillon.ledger.opening import Ledger
from tests.support.ledger_builders import PROVIDER, enrolment, redrive, route, settlement, want
from tests.support.ledger_engines import Engine, engine_fixture
from tests.support.ledger_model import Model

pytestmark = pytest.mark.slow

engine = engine_fixture()

KEYS = st.sampled_from([None, None, "k1", "k2"])
PICKS = st.integers(0, 5)
DELAYS = st.sampled_from([0.0, 1000.0])
VERDICTS: st.SearchStrategy[Verdict] = st.one_of(
    st.just(Finish()),
    st.just(Bury("refused", "no")),
    DELAYS.map(Retry),
    DELAYS.map(Defer),
    st.builds(FailOver, st.sampled_from([PROVIDER, "second"]), DELAYS),
)

# Shrinking a found fault is for people; here it only has to be found.
SETTINGS = settings(
    max_examples=40,
    stateful_step_count=25,
    derandomize=True,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)

Changes: TypeAlias = dict[str, tuple[str, str]]


class LedgerMachine(RuleBasedStateMachine):
    """Every rule asks the ledger and the model the same thing."""

    runner: asyncio.Runner
    engine: Engine
    ledger: Ledger

    def run(self, work: Any) -> Any:
        return self.runner.run(work)

    @initialize(people=st.integers(1, 3))
    def start(self, people: int) -> None:
        self.model = Model()
        self.claims: list[Claim] = []
        self.run(self.engine.empty())
        self.enrol("k1", "same", people)
        self.claim(PROVIDER, 2)

    @rule(key=KEYS, fingerprint=st.sampled_from(["same", "other"]), people=st.integers(1, 3))
    def enrol(self, key: str | None, fingerprint: str, people: int) -> None:
        people_routes = (route(f"p{n}") for n in range(people))
        given = enrolment(*people_routes, idempotency_key=key, request_fingerprint=fingerprint)
        assert self.run(self.ledger.enrol([given])) == [self.model.enrol(given)]

    @rule(provider=st.sampled_from([PROVIDER, PROVIDER, "second"]), limit=st.integers(1, 4))
    def claim(self, provider: str, limit: int) -> None:
        due = self.model.due(provider)
        claims = self.run(self.ledger.claim([want(limit, provider=provider)], 10, "worker"))
        assert len(claims) == min(limit, len(due))
        self.model.lapse()
        for claim in claims:
            self.model.claim(claim)
        self.claims += claims

    @rule(picks=st.lists(PICKS, min_size=1, max_size=3))
    def extend(self, picks: list[int]) -> None:
        held = list({claim.token: claim for claim in map(self.picked, picks)}.values())
        lost = [claim for claim in held if not self.model.extend(claim)]
        assert self.run(self.ledger.extend(held)) == lost

    @rule(batch=st.lists(st.tuples(PICKS, VERDICTS), min_size=1, max_size=4))
    def settle(self, batch: list[tuple[int, Verdict]]) -> None:
        given = [settlement(self.picked(pick), verdict) for pick, verdict in batch]
        expected = [self.model.settle(each.claim, each.verdict, noted=each.note is not None) for each in given]
        assert self.run(self.ledger.settle(given)) == expected

    @rule(pick=PICKS)
    def redrive(self, pick: int) -> None:
        key = self.picked(pick).key
        assert self.run(redrive(self.ledger, key)) == int(self.model.redrive(key))

    @rule(pick=PICKS)
    def cancel(self, pick: int) -> None:
        key = self.picked(pick).notification_id
        assert self.run(self.ledger.cancel(key)) == self.model.cancel(key)

    @rule(provider=st.sampled_from([PROVIDER, "second"]))
    def every_worker_dies_and_another_takes_over(self, provider: str) -> None:
        self.model.expire_leases()
        self.run(self.engine.expire_leases())
        self.claim(provider, 4)

    @rule()
    def time_passes(self) -> None:
        self.model.make_due()
        self.run(self.engine.make_due())

    def picked(self, pick: int) -> Claim:
        """A claim, the latest for 0; some are held, some are lost by now, some are settled."""
        return self.claims[-1 - pick % len(self.claims)]

    @invariant()
    def tables_agree(self) -> None:
        if not hasattr(self, "model"):
            return
        stories, _ = self.run(self.ledger.search({}, 1000, 0))
        found = {}
        for row in (row for story in stories for row in story.routes):
            assert (row["next_attempt_at"] is not None) is (row["status"] in {"pending", "failed"})
            found[row["notification_id"], row["route_id"]] = (row["status"], row["attempt_count"], row["claim_token"])
        assert found == {key: (r.status, r.attempts, r.token) for key, r in self.model.routes.items()}
        assert {row["attempt_id"] for story in stories for row in story.attempts} == set(self.model.noted)
        letters, _ = self.run(self.ledger.dead_letters({}, 1000, 0))
        buried = {key for key, r in self.model.routes.items() if r.status == "dead_letter"}
        assert {(row["notification_id"], row["route_id"]) for row in letters} == buried
        assert self.run(self.ledger.lost_tickets(0, 1000))[0] == [], "what waits stands in a queue"


def agree(engine: Engine, statements: Mapping[str, str] | None = None) -> None:
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        ledger = runner.run(stack.enter_async_context(engine.ledger(statements=statements)))
        try:
            machine = type("Machine", (LedgerMachine,), {"runner": runner, "engine": engine, "ledger": ledger})
            run_state_machine_as_test(machine, settings=SETTINGS)
        finally:
            runner.run(stack.aclose())


@pytest.mark.req("G-05")
@pytest.mark.timeout(300)
def test_engine_and_model_agree(engine: Engine) -> None:
    agree(engine)


@pytest.mark.parametrize(
    ("in_postgres", "in_sqlite"),
    [
        (
            {"settle": (" OR given.verdict = 'finish'", "")},
            {"settle_judge": ("WHEN :verdict = 'finish' THEN 'adopted'", "")},
        ),
        (
            {"settle": ("THEN r.attempt_count + CASE", "THEN r.attempt_count + 1 - CASE")},
            {
                "settle": (
                    "NOT IN ('defer', 'skip') THEN attempt_count + (",
                    "NOT IN ('defer', 'skip') THEN attempt_count + 1 - (",
                )
            },
        ),
    ],
    ids=["no adoption", "attempts that are not counted"],
)
@pytest.mark.timeout(300)
def test_the_machine_finds_a_missing_clause(engine: Engine, in_postgres: Changes, in_sqlite: Changes) -> None:
    with pytest.raises(AssertionError):
        agree(engine, engine.statements(in_postgres if engine.dialect == "postgres" else in_sqlite))
