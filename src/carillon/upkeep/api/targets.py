"""The endpoints about targets: which receivers are in trouble or kept at a pace, and enabling one by hand."""

from collections.abc import Mapping
from typing import Annotated, Any, Protocol

import msgspec
from msgspec import Meta

from carillon.domain.admin import AdminAction, AdminLedger
from carillon.domain.breaker import effective, seconds_until_probe
from carillon.domain.pace import limit_of
from carillon.domain.pauses import Paused
from carillon.domain.ports import Clock
from carillon.domain.targets import TargetView, has_calls, parts_of, target_of, tenant_of
from carillon.upkeep.api.notifications_wire import Reason
from carillon.web import About, Answer, Callers, Endpoint, Problem, Reply, Request
from carillon.web.problems import rfc3339_ms

MOST = 1000
"""At most so many targets are shown, those in the worst trouble first."""
_PATH = "/api/v1/admin/targets"
_FOR_OPERATORS: dict[str, Any] = {"tag": "Administration", "about": About(callers=Callers.OPERATORS)}
_WORST = {"disabled": 0, "open": 1, "half_open": 2, "closed": 3}


class ChangedTargets(Protocol):
    """Targets that can be read, enabled and paused."""

    async def views(self) -> dict[str, TargetView]:
        """Every target in trouble or kept at a pace, as the fleet knows it now."""
        ...

    async def enable(self, target: str, by: str) -> bool:
        """Close the breaker of an endpoint by hand; False if it was closed."""
        ...

    async def pause(self, target: str, paused: Paused | None) -> Paused | None:
        """Pause a target for the whole fleet, or resume it with None; what paused it before."""
        ...


class TargetInfo(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One endpoint, provider or tenant that calls are kept from, or kept at a pace for."""

    provider: str | None
    endpoint: str | None
    """`host:port`; null for a provider or a tenant as a whole."""
    tenant_id: str | None
    state: str
    """`closed`, `open`, `half_open` or `disabled`."""
    failures: int
    """Failures in a row."""
    failing_since: str | None
    next_probe_at: str | None
    """When the next message is let through to see whether the endpoint works."""
    per_second: float | None
    """The rate that calls keep now, configured or learnt; null without a limit."""
    paused_until: str | None
    """The receiver asked for a pause until then."""


class TargetList(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Every target in trouble or kept at a pace; what is not here works without a limit that was learnt."""

    items: list[TargetInfo]
    total_count: int


class EnableBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """Which endpoint is called again at once, and why."""

    provider: Annotated[str, Meta(min_length=1, max_length=64)]
    endpoint: Annotated[str, Meta(min_length=1, max_length=400, description="`host:port`, as the list shows it.")]
    reason: Reason


class Enabled(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Whether the endpoint was kept from calls before."""

    provider: str
    endpoint: str
    enabled: bool
    """False if its breaker was closed already."""


class TargetAdministration:
    """Answers the endpoints about targets."""

    def __init__(self, targets: ChangedTargets, ledger: AdminLedger, clock: Clock) -> None:
        self._targets = targets
        self._ledger = ledger
        self._clock = clock

    async def list(self, request: Request) -> Reply:
        del request
        found = target_infos(await self._targets.views(), self._clock.wall())
        return Reply(200, TargetList(items=found[:MOST], total_count=len(found)))

    async def enable(self, request: Request) -> Reply:
        body = request.json(EnableBody)
        target, actor = target_of(body.provider, body.endpoint), request.caller.actor
        if target not in await self._targets.views():
            raise Problem("NOT_FOUND", f"{body.endpoint} is no endpoint of {body.provider} in trouble")
        done = await self._targets.enable(target, actor)
        action = AdminAction(actor=actor, action="enable_endpoint", reason=body.reason, subject=target)
        await self._ledger.note_action(action)
        return Reply(200, Enabled(provider=body.provider, endpoint=body.endpoint, enabled=done))


def target_infos(views: Mapping[str, TargetView], now: float) -> list[TargetInfo]:
    """Targets that are called, and tenants, the worst first."""
    # A lane or a template is a target that can only be paused: the list of pauses shows it.
    shown = {name: view for name, view in views.items() if has_calls(name) or tenant_of(name) is not None}
    found = [_info(name, view, now) for name, view in shown.items()]
    return sorted(
        found, key=lambda one: (_WORST[one.state], one.provider or "", one.endpoint or "", one.tenant_id or "")
    )


def _info(name: str, view: TargetView, now: float) -> TargetInfo:
    breaker, pace = view.state.breaker, view.state.pace
    tenant = tenant_of(name)
    provider, endpoint = (None, None) if tenant is not None else parts_of(name)
    limit, left = limit_of(pace, view.per_second, 0.0), seconds_until_probe(breaker, view.policy, 0.0)
    return TargetInfo(
        provider=provider,
        endpoint=endpoint,
        tenant_id=tenant,
        state="disabled" if breaker.disabled else str(effective(breaker, view.policy, 0.0)),
        failures=breaker.failures,
        failing_since=rfc3339_ms((now + breaker.failing_since) * 1000) if breaker.failing_since else None,
        next_probe_at=rfc3339_ms((now + left) * 1000) if left > 0.0 else None,
        per_second=None if limit is None else round(limit, 3),
        paused_until=rfc3339_ms((now + pace.not_before) * 1000) if pace.not_before > 0.0 else None,
    )


def endpoints(targets: ChangedTargets, ledger: AdminLedger, clock: Clock) -> list[Endpoint]:
    """The operators' endpoints about targets."""
    administration = TargetAdministration(targets, ledger, clock)
    return [
        Endpoint(
            method="GET",
            path=_PATH,
            call=administration.list,
            name="listTargets",
            summary="Show every endpoint in trouble, and everything that calls keep a pace for",
            answers=(Answer(status=200, description="The worst first", kind=TargetList),),
            **_FOR_OPERATORS,
        ),
        Endpoint(
            method="POST",
            path=f"{_PATH}/enable",
            call=administration.enable,
            name="enableEndpoint",
            summary="Call an endpoint again that its breaker keeps calls from",
            description="The breaker closes with nothing counted, also one that was disabled after failing for days. "
            "Dead letters of the endpoint stay until somebody redrives them.",
            override=True,
            body=EnableBody,
            body_examples={
                "repaired": {"provider": "webhook", "endpoint": "hooks.example.org:443", "reason": "The owner says so"}
            },
            answers=(Answer(status=200, description="It is called again", kind=Enabled),),
            problems=("NOT_FOUND",),
            **_FOR_OPERATORS,
        ),
    ]
