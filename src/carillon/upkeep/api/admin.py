"""What administrators do over HTTP: retry by hand, redrive many, look at providers, and read who did what."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from msgspec import UNSET

from carillon.domain.admin import AdminAction, AdminLedger
from carillon.domain.breaker import State
from carillon.domain.lanes import Lanes
from carillon.domain.notifications import Status, Story
from carillon.domain.ports import Clock, Ids, UpkeepLedger
from carillon.upkeep.api.admin_declared import declared
from carillon.upkeep.api.admin_view import action_page, failed_page, provider_list, redrive_page
from carillon.upkeep.api.admin_wire import (
    AuditQuery,
    CauseCount,
    FailedQuery,
    RedriveFailedBody,
    RedrivenFailed,
    RedrivesQuery,
    Retried,
    RetryBody,
)
from carillon.upkeep.api.moments import unix_ms
from carillon.upkeep.redriving import last_turn_ms, redrive_action, redrive_failed, revival
from carillon.web import Endpoint, Problem, Reply, Request
from carillon.web.problems import rfc3339_ms

NEWEST = 1000
"""Attempts that providers are judged by."""
_DEEPEST = 10_000


class Ledger(AdminLedger, UpkeepLedger, Protocol):
    """What both rooms ask."""


class Watched(Protocol):
    """Breakers that can be looked at."""

    async def look(self, providers: Collection[str]) -> dict[str, State]:
        """The state of each, as the whole fleet sees it."""
        ...


class Office:
    """What the endpoints are answered from."""

    def __init__(
        self,
        ledger: Ledger,
        breakers: Watched,
        chains: Mapping[str, Sequence[str]],
        lanes: Lanes,
        *,
        clock: Clock,
        ids: Ids,
    ) -> None:
        self._ledger = ledger
        self._breakers = breakers
        self._chains = chains
        self._lanes = lanes
        self._clock = clock
        self._ids = ids

    async def retry(self, request: Request) -> Reply:
        _insist_on_override(request)
        body = await request.json(RetryBody)
        story = await self._ledger.story(request.params["id"], request.caller.tenant_id)
        if story is None:
            raise Problem("NOT_FOUND", "there is no notification with this id")
        dead = [route for route in story.routes if route["status"] == Status.DEAD_LETTER]
        if not dead:
            raise _not_retryable()
        channels = self._channels(dead, body.force_provider)
        retry_id = self._ids()
        revived = 0
        for channel in channels:
            action = self._retry_action(request, body, story, retry_id)
            chosen = {"notification_id": story.notification["notification_id"], "channel": channel}
            how = revival(self._lanes, provider=body.force_provider, forced=body.force_provider is not None)
            revived += (await self._ledger.revive(chosen, how, len(dead), action)).count
        if not revived:
            raise _not_retryable()
        return Reply(200, self._retried(story, retry_id, [route for route in dead if route["channel"] in channels]))

    async def failed(self, request: Request) -> Reply:
        query = request.query(FailedQuery)
        filters = _scoped(request, _given(query, request.caller.tenant_id))
        rows, total = await self._ledger.failed(filters, query.page_size, _offset(query))
        return Reply(200, failed_page(rows, total, query.page_number, query.page_size))

    async def redrive(self, request: Request) -> Reply:
        _insist_on_override(request)
        body = await request.json(RedriveFailedBody)
        filters = _scoped(request, {**_given(body, body.tenant_id), **_named(body)})
        counts = await self._ledger.failed_counts(filters)
        redriven, action_id = 0, None
        if not body.dry_run:
            done = await redrive_failed(
                self._ledger,
                filters,
                revival(self._lanes, rate=body.rate_per_second),
                redrive_action(
                    actor=_actor(request),
                    reason=body.reason,
                    filters=filters,
                    matched=counts.total,
                    rate=body.rate_per_second,
                ),
                counts,
            )
            redriven, action_id = done.count, done.action_id
        last = last_turn_ms(counts, counts.total if body.dry_run else redriven, body.rate_per_second)
        answer = RedrivenFailed(
            dry_run=body.dry_run,
            matched=counts.total,
            redriven=redriven,
            by_cause=[CauseCount(**cause) for cause in counts.by_cause],
            last_turn_at=None if last is None else rfc3339_ms(last),
            action_id=action_id,
        )
        return Reply(200, answer)

    async def redrives(self, request: Request) -> Reply:
        query = request.query(RedrivesQuery)
        filters = _scoped(request, {"action": "redrive"})
        rows, total = await self._ledger.actions(filters, query.page_size, _offset(query))
        became = await self._ledger.redriven([row["action_id"] for row in rows])
        return Reply(200, redrive_page(rows, became, total, query.page_number, query.page_size))

    async def providers(self, request: Request) -> Reply:
        names = {name for chain in self._chains.values() for name in chain}
        states = await self._breakers.look(names)
        recent = await self._ledger.recent_outcomes(request.caller.tenant_id, NEWEST)
        return Reply(200, provider_list(self._chains, states, recent))

    async def audit(self, request: Request) -> Reply:
        query = request.query(AuditQuery)
        asked = {"actor": query.actor, "action": query.action, "subject": query.subject}
        filters: dict[str, Any] = {name: value for name, value in asked.items() if value is not UNSET}
        if query.after is not UNSET:
            filters["after_ms"] = unix_ms(query.after, "after")
        rows, total = await self._ledger.actions(_scoped(request, filters), query.page_size, _offset(query))
        return Reply(200, action_page(rows, total, query.page_number, query.page_size))

    def _channels(self, dead: Sequence[Mapping[str, Any]], provider: str | None) -> list[str]:
        channels = list(dict.fromkeys(str(route["channel"]) for route in dead))
        if provider is None:
            return channels
        able = [channel for channel in channels if provider in self._chains.get(channel, ())]
        if not able:
            raise Problem("UNKNOWN_PROVIDER", f"{provider} is no provider of {' or '.join(channels)}")
        return able

    def _retry_action(self, request: Request, body: RetryBody, story: Story, retry_id: str) -> AdminAction:
        detail = {"retryAttemptId": retry_id}
        if body.force_provider is not None:
            detail["forceProvider"] = body.force_provider
        return AdminAction(
            actor=_actor(request),
            action="retry",
            reason=body.reason,
            tenant_id=story.notification["tenant_id"],
            subject=story.notification["notification_id"],
            detail=detail,
        )

    def _retried(self, story: Story, retry_id: str, routes: Sequence[Mapping[str, Any]]) -> Retried:
        how = revival(self._lanes)
        ranks = [how.instead if route["lane"] in how.unqueued else route["lane"] for route in routes]
        latest = max(self._lanes.by_rank(rank).max_latency_seconds for rank in ranks)
        return Retried(
            success=True,
            notification_id=story.notification["notification_id"],
            retry_attempt_id=retry_id,
            status="queued",
            estimated_delivery_time=rfc3339_ms((self._clock.wall() + latest) * 1000),
        )


def endpoints(
    ledger: Ledger,
    breakers: Watched,
    chains: Mapping[str, Sequence[str]],
    lanes: Lanes,
    *,
    clock: Clock,
    ids: Ids,
) -> list[Endpoint]:
    """The administrators' endpoints; those that change something ask for X-Admin-Override."""
    return declared(Office(ledger, breakers, chains, lanes, clock=clock, ids=ids))


def _insist_on_override(request: Request) -> None:
    if (request.header(b"x-admin-override") or "").lower() != "true":
        raise Problem("ADMIN_OVERRIDE_REQUIRED", "this changes deliveries by hand; say X-Admin-Override: true")


def _not_retryable() -> Problem:
    return Problem("NOT_RETRYABLE", "only what has failed can be retried")


def _actor(request: Request) -> str:
    return request.caller.sub or "anonymous"


def _given(asked: FailedQuery | RedriveFailedBody, tenant_id: str | None) -> dict[str, Any]:
    found = {
        "channel": asked.channel,
        "classification": asked.classification,
        "provider": asked.provider,
        "notification_type": asked.template_key,
        "tenant_id": tenant_id,
        "failed_after_ms": _ms(asked.failed_after, "failedAfter"),
        "failed_before_ms": _ms(asked.failed_before, "failedBefore"),
    }
    return {name: value for name, value in found.items() if value is not UNSET and value is not None}


def _named(body: RedriveFailedBody) -> dict[str, Any]:
    if body.items is None:
        return {}
    return {"letters": sorted({(item.notification_id, item.route_id) for item in body.items})}


def _ms(moment: Any, field: str) -> int | None:  # noqa: ANN401 - text, None or UNSET
    return unix_ms(moment, field) if isinstance(moment, str) else None


def _scoped(request: Request, filters: dict[str, Any]) -> dict[str, Any]:
    tenant = request.caller.tenant_id
    if tenant is None:
        return filters
    if filters.get("tenant_id", tenant) != tenant:
        raise Problem("FORBIDDEN", "this token acts for another tenant")
    return {**filters, "tenant_id": tenant}


def _offset(query: FailedQuery | AuditQuery | RedrivesQuery) -> int:
    if query.page_number * query.page_size > _DEEPEST:
        raise Problem("VALIDATION_ERROR", f"only the first {_DEEPEST} can be paged through: narrow the search")
    return (query.page_number - 1) * query.page_size
