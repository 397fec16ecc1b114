"""Redrives of what a gate skipped, over HTTP."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from carillon.domain.admin import SkippedLedger
from carillon.domain.consent import Categories
from carillon.domain.lanes import Lanes
from carillon.upkeep.api.admin_wire import Rate
from carillon.upkeep.api.notifications_wire import ChannelWord, Id, Moment, Reason
from carillon.upkeep.redriving import redrive_skipped, skipped_action, skipped_plan
from carillon.web import About, Answer, Callers, Endpoint, Reply, Request, in_body
from carillon.web.request import unix_ms

_PATH = "/api/v1/admin"
Ids = Annotated[list[Id], Meta(min_length=1, max_length=1000)]


class RedriveSkippedBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """Which skipped routes are evaluated again, how fast, and why; without a filter, all of them."""

    reason: Reason
    dry_run: bool = False
    rate_per_second: Rate | None = None
    gate: (
        Annotated[Literal["suppressed", "category", "throttle"], Meta(description="The gate that skipped them.")] | None
    ) = None
    notification_ids: Ids | None = None
    channel: ChannelWord | None = None
    template_key: Id | None = None
    tenant_id: Id | None = None
    user_id: Id | None = None
    skipped_after: Moment | None = None
    skipped_before: Moment | None = None


class RedrivenSkipped(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """What matched, what was redriven, and what stays because a gate still holds it."""

    dry_run: bool
    matched: int
    redriven: int
    by_gate: dict[str, int]
    """How many of `matched` each gate had skipped."""
    held: dict[str, int]
    """How many of them each gate holds still; a dry run asks no throttle."""
    action_id: int | None


def endpoints(ledger: SkippedLedger, lanes: Lanes, categories: Categories) -> list[Endpoint]:
    """The endpoint, which asks for X-Admin-Override."""

    async def redrive(request: Request) -> Reply:
        body = request.json(RedriveSkippedBody)
        filters = _filters(body) | request.reach.filters()
        action = skipped_action(
            actor=request.caller.actor, reason=body.reason, filters=filters, rate=body.rate_per_second
        )
        how = skipped_plan(lanes, categories, rate=body.rate_per_second, dry_run=body.dry_run)
        done = await redrive_skipped(ledger, filters, how, action)
        answer = RedrivenSkipped(
            dry_run=body.dry_run,
            matched=sum(done.matched.values()),
            redriven=done.redriven,
            by_gate=done.matched,
            held=done.held,
            action_id=done.action_id,
        )
        return Reply(200, answer)

    return [_redrive(redrive)]


def _redrive(call: Any) -> Endpoint:  # noqa: ANN401 - a handler
    return Endpoint(
        method="POST",
        path=f"{_PATH}/redrive-skipped",
        call=call,
        name="redriveSkipped",
        summary="Evaluate again what a gate skipped",
        description="After a suppression was lifted, or a person chose a category again: each matching route passes "
        "the gates as they stand now, and what they hold stays skipped. `dryRun` only counts. What was replaced, "
        "cancelled, told in a digest, has expired or was reached on another channel stays as it is.",
        override=True,
        body=RedriveSkippedBody,
        body_examples={"lifted": {"reason": "The mailbox is back", "gate": "suppressed", "dryRun": True}},
        answers=(Answer(status=200, description="What matched and what was redriven", kind=RedrivenSkipped),),
        tag="Administration",
        about=About(callers=Callers.ADMINISTRATORS, tenant=in_body("tenantId")),
    )


def _filters(body: RedriveSkippedBody) -> dict[str, Any]:
    found = {
        "gate": body.gate,
        "notification_ids": body.notification_ids,
        "channel": body.channel,
        "notification_type": body.template_key,
        "user_id": body.user_id,
        "skipped_after_ms": None if body.skipped_after is None else unix_ms(body.skipped_after, "skippedAfter"),
        "skipped_before_ms": None if body.skipped_before is None else unix_ms(body.skipped_before, "skippedBefore"),
    }
    return {name: value for name, value in found.items() if value is not None}
