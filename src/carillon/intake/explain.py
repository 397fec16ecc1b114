"""What would become of a request: the gates of acceptance, walked by acceptance itself, and what follows them."""

from collections.abc import Mapping
from typing import Any, Literal, Protocol

from carillon.domain.breaker import State
from carillon.domain.errors import BadIntent
from carillon.domain.explain import (
    ExplainStep,
    Explanation,
    ForesightLedger,
    Looks,
    Tell,
    Verdict,
    attempts_of,
    in_order,
)
from carillon.domain.intents import Intent
from carillon.domain.notifications import Conflict, Enrolment, Route, Status
from carillon.intake.accept import key_conflict
from carillon.intake.plan import PlanRules
from carillon.intake.synchronous import refuse_queued_only

_GATES = {
    "CHANNEL_REQUIRED": "channel",
    "UNKNOWN_CHANNEL": "channel",
    "CHANNEL_DISABLED": "preferences",
    "RECIPIENT_UNRESOLVED": "recipient",
    "TEMPLATE_NOT_FOUND": "template",
    "TEMPLATE_RENDER_ERROR": "render",
    "IDEMPOTENCY_CONFLICT": "idempotency",
    "SYNCHRONOUS_UNAVAILABLE": "mode",
}
_MANY = 100

Outcome = Literal["delivered", "queued", "replayed", "skipped", "rejected", "failed"]


class TellingPlanner(Protocol):
    """What plans a request and tells of every gate on the way."""

    async def planned(self, intent: Intent, tell: Tell | None = None) -> Enrolment: ...


class _Walk:
    """The steps so far; a gate that is told twice keeps its last word."""

    def __init__(self) -> None:
        self._steps: dict[str, ExplainStep] = {}

    def add(self, step: str, verdict: Verdict, detail: Mapping[str, Any]) -> None:
        self._steps[step] = ExplainStep(step, verdict, dict(detail))

    def passed(self, step: str, detail: Mapping[str, Any]) -> None:
        self.add(step, "pass", detail)

    def detail(self, step: str) -> dict[str, Any] | None:
        found = self._steps.get(step)
        return None if found is None else found.detail

    def stopped(self, *steps: str) -> bool:
        return any(step in self._steps and self._steps[step].verdict == "stop" for step in steps)

    def told(self, outcome: Outcome, code: str | None = None, message: str | None = None) -> Explanation:
        return Explanation(outcome=outcome, steps=in_order(list(self._steps.values())), code=code, message=message)


class Explainer:
    """Satisfies Explains; writes nothing and calls no provider."""

    def __init__(self, planner: TellingPlanner, ledger: ForesightLedger, breakers: Looks, rules: PlanRules) -> None:
        self._planner = planner
        self._ledger = ledger
        self._breakers = breakers
        self._rules = rules

    async def explain(self, intent: Intent, mode: Mapping[str, Any]) -> Explanation:
        walk = _Walk()
        walk.passed("mode", mode)
        try:
            enrolment = await self._planner.planned(intent, walk.passed)
            if intent.synchronous:
                refuse_queued_only(enrolment)
            await self._suppression(walk, intent)
            replayed = await self._idempotency(walk, enrolment)
        except BadIntent as error:
            await self._suppression(walk, intent)
            gate = _GATES.get(error.code, "mode")
            walk.add(gate, "stop", {**(walk.detail(gate) or {}), "code": error.code, "message": str(error)})
            return walk.told("rejected", error.code, str(error))
        route = enrolment.routes[0]
        await self._delivery(walk, intent, route)
        if replayed:
            return walk.told("replayed")
        if walk.stopped("suppression", "preferences") or route.status is Status.SKIPPED:
            return walk.told("skipped", message=route.skipped_because or "the address is suppressed")
        if walk.stopped("breaker"):
            code = "DELIVERY_FAILED" if intent.synchronous else None
            return walk.told("failed", code, f"circuit breaker open: {route.provider}")
        return walk.told("delivered" if intent.synchronous else "queued")

    async def _suppression(self, walk: _Walk, intent: Intent) -> None:
        found = walk.detail("recipient")
        if found is None or walk.detail("suppression") is not None:
            return
        filters = {"channel": found["channel"], "address": found["address"]}
        rows, _ = await self._ledger.suppressions(filters, _MANY, 0)
        binding = [row for row in rows if row["tenant_id"] in {"", intent.tenant_id or ""}]
        if not binding:
            walk.passed("suppression", {"suppressed": False})
            return
        row = binding[0]
        walk.add(
            "suppression",
            "stop",
            {"suppressed": True, "reason": row["reason"], "source": row["source"], "scope": row["tenant_id"] or "all"},
        )

    async def _idempotency(self, walk: _Walk, enrolment: Enrolment) -> bool:
        key = enrolment.notification.idempotency_key
        if key is None:
            walk.passed("idempotency", {"key": None})
            return False
        found = await self._ledger.foresee(enrolment.notification)
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

    async def _delivery(self, walk: _Walk, intent: Intent, route: Route) -> None:
        lanes, policies = self._rules.lanes, self._rules.policies
        lane = lanes.by_rank(route.lane)
        name = lanes.name_for(intent.priority, bulk=intent.bulk, synchronous=intent.synchronous)
        detail = {"lane": name, "queueName": lane.queue_name or None, "maxLatencySeconds": lane.max_latency_seconds}
        walk.passed("lane", detail | ({"notBefore": intent.scheduled_for_ms} if intent.scheduled_for_ms else {}))
        policy = policies.get(route.policy)
        chain = self._rules.channels[route.channel]
        timeout = policies.timeout(route.policy, lane)
        if intent.synchronous and lane.timeout_seconds is not None:
            timeout = lane.timeout_seconds
        walk.passed(
            "policy",
            {
                "policy": route.policy,
                "maxAttempts": route.max_attempts,
                "timeoutSeconds": timeout,
                "onOpen": policy.on_open,
                "attempts": attempts_of(policy, chain, route.max_attempts),
            },
        )
        states = await self._breakers.look(chain)
        shown = [{"provider": provider, "breaker": str(states[provider])} for provider in chain]
        walk.passed("providers", {"order": shown})
        self._breaker(walk, chain, states, waits=policy.on_open == "defer" and not intent.synchronous)

    def _breaker(self, walk: _Walk, chain: tuple[str, ...], states: Mapping[str, State], *, waits: bool) -> None:
        ready = [provider for provider in chain if states[provider] is not State.OPEN]
        detail: dict[str, Any] = {"first": ready[0] if ready else None}
        if not ready:
            walk.add("breaker", "note" if waits else "stop", detail | {"then": "waits" if waits else "fails"})
        elif ready[0] != chain[0]:
            walk.add("breaker", "note", detail | {"passedOver": list(chain[: chain.index(ready[0])])})
        elif states[ready[0]] is State.HALF_OPEN:
            walk.add("breaker", "note", detail | {"then": "one message probes it"})
        else:
            walk.passed("breaker", detail)
