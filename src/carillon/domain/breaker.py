"""The one circuit-breaker machine: what a provider's answers do to the right to call it."""

from enum import StrEnum
from typing import Literal

import msgspec


class State(StrEnum):
    """closed lets everything through, open nothing, half_open a limited number of probes."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class BreakerPolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When a breaker opens, for how long, and what closes it again."""

    failure_threshold: int = 5
    open_seconds: float = 60.0
    success_threshold: int = 1
    half_open_max_probes: int = 1
    probe_seconds: float = 30.0
    """A probe whose worker died gives its right back after this long."""


class Breaker(msgspec.Struct, frozen=True):
    """The whole state of one breaker; times are seconds of the home's own clock."""

    state: State = State.CLOSED
    failures: int = 0
    successes: int = 0
    opened_at: float = 0.0
    probes: tuple[float, ...] = ()
    """When each probe under way began."""


class Admission(StrEnum):
    """What a caller may do: call, call as a probe, or leave the provider alone."""

    GO = "go"
    PROBE = "probe"
    STOP = "stop"


BreakerVerb = Literal["admit", "ok", "fail", "heal", "look"]


class BreakerStep(msgspec.Struct, frozen=True):
    """What one step of a breaker came to; `admission` answers an `admit`."""

    state: State
    admission: Admission
    clean: bool = False
    """Known to be closed without a failure counted: one more success would change nothing."""
    seen: Breaker | None = None
    """After a `look`: the whole breaker, its times counted from now."""


class BreakerView(msgspec.Struct, frozen=True):
    """A breaker as it stands now, with its policy: enough to compute its future without other callers."""

    breaker: Breaker
    """Its times are seconds from now; a past time is negative."""
    policy: BreakerPolicy


def step(breaker: Breaker, policy: BreakerPolicy, verb: BreakerVerb, now: float) -> tuple[Breaker, BreakerStep]:
    """Run one verb, for stores that keep the state elsewhere."""
    match verb:
        case "admit":
            after, admission = admit(breaker, policy, now)
            return after, BreakerStep(after.state, admission)
        case "ok" | "fail":
            after = record(breaker, policy, ok=verb == "ok", now=now)
        case "heal":
            after = recover(breaker)
        case "look":
            return breaker, BreakerStep(effective(breaker, policy, now), Admission.STOP, seen=from_now(breaker, now))
    return after, BreakerStep(after.state, Admission.STOP)


def from_now(breaker: Breaker, now: float) -> Breaker:
    """The same breaker on a clock that shows 0 now."""
    return msgspec.structs.replace(
        breaker, opened_at=breaker.opened_at - now, probes=tuple(began - now for began in breaker.probes)
    )


def admit(breaker: Breaker, policy: BreakerPolicy, now: float) -> tuple[Breaker, Admission]:
    """Ask to call; in half_open the answer PROBE takes one of the probe rights."""
    if breaker.state is State.CLOSED:
        return breaker, Admission.GO
    if breaker.state is State.OPEN:
        if now < breaker.opened_at + policy.open_seconds:
            return breaker, Admission.STOP
        breaker = Breaker(state=State.HALF_OPEN, failures=breaker.failures, opened_at=breaker.opened_at)
    live = tuple(began for began in breaker.probes if now < began + policy.probe_seconds)
    if len(live) >= policy.half_open_max_probes:
        return msgspec.structs.replace(breaker, probes=live), Admission.STOP
    return msgspec.structs.replace(breaker, probes=(*live, now)), Admission.PROBE


def record(breaker: Breaker, policy: BreakerPolicy, *, ok: bool, now: float) -> Breaker:
    """Take in one answer of the provider."""
    if ok:
        return _record_success(breaker, policy)
    return _record_failure(breaker, policy, now)


def _record_success(breaker: Breaker, policy: BreakerPolicy) -> Breaker:
    match breaker.state:
        case State.CLOSED:
            return breaker if breaker.failures == 0 else Breaker()
        case State.OPEN:
            # A late answer of a call from before the opening says nothing about now.
            return breaker
        case State.HALF_OPEN:
            successes = breaker.successes + 1
            if successes >= policy.success_threshold:
                return Breaker()
            return msgspec.structs.replace(breaker, successes=successes, probes=breaker.probes[1:])


def _record_failure(breaker: Breaker, policy: BreakerPolicy, now: float) -> Breaker:
    match breaker.state:
        case State.CLOSED:
            failures = breaker.failures + 1
            if failures < policy.failure_threshold:
                return msgspec.structs.replace(breaker, failures=failures)
            return Breaker(state=State.OPEN, failures=failures, opened_at=now)
        case State.OPEN:
            return breaker
        case State.HALF_OPEN:
            return Breaker(state=State.OPEN, failures=breaker.failures + 1, opened_at=now)


def recover(breaker: Breaker) -> Breaker:
    """The provider answered a question: it may be probed with a message before its time is up."""
    if breaker.state is not State.OPEN:
        return breaker
    return Breaker(state=State.HALF_OPEN, failures=breaker.failures, opened_at=breaker.opened_at)


def effective(breaker: Breaker, policy: BreakerPolicy, now: float) -> State:
    """An open breaker whose time is up is as good as half open: the next caller becomes its probe."""
    if breaker.state is State.OPEN and seconds_until_probe(breaker, policy, now) == 0.0:
        return State.HALF_OPEN
    return breaker.state


def seconds_until_probe(breaker: Breaker, policy: BreakerPolicy, now: float) -> float:
    """How long to wait before the next probe."""
    if breaker.state is not State.OPEN:
        return 0.0
    return max(0.0, breaker.opened_at + policy.open_seconds - now)
