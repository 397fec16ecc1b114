"""The administrators' endpoints: retry, redrive, the state of providers, and the audit trail."""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from msgspec import UNSET

from carillon.domain.admin import AdminAction
from carillon.domain.breaker import State
from carillon.domain.lanes import Lanes
from carillon.domain.notifications import Status, Story
from carillon.domain.ports import Clock, Ids
from carillon.domain.suppressions import SUPPRESSED
from carillon.upkeep.api.admin_wire import (
    ACTIONS,
    FAILED,
    ActionPage,
    AuditQuery,
    CauseCount,
    FailedPage,
    FailedQuery,
    RedriveFailedBody,
    RedrivenFailed,
    RedrivePage,
    RedrivesQuery,
    Retried,
    RetryBody,
    StopBody,
    StoppedRedrive,
    action_page,
    failed_page,
    redrive_page,
)
from carillon.upkeep.api.notifications import OperatorLedger, notification
from carillon.upkeep.api.providers_wire import ProviderList, provider_list
from carillon.upkeep.redriving import last_turn_ms, redrive_action, redrive_failed, redrive_plan
from carillon.web import (
    ADMINISTRATORS,
    About,
    Answer,
    Callers,
    Endpoint,
    Found,
    Owned,
    Problem,
    Reply,
    Request,
    in_body,
)
from carillon.web.problems import rfc3339_ms
from carillon.web.request import unix_ms

NEWEST = 1000
"""The number of recent attempts that the state of providers is computed from."""
_PATH = "/api/v1/admin"
_NUMBER = re.compile(r"[0-9]{1,18}")
_FOR_ADMINISTRATORS: dict[str, Any] = {"tag": "Administration", "about": ADMINISTRATORS}
_EXAMPLE_ID = "0198d2a4-5c1e-7d30-9a57-3f0c2b9e4d11"

_REDRIVES = {
    "count": {"reason": "SendGrid was down", "channel": "email", "dryRun": True},
    "slowly": {"reason": "SendGrid was down", "channel": "email", "ratePerSecond": 20},
    "chosen": {
        "reason": "This one asked",
        "items": [{"notificationId": _EXAMPLE_ID, "routeId": "email:email:ada@example.org"}],
    },
}


class ViewedStates(Protocol):
    """Breakers whose states can be read."""

    async def look(self, providers: Collection[str]) -> dict[str, State]:
        """The state of each, as the whole fleet sees it."""
        ...


class Administration:
    """Answers the administrators' endpoints."""

    def __init__(
        self,
        ledger: OperatorLedger,
        breakers: ViewedStates,
        chains: Mapping[str, Sequence[str]],
        lanes: Lanes,
        *,
        clock: Clock,
        ids: Ids,
    ) -> None:
        self.ledger = ledger
        self._breakers = breakers
        self._chains = chains
        self._lanes = lanes
        self._clock = clock
        self._ids = ids

    async def retry(self, request: Request) -> Reply:
        body = request.json(RetryBody)
        story: Story = request.found
        dead = [route for route in story.routes if route["status"] == Status.DEAD_LETTER]
        if not dead:
            raise _not_retryable()
        channels = self._channels(dead, body.force_provider)
        retry_id = self._ids()
        redriven = 0
        for channel in channels:
            action = self._retry_action(request, body, story, retry_id)
            chosen = {"notification_id": story.notification["notification_id"], "channel": channel}
            how = redrive_plan(self._lanes, provider=body.force_provider, forced=body.force_provider is not None)
            redriven += (await self.ledger.redrive(chosen, how, len(dead), action)).count
        if not redriven:
            chosen = {"notification_id": story.notification["notification_id"]}
            raise _held_back() if (await self.ledger.failed_counts(chosen)).suppressed else _not_retryable()
        return Reply(200, self._retried(story, retry_id, [route for route in dead if route["channel"] in channels]))

    async def failed(self, request: Request) -> Reply:
        query = request.query(FailedQuery)
        place, offset = FAILED.place(query.cursor, query.page_number, query.page_size)
        filters = _given(query) | request.reach.filters() | place
        rows, total = await self.ledger.failed(filters, query.page_size + 1, offset)
        return Reply(200, failed_page(rows, total, query))

    async def redrive(self, request: Request) -> Reply:
        body = request.json(RedriveFailedBody)
        filters = {**_given(body), **_named(body), **request.reach.filters()}
        counts = await self.ledger.failed_counts(filters)
        redriven, action_id = 0, None
        if not body.dry_run:
            done = await redrive_failed(
                self.ledger,
                filters,
                redrive_plan(self._lanes, rate=body.rate_per_second),
                redrive_action(
                    actor=request.caller.actor,
                    reason=body.reason,
                    filters=filters,
                    matched=counts.total,
                    rate=body.rate_per_second,
                ),
                counts,
            )
            redriven, action_id = done.count, done.action_id
        possible = counts.total - counts.suppressed
        last = last_turn_ms(counts, possible if body.dry_run else redriven, body.rate_per_second)
        answer = RedrivenFailed(
            dry_run=body.dry_run,
            matched=counts.total,
            redriven=redriven,
            by_cause=[CauseCount(**cause) for cause in counts.by_cause],
            last_turn_at=None if last is None else rfc3339_ms(last),
            action_id=action_id,
            suppressed=counts.suppressed,
        )
        return Reply(200, answer)

    async def redrives(self, request: Request) -> Reply:
        query = request.query(RedrivesQuery)
        place, offset = ACTIONS.place(query.cursor, query.page_number, query.page_size)
        filters = {"action": "redrive", **request.reach.filters(), **place}
        rows, total = await self.ledger.actions(filters, query.page_size + 1, offset)
        became = await self.ledger.redriven([row["action_id"] for row in rows])
        return Reply(200, redrive_page(rows, became, total, query))

    async def find_redrive(self, action_id: str, tenant_id: str | None) -> Found | None:
        if not _NUMBER.fullmatch(action_id):
            return None
        row = await self.ledger.action(int(action_id))
        if row is None or row["action"] != "redrive" or (tenant_id is not None and row["tenant_id"] != tenant_id):
            return None
        return Found(row, row["tenant_id"], None, None)

    async def stop_redrive(self, request: Request) -> Reply:
        body = request.json(StopBody)
        row = request.found
        subject = str(row["action_id"])
        action = AdminAction(
            actor=request.caller.actor,
            action="stop_redrive",
            reason=body.reason,
            tenant_id=row["tenant_id"],
            subject=subject,
            detail={},
        )
        return Reply(200, StoppedRedrive(await self.ledger.stop_redrive(row["action_id"], action)))

    async def providers(self, request: Request) -> Reply:
        names = {name for chain in self._chains.values() for name in chain}
        states = await self._breakers.look(names)
        recent = await self.ledger.recent_outcomes(request.reach.tenant_id, NEWEST)
        return Reply(200, provider_list(self._chains, states, recent))

    async def audit(self, request: Request) -> Reply:
        query = request.query(AuditQuery)
        asked = {"actor": query.actor, "action": query.action, "subject": query.subject}
        filters: dict[str, Any] = {name: value for name, value in asked.items() if value is not UNSET}
        if query.after is not UNSET:
            filters["after_ms"] = unix_ms(query.after, "after")
        place, offset = ACTIONS.place(query.cursor, query.page_number, query.page_size)
        filters |= request.reach.filters() | place
        rows, total = await self.ledger.actions(filters, query.page_size + 1, offset)
        return Reply(200, action_page(rows, total, query))

    def _channels(self, dead: Sequence[Mapping[str, Any]], provider: str | None) -> list[str]:
        channels = list(dict.fromkeys(str(route["channel"]) for route in dead))
        if provider is None:
            return channels
        able = [channel for channel in channels if provider in self._chains.get(channel, ())]
        if not able:
            raise Problem("UNKNOWN_PROVIDER", f"{provider} is not a provider of {' or '.join(channels)}")
        return able

    def _retry_action(self, request: Request, body: RetryBody, story: Story, retry_id: str) -> AdminAction:
        detail = {"retryAttemptId": retry_id}
        if body.force_provider is not None:
            detail["forceProvider"] = body.force_provider
        return AdminAction(
            actor=request.caller.actor,
            action="retry",
            reason=body.reason,
            tenant_id=story.notification["tenant_id"],
            subject=story.notification["notification_id"],
            detail=detail,
        )

    def _retried(self, story: Story, retry_id: str, routes: Sequence[Mapping[str, Any]]) -> Retried:
        how = redrive_plan(self._lanes)
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
    ledger: OperatorLedger,
    breakers: ViewedStates,
    chains: Mapping[str, Sequence[str]],
    lanes: Lanes,
    *,
    clock: Clock,
    ids: Ids,
) -> list[Endpoint]:
    """The administrators' endpoints; those that change something ask for X-Admin-Override."""
    administration = Administration(ledger, breakers, chains, lanes, clock=clock, ids=ids)
    return [*_changing(administration), _stopping(administration), _coming(administration), *_reading(administration)]


def _changing(administration: Administration) -> list[Endpoint]:
    return [
        Endpoint(
            method="POST",
            path=f"{_PATH}/notifications/{{id}}/retry",
            call=administration.retry,
            name="retryNotification",
            summary="Try a failed notification again",
            description="It keeps its id and its history and gets a fresh budget. A forced provider is called first, "
            "whatever its breaker says.",
            override=True,
            path_examples={"id": _EXAMPLE_ID},
            body=RetryBody,
            body_examples={"forced": {"reason": "Customer escalation", "forceProvider": "AWS_SNS"}},
            answers=(Answer(status=200, description="It waits for its next attempt", kind=Retried),),
            problems=("UNKNOWN_PROVIDER", "NOT_RETRYABLE"),
            tag="Administration",
            about=About(callers=Callers.ADMINISTRATORS, owned=notification(administration.ledger)),
        ),
        Endpoint(
            method="POST",
            path=f"{_PATH}/redrive",
            call=administration.redrive,
            name="redriveFailed",
            summary="Try every failed notification again that matches",
            description="`dryRun` only counts. `items` names up to 1000 of them one by one. `ratePerSecond` gives each "
            "its turn, so that a provider that is just back is not flooded; the turns are kept in the ledger.",
            override=True,
            body=RedriveFailedBody,
            body_examples=_REDRIVES,
            answers=(Answer(status=200, description="What matched and what was redriven", kind=RedrivenFailed),),
            tag="Administration",
            about=About(callers=Callers.ADMINISTRATORS, tenant=in_body("tenantId")),
        ),
    ]


def _stopping(administration: Administration) -> Endpoint:
    return Endpoint(
        method="POST",
        path=f"{_PATH}/redrives/{{id}}/stop",
        call=administration.stop_redrive,
        name="stopRedrive",
        summary="Stop a redrive",
        description="Its routes that wait for their turn are dead letters again, or skipped, with their old reason. "
        "What was attempted already, or is in a provider's call, goes on.",
        override=True,
        path_examples={"id": "7"},
        body=StopBody,
        body_examples={"stop": {"reason": "The provider is down again"}},
        answers=(Answer(status=200, description="How many were stopped", kind=StoppedRedrive),),
        tag="Administration",
        about=About(
            callers=Callers.ADMINISTRATORS,
            owned=Owned(param="id", find=administration.find_redrive, missing="there is no such redrive"),
        ),
    )


def _coming(administration: Administration) -> Endpoint:
    return Endpoint(
        method="GET",
        path=f"{_PATH}/redrives",
        call=administration.redrives,
        name="listRedrives",
        summary="Show how far each redrive came, newest first",
        query=RedrivesQuery,
        answers=(Answer(status=200, description="One page", kind=RedrivePage),),
        **_FOR_ADMINISTRATORS,
    )


def _reading(administration: Administration) -> list[Endpoint]:
    return [
        Endpoint(
            method="GET",
            path=f"{_PATH}/failed-notifications",
            call=administration.failed,
            name="listFailedNotifications",
            summary="List failed notifications, newest first",
            query=FailedQuery,
            answers=(Answer(status=200, description="One page", kind=FailedPage),),
            **_FOR_ADMINISTRATORS,
        ),
        Endpoint(
            method="GET",
            path=f"{_PATH}/providers",
            call=administration.providers,
            name="listProviders",
            summary="Show every provider with its breaker and its newest attempts",
            answers=(Answer(status=200, description="Every provider in use", kind=ProviderList),),
            **_FOR_ADMINISTRATORS,
        ),
        Endpoint(
            method="GET",
            path=f"{_PATH}/audit",
            call=administration.audit,
            name="listActions",
            summary="List what operators did, newest first",
            query=AuditQuery,
            answers=(Answer(status=200, description="One page", kind=ActionPage),),
            **_FOR_ADMINISTRATORS,
        ),
    ]


def _not_retryable() -> Problem:
    return Problem("NOT_RETRYABLE", "only failed notifications can be retried")


def _held_back() -> Problem:
    return Problem("NOT_RETRYABLE", f"{SUPPRESSED}: lift the suppression first")


def _given(asked: FailedQuery | RedriveFailedBody) -> dict[str, Any]:
    found = {
        "channel": asked.channel,
        "classification": asked.classification,
        "provider": asked.provider,
        "notification_type": asked.template_key,
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
