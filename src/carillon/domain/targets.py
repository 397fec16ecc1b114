"""Targets of calls: what a fleet knows about an endpoint, a provider or a tenant, and how its store keeps it."""

from collections.abc import Callable, Mapping
from typing import Literal, Protocol, TypeVar, runtime_checkable

import msgspec

from carillon.domain.breaker import Admission, Breaker, BreakerPolicy, State, admit, effective, seconds_until_probe
from carillon.domain.groups import endpoint_name
from carillon.domain.pace import HORIZON_SECONDS, NO_PACE, Pace, RatePolicy, first_place, limit_of
from carillon.domain.pauses import Paused

T = TypeVar("T")
AT = "@"
"""Between a provider and its endpoint in the name of a target."""
_TENANT, _LANE, _TEMPLATE = "tenant/", "lane/", "template/"
QUIET_SECONDS = 86_400.0
"""A target without an open breaker is forgotten if nothing changed it for this long."""
MOST_SPREAD_SECONDS = 30.0
_LONGEST = 300
"""DNS allows 253 characters in a name; a longer host is cut."""


def endpoint_of(url: str) -> str | None:
    """The host and port that a URL names; None if it names none. Paths, queries and credentials are no part of it."""
    name = endpoint_name(url)
    return None if name == url else name[:_LONGEST]


def target_of(provider: str, endpoint: str) -> str:
    """The name of the target that an endpoint of a provider is."""
    return f"{provider}{AT}{endpoint}"


def tenant_target(tenant_id: str) -> str:
    """The name of the target that a tenant is: all its calls count for it."""
    return f"{_TENANT}{tenant_id}"


def lane_target(rank: int) -> str:
    """The name of the target that a lane is: it can be paused."""
    return f"{_LANE}{rank}"


def template_target(key: str) -> str:
    """The name of the target that a template is: it can be paused."""
    return f"{_TEMPLATE}{key}"


def has_calls(target: str) -> bool:
    """Whether a target is called itself: an endpoint or a provider."""
    return not target.startswith((_TENANT, _LANE, _TEMPLATE))


def tenant_of(target: str) -> str | None:
    """The tenant that a target is; None for endpoints and providers."""
    return target.removeprefix(_TENANT) if target.startswith(_TENANT) else None


def parts_of(target: str) -> tuple[str, str | None]:
    """The provider and the endpoint of a target; no endpoint for a provider as a whole."""
    if not has_calls(target):
        return target, None
    provider, at, endpoint = target.partition(AT)
    return provider, endpoint if at else None


@runtime_checkable
class EndpointProvider(Protocol):
    """A provider whose routes call many receivers, such as webhooks: each of them has a breaker of its own."""

    def endpoint(self, address: str | None) -> str | None:
        """The host and port that a route with this address calls; None if there is none."""
        ...


CALLS_SECONDS = 1200.0
"""For so long, what a process said about its calls is shown."""


class EndpointHealth(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """How calls to one endpoint went lately; times are Unix seconds, 0 for never."""

    calls: int = 0
    failures: int = 0
    total_ms: float = 0.0
    slowest_ms: float = 0.0
    ok_at: float = 0.0
    failed_at: float = 0.0

    @property
    def ended_at(self) -> float:
        """When the last call ended."""
        return max(self.ok_at, self.failed_at)

    def plus(self, more: "EndpointHealth") -> "EndpointHealth":
        """Both together."""
        return EndpointHealth(
            calls=self.calls + more.calls,
            failures=self.failures + more.failures,
            total_ms=self.total_ms + more.total_ms,
            slowest_ms=max(self.slowest_ms, more.slowest_ms),
            ok_at=max(self.ok_at, more.ok_at),
            failed_at=max(self.failed_at, more.failed_at),
        )


class TargetState(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What the fleet knows about one target; times are seconds by the clock of the store that keeps it."""

    breaker: Breaker = Breaker()
    pace: Pace = NO_PACE
    touched: float = 0.0
    """The last change."""
    paused: Paused | None = None
    """Set while an operator keeps calls from it."""
    calls: Mapping[str, EndpointHealth] | None = None
    """In the row of a process: the endpoints that it called lately. Rows of targets have none."""

    def moved(self, seconds: float) -> "TargetState":
        """The same state on a clock that is `seconds` ahead."""
        breaker = moved_breaker(self.breaker, seconds)
        return TargetState(
            breaker=breaker, pace=self.pace.moved(seconds), touched=self.touched + seconds, paused=self.paused
        )

    def quiet(self, now: float) -> bool:
        """Whether the store may forget this target."""
        if self.calls is not None:
            return now - self.touched >= CALLS_SECONDS
        closed = self.paused is None and self.breaker.state is State.CLOSED and self.pace.quiet(now)
        return closed and (self.breaker.failures == 0 or now - self.touched >= QUIET_SECONDS)


NEW_TARGET = TargetState()


def moved_breaker(breaker: Breaker, seconds: float) -> Breaker:
    """The same breaker on a clock that is `seconds` ahead."""
    return msgspec.structs.replace(
        breaker,
        opened_at=breaker.opened_at + seconds,
        probes=tuple(began + seconds for began in breaker.probes),
        failing_since=breaker.failing_since and breaker.failing_since + seconds,
    )


class Rates(msgspec.Struct, frozen=True):
    """The configured rates; `*` stands for every other provider or tenant, each with a rate of its own."""

    providers: Mapping[str, RatePolicy] = {}
    tenants: Mapping[str, float | None] = {}

    def limit(self, target: str) -> float | None:
        """Calls a second to this target, over all processes; None is no limit."""
        if not self.providers and not self.tenants:
            return None
        tenant = tenant_of(target)
        if tenant is not None:
            return self.tenants.get(tenant, self.tenants.get("*"))
        if not has_calls(target):
            return None
        provider, endpoint = parts_of(target)
        policy = self.providers.get(provider) or self.providers.get("*") or _NO_RATE
        return policy.per_second if endpoint is None else policy.endpoint_per_second


_NO_RATE = RatePolicy()
NO_RATES = Rates()


class Held(msgspec.Struct, frozen=True):
    """Why a call may not start now."""

    target: str
    seconds: float | None = None
    """How long to wait at least; None asks again after the usual pause."""
    spread: float = 0.0
    """Those who wait for the same moment come back within so many seconds after it, not all at once."""
    disabled: bool = False
    """The endpoint failed for days and is disabled."""
    healing: bool = False
    """A probe runs: the target may be back in a moment."""
    paused: Paused | None = None
    """An operator keeps calls from it: another provider is not tried, and no time is too long."""
    rate: bool = False
    """The target has its calls for now: the call waits for its turn, and another provider does not help."""


def held_by(target: str, breaker: Breaker, policy: BreakerPolicy, now: float) -> Held | None:
    """What the breaker of an endpoint says before it is asked for admission; None if it may admit a call."""
    if effective(breaker, policy, now) is not State.OPEN:
        return None
    left = seconds_until_probe(breaker, policy, now)
    return Held(target, left, min(policy.open_seconds, MOST_SPREAD_SECONDS), disabled=breaker.disabled)


def asked(target: str, breaker: Breaker, policy: BreakerPolicy, now: float) -> tuple[Breaker, Held | Admission]:
    """Ask the breaker of an endpoint to admit a call: the breaker afterwards, and what holds or admits the call."""
    held = held_by(target, breaker, policy, now)
    if held is not None:
        return breaker, held
    after, said = admit(breaker, policy, now)
    if said is Admission.STOP:
        # A probe to an endpoint that hangs takes its whole timeout: the others come back after a while, not at once.
        pause = min(policy.open_seconds / 4, MOST_SPREAD_SECONDS)
        return after, Held(target, pause, pause, disabled=breaker.disabled, healing=not breaker.disabled)
    return after, said


Change = Callable[[TargetState, float], tuple[TargetState, T]]
"""From a state and the store's time to the next state and an answer; pure, as a store may run it twice."""


class TargetView(msgspec.Struct, frozen=True):
    """A target's state, with times relative to now, the policy of its breaker, and its configured rate."""

    state: TargetState
    policy: BreakerPolicy
    per_second: float | None = None


class TargetStore(Protocol):
    """Keeps the states of targets for a fleet; a quiet target has no state and costs nothing."""

    async def target_states(self, service: str) -> tuple[float, Mapping[str, TargetState]]:
        """The store's time, and every target with a state; raises LedgerUnavailable."""
        ...

    async def change_target(self, service: str, target: str, change: Change[T]) -> tuple[float, TargetState, T]:
        """Change one target in one atomic step: the store's time, the new state, the answer."""
        ...


def changed(state: TargetState, now: float, change: Change[T]) -> tuple[TargetState, T]:
    """Run a change and stamp the state with its time; a store removes a state that is quiet."""
    after, answer = change(state, now)
    stamped = after == state or after.touched != state.touched
    return after if stamped else msgspec.structs.replace(after, touched=now), answer


OFFSET_SECONDS = 30.0


class ClockOffset:
    """How far this process's clock is ahead of the store's: the quickest answer of late knows it best."""

    def __init__(self) -> None:
        self._best = self._newer = float("inf")
        self._since = float("-inf")

    def heard(self, store_now: float, now: float) -> float:
        """Take an answer of the store into account; returns the offset."""
        seen = now - store_now
        if now - self._since > OFFSET_SECONDS:
            # Clocks drift: what was learnt two periods ago no longer counts.
            recent = now - self._since <= 2 * OFFSET_SECONDS
            self._best, self._newer, self._since = self._newer if recent else seen, seen, now
        self._newer = min(self._newer, seen)
        self._best = min(self._best, seen)
        return self._best


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(TargetState).decode


def written(state: TargetState) -> str:
    """A state as a store keeps it."""
    return _encode(state).decode()


def read_state(text: str | bytes | None) -> TargetState:
    """A state from its text; one that cannot be read, such as a newer release's, is new."""
    if text is None:
        return NEW_TARGET
    try:
        return _decode(text)
    except msgspec.DecodeError:
        return NEW_TARGET


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """A route that waits, as far as targets are about it."""

    channel: str
    provider: str
    address: str | None
    tenant_id: str | None
    lane: int
    template_key: str


class HeldTarget(msgspec.Struct, frozen=True, rename="camel"):
    """What keeps a route from its call, for people."""

    reason: Literal["breaker", "disabled", "pause", "rate", "paused"]
    target: str
    seconds: float
    """How long from now, at least."""
    per_second: float | None = None
    paused: Paused | None = None


def holds(name: str, view: TargetView) -> list[HeldTarget]:
    """Everything about a target that keeps calls waiting now; its times are relative to now."""
    found: list[HeldTarget] = []
    if view.state.paused is not None:
        found.append(HeldTarget("paused", name, 0.0, paused=view.state.paused))
    held = held_by(name, view.state.breaker, view.policy, 0.0)
    if held is not None:
        found.append(HeldTarget("disabled" if held.disabled else "breaker", name, held.seconds or 0.0))
    pace = view.state.pace
    limit = limit_of(pace, view.per_second, 0.0)
    if pace.not_before > HORIZON_SECONDS:
        found.append(HeldTarget("pause", name, pace.not_before, limit))
    elif limit is not None and first_place(pace, 0.0) > HORIZON_SECONDS:
        found.append(HeldTarget("rate", name, first_place(pace, 0.0), limit))
    return found
