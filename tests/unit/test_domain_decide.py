"""The one decision: every outcome against every policy and standing, and what must hold for all of them."""

import math
import random
from collections.abc import Iterator

import msgspec
import pytest

from carillon.domain.decide import (
    OPEN_PAUSE_SECONDS,
    THROTTLE_PAUSE_SECONDS,
    Standing,
    clamp_retry_after,
    decide,
    exhausted_text,
)
from carillon.domain.outcomes import STOPPING, Outcome, Refused, Sent, Throttled, Unavailable, Unknown, outcome_word
from carillon.domain.policy import RetryPolicy
from carillon.domain.verdicts import Bury, Defer, FailOver, Finish, Retry, Verdict, verdict_word
from tests.support.examples import cases

POLICY = RetryPolicy(
    base_delay_seconds=10.0, max_delay_seconds=100.0, jitter="none", max_attempts=6, failover_after_attempts=2
)
HOSTILE = [-1.0, -math.inf, math.inf, math.nan, 1e12, 1e308, 0.0, -0.0]


class Drawn(random.Random):
    """Random outcomes, policies and standings, the same in every run and with many values at their ends.

    Hypothesis takes thirty times as long for structs of fourteen fields.
    """

    def between(self, lowest: float, highest: float) -> float:
        ends = (lowest, highest, math.nextafter(lowest, highest), min(highest, lowest + 1.0))
        return self.choice(ends) if self.random() < 0.3 else self.uniform(lowest, self.choice((1.0, highest)))

    def retry_after(self) -> float | None:
        ordinary = self.uniform(-10.0, self.choice((10.0, 1e4, 1e6)))
        return self.choice((None, ordinary, ordinary, self.choice(HOSTILE)))

    def outcome(self) -> Outcome:
        said = self.choice(("", "no", "429 \U0001f514"))
        kinds: tuple[Outcome, ...] = (
            Sent(message_id=self.choice((None, "", "m-1"))),
            Throttled(error=said, retry_after=self.retry_after()),
            Unavailable(error=said, retry_after=self.retry_after()),
            Refused(error=said, recipient_gone=self.random() < 0.5),
            Unknown(error=said),
        )
        return self.choice(kinds)

    def policy(self) -> RetryPolicy:
        return RetryPolicy(
            max_attempts=6,
            base_delay_seconds=self.between(0.0, 1e4),
            backoff_multiplier=self.between(1.0, 100.0),
            max_delay_seconds=self.between(0.0, 1e5),
            jitter=self.choice(["none", "additive", "proportional", "full"]),
            jitter_seconds=self.between(0.0, 10.0),
            failover_after_attempts=self.choice(["max", 1, 2, 3, 4, 5]),
            on_refused=self.choice(["bury", "fail_over"]),
            on_unknown=self.choice(["retry", "fail_over", "wait_for_receipt", "bury"]),
            on_open=self.choice(["defer", "bury"]),
            throttled_counts=self.random() < 0.5,
            retry_after_cap_seconds=self.between(0.0, 1e5),
            give_up_after_seconds=self.between(0.0, 1e6),
        )

    def standing(self) -> Standing:
        attempt = self.randint(1, 12)
        return Standing(
            attempt=attempt,
            attempts_here=self.randint(1, attempt),
            max_attempts=self.randint(1, 12),
            age_seconds=self.between(0.0, 1e6),
            next_provider=self.choice([None, "second"]),
            dice=self.choice((0.0, math.nextafter(1.0, 0.0), self.random(), self.random())),
            probe=self.random() < 0.5,
        )


def drawn(number: int = 2500) -> Iterator[Drawn]:
    yield from (Drawn(seed) for seed in range(cases(number)))


def standing(
    attempt: int = 1, here: int | None = None, limit: int = 6, age: float = 0.0, after: str | None = None
) -> Standing:
    return Standing(
        attempt=attempt,
        attempts_here=attempt if here is None else here,
        max_attempts=limit,
        age_seconds=age,
        next_provider=after,
        dice=0.5,
    )


def delay_of(verdict: Verdict) -> float:
    return verdict.delay if isinstance(verdict, Retry | Defer | FailOver) else 0.0


def test_whatever_comes_in_a_verdict_that_can_be_carried_out_comes_out() -> None:
    seen = set()
    for each in drawn():
        outcome, policy, where = each.outcome(), each.policy(), each.standing()
        verdict = decide(outcome, policy, where)
        can_be_carried_out(outcome, policy, where, verdict)
        seen.add((type(outcome), type(verdict)))
    # Sent only finishes; what is refused or not known is never deferred, what is refused never retried here.
    assert len(seen) == 1 + 4 + 4 + 2 + 3, seen


def can_be_carried_out(outcome: Outcome, policy: RetryPolicy, where: Standing, verdict: Verdict) -> None:
    assert isinstance(verdict, Finish) == isinstance(outcome, Sent)
    if isinstance(verdict, FailOver):
        assert verdict.provider == where.next_provider
    if isinstance(verdict, Retry | FailOver):
        assert where.attempt < where.max_attempts, "a spent budget allows no further call"
    if isinstance(verdict, Defer):
        probed = where.probe and policy.on_open == "defer"
        assert probed or not policy.throttled_counts
        assert isinstance(outcome, Throttled | Unavailable if probed else Throttled)
    if isinstance(verdict, Bury):
        assert verdict.classification
    assert math.isfinite(delay_of(verdict))
    assert delay_of(verdict) >= 0.0


def test_a_vendor_may_lengthen_a_wait_up_to_the_cap_and_never_shorten_it() -> None:
    for each in drawn():
        asked, wait, policy = each.retry_after(), each.between(0.0, 1e5), each.policy()
        clamped = clamp_retry_after(asked, wait, policy)
        assert wait <= clamped <= max(wait, policy.retry_after_cap_seconds), (asked, wait, policy)


@pytest.mark.parametrize(
    ("asked", "wait"),
    [
        (None, 10.0),
        (-1.0, 10.0),
        (0.0, 10.0),
        (3.0, 10.0),
        (10.0, 10.0),
        (11.0, 11.0),
        (3600.0, 3600.0),
        (3601.0, 3600.0),
        (1e12, 3600.0),
        (math.inf, 3600.0),
        (-math.inf, 10.0),
        (math.nan, 10.0),
    ],
)
def test_retry_after_is_input_and_not_an_order(asked: float | None, wait: float) -> None:
    where = standing()
    assert decide(Unavailable("503", retry_after=asked), POLICY, where) == Retry(wait)
    assert decide(Throttled("429", asked), POLICY, where) == Defer(wait)


def test_a_cap_below_our_own_wait_does_not_shorten_it() -> None:
    policy = msgspec.structs.replace(POLICY, retry_after_cap_seconds=1.0)
    assert clamp_retry_after(500.0, 10.0, policy) == 10.0


@pytest.mark.parametrize("where", [standing(), standing(6), standing(7), standing(99, age=1e9, after="second")])
def test_sent_is_the_end_of_the_story(where: Standing) -> None:
    assert decide(Sent("vendor-1"), POLICY, where) == Finish()


@pytest.mark.parametrize("attempt", [1, 6, 7, 1000])
def test_a_throttled_route_burns_nothing_however_often(attempt: int) -> None:
    verdict = decide(Throttled("429"), POLICY, standing(attempt, here=1, after="second"))
    assert verdict == Defer(10.0)


def test_a_throttled_route_is_given_up_when_it_is_too_old() -> None:
    young = standing(age=POLICY.give_up_after_seconds - 1)
    old = standing(age=POLICY.give_up_after_seconds)
    assert decide(Throttled("429"), POLICY, young) == Defer(10.0)
    assert decide(Throttled("429"), POLICY, old) == Bury("expired", "throttled for too long: 429")


def test_throttling_counts_where_the_blueprint_says_so() -> None:
    policy = msgspec.structs.replace(POLICY, throttled_counts=True)
    assert decide(Throttled("429", 30.0), policy, standing()) == Retry(30.0)
    assert decide(Throttled("429"), policy, standing(2, after="second")) == FailOver("second", 20.0)
    assert decide(Throttled("429"), policy, standing(6)) == Bury("throttled", exhausted_text(6, "429"))


@pytest.mark.parametrize(
    ("where", "verdict"),
    [
        (standing(1, after="second"), Retry(10.0)),
        (standing(2, after="second"), FailOver("second", 20.0)),
        (standing(3, here=1, after="third"), Retry(40.0)),
        (standing(4, here=2, after="third"), FailOver("third", 80.0)),
        (standing(5, here=5), Retry(100.0)),
        (standing(6), Bury("timeout", "Retry exhausted after 6 attempts. Last error: no")),
        (standing(7, after="second"), Bury("timeout", "Retry exhausted after 7 attempts. Last error: no")),
    ],
)
def test_an_unavailable_provider(where: Standing, verdict: Verdict) -> None:
    assert decide(Unavailable("no", "timeout"), POLICY, where) == verdict


def test_a_vendors_wait_does_not_hold_back_another_vendor() -> None:
    verdict = decide(Unavailable("503", retry_after=3000.0), POLICY, standing(2, after="second"))
    assert verdict == FailOver("second", 20.0)


@pytest.mark.parametrize(
    ("outcome", "on_refused", "where", "verdict"),
    [
        (Refused("400"), "fail_over", standing(1, after="second"), FailOver("second")),
        (Refused("400"), "fail_over", standing(1), Bury("refused", "400")),
        (Refused("400"), "fail_over", standing(6, after="second"), Bury("refused", "400")),
        (Refused("400", "auth"), "bury", standing(1, after="second"), Bury("auth", "400")),
        (Refused("410", recipient_gone=True), "fail_over", standing(1, after="second"), FailOver("second")),
        (
            Refused("no", "opted_out", recipient_gone=True),
            "fail_over",
            standing(1, after="second"),
            Bury("opted_out", "no"),
        ),
    ],
)
def test_a_refusal_is_never_repeated_to_the_same_provider(
    outcome: Refused, on_refused: str, where: Standing, verdict: Verdict
) -> None:
    policy = msgspec.structs.replace(POLICY, on_refused=on_refused)
    assert decide(outcome, policy, where) == verdict


@pytest.mark.parametrize(
    ("on_unknown", "where", "verdict"),
    [
        ("retry", standing(1, after="second"), Retry(10.0)),
        ("retry", standing(6, after="second"), Bury("unknown", exhausted_text(6, "silence"))),
        ("fail_over", standing(1, after="second"), FailOver("second")),
        ("fail_over", standing(1), Retry(10.0)),
        ("fail_over", standing(6, after="second"), Bury("unknown", exhausted_text(6, "silence"))),
        ("wait_for_receipt", standing(1, after="second"), Retry(300.0)),
        ("wait_for_receipt", standing(6, after="second"), Bury("unknown", exhausted_text(6, "silence"))),
        ("bury", standing(1, after="second"), Bury("unknown", "silence")),
    ],
)
def test_an_unknown_outcome_is_decided_by_the_policy(on_unknown: str, where: Standing, verdict: Verdict) -> None:
    policy = msgspec.structs.replace(POLICY, on_unknown=on_unknown)
    assert decide(Unknown("silence"), policy, where) == verdict


@pytest.mark.req("P-570")
def test_a_probe_that_the_vendor_did_not_take_spends_no_attempt_where_messages_wait() -> None:
    for each in drawn():
        asked = each.choice((None, each.between(0.0, 1e5)))
        spends_no_attempt(asked, each.policy(), each.standing())


def spends_no_attempt(asked: float | None, policy: RetryPolicy, where: Standing) -> None:
    probing = msgspec.structs.replace(where, probe=True)
    verdict = decide(Unavailable("down", retry_after=asked), policy, probing)
    if policy.on_open == "bury":
        plain = msgspec.structs.replace(where, probe=False)
        assert verdict == decide(Unavailable("down", retry_after=asked), policy, plain)
    elif where.age_seconds >= policy.give_up_after_seconds:
        assert isinstance(verdict, Bury)
        assert verdict.classification == "expired"
    else:
        assert isinstance(verdict, Defer)
        assert OPEN_PAUSE_SECONDS <= verdict.delay <= max(2 * OPEN_PAUSE_SECONDS, policy.retry_after_cap_seconds)


def test_a_probe_without_an_answer_counts_because_the_message_may_have_arrived() -> None:
    for each in drawn():
        policy, where = each.policy(), each.standing()
        seen = [decide(Unknown("silence"), policy, msgspec.structs.replace(where, probe=one)) for one in (True, False)]
        assert seen[0] == seen[1], (policy, where)


def test_a_probes_wait_does_not_hold_back_another_vendor() -> None:
    probing = msgspec.structs.replace(standing(6, after="second"), probe=True)
    assert decide(Unavailable("503", retry_after=3000.0), POLICY, probing) == Defer(1.5)
    alone = msgspec.structs.replace(standing(6), probe=True)
    assert decide(Unavailable("503", retry_after=3000.0), POLICY, alone) == Defer(3000.0)
    throttled = msgspec.structs.replace(POLICY, throttled_counts=True)
    assert decide(Throttled("429"), throttled, alone) == Defer(100.0)


@pytest.mark.parametrize("max_attempts", [1, 3, 4, 6])
def test_an_ever_failing_route_is_called_exactly_as_often_as_its_budget_allows(max_attempts: int) -> None:
    calls, waits = 0, 0
    while True:
        calls += 1
        verdict = decide(Unavailable("500"), POLICY, standing(calls, limit=max_attempts))
        if isinstance(verdict, Bury):
            break
        waits += 1
    assert (calls, waits) == (max_attempts, max_attempts - 1)


def test_every_outcome_and_verdict_has_its_word() -> None:
    told: list[Outcome] = [Sent(), Throttled(""), Unavailable(""), Refused(""), Unknown("")]
    decided: list[Verdict] = [Finish(), Retry(0.0), Defer(0.0), FailOver("x"), Bury("", "")]
    assert [outcome_word(one) for one in told] == ["sent", "throttled", "unavailable", "refused", "unknown"]
    assert [verdict_word(one) for one in decided] == ["finish", "retry", "defer", "fail_over", "bury"]


@pytest.mark.parametrize("asked", [None, 0.0])
def test_a_throttled_route_without_a_wait_is_not_called_without_a_pause(asked: float | None) -> None:
    """It costs no attempt, so nothing else would end it before it expires."""
    hasty = msgspec.structs.replace(POLICY, base_delay_seconds=0.0, jitter="none")
    assert decide(Throttled("429", asked), hasty, standing()) == Defer(1.5 * THROTTLE_PAUSE_SECONDS)
    counted = msgspec.structs.replace(hasty, throttled_counts=True)
    assert decide(Throttled("429", asked), counted, standing()) == Retry(0.0), "its attempts end it"


def test_a_process_that_stops_gives_back_at_once() -> None:
    hasty = msgspec.structs.replace(POLICY, base_delay_seconds=0.0, jitter="none")
    assert decide(Throttled("stopping", 0.0, STOPPING), hasty, standing()) == Defer(0.0)
