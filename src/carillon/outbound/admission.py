"""Admission of calls: every call asks here before it starts, and every outcome is recorded here."""

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from carillon.domain.breaker import Admission, BreakerPolicy, State
from carillon.domain.claims import Claim
from carillon.domain.decide import provider_failed
from carillon.domain.outcomes import THROTTLED, Outcome, Sent, Throttled, Unavailable, Unknown
from carillon.domain.pauses import look_again_in
from carillon.domain.ports import Breakers, Clock, Provider
from carillon.domain.targets import (
    EndpointProvider,
    Held,
    HeldTarget,
    TargetView,
    Waiting,
    holds,
    lane_target,
    target_of,
    template_target,
    tenant_target,
)
from carillon.outbound.breakers import admitted
from carillon.outbound.targets import GOLDEN, Targets

CUT_OFF = "shutdown"
"""The classification of a call that the end of this process cut off."""
_LOOK_SECONDS = 0.1
_MOST_KNOWN = 10_000

Ended = tuple[Claim, Outcome]


class Admitted(msgspec.Struct):
    """What became of many claims that asked together."""

    go: list[Claim] = msgspec.field(default_factory=list)
    delays: dict[int, float] = msgspec.field(default_factory=dict)
    """By token: the seconds until a call starts that has a later place."""
    refused: list[Claim] = msgspec.field(default_factory=list)
    """The provider's own breaker is not closed: each of these asks again, alone, and may go to another provider."""
    held: list[tuple[Claim, Held]] = msgspec.field(default_factory=list)


class EndpointVotes:
    """The last outcomes of one provider's endpoints, which decide whether the provider itself has failed."""

    def __init__(self, policy: BreakerPolicy) -> None:
        self._policy = policy
        self._last: dict[str, tuple[float, float | None]] = {}
        """For each endpoint: when it answered last, and since when it fails."""
        self._look_at = float("-inf")
        self._most_fail = False

    def add(self, target: str, now: float, failing_since: float | None) -> None:
        """Count the newest outcome of an endpoint."""
        self._last[target] = (now, failing_since)

    def most_fail(self, now: float) -> bool:
        """Whether most endpoints began to fail within the window.

        An endpoint that has failed for longer says nothing about the provider: it was like that before.
        """
        if now >= self._look_at:
            self._look_at = now + _LOOK_SECONDS
            window = self._policy.endpoint_window_seconds
            self._last = {name: one for name, one in self._last.items() if now - one[0] <= window}
            fresh = [since for _, since in self._last.values() if since is None or now - since <= window]
            failing = sum(since is not None for since in fresh)
            self._most_fail = len(fresh) >= self._policy.least_endpoints and failing * 2 > len(fresh)
        return self._most_fail

    def clear(self) -> None:
        """Forget everything: a message got through."""
        self._last.clear()
        self._most_fail = False


class Admissions:
    """Asks the breakers of providers and endpoints before a call, and tells them its outcome."""

    def __init__(
        self,
        providers: Mapping[str, Provider],
        breakers: Breakers,
        targets: Targets | None,
        clock: Clock,
        *,
        patience_seconds: float = 0.0,
        throttled_fails: bool = False,
    ) -> None:
        """`patience_seconds` is how long a call waits for the probe of another one.

        Where `throttled_fails`, a blueprint fixes what follows a throttled answer: no rate is learnt from it.
        """
        self._breakers = breakers
        self._targets = targets
        self._clock = clock
        self._patience = patience_seconds
        self._throttled_fails = throttled_fails
        self._learning = frozenset(
            name for name, one in providers.items() if getattr(one, "learns_rates", False) and not throttled_fails
        )
        self._endpoints = (
            {}
            if targets is None
            else {name: one.endpoint for name, one in providers.items() if isinstance(one, EndpointProvider)}
        )
        self._votes = {name: EndpointVotes(targets.policy(name)) for name in self._endpoints if targets is not None}
        self._known: dict[str, dict[str | None, str | None]] = {name: {} for name in self._endpoints}
        """For each provider with endpoints, the target of each address: worked out once, not once a message."""
        self._paused_claims = 0
        self._probes: set[int] = set()
        """The tokens of claims that probe a provider whose endpoints have breakers."""

    def target(self, provider: str, claim: Claim) -> str | None:
        """The endpoint that the claim calls at this provider, as a target; None if the provider has none."""
        known = self._known.get(provider)
        if known is None:
            return None
        address = claim.address
        if address in known:
            return known[address]
        if len(known) >= _MOST_KNOWN:
            known.clear()
        endpoint = self._endpoints[provider](address)
        known[address] = None if endpoint is None else target_of(provider, endpoint)
        return known[address]

    async def admit(self, provider: str, claim: Claim) -> Held | float:
        """Ask for one call: what holds it, or the seconds until it starts; the caller then records its outcome."""
        target, targets, claim.probe = self.target(provider, claim), self._targets, False
        if targets is None:
            said = await admitted(self._breakers, provider, self._clock, self._patience)
            claim.probe = said is Admission.PROBE
            return Held(provider) if said is Admission.STOP else 0.0
        paused = await self.paused(provider, claim)
        if paused is not None:
            return paused
        self._count(targets, provider, [claim])
        held = None if target is None else targets.held(target)
        if held is not None:
            return held
        placed = await self._placed(targets, provider, [claim])
        if placed.held:
            return placed.held[0][1]
        said = await admitted(self._breakers, provider, self._clock, self._patience)
        if said is Admission.STOP:
            return Held(provider)
        claim.probe = said is Admission.PROBE
        if target is not None:
            if claim.probe:
                self._probes.add(claim.token)
            held = await self._asked(targets, target, claim)
        return placed.delays.get(claim.token, 0.0) if held is None else held

    async def passed_on(self, provider: str, claim: Claim) -> Held | None:
        """What keeps a route of another provider from going over to this one; takes neither a probe nor a place.

        Of two providers that both wait for a probe none takes over from the other: routes would go to and fro.
        """
        states, target = await self._breakers.states(), self.target(provider, claim)
        state, own = states.get(provider, State.CLOSED), states.get(claim.provider, State.CLOSED)
        probes = state is State.HALF_OPEN and own is not State.OPEN
        shut = target is not None and self._targets is not None and not self._targets.closed(target)
        return Held(provider) if state is State.OPEN or probes or shut else await self.paused(provider, claim)

    async def admit_many(self, provider: str, claims: Sequence[Claim]) -> Admitted:
        """Ask for many calls of one provider."""
        targets, found = self._targets, Admitted()
        if targets is not None:
            await targets.refresh()
            if targets.paused:
                claims = self._unpaused(targets, provider, claims, found)
            self._count(targets, provider, claims)
            if not targets.calm:
                claims = self._unheld(targets, provider, claims, found)
                placed = await self._placed(targets, provider, claims)
                claims, found.delays = placed.go, placed.delays
                found.held += placed.held
        if not claims:
            return found
        said = await self._breakers.admit(provider)
        may = {Admission.GO: len(claims), Admission.PROBE: 1, Admission.STOP: 0}[said]
        found.refused += claims[may:]
        claims = claims[:may]
        self._mark(provider, claims, probe=said is Admission.PROBE)
        if targets is None or targets.calm:
            found.go += claims
            return found
        for claim in claims:
            target = self.target(provider, claim)
            held = None if target is None or targets.closed(target) else await self._asked(targets, target, claim)
            if held is None:
                found.go.append(claim)
            else:
                found.held.append((claim, held))
        return found

    def _mark(self, provider: str, claims: Sequence[Claim], *, probe: bool) -> None:
        """Note at the claims whether their calls are probes."""
        for claim in claims:
            claim.probe = probe
        if probe and provider in self._endpoints:
            self._probes.update(claim.token for claim in claims)

    async def _asked(self, targets: Targets, target: str, claim: Claim) -> Held | None:
        """What the breaker of an endpoint says to the claim's call, which may be its probe."""
        said = await targets.ask(target)
        if isinstance(said, Held):
            return said
        claim.probe = claim.probe or said is Admission.PROBE
        return None

    async def paused(self, provider: str, claim: Claim) -> Held | None:
        """The pause that keeps the claim from this provider; also calls that ask no breaker ask here."""
        if self._targets is None:
            return None
        await self._targets.refresh()
        return self._by_hand(self._targets, provider, claim) if self._targets.paused else None

    def _by_hand(self, targets: Targets, provider: str, claim: Claim) -> Held | None:
        """The pause of the first target of the claim that is paused, by the last look."""
        name = next((name for name in self.targets_of(provider, claim) if name in targets.paused), None)
        if name is None:
            return None
        self._paused_claims += 1
        paused, share = targets.paused[name], self._paused_claims * GOLDEN % 1
        return Held(name, look_again_in(paused, self._clock.wall() * 1000, share), rate=True, paused=paused)

    def _unpaused(self, targets: Targets, provider: str, claims: Sequence[Claim], found: Admitted) -> list[Claim]:
        """The claims that no operator keeps from their calls; the others are held."""
        free: list[Claim] = []
        for claim in claims:
            held = self._by_hand(targets, provider, claim)
            if held is None:
                free.append(claim)
            else:
                found.held.append((claim, held))
        return free

    def _count(self, targets: Targets, provider: str, claims: Sequence[Claim]) -> None:
        """Count calls by the target that may complain about them."""
        if provider in self._endpoints:
            for target, calls in Counter([self.target(provider, claim) for claim in claims]).items():
                targets.started(target or provider, calls)
        elif provider in self._learning:
            targets.started(provider, len(claims))

    async def _placed(self, targets: Targets, provider: str, claims: Sequence[Claim]) -> Admitted:
        """Take a place at every target with a rate: a call starts at the latest of them, or waits for its turn."""
        paced, counts = self._paced(targets, provider, claims)
        if not counts:
            return Admitted(go=list(claims))
        free = {name: deque(await targets.places(name, number)) for name, number in counts.items()}
        found = Admitted()
        for claim in claims:
            names = paced[claim.token]
            full = next((name for name in names if not free[name]), None)
            if full is not None:
                found.held.append((claim, targets.turn(full, claim.lane)))
                continue
            delay = max((free[name].popleft() for name in names), default=0.0)
            if delay > 0.0:
                found.delays[claim.token] = delay
            found.go.append(claim)
        return found

    def _paced(
        self, targets: Targets, provider: str, claims: Sequence[Claim]
    ) -> tuple[dict[int, list[str]], Counter[str]]:
        """The targets with a rate that each claim counts for, and how many claims each of these targets has."""
        paced: dict[int, list[str]] = {}
        counts: Counter[str] = Counter()
        everyone = [provider] if targets.paced(provider) else []
        for claim in claims:
            names = list(everyone)
            target = self.target(provider, claim)
            if target is not None and targets.paced(target):
                names.append(target)
            if claim.tenant_id is not None and targets.paced(tenant := tenant_target(claim.tenant_id)):
                names.append(tenant)
            paced[claim.token] = names
            counts.update(names)
        return paced, counts

    async def record(self, provider: str, ended: Sequence[Ended], took_ms: float = 0.0) -> None:
        """Record the outcomes of one provider, in the order in which they came."""
        await self._learn(provider, ended)
        oks = [
            (claim, isinstance(outcome, Sent) or not provider_failed(outcome, throttled_fails=self._throttled_fails))
            for claim, outcome in ended
            # A call that we cut off ourselves says nothing about the other side.
            if not (isinstance(outcome, Unknown) and outcome.classification == CUT_OFF)
        ]
        if provider in self._endpoints and self._targets is not None:
            await self._record_endpoints(self._targets, provider, oks, took_ms)
            return
        succeeded = False
        for _, ok in oks:
            # A breaker counts failures in a row: only the first of several successes changes it.
            if not (ok and succeeded):
                await self._breakers.record(provider, ok=ok)
            succeeded = ok

    async def trip(self, provider: str) -> None:
        """Open the provider's breaker; not where each endpoint of the provider has a breaker of its own."""
        if provider not in self._endpoints:
            await self._breakers.trip(provider)

    async def views(self, pairs: Iterable[tuple[str, Claim]]) -> dict[str, TargetView]:
        """Every target of these claims as the fleet knows it, with times relative to now."""
        names = {name for provider, claim in pairs for name in self.targets_of(provider, claim)}
        if not names or self._targets is None:
            return {}
        return await self._targets.views(names)

    def targets_of(self, provider: str, claim: Claim) -> list[str]:
        """Every target that the claim counts for at this provider: endpoint, provider, tenant, lane and template."""
        own = [lane_target(claim.lane), template_target(claim.notification_type)]
        return [*self._names(provider, claim.address, claim.tenant_id), *own]

    def _names(self, provider: str, address: str | None, tenant_id: str | None) -> list[str]:
        find = self._endpoints.get(provider)
        endpoint = None if find is None else find(address)
        target = None if endpoint is None else target_of(provider, endpoint)
        tenant = None if tenant_id is None else tenant_target(tenant_id)
        return [name for name in (target, provider, tenant) if name is not None]

    async def waits_for(self, routes: Sequence[Waiting]) -> list[list[HeldTarget]]:
        """What keeps each of these waiting routes from its call now, as the fleet knows it."""
        if self._targets is None or not routes:
            return [[] for _ in routes]
        names = [
            [
                *self._names(route.provider, route.address, route.tenant_id),
                lane_target(route.lane),
                template_target(route.template_key),
            ]
            for route in routes
        ]
        views = await self._targets.views({name for each in names for name in each})
        return [[held for name in each for held in holds(name, views[name])] for each in names]

    async def _learn(self, provider: str, ended: Sequence[Ended]) -> None:
        """Slow down where a peer said that calls come too fast; an endpoint that is down may ask for a pause too."""
        if self._targets is None or provider not in self._learning:
            return
        for claim, outcome in ended:
            if isinstance(outcome, Sent):
                continue
            target = self.target(provider, claim)
            if isinstance(outcome, Throttled) and outcome.classification == THROTTLED:
                await self._targets.slow(target or provider, outcome.retry_after)
            elif isinstance(outcome, Unavailable) and outcome.retry_after and target is not None:
                await self._targets.slow(target, outcome.retry_after, too_fast=False)

    def _unheld(self, targets: Targets, provider: str, claims: Sequence[Claim], found: Admitted) -> list[Claim]:
        """The claims whose endpoint may be called; the others are held."""
        free: list[Claim] = []
        for claim in claims:
            target = self.target(provider, claim)
            held = None if target is None else targets.held(target)
            if held is None:
                free.append(claim)
            else:
                found.held.append((claim, held))
        return free

    async def _record_endpoints(
        self, targets: Targets, provider: str, oks: Sequence[tuple[Claim, bool]], took_ms: float
    ) -> None:
        by_target: dict[str, list[bool]] = {}
        for claim, ok in oks:
            target = self.target(provider, claim)
            if target is not None:
                by_target.setdefault(target, []).append(ok)
        votes, now = self._votes[provider], self._clock.monotonic()
        for target, each in by_target.items():
            targets.calls.add(target, each, took_ms)
            if not all(each) or not targets.calm:
                await targets.record(target, each)
            votes.add(target, now, targets.failing_since(target))
        most_fail = votes.most_fail(now)
        for claim, ok in oks if most_fail or self._probes else ():
            if claim.token in self._probes:
                self._probes.discard(claim.token)
                await self._breakers.record(provider, ok=ok)
                if ok:
                    votes.clear()
                    most_fail = False
            elif most_fail and not ok:
                await self._breakers.record(provider, ok=False)
        if not most_fail and any(ok for _, ok in oks):
            await self._breakers.record(provider, ok=True)
