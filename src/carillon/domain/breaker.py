"""The circuit breaker's state machine: how answers open and close the breaker of a provider or an endpoint."""

from enum import StrEnum
from typing import Literal, Self

import msgspec

from carillon.domain.errors import ConfigurationError

DISABLE_AFTER_SECONDS = 5 * 86_400.0
LONGEST_DISABLE_SECONDS, MOST_WINDOW_SECONDS = 365 * 86_400.0, 86_400.0


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
    disable_after_seconds: float | None = None
    """An endpoint that has failed for this long, without one success, is disabled; None is five days, 0 never."""
    disabled_probe_seconds: float = 3600.0
    """How often one message probes a disabled endpoint."""
    least_endpoints: int = 5
    """A provider's own breaker counts failures only if most of at least this many endpoints fail."""
    endpoint_window_seconds: float = 60.0
    """How long the last outcome of an endpoint counts for that."""

    def checked(self, where: str) -> Self:
        """This policy if its endpoints' part is valid; raises ConfigurationError with the reason."""
        if not 0.0 <= (self.disable_after_seconds or 0.0) <= LONGEST_DISABLE_SECONDS:
            raise ConfigurationError(f"{where}.disable_after_seconds: is not between 0 (never) and a year")
        if not 1.0 <= self.disabled_probe_seconds <= LONGEST_DISABLE_SECONDS:
            raise ConfigurationError(f"{where}.disabled_probe_seconds: is not between a second and a year")
        if self.least_endpoints < 1 or not 1.0 <= self.endpoint_window_seconds <= MOST_WINDOW_SECONDS:
            raise ConfigurationError(
                f"{where}: least_endpoints must be at least 1, endpoint_window_seconds between a second and a day"
            )
        return self

    def of_endpoints(self) -> Self:
        """The same policy for the endpoints of a provider; a provider as a whole is never disabled."""
        days = DISABLE_AFTER_SECONDS if self.disable_after_seconds is None else self.disable_after_seconds
        return msgspec.structs.replace(self, disable_after_seconds=days)

    def of_provider(self) -> Self:
        """The same policy for a provider as a whole."""
        return msgspec.structs.replace(self, disable_after_seconds=0.0)

    def scaled(self, scale: float) -> Self:
        """The same policy for a drill."""
        return msgspec.structs.replace(
            self,
            open_seconds=self.open_seconds * scale,
            disable_after_seconds=self.disable_after_seconds and self.disable_after_seconds * scale,
            disabled_probe_seconds=self.disabled_probe_seconds * scale,
        )


class Breaker(msgspec.Struct, frozen=True):
    """The whole state of one breaker; times are seconds by the clock of the store that keeps it."""

    state: State = State.CLOSED
    failures: int = 0
    successes: int = 0
    opened_at: float = 0.0
    probes: tuple[float, ...] = ()
    """When each probe under way began."""
    failing_since: float = 0.0
    """The first failure since the last success; 0 if there is none."""
    disabled: bool = False
    """True while the breaker is open for `disabled_probe_seconds` at a time, because it failed for days."""


class Admission(StrEnum):
    """What a caller may do: call, call as a probe, or leave the provider alone."""

    GO = "go"
    PROBE = "probe"
    STOP = "stop"


BreakerVerb = Literal["admit", "ok", "fail", "heal", "look", "trip"]
_NEW = Breaker()


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
        case "trip":
            after = trip(breaker, now)
        case "look":
            return breaker, BreakerStep(effective(breaker, policy, now), Admission.STOP, seen=from_now(breaker, now))
    return after, BreakerStep(after.state, Admission.STOP)


def from_now(breaker: Breaker, now: float) -> Breaker:
    """The same breaker on a clock that shows 0 now."""
    return msgspec.structs.replace(
        breaker,
        opened_at=breaker.opened_at - now,
        probes=tuple(began - now for began in breaker.probes),
        failing_since=breaker.failing_since and breaker.failing_since - now,
    )


def admit(breaker: Breaker, policy: BreakerPolicy, now: float) -> tuple[Breaker, Admission]:
    """Ask for permission to call; in half_open, the answer PROBE uses one of the limited probes."""
    if breaker.state is State.CLOSED:
        return breaker, Admission.GO
    if breaker.state is State.OPEN:
        if now < breaker.opened_at + open_for(breaker, policy):
            return breaker, Admission.STOP
        breaker = recover(breaker)
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
            return breaker if breaker.failures == 0 else _NEW
        case State.OPEN:
            # The breaker opened after this call began, so a late success does not prove that the provider is back.
            return breaker
        case State.HALF_OPEN:
            successes = breaker.successes + 1
            if successes >= policy.success_threshold:
                return _NEW
            return msgspec.structs.replace(breaker, successes=successes, probes=breaker.probes[1:])


def _record_failure(breaker: Breaker, policy: BreakerPolicy, now: float) -> Breaker:
    since = breaker.failing_since or now
    match breaker.state:
        case State.CLOSED:
            failures = breaker.failures + 1
            if failures < policy.failure_threshold:
                return msgspec.structs.replace(breaker, failures=failures, failing_since=since)
        case State.OPEN:
            return breaker
        case State.HALF_OPEN:
            failures = breaker.failures + 1
    return Breaker(
        state=State.OPEN,
        failures=failures,
        opened_at=now,
        failing_since=since,
        disabled=breaker.disabled or 0.0 < (policy.disable_after_seconds or 0.0) <= now - since,
    )


def trip(breaker: Breaker, now: float) -> Breaker:
    """Open the breaker, however few failures it has counted; one that is open keeps its time."""
    if breaker.state is State.OPEN:
        return breaker
    return Breaker(
        state=State.OPEN,
        failures=breaker.failures,
        opened_at=now,
        failing_since=breaker.failing_since or now,
        disabled=breaker.disabled,
    )


def recover(breaker: Breaker) -> Breaker:
    """The provider answered a health probe: let a message probe it now, before the open time ends."""
    if breaker.state is not State.OPEN:
        return breaker
    return msgspec.structs.replace(breaker, state=State.HALF_OPEN, successes=0, probes=())


def open_for(breaker: Breaker, policy: BreakerPolicy) -> float:
    """How long this breaker stays open before a message probes."""
    return policy.disabled_probe_seconds if breaker.disabled else policy.open_seconds


def effective(breaker: Breaker, policy: BreakerPolicy, now: float) -> State:
    """The state as the next caller meets it: an open breaker whose time is up counts as half open."""
    if breaker.state is State.OPEN and seconds_until_probe(breaker, policy, now) == 0.0:
        return State.HALF_OPEN
    return breaker.state


def seconds_until_probe(breaker: Breaker, policy: BreakerPolicy, now: float) -> float:
    """How long to wait before the next probe."""
    if breaker.state is not State.OPEN:
        return 0.0
    return max(0.0, breaker.opened_at + open_for(breaker, policy) - now)
