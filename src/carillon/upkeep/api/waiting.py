"""The endpoints that cancel and change what waits, by id, key or filter; a dry run counts first."""

from typing import Any, Protocol

import msgspec
from msgspec import UNSET, UnsetType

from carillon.domain.admin import AdminAction, AdminLedger, WaitingChange, WaitingCount, WaitingLedger
from carillon.domain.errors import BadIntent
from carillon.domain.ports import Clock
from carillon.domain.timing import timing_of
from carillon.upkeep.api.notifications_wire import ChannelWord, Id, Moment
from carillon.web import ADMINISTRATORS, Answer, Endpoint, Problem, Reply, Request
from carillon.web.about import Reach
from carillon.web.request import unix_ms

_PATH = "/api/v1/notifications"
_NAMES = {"template_key": "notification_type", "service_origin": "origin"}
"""The ledger's name of a filter, where it differs."""
_PLAIN = (
    *("notification_id", "idempotency_key", "collapse_key", "user_id"),
    *("template_key", "service_origin", "channel"),
)


class ChangedWaiting(AdminLedger, WaitingLedger, Protocol):
    """Changes what waits, and records who did so."""


class WaitingSelection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """Which waiting notifications; every field that is given must match."""

    notification_id: Id | UnsetType = UNSET
    idempotency_key: Id | UnsetType = UNSET
    collapse_key: Id | UnsetType = UNSET
    user_id: Id | UnsetType = UNSET
    template_key: Id | UnsetType = UNSET
    service_origin: Id | UnsetType = UNSET
    channel: ChannelWord | UnsetType = UNSET
    accepted_after: Moment | UnsetType = UNSET
    accepted_before: Moment | UnsetType = UNSET
    dry_run: bool = False
    """True only counts."""


class WaitingTimes(WaitingSelection, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """The same, with the new time."""

    scheduled_for: Moment | UnsetType = UNSET
    expires_at: Moment | UnsetType = UNSET
    ttl: float | str | UnsetType = UNSET


class WaitingAnswer(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """What matched, and what became of it."""

    notifications: int
    waiting: int
    """Routes and events of digests that waited."""
    too_late: int
    """Routes that a worker holds: their call is not interrupted."""
    done: int
    """Routes that were cancelled or changed; 0 after a dry run."""


class _Waiting:
    def __init__(self, ledger: ChangedWaiting, clock: Clock) -> None:
        self._ledger = ledger
        self._clock = clock

    async def cancel(self, request: Request) -> Reply:
        body = request.json(WaitingSelection)
        return _reply(await cancel_waiting(self._ledger, body, request.caller.actor, request.reach))

    async def change(self, request: Request) -> Reply:
        body = request.json(WaitingTimes)
        now = self._clock.wall()
        return _reply(await change_waiting(self._ledger, body, now, request.caller.actor, request.reach))


async def cancel_waiting(
    ledger: ChangedWaiting, body: WaitingSelection, actor: str, reach: Reach | None = None
) -> WaitingCount:
    """Cancel what a caller selects and reaches, or count it; raises Problem."""
    filters = _filters(body, reach)
    if body.dry_run:
        return await ledger.count_waiting(filters)
    done = await ledger.cancel_waiting(filters)
    await record(ledger, "cancel_waiting", {"filters": filters, "done": done.done}, actor, reach)
    return done


async def change_waiting(
    ledger: ChangedWaiting, body: WaitingTimes, now: float, actor: str, reach: Reach | None = None
) -> WaitingCount:
    """Give what a caller selects and reaches another time, or count it; raises Problem."""
    filters, times = _filters(body, reach), _times(body, now)
    if body.dry_run:
        return await ledger.count_waiting(filters)
    done = await ledger.change_waiting(filters, times)
    await record(ledger, "change_waiting", {"filters": filters, "done": done.done}, actor, reach)
    return done


def endpoints(ledger: ChangedWaiting, clock: Clock) -> list[Endpoint]:
    """The endpoints about what waits."""
    handlers = _Waiting(ledger, clock)
    answers = (Answer(status=200, description="What matched", kind=WaitingAnswer),)
    return [
        Endpoint(
            method="POST",
            about=ADMINISTRATORS,
            path=f"{_PATH}/cancel",
            call=handlers.cancel,
            name="cancelWaiting",
            summary="Cancel what waits, by key or filter",
            description="`dryRun` counts first. What a worker holds is counted as `tooLate`: its call is not "
            "interrupted, and it is not tried again.",
            body=WaitingSelection,
            body_examples={"by key": {"idempotencyKey": "order-7", "dryRun": True}},
            answers=answers,
        ),
        Endpoint(
            method="POST",
            about=ADMINISTRATORS,
            path=f"{_PATH}/change",
            call=handlers.change,
            name="changeWaiting",
            summary="Give what waits another time",
            description="`scheduledFor` moves what was not tried yet; `expiresAt` and `ttl` say until when it is sent.",
            body=WaitingTimes,
            body_examples={"later": {"collapseKey": "score", "scheduledFor": "2096-01-01T00:00:00Z", "dryRun": True}},
            answers=answers,
        ),
    ]


def _filters(body: WaitingSelection, reach: Reach | None) -> dict[str, Any]:
    said = msgspec.structs.asdict(body)
    found = {_NAMES.get(name, name): said[name] for name in _PLAIN if said[name] is not UNSET}
    if body.accepted_after is not UNSET:
        found["accepted_after_ms"] = unix_ms(body.accepted_after, "acceptedAfter")
    if body.accepted_before is not UNSET:
        found["accepted_before_ms"] = unix_ms(body.accepted_before, "acceptedBefore")
    if not found:
        raise Problem("VALIDATION_ERROR", "say which notifications: give an id, a key or a filter")
    return found | ({} if reach is None else reach.filters())


def _times(body: WaitingTimes, now: float) -> WaitingChange:
    said = {"expiresAt": body.expires_at, "ttl": body.ttl}
    try:
        timing = timing_of({name: value for name, value in said.items() if value is not UNSET})
    except BadIntent as error:
        raise Problem("VALIDATION_ERROR", str(error)) from None
    scheduled = None if body.scheduled_for is UNSET else unix_ms(body.scheduled_for, "scheduledFor")
    expires = timing.expiry(now)
    if scheduled is None and expires is None:
        raise Problem("VALIDATION_ERROR", "give scheduledFor, expiresAt or ttl")
    return WaitingChange(scheduled_for_ms=scheduled, expires_at_ms=expires)


async def record(ledger: AdminLedger, action: str, detail: dict[str, Any], actor: str, reach: Reach | None) -> None:
    """Who did it, in the audit trail."""
    tenant_id, subject = None if reach is None else reach.tenant_id, detail["filters"].get("notification_id")
    await ledger.note_action(
        AdminAction(actor=actor, action=action, tenant_id=tenant_id, subject=subject, detail=detail)
    )


def _reply(found: WaitingCount) -> Reply:
    return Reply(200, WaitingAnswer(**msgspec.structs.asdict(found)))
