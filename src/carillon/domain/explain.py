"""What `explain` answers: every gate of a request, and the attempts to come, with nothing called or written."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal, Protocol, assert_never

import msgspec

from carillon.domain.breaker import Admission, BreakerView, State, admit, effective, record
from carillon.domain.claims import Claim
from carillon.domain.decide import (
    barred,
    blocked_providers,
    candidates,
    decide,
    following,
    provider_failed,
    standing_of,
    when_open,
)
from carillon.domain.intents import Intent
from carillon.domain.notifications import Enrolled, Notification, Status
from carillon.domain.outcomes import Outcome, Refused, Sent, Unavailable
from carillon.domain.policy import PolicyTable
from carillon.domain.verdicts import FINISH, Bury, Defer, FailOver, Finish, Retry, Verdict

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
    "render",
    "idempotency",
    "schedule",
    "lane",
    "policy",
    "providers",
    "breaker",
)
"""Every gate in the order in which a request meets them; `schedule` is there only for what waits."""


class ExplainStep(msgspec.Struct, frozen=True):
    """One gate: passed, stopped at, or passed with a remark."""

    step: str
    verdict: GateVerdict
    detail: dict[str, Any]


RouteOutcome = Literal["delivered", "queued", "skipped", "failed"]


class ExplainedRoute(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One recipient on one channel: what would become of it, with every attempt if each of them failed."""

    route_id: str
    channel: str
    recipient: str
    outcome: RouteOutcome
    policy: str
    max_attempts: int
    not_before: int | None = None
    """Unix milliseconds; None when the first attempt is due at once."""
    attempts: list[dict[str, Any]] = []
    ends: str | None = None
    """The status that the route ends in if every attempt fails; None when it goes on beyond what is shown."""
    because: str | None = None


class Explanation(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The outcome the same request would have now, and every gate on the way there."""

    outcome: Literal["delivered", "queued", "replayed", "skipped", "rejected", "failed"]
    """delivered and queued are what a send would go on to try; failed is what no provider could be called for."""
    steps: list[ExplainStep]
    routes: list[ExplainedRoute] = []
    """Every recipient on every channel; empty when the request would be rejected."""
    code: str | None = None
    message: str | None = None


class Explains(Protocol):
    """Answers what a request would come to."""

    async def explain(self, intent: Intent, mode: Mapping[str, Any]) -> Explanation:
        """Raise LedgerUnavailable; what is wrong with the request is part of the answer."""
        ...


class LookupLedger(Protocol):
    """What the ledger holds that decides about a request; it only reads."""

    async def look_up_earlier(self, notification: Notification) -> Enrolled | None:
        """What enrolling would answer if its key was used before; None when it would be accepted."""
        ...

    async def suppressions(
        self, filters: Mapping[str, Any], limit: int, offset: int
    ) -> tuple[list[dict[str, Any]], int]:
        """Suppressions in force."""
        ...


class ViewedBreakers(Protocol):
    """Breakers that can be read without asking for the right to call."""

    async def views(self, providers: Collection[str]) -> dict[str, BreakerView]:
        """The whole breaker of each, as the fleet sees it, its times counted from now."""
        ...


def in_order(steps: Sequence[ExplainStep]) -> list[ExplainStep]:
    """The gates in the order in which a request meets them."""
    return sorted(steps, key=lambda step: GATES.index(step.step))


MOST_ATTEMPTS = 100
"""No more attempts of one route are foretold."""
MOST_TURNS = 2000
"""The bound of the whole fold: a throttled route may be deferred for days."""

Imagine = Callable[[Claim, str], Outcome]
"""What the provider answers to this claim."""


def unavailable(claim: Claim, provider: str) -> Outcome:  # noqa: ARG001 - every provider fails every claim
    """The usual imagination: it shows every attempt that the policy allows."""
    return Unavailable("imagined")


class ExpectedAttempt(msgspec.Struct, frozen=True):
    """One call that would be made."""

    attempt: int
    provider: str
    at_seconds: float
    """From now."""


class RouteAhead(msgspec.Struct, kw_only=True):
    """A route on its way; the fold moves it on until it has ended."""

    claim: Claim
    due: float
    """When its next attempt is due, in seconds from now."""
    since: float
    """From when its age counts."""
    attempts: list[ExpectedAttempt] = msgspec.field(default_factory=list)
    ended: Status | None = None
    reason: str | None = None

    def end(self, status: Status, reason: str | None = None) -> None:
        """Nothing more happens to the route."""
        self.ended, self.reason = status, reason


class Future:
    """Breakers and routes as they go on from now, while nobody else calls the same providers."""

    def __init__(
        self,
        chains: Mapping[str, Sequence[str]],
        policies: PolicyTable,
        views: Mapping[str, BreakerView],
        imagine: Imagine,
        dice: float,
    ) -> None:
        self._chains = chains
        self._policies = policies
        self._breakers = {provider: view.breaker for provider, view in views.items()}
        self._rules = {provider: view.policy for provider, view in views.items()}
        self._order = [name for chain in chains.values() for name in chain]
        self._imagine = imagine
        self._dice = dice

    def queued(self, routes: Sequence[RouteAhead]) -> None:
        """Let one worker carry out the routes: at each moment those that are due, in the order of its claims."""
        now = 0.0
        for _ in range(MOST_TURNS):
            waiting = [route for route in routes if route.ended is None and len(route.attempts) < MOST_ATTEMPTS]
            if not waiting:
                return
            blocked = blocked_providers(self._chains, self._states(now)) if self._policies.all_defer else set()
            ready = [route for route in waiting if route.due <= now and route.claim.provider not in blocked]
            if ready:
                route = min(ready, key=lambda route: (self._order.index(route.claim.provider), route.due))
                route.due = now
                self._turn(route, routes)
            else:
                now = min(route.due if route.due > now else self._opens_at(route.claim.provider) for route in waiting)

    def synchronous(self, route: RouteAhead) -> None:
        """Let the one call be made that a waiting caller gets; nothing is repeated."""
        if route.ended is not None:
            return
        provider = self._choose(route)
        if provider is None:
            route.end(Status.DEAD_LETTER, f"circuit breaker open: {route.claim.provider}")
            return
        outcome = self._call(route, provider)
        if isinstance(outcome, Sent):
            route.end(Status.PUBLISHED)
        else:
            route.end(Status.DEAD_LETTER, outcome.error)

    def _turn(self, route: RouteAhead, routes: Sequence[RouteAhead]) -> None:
        claim = route.claim
        claim.age_seconds = max(round(route.due - route.since, 3), 0.0)
        verdict: Verdict | None = barred(claim)
        if verdict is None:
            provider = self._choose(route)
            policy = self._policies.get(claim.policy)
            if provider is None:
                states = self._states(route.due)
                known = [states.get(name) for name in self._chains.get(claim.channel, ())]
                verdict = when_open(claim, policy, known, self._dice)
            else:
                outcome = self._call(route, provider)
                if isinstance(outcome, Refused) and outcome.recipient_gone:
                    _suppress(claim, routes)
                next_provider = following(self._chains.get(claim.channel, ()), provider)
                stands = standing_of(claim, provider, next_provider, self._dice)
                verdict = FINISH if isinstance(outcome, Sent) else decide(outcome, policy, stands)
        _settle(route, verdict)

    def _choose(self, route: RouteAhead) -> str | None:
        for provider in candidates(self._chains.get(route.claim.channel, ()), route.claim.provider):
            breaker, said = admit(self._breakers[provider], self._rules[provider], route.due)
            self._breakers[provider] = breaker
            if said is not Admission.STOP:
                return provider
        return None

    def _call(self, route: RouteAhead, provider: str) -> Outcome:
        route.attempts.append(ExpectedAttempt(route.claim.attempt, provider, route.due))
        outcome = self._imagine(route.claim, provider)
        ok = not provider_failed(outcome)
        self._breakers[provider] = record(self._breakers[provider], self._rules[provider], ok=ok, now=route.due)
        return outcome

    def _states(self, now: float) -> dict[str, State]:
        return {name: effective(breaker, self._rules[name], now) for name, breaker in self._breakers.items()}

    def _opens_at(self, provider: str) -> float:
        """When the first provider may be probed of those that share a chain with an open one."""
        near = {name for chain in self._chains.values() if provider in chain for name in chain}
        opens = min(self._breakers[name].opened_at + self._rules[name].open_seconds for name in near)
        # The ledger counts whole milliseconds: the route is claimed in the first one after the opening.
        return math.ceil(opens * 1000) / 1000


def _suppress(claim: Claim, routes: Sequence[RouteAhead]) -> None:
    for route in routes:
        if (route.claim.channel, route.claim.address) == (claim.channel, claim.address):
            route.claim.suppressed = True


def _settle(route: RouteAhead, verdict: Verdict) -> None:
    """Move the route on as the ledger does; delays are whole milliseconds there."""
    claim = route.claim
    match verdict:
        case Finish():
            route.end(Status.PUBLISHED)
        case Bury():
            route.end(Status.DEAD_LETTER, verdict.reason)
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
        # Halves go up, as the database rounds them; Python would take the even neighbour.
        route.due = round(route.due + math.floor(max(verdict.delay, 0.0) * 1000 + 0.5) / 1000, 3)
