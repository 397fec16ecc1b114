"""The circuit breaker's state machine: how a provider's answers open and close its breaker."""

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
    """After this time, a probe without a result (its worker died) frees its place for another probe."""


class Breaker(msgspec.Struct, frozen=True):
    """The whole state of one breaker; times are seconds by the clock of the store that keeps it."""

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
    """The result of one step of a breaker; `admission` is set after the verb `admit`."""

    state: State
    admission: Admission
    clean: bool = False
    """The breaker is closed with no failure counted, so recording another success would change nothing."""
    seen: Breaker | None = None
    """Set after the verb `look`: the whole breaker, with times relative to now."""


class BreakerView(msgspec.Struct, frozen=True):
    """A breaker's current state and its policy: enough to compute its next states while nobody else calls."""

    breaker: Breaker
    """Its times are seconds relative to now; a past time is negative."""
    policy: BreakerPolicy


def step(breaker: Breaker, policy: BreakerPolicy, verb: BreakerVerb, now: float) -> tuple[Breaker, BreakerStep]:
    """Run one verb, for stores that load the state, step it and save it."""
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
    """Ask for permission to call; in half_open, the answer PROBE uses one of the limited probes."""
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
    """Count one success or failure of the provider."""
    if ok:
        return _record_success(breaker, policy)
    return _record_failure(breaker, policy, now)


def _record_success(breaker: Breaker, policy: BreakerPolicy) -> Breaker:
    match breaker.state:
        case State.CLOSED:
            return breaker if breaker.failures == 0 else Breaker()
        case State.OPEN:
            # The breaker opened after this call began, so a late success does not prove that the provider is back.
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
    """The provider answered a health probe: let a message probe it now, before the open time ends."""
    if breaker.state is not State.OPEN:
        return breaker
    return Breaker(state=State.HALF_OPEN, failures=breaker.failures, opened_at=breaker.opened_at)


def effective(breaker: Breaker, policy: BreakerPolicy, now: float) -> State:
    """The state as the next caller meets it: an open breaker whose time is up counts as half open."""
    if breaker.state is State.OPEN and seconds_until_probe(breaker, policy, now) == 0.0:
        return State.HALF_OPEN
    return breaker.state


def seconds_until_probe(breaker: Breaker, policy: BreakerPolicy, now: float) -> float:
    """How long to wait before the next probe."""
    if breaker.state is not State.OPEN:
        return 0.0
    return max(0.0, breaker.opened_at + policy.open_seconds - now)
