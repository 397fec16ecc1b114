"""The operators' brakes over HTTP: pausing and resuming, and forcing a provider's breaker; each with a reason."""

from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any, Literal, Protocol

import msgspec
from msgspec import Meta

from carillon.domain.admin import AdminAction, AdminLedger
from carillon.domain.breaker import State
from carillon.domain.lanes import Lanes
from carillon.domain.pauses import Paused, Scope
from carillon.domain.ports import Clock
from carillon.domain.targets import TargetView, lane_target, target_of, template_target, tenant_target
from carillon.upkeep.api.notifications_wire import Reason
from carillon.upkeep.api.targets import ChangedTargets
from carillon.web import OPERATORS, Answer, Endpoint, Problem, Reply, Request
from carillon.web.problems import rfc3339_ms

_PATH = "/api/v1/admin/pauses"
_FOR_OPERATORS: dict[str, Any] = {"tag": "Administration", "about": OPERATORS}
_CHANGES: dict[str, Any] = {"problems": ("UNKNOWN_PROVIDER", "UNAVAILABLE"), "override": True, **_FOR_OPERATORS}


class ForcedBreakers(Protocol):
    """Breakers that an operator can open, or let a message probe."""

    async def trip(self, provider: str) -> None: ...

    async def recovered(self, provider: str) -> None: ...

    async def states(self) -> Mapping[str, State]: ...


class PauseBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """What is paused or resumed, and why."""

    scope: Scope
    name: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=400,
            description="A provider, a lane, the key of a template, a tenant, a queue, or `host:port` of an endpoint.",
        ),
    ]
    provider: Annotated[str, Meta(max_length=64, description="The provider that calls the endpoint.")] = "webhook"
    reason: Reason


class PauseView(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Something that an operator keeps calls from."""

    scope: Scope
    name: str
    provider: str | None
    """The provider of an endpoint."""
    what: str
    by: str
    reason: str
    since: str


class PauseList(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is paused, the newest first."""

    items: list[PauseView]


class PauseAnswer(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Whether the request changed something."""

    what: str
    paused: bool
    changed: bool
    """False if it was so before."""


class ForceBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """Whose breaker is forced, and why."""

    provider: Annotated[str, Meta(min_length=1, max_length=64)]
    to: Annotated[
        Literal["open", "half_open"],
        Meta(
            description="`open` sends calls to the next provider of the chain; `half_open` lets a message probe it now."
        ),
    ]
    reason: Reason


class Forced(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the breaker afterwards."""

    provider: str
    state: str


class Brakes:
    """Answers the endpoints."""

    def __init__(
        self,
        targets: ChangedTargets,
        breakers: ForcedBreakers | None,
        ledger: AdminLedger,
        clock: Clock,
        *,
        known: "Known",
    ) -> None:
        self._targets = targets
        self._breakers = breakers
        self._ledger = ledger
        self._clock = clock
        self._known = known

    async def list(self, _: Request) -> Reply:
        return Reply(200, PauseList(items=pause_views(await self._targets.views())))

    async def pause(self, request: Request) -> Reply:
        body = request.json(PauseBody)
        self._refuse_senseless(body)
        target, what = self._target(body), _what(body)
        actor = request.caller.actor
        paused = Paused(what=what, by=actor, reason=body.reason, since_ms=round(self._clock.wall() * 1000))
        before = await self._targets.pause(target, paused)
        await self._note(request, "pause", what, body.reason)
        return Reply(200, PauseAnswer(what=what, paused=True, changed=before is None))

    async def resume(self, request: Request) -> Reply:
        body = request.json(PauseBody)
        target, what = self._target(body), _what(body)
        before = await self._targets.pause(target, None)
        if before is not None:
            await self._note(request, "resume", what, body.reason)
        return Reply(200, PauseAnswer(what=what, paused=False, changed=before is not None))

    async def force(self, request: Request) -> Reply:
        body = request.json(ForceBody)
        if self._breakers is None or body.provider not in self._known.providers:
            raise Problem("UNKNOWN_PROVIDER", f"there is no provider {body.provider}")
        if body.to == "open":
            await self._breakers.trip(body.provider)
        else:
            await self._breakers.recovered(body.provider)
        await self._note(request, f"force_{body.to}", f"provider {body.provider}", body.reason)
        state = (await self._breakers.states()).get(body.provider, State.CLOSED)
        return Reply(200, Forced(provider=body.provider, state=str(state)))

    async def _note(self, request: Request, action: str, subject: str, reason: str) -> None:
        actor = request.caller.actor
        await self._ledger.note_action(AdminAction(actor=actor, action=action, reason=reason, subject=subject))

    def _refuse_senseless(self, body: PauseBody) -> None:
        """Refuse a pause that would keep nothing back here; a resume may still end one of an earlier release."""
        known = self._known
        if body.scope in known.senseless:
            raise Problem("VALIDATION_ERROR", f"{_what(body)} cannot be paused here: {known.senseless[body.scope]}")
        if body.scope == "endpoint" and body.provider in known.providers - known.receivers:
            reason = f"{body.provider} calls no endpoints of its own; pause the provider"
            raise Problem("VALIDATION_ERROR", f"{_what(body)} cannot be paused here: {reason}")

    def _target(self, body: PauseBody) -> str:
        match body.scope:
            case "provider" | "endpoint":
                endpoint = body.scope == "endpoint"
                provider = body.provider if endpoint else body.name
                if provider not in self._known.providers:
                    raise Problem("UNKNOWN_PROVIDER", f"there is no provider {provider}")
                return target_of(provider, body.name) if endpoint else provider
            case "lane":
                lane = self._known.lanes.by_name.get(body.name)
                if lane is None:
                    known = ", ".join(self._known.lanes.by_name)
                    raise Problem("VALIDATION_ERROR", f"there is no lane {body.name}; known are {known}")
                return lane_target(lane.rank)
            case "queue":
                if body.name not in self._known.queues():
                    known = ", ".join(self._known.queues())
                    raise Problem("VALIDATION_ERROR", f"there is no queue {body.name}; known are {known}")
                # A worker claims from queues as it claims from providers.
                return body.name
            case "template":
                return template_target(body.name)
            case "tenant":
                return tenant_target(body.name)


def pause_views(views: Mapping[str, TargetView]) -> list[PauseView]:
    """Everything that is paused, the newest first."""
    found = [(name, view.state.paused) for name, view in views.items() if view.state.paused is not None]
    found.sort(key=lambda one: (-one[1].since_ms, one[0]))
    return [_view(paused) for _, paused in found]


def _view(paused: Paused) -> PauseView:
    scope, _, name = paused.what.partition(" ")
    provider, _, endpoint = name.partition(" ") if scope == "endpoint" else (None, "", name)
    kind: Scope = msgspec.convert(scope, Scope)
    since = rfc3339_ms(paused.since_ms)
    return PauseView(
        scope=kind,
        name=endpoint,
        provider=provider,
        what=paused.what,
        by=paused.by,
        reason=paused.reason,
        since=since,
    )


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """What can be paused in this blueprint, and what cannot mean anything here."""

    lanes: Lanes
    providers: frozenset[str] = frozenset()
    receivers: frozenset[str] = frozenset()
    """The providers that call many endpoints."""
    queues: Callable[[], Collection[str]] = tuple
    senseless: Mapping[Scope, str] = {}
    """Why a kind of pause would keep nothing back."""


def _what(body: PauseBody) -> str:
    """What is paused, as people read it."""
    return f"endpoint {body.provider} {body.name}" if body.scope == "endpoint" else f"{body.scope} {body.name}"


def endpoints(
    targets: ChangedTargets, breakers: ForcedBreakers | None, ledger: AdminLedger, clock: Clock, known: Known
) -> list[Endpoint]:
    """The operators' endpoints about pauses, and about breakers where there are some."""
    brakes = Brakes(targets, breakers, ledger, clock, known=known)
    return [
        Endpoint(
            method="GET",
            path=_PATH,
            call=brakes.list,
            name="listPauses",
            summary="Show everything that is paused",
            answers=(Answer(status=200, description="The newest first", kind=PauseList),),
            **_FOR_OPERATORS,
        ),
        *_pausing(brakes),
        *([] if breakers is None else [_forcing(brakes)]),
    ]


def _forcing(brakes: Brakes) -> Endpoint:
    return Endpoint(
        method="POST",
        path="/api/v1/admin/breakers",
        call=brakes.force,
        name="forceBreaker",
        summary="Open a provider's breaker by hand, or let a message probe the provider now",
        description="An open breaker sends calls to the next provider of the chain; after its usual time a message "
        "probes the provider. Where breakers are not shared, this is about the process that answers.",
        body=ForceBody,
        body_examples={"open": {"provider": "sandbox", "to": "open", "reason": "The vendor loses messages"}},
        answers=(Answer(status=200, description="The breaker afterwards", kind=Forced),),
        **_CHANGES,
    )


def _pausing(brakes: Brakes) -> list[Endpoint]:
    example = {"incident": {"scope": "provider", "name": "sandbox", "reason": "The vendor sends twice"}}
    answers = (Answer(status=200, description="How it is now", kind=PauseAnswer),)
    return [
        Endpoint(
            method="POST",
            path=_PATH,
            call=brakes.pause,
            name="pauseCalls",
            summary="Make no call to a provider or an endpoint, of a lane, a template, a tenant or a queue",
            description="Notifications are accepted and wait, in every process; no other provider is tried for them. "
            "Synchronous requests fail at once. Calls under way end. What expires while it waits is skipped. A kind "
            "that would keep nothing back in this blueprint is refused with the reason.",
            body=PauseBody,
            body_examples=example,
            answers=answers,
            **_CHANGES,
        ),
        Endpoint(
            method="POST",
            path=f"{_PATH}/resume",
            call=brakes.resume,
            name="resumeCalls",
            summary="Make the calls again that a pause keeps back",
            description="What waits for a provider, a lane or a queue goes at once; what waits for a template, a "
            "tenant or an endpoint within half the time that the pause took, two minutes at most.",
            body=PauseBody,
            body_examples=example,
            answers=answers,
            **_CHANGES,
        ),
    ]
