"""The breaker's state machine: rules against a plain model, and the blueprints' examples."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from carillon.domain.breaker import Admission, Breaker, BreakerPolicy, State, admit, record, seconds_until_probe

PUSH_WORKER = BreakerPolicy(failure_threshold=5, open_seconds=30.0, success_threshold=2)
LISTO = BreakerPolicy(failure_threshold=5, open_seconds=60.0)


class Machine(RuleBasedStateMachine):
    """Callers come, answer, die and come back late; the model only counts."""

    def __init__(self) -> None:
        super().__init__()
        self.breaker = Breaker()
        self.policy = BreakerPolicy()
        self.now = 1000.0
        self.failures_in_a_row = 0
        self.successes_in_a_row = 0
        self.probes: list[float] = []

    @initialize(
        threshold=st.integers(1, 6),
        enough=st.integers(1, 3),
        max_probes=st.integers(1, 3),
        start=st.floats(min_value=0.0, max_value=1e9),
    )
    def choose(self, threshold: int, enough: int, max_probes: int, start: float) -> None:
        self.policy = BreakerPolicy(
            failure_threshold=threshold,
            success_threshold=enough,
            half_open_max_probes=max_probes,
            open_seconds=30.0,
            probe_seconds=10.0,
        )
        self.now = float(int(start))

    @rule(seconds=st.sampled_from([0.0, 0.5, 5.0, 9.0, 10.0, 29.0, 30.0, 31.0, 1e6]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def a_caller_asks(self) -> None:
        before = self.breaker
        waiting = seconds_until_probe(before, self.policy, self.now)
        self.breaker, answer = admit(before, self.policy, self.now)
        self.probes = [began for began in self.probes if self.now < began + self.policy.probe_seconds]
        if before.state is State.CLOSED:
            assert answer is Admission.GO
        elif before.state is State.OPEN and waiting > 0:
            assert answer is Admission.STOP
            assert self.breaker == before
        elif len(self.probes) < self.policy.half_open_max_probes:
            assert answer is Admission.PROBE
            self.probes.append(self.now)
        else:
            assert answer is Admission.STOP

    @rule()
    def an_answer_is_good(self) -> None:
        before = self.breaker
        self.breaker = record(before, self.policy, ok=True, now=self.now)
        if before.state is State.CLOSED:
            self.failures_in_a_row = 0
            assert self.breaker == Breaker()
        elif before.state is State.OPEN:
            assert self.breaker == before, "a late answer says nothing about now"
        else:
            self.successes_in_a_row += 1
            self.probes = self.probes[1:]
            if self.successes_in_a_row >= self.policy.success_threshold:
                assert self.breaker == Breaker()
                self.forget()
            else:
                assert self.breaker.state is State.HALF_OPEN

    @rule()
    def an_answer_is_bad(self) -> None:
        before = self.breaker
        self.breaker = record(before, self.policy, ok=False, now=self.now)
        if before.state is State.CLOSED:
            self.failures_in_a_row += 1
            opened = self.breaker.state is State.OPEN
            assert opened == (self.failures_in_a_row >= self.policy.failure_threshold), "exactly at the threshold"
        elif before.state is State.OPEN:
            assert self.breaker == before, "a late answer does not lengthen the wait"
        if before.state is not State.OPEN and self.breaker.state is State.OPEN:
            assert seconds_until_probe(self.breaker, self.policy, self.now) == self.policy.open_seconds
            self.forget()

    @precondition(lambda self: self.breaker.state is State.OPEN)
    @rule()
    def the_wait_ends_and_a_crowd_comes(self) -> None:
        self.now += self.policy.open_seconds
        answers = []
        for _ in range(20):
            self.breaker, answer = admit(self.breaker, self.policy, self.now)
            answers.append(answer)
        assert answers.count(Admission.PROBE) == self.policy.half_open_max_probes
        assert Admission.GO not in answers
        self.probes = [self.now] * self.policy.half_open_max_probes

    def forget(self) -> None:
        self.failures_in_a_row = 0
        self.successes_in_a_row = 0
        self.probes = []

    @invariant()
    def probes_are_never_more_than_allowed(self) -> None:
        assert len(self.breaker.probes) <= self.policy.half_open_max_probes
        assert not self.breaker.probes or self.breaker.state is State.HALF_OPEN

    @invariant()
    def a_closed_breaker_has_not_reached_its_threshold(self) -> None:
        assert self.breaker.state is not State.CLOSED or self.breaker.failures < self.policy.failure_threshold

    @invariant()
    def the_wait_is_bounded(self) -> None:
        assert 0.0 <= seconds_until_probe(self.breaker, self.policy, self.now) <= self.policy.open_seconds


TestMachine = pytest.mark.req("G-08")(Machine.TestCase)
TestMachine.settings = settings(derandomize=True, max_examples=150, stateful_step_count=40, deadline=None)


def fail(breaker: Breaker, policy: BreakerPolicy, times: int, now: float = 0.0) -> Breaker:
    for _ in range(times):
        breaker = record(breaker, policy, ok=False, now=now)
    return breaker


def half_open(policy: BreakerPolicy) -> Breaker:
    breaker, answer = admit(fail(Breaker(), policy, policy.failure_threshold), policy, policy.open_seconds)
    assert answer is Admission.PROBE
    return breaker


def test_only_consecutive_failures_open_it() -> None:
    breaker = fail(Breaker(), PUSH_WORKER, 4)
    breaker = record(breaker, PUSH_WORKER, ok=True, now=0.0)
    breaker = fail(breaker, PUSH_WORKER, 4)
    assert breaker.state is State.CLOSED
    assert fail(breaker, PUSH_WORKER, 1).state is State.OPEN


@pytest.mark.parametrize("policy", [PUSH_WORKER, LISTO])
def test_it_stays_open_for_exactly_its_time(policy: BreakerPolicy) -> None:
    breaker = fail(Breaker(), policy, 5, now=100.0)
    end = 100.0 + policy.open_seconds
    assert admit(breaker, policy, end - 0.001)[1] is Admission.STOP
    assert seconds_until_probe(breaker, policy, end - 10.0) == 10.0
    assert admit(breaker, policy, end)[1] is Admission.PROBE


def test_the_push_worker_closes_after_two_good_probes() -> None:
    breaker = record(half_open(PUSH_WORKER), PUSH_WORKER, ok=True, now=31.0)
    assert breaker.state is State.HALF_OPEN
    breaker, answer = admit(breaker, PUSH_WORKER, 31.0)
    assert answer is Admission.PROBE
    assert record(breaker, PUSH_WORKER, ok=True, now=32.0) == Breaker()


def test_listo_closes_after_one_good_probe() -> None:
    assert record(half_open(LISTO), LISTO, ok=True, now=61.0) == Breaker()


def test_a_bad_second_probe_opens_for_the_whole_time_again() -> None:
    breaker = record(half_open(PUSH_WORKER), PUSH_WORKER, ok=True, now=31.0)
    breaker = record(breaker, PUSH_WORKER, ok=False, now=40.0)
    assert (breaker.state, breaker.opened_at, breaker.successes) == (State.OPEN, 40.0, 0)
    assert admit(breaker, PUSH_WORKER, 69.9)[1] is Admission.STOP
    assert admit(breaker, PUSH_WORKER, 70.0)[1] is Admission.PROBE


def test_a_dead_workers_probe_gives_its_right_back() -> None:
    breaker = half_open(LISTO)
    asked = 60.0 + LISTO.probe_seconds
    assert admit(breaker, LISTO, asked - 0.001)[1] is Admission.STOP
    assert admit(breaker, LISTO, asked)[1] is Admission.PROBE


def test_late_answers_neither_lengthen_nor_end_an_opening() -> None:
    breaker = fail(Breaker(), LISTO, 5, now=10.0)
    assert record(breaker, LISTO, ok=True, now=20.0) == breaker
    assert record(breaker, LISTO, ok=False, now=20.0) == breaker


@pytest.mark.parametrize("state", [State.CLOSED, State.HALF_OPEN])
def test_only_an_open_breaker_asks_for_patience(state: State) -> None:
    assert seconds_until_probe(Breaker(state=state, opened_at=5.0), LISTO, 6.0) == 0.0
