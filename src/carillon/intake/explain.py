"""`explain`: the intake plans the request, and a simulation shows its attempts; nothing is written or sent."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from carillon.domain.breaker import BreakerView, State, effective, seconds_until_probe
from carillon.domain.claims import Claim
from carillon.domain.decide import EXPIRY
from carillon.domain.digests import GATE, THROTTLE, WAITS, is_full, recent
from carillon.domain.errors import BadIntent
from carillon.domain.explain import (
    ExplainedRoute,
    Explanation,
    GateVerdict,
    Imagine,
    SimulatedRoute,
    Simulation,
    ViewedWorld,
    unavailable,
)
from carillon.domain.intents import Intent, said_key
from carillon.domain.notifications import Conflict, Enrolment, Message, Route, Status, gated_routes, route_due_ms
from carillon.domain.pace import HORIZON_SECONDS, NO_PACE, first_place, limit_of
from carillon.domain.ports import Clock, LookupLedger, NoTargets, ViewedBreakers, ViewedTargets
from carillon.domain.suppressions import CLASSIFICATION, SuppressionTerms
from carillon.domain.targets import TargetView, parts_of
from carillon.domain.timing import COLLAPSED, EXPIRED, QUIET_HOURS, REACHED
from carillon.intake.accept import Intake, key_conflict, refuse_queued_only
from carillon.intake.erased import ErasedAddresses
from carillon.intake.expected import (
    MOST_DIGESTS,
    Walk,
    chain_shown,
    explained_route,
    gathering,
    in_places,
    simulated_routes,
)
from carillon.intake.plan import PlanRules

_GATES = {
    "CHANNEL_REQUIRED": "channel",
    "UNKNOWN_CHANNEL": "channel",
    "CHANNEL_DISABLED": "preferences",
    "UNKNOWN_CATEGORY": "category",
    "RECIPIENT_UNRESOLVED": "recipient",
    "COUNTRY_NOT_ALLOWED": "recipient",
    "TEMPLATE_NOT_FOUND": "template",
    "TEMPLATE_RENDER_ERROR": "render",
    "IDEMPOTENCY_CONFLICT": "idempotency",
    "GOAL_UNREACHABLE": "reached",
    "SYNCHRONOUS_UNAVAILABLE": "mode",
}
_USUAL_TERMS = SuppressionTerms()
LEAST, MOST = 0.0, 1.0
"""The dice that make every jitter shortest and longest."""


class Explainer:
    """Satisfies Explains; writes nothing and calls no provider."""

    def __init__(
        self,
        intake: Intake,
        ledger: LookupLedger,
        breakers: ViewedBreakers,
        rules: PlanRules,
        clock: Clock,
        *,
        targets: ViewedTargets | None = None,
        imagine: Imagine = unavailable,
        dice: tuple[float, float] = (LEAST, MOST),
        terms: SuppressionTerms = _USUAL_TERMS,
        erased: ErasedAddresses | None = None,
    ) -> None:
        self._targets = targets or NoTargets()
        self._intake = intake
        self._ledger = ledger
        self._breakers = breakers
        self._rules = rules
        self._clock = clock
        self._imagine = imagine
        self._dice = dice
        self._terms = terms
        self._erased = erased

    async def explain(self, intent: Intent, mode: Mapping[str, Any]) -> Explanation:
        walk = Walk()
        walk.passed("mode", mode)
        try:
            enrolment = await self._intake.planned(intent, walk.passed)
            if intent.synchronous:
                refuse_queued_only(enrolment)
            for route in reversed(gated_routes(enrolment)):
                step = "suppression" if route.gate == CLASSIFICATION else route.gate
                walk.add(step, "stop", {**(walk.detail(step) or {}), "because": route.because})
            enrolment = await self._throttles(walk, enrolment)
            enrolment = await self._digests(walk, enrolment)
            suppressed = await self._suppressions(walk, enrolment)
            enrolment = in_places(enrolment, suppressed)
            replayed = await self._idempotency(walk, enrolment)
        except BadIntent as error:
            return await self._rejected(walk, intent, error)
        routes = await self._delivery(walk, intent, enrolment, suppressed)
        await self._turn(walk, intent, enrolment.routes[0])
        first = routes[0]
        outcomes = {route.outcome for route in routes}
        if replayed:
            return Explanation(outcome="replayed", steps=walk.steps())
        for outcome in ("delivered", "queued", "failed", "skipped"):
            if outcome in outcomes:
                code = "DELIVERY_FAILED" if outcome == "failed" and intent.synchronous else None
                message = first.because if outcome in {"failed", "skipped"} else None
                break
        return Explanation(outcome=outcome, steps=walk.steps(), routes=routes, code=code, message=message)

    async def _rejected(self, walk: Walk, intent: Intent, error: BadIntent) -> Explanation:
        found = walk.detail("recipient")
        if found is not None and walk.detail("suppression") is None:
            due_ms = intent.scheduled_for_ms
            await self._held_by(walk, found["channel"], found["address"], intent.tenant_id, due_ms)
        gate = _GATES.get(error.code, "render" if error.field == "data" else "mode")
        walk.add(gate, "stop", {**(walk.detail(gate) or {}), "code": error.code, "message": str(error)})
        return Explanation(outcome="rejected", steps=walk.steps(), code=error.code, message=str(error))

    async def _throttles(self, walk: Walk, enrolment: Enrolment) -> Enrolment:
        """The enrolment as the ledger would store it: what is too much is skipped or gathered."""
        now_ms, tenant_id = round(self._clock.wall() * 1000), enrolment.notification.tenant_id
        routes, instead = list(enrolment.routes), list(enrolment.digests)
        for entry in enrolment.throttles:
            times = await self._ledger.throttle_times(tenant_id, entry.audience, entry.category)
            over = is_full(times, entry.throttle, now_ms)
            sent = len(recent(times, entry.throttle, now_ms))
            detail = {"atMost": entry.throttle.said, "sent": sent, "overflow": entry.throttle.overflow}
            stop: GateVerdict = "stop" if entry.instead is None else "note"
            walk.add(THROTTLE, stop if over else "pass", detail)
            if over:
                instead += [] if entry.instead is None else [entry.instead]
                reason, gate = (entry.throttle.reason, THROTTLE) if entry.instead is None else (WAITS, None)
                routes = [
                    msgspec.structs.replace(one, status=Status.SKIPPED, skipped_because=reason, skipped_by=gate)
                    if one.status is Status.PENDING and one.recipient_ref == entry.audience
                    else one
                    for one in routes
                ]
        return msgspec.structs.replace(enrolment, routes=tuple(routes), digests=tuple(instead))

    async def _digests(self, walk: Walk, enrolment: Enrolment) -> Enrolment:
        """The enrolment after its digests have closed: the open ones that its events join, or new ones."""
        tenant_id, now_ms = enrolment.notification.tenant_id, round(self._clock.wall() * 1000)
        for entry in enrolment.digests:
            held = await self._ledger.person_digests(tenant_id, entry.audience, MOST_DIGESTS)
            enrolment, detail, goes = gathering(enrolment, entry, held, now_ms)
            walk.passed(GATE, (walk.detail(GATE) or {}) | detail)
            if goes is not None:
                walk.passed(QUIET_HOURS, {"notBefore": goes, "because": "quiet hours"})
        return enrolment

    async def _suppressions(self, walk: Walk, enrolment: Enrolment) -> dict[str, dict[str, Any]]:
        """The routes that enrolling would skip because their address is suppressed, each with the suppression."""
        found: dict[str, dict[str, Any]] = {}
        # From the last to the first, so that the step shows the first route.
        for route in reversed(enrolment.routes):
            if route.status is Status.PENDING and route.address is not None:
                tenant_id, due = enrolment.notification.tenant_id, route_due_ms(enrolment, route)
                held_by = await self._held_by(walk, route.channel, route.address, tenant_id, due)
                if held_by is not None:
                    found[route.route_id] = held_by
        for route in enrolment.routes:
            if route.channel == "email":
                await self._copies(walk, route, enrolment.notification.tenant_id)
        return found

    async def _ending(self, enrolment: Enrolment) -> dict[str, int]:
        """When suppressions end that are over before a channel of a chain is due: a failure lets it go earlier."""
        found: dict[str, int] = {}
        for route in enrolment.routes:
            if route.step is not None and route.address is not None:
                tenant_id = enrolment.notification.tenant_id
                row = await self._ledger.suppression_in_force(route.channel, route.address, tenant_id, None)
                if row is not None and row["expires_at"] is not None:
                    found[route.route_id] = row["expires_at"]
        return found

    async def _copies(self, walk: Walk, route: Route, tenant_id: str | None) -> None:
        """Name the copies of an email that would not be written to."""
        message = None if route.message_json is None else msgspec.json.decode(route.message_json, type=Message)
        copies = () if message is None or message.mail is None else message.mail.copies
        out = [copy for copy in copies if await self._gets_no_copy(route.channel, copy, tenant_id)]
        if out:
            known = walk.detail("suppression") or {}
            walk.add(
                "suppression", "stop" if known.get("suppressed") else "note", {**known, "leftOut": sorted(set(out))}
            )

    async def _gets_no_copy(self, channel: str, address: str, tenant_id: str | None) -> bool:
        if await self._ledger.suppression_in_force(channel, address, tenant_id, None) is not None:
            return True
        return self._erased is not None and await self._erased.hold(channel, address, tenant_id)

    async def _held_by(
        self, walk: Walk, channel: str, address: str, tenant_id: str | None, due_ms: int | None
    ) -> dict[str, Any] | None:
        row = await self._ledger.suppression_in_force(channel, address, tenant_id, due_ms)
        if row is None:
            walk.passed("suppression", {"suppressed": False})
            return None
        held_by = {"suppressionId": row["suppression_id"], "kind": row["kind"], "until": row["expires_at"]}
        about = {"reason": row["reason"], "source": row["source"], "scope": row["tenant_id"] or "all"}
        walk.add("suppression", "stop", {"suppressed": True, **about, **held_by})
        return held_by

    async def _idempotency(self, walk: Walk, enrolment: Enrolment) -> bool:
        key = enrolment.notification.idempotency_key
        if key is None:
            walk.passed("idempotency", {"key": None})
            return False
        found = await self._ledger.look_up_earlier(enrolment.notification)
        key = said_key(key)
        match found:
            case None:
                walk.passed("idempotency", {"key": key, "replays": None})
                return False
            case Conflict():
                walk.passed("idempotency", {"key": key, "holder": found.notification_id})
                raise key_conflict()
            case _:
                walk.add("idempotency", "note", {"key": key, "replays": found.notification_id})
                return True

    async def _delivery(
        self, walk: Walk, intent: Intent, enrolment: Enrolment, suppressed: Mapping[str, dict[str, Any]]
    ) -> list[ExplainedRoute]:
        now = self._clock.wall()
        chains = {route.channel: self._rules.channels[route.channel] for route in enrolment.routes}
        near = {name for chain in chains.values() for name in chain}
        # Whether a worker claims for a provider with an open breaker depends on every channel of that provider.
        chains |= {channel: chain for channel, chain in self._rules.channels.items() if near & set(chain)}
        views = await self._breakers.views({name for chain in chains.values() for name in chain})
        claims = [route.claim for route in simulated_routes(enrolment, suppressed, now)]
        ending = await self._ending(enrolment)
        target_views = await self._targets.views(
            (name, claim) for claim in claims for name in self._rules.channels[claim.channel]
        )
        world = ViewedWorld(chains, views, self._targets, target_views)
        simulated: list[list[SimulatedRoute]] = []
        for dice in self._dice:
            routes = simulated_routes(enrolment, suppressed, now, ending)
            simulation = Simulation(world, self._rules.policies, self._imagine, dice=dice, terms=self._terms)
            if intent.synchronous:
                simulation.synchronous(routes[0])
            else:
                simulation.queued(routes)
            simulated.append(routes)
        sync = intent.synchronous
        explained = [
            explained_route(route, soonest, latest, now, synchronous=sync, held_by=suppressed.get(route.route_id))
            for route, soonest, latest in zip(enrolment.routes, *simulated, strict=True)
        ]
        self._lane(walk, intent, enrolment, explained)
        self._policy(walk, intent, enrolment.routes[0], explained[0])
        self._providers(walk, enrolment.routes[0], views, explained[0], now)
        self._paused(walk, claims[0], target_views)
        self._endpoint(walk, claims[0], target_views)
        self._rate(walk, claims[0], target_views)
        return explained

    def _lane(self, walk: Walk, intent: Intent, enrolment: Enrolment, explained: Sequence[ExplainedRoute]) -> None:
        lane = self._rules.lanes.by_rank(enrolment.routes[0].lane)
        name = self._rules.lanes.name_for(intent.priority, bulk=intent.bulk, synchronous=intent.synchronous)
        detail: dict[str, Any] = {
            "lane": name,
            "queueName": lane.queue_name or None,
            "maxLatencySeconds": lane.max_latency_seconds,
        }
        planned, quiet = enrolment.notification.scheduled_for_ms, walk.detail(QUIET_HOURS)
        if planned is not None:
            if intent.scheduled_for_ms is not None or intent.timing.local_time is not None:
                walk.add("schedule", "note", {"notBefore": planned, "because": "scheduledFor"})
            detail["notBefore"] = planned
        if quiet is not None:
            walk.add(QUIET_HOURS, "note", quiet)
        walk.passed("lane", detail)
        self._expiry(walk, intent, enrolment, explained)

    def _expiry(self, walk: Walk, intent: Intent, enrolment: Enrolment, explained: Sequence[ExplainedRoute]) -> None:
        """Until when it is worth sending, what it replaces, and its chain; a step only where the request says so."""
        expires = enrolment.notification.expires_at_ms
        if expires is not None:
            over = any(route.because == EXPIRY.reason for route in explained)
            tried = any(route.attempts for route in explained)
            verdict: GateVerdict = "pass" if not over else "note" if tried else "stop"
            walk.add(EXPIRED, verdict, {"expiresAt": expires})
        if enrolment.collapse is not None:
            walk.passed(COLLAPSED, {"collapseKey": enrolment.collapse.key})
        chain = chain_shown(intent, enrolment)
        if chain is not None:
            walk.add(REACHED, "note", chain)

    def _policy(self, walk: Walk, intent: Intent, route: Route, explained: ExplainedRoute) -> None:
        lane, policies = self._rules.lanes.by_rank(route.lane), self._rules.policies
        timeout = policies.timeout(route.policy, lane)
        if intent.synchronous and lane.timeout_seconds is not None:
            timeout = lane.timeout_seconds
        walk.passed(
            "policy",
            {
                "policy": route.policy,
                "maxAttempts": route.max_attempts,
                "timeoutSeconds": timeout,
                "onOpen": policies.get(route.policy).on_open,
                "attempts": explained.attempts,
            },
        )

    def _providers(
        self, walk: Walk, route: Route, views: Mapping[str, BreakerView], explained: ExplainedRoute, now: float
    ) -> None:
        """The order of failover with the breakers of now, and the first call with the breakers at its time."""
        chain = self._rules.channels[route.channel]
        awaited = {name: {"receiptDeadlineSeconds": seconds} for name, seconds in self._rules.deadlines.items()}
        shown = [
            {"provider": name, "breaker": str(_state(views[name], 0.0)), **awaited.get(name, {})} for name in chain
        ]
        walk.passed("providers", {"order": shown})
        due = 0.0 if explained.not_before is None else max(0.0, explained.not_before / 1000 - now)
        states = {name: _state(views[name], due) for name in chain}
        ready = [name for name in chain if states[name] is not State.OPEN]
        detail: dict[str, Any] = {"first": ready[0] if ready else None}
        if not ready:
            waits = explained.outcome != "failed"
            walk.add("breaker", "note" if waits else "stop", detail | {"then": "waits" if waits else "fails"})
        elif ready[0] != chain[0]:
            walk.add("breaker", "note", detail | {"passedOver": list(chain[: chain.index(ready[0])])})
        elif states[ready[0]] is State.HALF_OPEN:
            walk.add("breaker", "note", detail | {"then": "one message probes it"})
        else:
            walk.passed("breaker", detail)

    def _paused(self, walk: Walk, claim: Claim, views: Mapping[str, TargetView]) -> None:
        """What operators have paused on the way to the first call; a step only where there is something."""
        names = self._targets.targets_of(claim.provider, claim)
        found = [view.state.paused for name in names if (view := views.get(name)) and view.state.paused is not None]
        if found:
            shown = [{"what": one.what, "by": one.by, "reason": one.reason, "since": one.since_ms} for one in found]
            walk.add("paused", "note", {"paused": shown, "because": str(found[0])})

    def _rate(self, walk: Walk, claim: Claim, views: Mapping[str, TargetView]) -> None:
        """The rates that the first call keeps, and until when it waits; a step only where there is one."""
        limits: list[dict[str, Any]] = []
        waits = False
        for name in self._targets.targets_of(claim.provider, claim):
            view = views.get(name)
            pace = NO_PACE if view is None else view.state.pace
            limit = None if view is None else limit_of(pace, view.per_second, 0.0)
            start = first_place(pace, 0.0)
            if limit is None and start <= 0.0:
                continue
            one: dict[str, Any] = {"target": name, "perSecond": None if limit is None else round(limit, 3)}
            if start > HORIZON_SECONDS:
                waits = True
                one["notBefore"] = round((self._clock.wall() + start) * 1000)
            limits.append(one)
        if limits:
            walk.add("rate", "note" if waits else "pass", {"limits": limits})

    async def _turn(self, walk: Walk, intent: Intent, route: Route) -> None:
        """How many of its calls the group of the first route has now; a step only where it has to wait for a place."""
        groups = None if intent.synchronous else self._rules.groups.get(route.provider)
        if groups is not None and route.group < 0 and (cap := groups.cap_of(route.group)) is not None:
            calls = await self._ledger.group_calls(route.group)
            because = groups.waits_for(route.group, calls)
            detail = {"group": groups.by, "cap": cap, "calls": min(calls, cap)}
            walk.add("turn", "note" if because else "pass", detail | ({"because": because} if because else {}))

    def _endpoint(self, walk: Walk, claim: Claim, views: Mapping[str, TargetView]) -> None:
        """The endpoint that the first call goes to, with its breaker; a step only where providers have endpoints."""
        target = self._targets.target(claim.provider, claim)
        view = None if target is None else views.get(target)
        if target is None or view is None:
            return
        breaker, left = view.state.breaker, seconds_until_probe(view.state.breaker, view.policy, 0.0)
        detail: dict[str, Any] = {
            "endpoint": parts_of(target)[1],
            "breaker": "disabled" if breaker.disabled else str(effective(breaker, view.policy, 0.0)),
        }
        if left > 0.0:
            detail["notBefore"] = round((self._clock.wall() + left) * 1000)
        verdict: GateVerdict = "note" if breaker.state is not State.CLOSED else "pass"
        walk.add("endpoint", "stop" if breaker.disabled and left > 0.0 else verdict, detail)


def _state(view: BreakerView, now: float) -> State:
    return effective(view.breaker, view.policy, now)
