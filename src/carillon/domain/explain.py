"""What `explain` answers: every gate of a request and the expected attempts; it calls and writes nothing."""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any, Literal, Protocol, assert_never

import msgspec

from carillon.domain.breaker import Admission, Breaker, BreakerView, State, admit, effective, record, trip
from carillon.domain.claims import Claim
from carillon.domain.decide import (
    EXPIRY,
    barred,
    blocked_providers,
    candidates,
    chain_states,
    decide,
    following,
    opens_breaker,
    provider_failed,
    standing_of,
    suppression_after,
    when_open,
)
from carillon.domain.intents import Intent
from carillon.domain.notifications import Status
from carillon.domain.outcomes import Outcome, Sent, Unavailable
from carillon.domain.pace import first_place, reserve, room
from carillon.domain.policy import PolicyTable
from carillon.domain.ports import ViewedTargets
from carillon.domain.suppressions import Suppression, SuppressionTerms
from carillon.domain.targets import Held, TargetView, asked
from carillon.domain.verdicts import FINISH, Bury, Defer, FailOver, Finish, Retry, Skip, Verdict

GateVerdict = Literal["pass", "stop", "note"]
Tell = Callable[[str, Mapping[str, Any]], None]
"""Acceptance calls it with each gate that the request passed and what it found there."""
GATES = (
    "mode",
    "channel",
    "preferences",
    "recipient",
    "suppression",
    "locale",
    "template",
    "category",
    "render",
    "idempotency",
    "schedule",
    "quiet_hours",
    "throttle",
    "digest",
    "expired",
    "collapsed",
    "reached",
    "lane",
    "policy",
    "providers",
    "paused",
    "endpoint",
    "rate",
    "turn",
    "breaker",
)
"""Every gate in the order in which a request meets them; some are there only for requests that they concern."""


class ExplainStep(msgspec.Struct, frozen=True, omit_defaults=True):
    """One gate: the request passes, stops, or passes with a note."""

    step: str
    verdict: GateVerdict
    detail: dict[str, Any]
    gate: str | None = None
    """As stories name it, such as `suppressed` or `expired`; left out for a step that no story names."""


RouteOutcome = Literal["delivered", "queued", "skipped", "failed"]


class ExplainedRoute(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The expected way of one route, with every attempt that follows if each of them fails."""

    route_id: str
    channel: str
    recipient: str
    outcome: RouteOutcome
    policy: str
    max_attempts: int
    not_before: int | None = None
    """Unix milliseconds; None if the first attempt is due at once."""
    attempts: list[dict[str, Any]] = []
    ends: str | None = None
    """The last status of the route if every attempt fails; None if it goes on after the attempts that are shown."""
    because: str | None = None
    suppression: dict[str, Any] | None = None
    """The suppression that the route would be skipped for."""
    gate: str | None = None
    """What would skip it: `suppressed`, `category`, `throttle`, `expired`; None where nothing does."""


class Explanation(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The outcome that the request would have now, and every gate that it meets."""

    outcome: Literal["delivered", "queued", "replayed", "skipped", "rejected", "failed"]
    """delivered and queued: a send would attempt it; failed: no provider could be called."""
    steps: list[ExplainStep]
    routes: list[ExplainedRoute] = []
    """The route of each recipient and channel; empty if the request would be rejected."""
    code: str | None = None
    message: str | None = None


class Explains(Protocol):
    """Explains requests."""

    async def explain(self, intent: Intent, mode: Mapping[str, Any]) -> Explanation:
        """Explain a request; errors of the request are part of the answer. Raises LedgerUnavailable."""
        ...


def in_order(steps: Sequence[ExplainStep]) -> list[ExplainStep]:
    """The gates in the order in which a request meets them."""
    return sorted(steps, key=lambda step: GATES.index(step.step))


MOST_ATTEMPTS, MOST_TURNS = 100, 2000
"""So many attempts of one route are shown, and the whole simulation has so many turns: a deferral may take days."""

_IMAGINED = '{"suppression_id":0,"kind":"invalid","until_ms":null}'

Imagine = Callable[[Claim, str], Outcome]
"""Gives the outcome that the simulated provider returns for a claim."""


def unavailable(claim: Claim, provider: str) -> Outcome:  # noqa: ARG001 - every provider fails every claim
    """The default: every provider fails, so that the answer shows every attempt that the policy allows."""
    return Unavailable("imagined")


class ExpectedAttempt(msgspec.Struct, frozen=True):
    """One call that a worker would make."""

    attempt: int
    provider: str
    at_seconds: float
    """From now."""


class SimulatedRoute(msgspec.Struct, kw_only=True):
    """A route in the simulation, which advances it until the route ends."""

    claim: Claim
    due: float
    """When the next attempt is due, in seconds from now."""
    since: float
    """The time from which the route's age counts, in seconds from now."""
    attempts: list[ExpectedAttempt] = msgspec.field(default_factory=list)
    ended: Status | None = None
    reason: str | None = None
    suppressed_until: float = 0.0
    """Until when an earlier attempt has suppressed the address, in seconds from now."""
    expires: float | None = None
    """When the notification expires, in seconds from now."""
    step: int | None = None
    """Its place in the chain of its person."""
    not_before: float = 0.0
    """The end of the quiet hours that hold it, in seconds from now."""
    claimed: bool = False
    ticket: int = 0
    """What has been due longer goes first, of two that are due at the same moment; 0 until it is due."""
    paused: bool = False
    """An operator keeps it from its call, nobody knows for how long: the simulation leaves it there."""

    def expired(self) -> bool:
        """Whether the notification has expired when the next attempt is due."""
        return self.expires is not None and self.due >= self.expires

    def end(self, status: Status, reason: str | None = None) -> None:
        """End the route."""
        self.ended, self.reason = status, reason


class ViewedWorld(msgspec.Struct, frozen=True):
    """Everything about providers that a simulation starts from, as the fleet knows it now."""

    chains: Mapping[str, Sequence[str]]
    breakers: Mapping[str, BreakerView]
    targets: ViewedTargets
    views: Mapping[str, TargetView]


class Simulation:
    """Simulates routes, breakers and paces from now on, assuming that nobody else calls the same providers."""

    def __init__(
        self, world: ViewedWorld, policies: PolicyTable, imagine: Imagine, *, dice: float, terms: SuppressionTerms
    ) -> None:
        self._terms = terms
        self._targets, self._views = world.targets, world.views
        self._endpoints = {name: view.state.breaker for name, view in world.views.items()}
        self._paces = {name: view.state.pace for name, view in world.views.items()}
        self._chains = world.chains
        self._policies = policies
        self._breakers = {provider: view.breaker for provider, view in world.breakers.items()}
        self._rules = {provider: view.policy for provider, view in world.breakers.items()}
        self._order = [name for chain in world.chains.values() for name in chain]
        self._imagine = imagine
        self._dice = dice

    def queued(self, routes: Sequence[SimulatedRoute]) -> None:
        """Simulate one worker that attempts each route when it is due, in the order of its claims."""
        now = 0.0
        for _ in range(MOST_TURNS):
            waiting = [
                route
                for route in routes
                if route.ended is None and not route.paused and len(route.attempts) < MOST_ATTEMPTS
            ]
            if not waiting:
                return
            blocked = blocked_providers(self._chains, self._states(now)) if self._policies.all_defer else set()
            ready = [route for route in waiting if route.due <= now and route.claim.provider not in blocked]
            if ready:
                tickets = count(1 + max(route.ticket for route in routes))
                for route in sorted((one for one in ready if not one.ticket), key=lambda one: one.due):
                    route.ticket = next(tickets)
                route = min(ready, key=lambda one: (self._order.index(one.claim.provider), one.due, one.ticket))
                route.due, route.ticket = now, 0
                self._turn(route, routes)
            else:
                now = min(route.due if route.due > now else self._opens_at(route.claim.provider) for route in waiting)

    def synchronous(self, route: SimulatedRoute) -> None:
        """Simulate the single attempt of a synchronous request."""
        if route.ended is not None:
            return
        provider = self._choose(route)
        if route.expired():
            route.end(Status.SKIPPED, EXPIRY.reason)
            return
        if not isinstance(provider, str):
            paused = next((one.paused for one in provider if one.paused is not None), None)
            route.end(Status.DEAD_LETTER, str(paused or f"circuit breaker open: {route.claim.provider}"))
            return
        outcome = self._call(route, provider)
        if isinstance(outcome, Sent):
            route.end(Status.PUBLISHED)
        else:
            route.end(Status.DEAD_LETTER, outcome.error)

    def _turn(self, route: SimulatedRoute, routes: Sequence[SimulatedRoute]) -> None:
        claim, route.claimed = route.claim, True
        claim.age_seconds = max(round(route.due - route.since, 3), 0.0)
        claim.suppression_json = _IMAGINED if route.suppressed_until > route.due else None
        claim.expires_in = None if route.expires is None else route.expires - route.due
        verdict: Verdict | None = barred(claim)
        if verdict is None:
            provider, policy = self._choose(route), self._policies.get(claim.policy)
            if not isinstance(provider, str) and any(one.paused is not None for one in provider):
                route.paused, route.reason = True, str(next(one.paused for one in provider if one.paused is not None))
                return
            if not isinstance(provider, str):
                known = chain_states(self._chains.get(claim.channel, ()), self._states(route.due), provider)
                verdict = when_open(claim, policy, known, self._dice, provider)
            elif route.expired():
                verdict = EXPIRY
            else:
                outcome = self._call(route, provider)
                next_provider = following(self._chains.get(claim.channel, ()), provider)
                caused = suppression_after(claim, outcome, self._terms, policy, next_provider)
                if caused is not None:
                    _suppress(caused, routes, route.due)
                stands = standing_of(claim, provider, next_provider, self._dice)
                if opens_breaker(outcome, policy, stands) and self._targets.target(provider, claim) is None:
                    self._breakers[provider] = trip(self._breakers[provider], route.due)
                verdict = FINISH if isinstance(outcome, Sent) else decide(outcome, policy, stands)
        _settle(route, verdict)
        if route.ended in (Status.DEAD_LETTER, Status.SKIPPED):
            _release(routes, route.due)

    def _choose(self, route: SimulatedRoute) -> str | list[Held]:
        held: list[Held] = []
        for provider in candidates(self._chains.get(route.claim.channel, ()), route.claim.provider):
            holds = self._ask(provider, route)
            if holds is None:
                return provider
            held.append(holds)
            if holds.rate:
                break
        return held

    def _ask(self, provider: str, route: SimulatedRoute) -> Held | None:
        """Ask for admission as the worker does: the endpoint, the places, the provider."""
        answer: Admission | Held | None = None
        for name in self._targets.targets_of(provider, route.claim):
            view = self._views.get(name)
            if view is not None and view.state.paused is not None:
                return Held(name, rate=True, paused=view.state.paused)
        target = self._targets.target(provider, route.claim)
        breaker: Breaker | None = None
        if target in self._endpoints:
            breaker, answer = asked(target, self._endpoints[target], self._views[target].policy, route.due)
            if isinstance(answer, Held):
                return answer
        if (held := self._place(provider, route)) is not None:
            return held
        self._breakers[provider], said = admit(self._breakers[provider], self._rules[provider], route.due)
        if said is Admission.STOP:
            return Held(provider)
        route.claim.probe = Admission.PROBE in (answer, said)
        if target is not None and breaker is not None:
            self._endpoints[target] = breaker
        return None

    def _place(self, provider: str, route: SimulatedRoute) -> Held | None:
        """Take a place at every target with a rate; the call starts at the latest of them."""
        names = [name for name in self._targets.targets_of(provider, route.claim) if name in self._paces]
        starts = [route.due]
        for name in names:
            pace, limit = self._paces[name], self._views[name].per_second
            if room(pace, limit, route.due) == 0:
                return Held(name, first_place(pace, route.due) - route.due, rate=True)
            self._paces[name], (start,) = reserve(pace, limit, 1, route.due)
            starts.append(start)
        route.due = max(starts)
        return None

    def _call(self, route: SimulatedRoute, provider: str) -> Outcome:
        route.attempts.append(ExpectedAttempt(route.claim.attempt, provider, route.due))
        outcome = self._imagine(route.claim, provider)
        ok = not provider_failed(outcome)
        target = self._targets.target(provider, route.claim)
        if target in self._endpoints:
            rules = self._views[target].policy
            self._endpoints[target] = record(self._endpoints[target], rules, ok=ok, now=route.due)
        if target is None or ok:
            # One endpoint that fails says nothing about its provider.
            self._breakers[provider] = record(self._breakers[provider], self._rules[provider], ok=ok, now=route.due)
        return outcome

    def _states(self, now: float) -> dict[str, State]:
        return {name: effective(breaker, self._rules[name], now) for name, breaker in self._breakers.items()}

    def _opens_at(self, provider: str) -> float:
        """When a worker may next probe a provider of a chain that contains this one."""
        near = {name for chain in self._chains.values() if provider in chain for name in chain}
        opens = min(self._breakers[name].opened_at + self._rules[name].open_seconds for name in near)
        # The ledger counts whole milliseconds: a worker claims the route in the first one after that moment.
        return math.ceil(opens * 1000) / 1000


def _suppress(caused: Suppression, routes: Sequence[SimulatedRoute], now: float) -> None:
    until = math.inf if caused.seconds is None else round(now + caused.seconds, 3)
    for route in routes:
        if (route.claim.channel, route.claim.address) == (caused.channel, caused.address):
            route.suppressed_until = max(route.suppressed_until, until)


def _release(routes: Sequence[SimulatedRoute], now: float) -> None:
    """Let the next route of each chain go whose one before has ended unsent, as the ledger does; others move up."""
    people: dict[str, list[SimulatedRoute]] = {}
    for route in (one for one in routes if one.step is not None):
        people.setdefault(route.claim.recipient_ref, []).append(route)
    for chain in people.values():
        chain.sort(key=lambda route: route.step or 0)
        at = next((at for at, route in enumerate(chain) if route.ended is None), 0)
        if at == 0 or chain[at - 1].ended is Status.PUBLISHED or chain[at].claimed or chain[at].due <= now:
            continue
        ahead = chain[at].since - now
        for route in chain[at:]:
            if not route.claimed:
                route.since = round(max(route.since - ahead, route.not_before), 3)
                route.due = min(route.since, math.inf if route.expires is None else route.expires)
                route.ticket = 0


def _settle(route: SimulatedRoute, verdict: Verdict) -> None:
    """Apply a verdict as the ledger does, with delays in whole milliseconds."""
    claim = route.claim
    match verdict:
        case Finish():
            route.end(Status.PUBLISHED)
        case Bury():
            route.end(Status.DEAD_LETTER, verdict.reason)
        case Skip():
            route.end(Status.SKIPPED, verdict.reason)
        case Retry():
            claim.attempt += 1
        case FailOver():
            claim.provider, claim.attempts_before = verdict.provider, claim.attempt
            claim.attempt += 1
        case Defer():
            pass
        case _:
            assert_never(verdict)
    if isinstance(verdict, Retry | FailOver | Defer):
        # Round halves up, as the database does; Python's round() takes the even neighbour.
        route.due = round(route.due + math.floor(max(verdict.delay, 0.0) * 1000 + 0.5) / 1000, 3)
