"""The endpoints about single receivers of webhooks: how they do, and replaying what went to one since a time."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from carillon.domain.lanes import Lanes
from carillon.domain.targets import EndpointHealth, EndpointProvider, parts_of
from carillon.upkeep.api.admin_wire import ProviderName, Rate
from carillon.upkeep.api.notifications_wire import Id, Moment, Reason
from carillon.upkeep.redriving import redrive_plan
from carillon.upkeep.replaying import ReplayingLedger, ReplayScope, count_replay, replay, replay_action
from carillon.web import OPERATORS, About, Answer, Callers, Endpoint, Problem, Reply, Request, in_body
from carillon.web.problems import rfc3339_ms
from carillon.web.request import unix_ms

MOST = 1000
"""At most so many endpoints are shown, those called last first."""
Everywhere = Callable[[], Awaitable[Mapping[str, EndpointHealth]]]
"""How calls to endpoints went lately, by target, over all processes."""
Receivers = Mapping[str, EndpointProvider]
"""The providers whose routes call many receivers, by name."""


class ReplayBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """What is sent again to which endpoint, how fast, and why."""

    endpoint: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=2000,
            description="`host:port`, as the list of targets shows it, or a URL: a registered URL is an endpoint of "
            "its own, other URLs stand for their host and port.",
        ),
    ]
    since: Annotated[Moment, Meta(description="What ended at this time or later.")]
    reason: Reason
    provider: Annotated[ProviderName, Meta(description="The provider that calls the endpoint.")] = "webhook"
    delivered: Annotated[bool, Meta(description="Also what the endpoint took since then.")] = False
    dry_run: Annotated[bool, Meta(description="Count, and change nothing.")] = False
    rate_per_second: Rate | None = None
    tenant_id: Id | None = None


class ReplayAnswer(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """What matched, what was replayed, and when the last one has its turn."""

    provider: str
    endpoint: str
    """The name of the endpoint, as the list of targets shows it."""
    dry_run: bool
    failed: int
    """Dead letters of the endpoint since then."""
    delivered: int
    """What the endpoint took since then; 0 where nobody asked for it."""
    suppressed: int
    """Those of both that stay as they are, because their address is suppressed."""
    replayed: int
    last_turn_at: str | None
    action_id: int | None
    """The redrive that shows the progress and can be stopped; None if nothing was replayed."""


class EndpointView(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One endpoint and how calls to it went in the last ten to twenty minutes, over all processes."""

    provider: str
    endpoint: str
    """`host:port`; a registered URL has a digest of its own behind it."""
    calls: int
    failures: int
    error_rate: float
    """The share of the calls that failed, 0 to 1."""
    average_ms: float
    slowest_ms: float
    last_success_at: str | None
    """The last call that the endpoint took; null if none succeeded in this time."""
    last_failure_at: str | None
    """The last call that failed; null if none failed in this time."""


class EndpointPage(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Every endpoint that was called lately, also those without any trouble."""

    items: list[EndpointView]
    total_count: int


class Replays:
    """Answers the endpoint."""

    def __init__(self, ledger: ReplayingLedger, receivers: Receivers, lanes: Lanes) -> None:
        self._ledger = ledger
        self._receivers = receivers
        self._lanes = lanes

    async def replay(self, request: Request) -> Reply:
        body = request.json(ReplayBody)
        receiver = self._receiver(body.provider)
        scope = ReplayScope(
            provider=body.provider,
            endpoint=_named(receiver, body.endpoint),
            since_ms=unix_ms(body.since, "since"),
            # A ledger's clock may tick in milliseconds: what ended in the millisecond of the count is counted.
            until_ms=await self._ledger.now_ms() + 1,
            delivered=body.delivered,
            tenant_id=request.reach.filters().get("tenant_id"),
        )
        counts, done, action_id = await count_replay(self._ledger, scope, receiver.endpoint), 0, None
        rate = body.rate_per_second
        if not body.dry_run and counts.total:
            actor = request.caller.actor
            action = replay_action(actor=actor, reason=body.reason, scope=scope, matched=counts.total, rate=rate)
            how = redrive_plan(self._lanes, rate=rate)
            result = await replay(self._ledger, scope, receiver.endpoint, how, action)
            done, action_id = result.count, result.action_id
        turns = counts.total - counts.suppressed if body.dry_run else done
        last = None if not turns else scope.until_ms + (0 if rate is None else (turns - 1) / rate * 1000)
        answer = ReplayAnswer(
            provider=scope.provider,
            endpoint=scope.endpoint,
            dry_run=body.dry_run,
            failed=counts.failed,
            delivered=counts.delivered,
            suppressed=counts.suppressed,
            replayed=done,
            last_turn_at=None if last is None else rfc3339_ms(last),
            action_id=action_id,
        )
        return Reply(200, answer)

    def _receiver(self, provider: str) -> EndpointProvider:
        found = self._receivers.get(provider)
        if found is None and not self._receivers:
            said = "no provider here calls endpoints of its own: redrive dead letters with POST /api/v1/admin/redrive"
            raise Problem("NOT_FOUND", said)
        if found is None:
            known = ", ".join(sorted(self._receivers))
            raise Problem("UNKNOWN_PROVIDER", f"{provider} calls no endpoints of its own; providers that do: {known}")
        return found


def _named(receiver: EndpointProvider, said: str) -> str:
    """The name of an endpoint: a URL by the provider's rule, other text as it is, in lower case as names are."""
    found = receiver.endpoint(said) if "://" in said else said.lower()
    if found is None:
        raise Problem("VALIDATION_ERROR", f"{said[:200]} names no host")
    return found


def _view(target: str, health: EndpointHealth) -> EndpointView:
    provider, endpoint = parts_of(target)
    return EndpointView(
        provider=provider,
        endpoint=endpoint or "",
        calls=health.calls,
        failures=health.failures,
        error_rate=round(health.failures / health.calls, 4),
        average_ms=round(health.total_ms / health.calls, 1),
        slowest_ms=round(health.slowest_ms, 1),
        last_success_at=rfc3339_ms(health.ok_at * 1000) if health.ok_at else None,
        last_failure_at=rfc3339_ms(health.failed_at * 1000) if health.failed_at else None,
    )


def health_endpoints(everywhere: Everywhere | None) -> list[Endpoint]:
    """How every endpoint does that was called lately, for operators; none does where no provider has endpoints."""

    async def show(_: Request) -> Reply:
        found = {} if everywhere is None else await everywhere()
        newest = sorted(found, key=lambda name: (-found[name].ended_at, name))
        items = [_view(name, found[name]) for name in newest[:MOST]]
        return Reply(200, EndpointPage(items=items, total_count=len(found)))

    return [
        Endpoint(
            method="GET",
            path="/api/v1/admin/endpoints",
            call=show,
            name="listEndpoints",
            summary="Show how every endpoint does that was called lately",
            description="Each process counts its calls and shares them every few seconds; nothing is read from the "
            "history. What breakers and operators keep calls from is in the list of targets.",
            tag="Administration",
            about=OPERATORS,
            answers=(Answer(status=200, description="Those called last first", kind=EndpointPage),),
        )
    ]


def endpoints(ledger: ReplayingLedger, receivers: Receivers, lanes: Lanes) -> list[Endpoint]:
    """The endpoint, which asks for X-Admin-Override."""
    example: dict[str, Any] = {"endpoint": "hooks.example.org:443", "since": "2026-01-31T08:00:00Z"}
    return [
        Endpoint(
            method="POST",
            path="/api/v1/admin/targets/replay",
            call=Replays(ledger, receivers, lanes).replay,
            name="replayEndpoint",
            summary="Send again what went to one endpoint since a time",
            description="Counts first with `dryRun`. Dead letters of the endpoint, and with `delivered` also what it "
            "took, get a fresh budget under their old ids, so that a receiver that remembers ids takes each once. They "
            "pass suppressions, pauses, breakers and rates as they stand. The replay is a redrive: the list of "
            "redrives shows how far it came, and a stop makes what waits for its turn what it was.",
            override=True,
            body=ReplayBody,
            body_examples={
                "count": {**example, "reason": "Their database was down", "dryRun": True},
                "slowly": {**example, "reason": "They lost an hour", "delivered": True, "ratePerSecond": 20},
            },
            answers=(Answer(status=200, description="What matched and what was replayed", kind=ReplayAnswer),),
            problems=("UNKNOWN_PROVIDER", "NOT_FOUND"),
            tag="Administration",
            about=About(callers=Callers.ADMINISTRATORS, tenant=in_body("tenantId")),
        )
    ]
