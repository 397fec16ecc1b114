"""The endpoints for suppressions: list, add and lift."""

import datetime as dt
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from carillon.domain.addresses import canonical
from carillon.domain.admin import AdminAction
from carillon.domain.ports import Clock
from carillon.domain.suppressions import SHARED, Suppression, SuppressionLedger, unfit_suppression
from carillon.web import (
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
    in_query,
)
from carillon.web.paging import Cursor, CursorShape, counts
from carillon.web.problems import Detail, rfc3339_ms
from carillon.web.request import convert

_PATH = "/api/v1/suppressions"
_TAG = "Suppressions"
_MISSING = "there is no such suppression"
_DIGITS = 18
"""Every number of a suppression fits; longer ones are none of the ledger's."""
_LISTED = CursorShape("suppressions", {"before_us": ("place", int), "before_id": ("suppression_id", int)})

Word = Annotated[str, Meta(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,63}\Z")]
Address = Annotated[str, Meta(pattern=r"^[^\x00-\x1f\x7f]{1,2000}\Z")]
Tenant = Annotated[str, Meta(pattern=r"^[A-Za-z0-9._:-]{1,64}\Z")]
Reason = Annotated[str, Meta(pattern=r"^[^\x00-\x1f\x7f]{1,500}\Z")]
Moment = Annotated[
    str, Meta(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ].{1,30}\Z", extra_json_schema={"format": "date-time"})
]
Page = Annotated[int, Meta(ge=1, le=10_000)]
PageSize = Annotated[int, Meta(ge=1, le=200)]


Note = Callable[[AdminAction], Awaitable[int]]
"""Writes into the audit trail."""
Kind = Literal["bounced", "complained", "unsubscribed", "invalid", "manual"]
Yes = Annotated[Literal["true"], Meta(description="Only those that hold for every tenant; for operators only.")]
"""A word, because loose conversion would read `1` as a truth too."""


class SuppressionView(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One address that nothing more is sent to; without a tenant it holds for everybody."""

    id: int
    kind: str
    """bounced, complained, unsubscribed, invalid or manual."""
    channel: str
    address: str
    tenant_id: str | None
    reason: str
    source: str
    created_at: str
    expires_at: str | None


class SuppressionPage(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One page of suppressions, newest first."""

    items: list[SuppressionView]
    total_count: int | None
    """None behind a cursor: only pages are counted."""
    page_number: int | None
    page_size: int
    total_pages: int | None
    next_cursor: str | None
    """Goes on after the last item; None at the end."""


class SuppressionQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """Which suppressions to list."""

    page: Page = 1
    page_size: PageSize = 20
    cursor: Cursor | UnsetType = UNSET
    channel: Word | UnsetType = UNSET
    address: Address | UnsetType = UNSET
    tenant_id: Tenant | UnsetType = UNSET
    source: Word | UnsetType = UNSET
    kind: Kind | UnsetType = UNSET
    shared: Yes | UnsetType = UNSET


class SuppressionKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """The name of one suppression."""

    channel: Word
    address: Address
    tenant_id: Tenant | None = None


class SuppressionBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """An address to leave alone, why, and until when; without an end it is for ever."""

    channel: Word
    address: Address
    reason: Reason
    tenant_id: Tenant | None = None
    expires_at: Moment | None = None


class Removed(msgspec.Struct, frozen=True):
    """How many suppressions ended."""

    removed: int


def endpoints(ledger: SuppressionLedger, clock: Clock, note: Note) -> list[Endpoint]:
    """List, add and lift; a caller with a tenant changes that tenant's own only."""
    handlers = _Suppressions(ledger, clock, note)
    listing = Endpoint(
        method="GET",
        path=_PATH,
        call=handlers.show,
        name="listSuppressions",
        summary="List the addresses that nothing more is sent to",
        description="A caller who acts for a tenant sees that tenant's own, and with `address` also what holds for "
        "every tenant about this address. Suppressions that are over are not listed.",
        tag=_TAG,
        about=About(callers=Callers.ADMINISTRATORS, tenant=in_query("tenantId")),
        query=SuppressionQuery,
        answers=(Answer(status=200, description="One page", kind=SuppressionPage),),
    )
    return [listing, *_changes(handlers), _lifting(handlers)]


def _changes(handlers: "_Suppressions") -> list[Endpoint]:
    example = {"channel": "email", "address": "ada@example.org", "reason": "asked on the phone"}
    return [
        Endpoint(
            method="POST",
            path=_PATH,
            call=handlers.add,
            name="addSuppression",
            summary="Send nothing more to an address",
            description="One that is there already only grows longer; the answer is what holds now. Without a tenant "
            "it holds for every tenant.",
            tag=_TAG,
            about=About(callers=Callers.ADMINISTRATORS, tenant=in_body("tenantId")),
            body=SuppressionBody,
            body_examples={"forEver": example},
            answers=(Answer(status=200, description="It holds", kind=SuppressionView),),
        ),
        Endpoint(
            method="DELETE",
            path=_PATH,
            call=handlers.remove,
            name="removeSuppression",
            summary="Send to an address again",
            tag=_TAG,
            about=About(callers=Callers.ADMINISTRATORS, tenant=in_query("tenantId")),
            query=SuppressionKey,
            answers=(Answer(status=200, description="Done", kind=Removed, example={"removed": 1}),),
            problems=("NOT_FOUND",),
        ),
    ]


def _lifting(handlers: "_Suppressions") -> Endpoint:
    return Endpoint(
        method="DELETE",
        path=f"{_PATH}/{{id}}",
        call=handlers.lift,
        name="liftSuppression",
        summary="Send to an address again, by the number of its suppression",
        tag=_TAG,
        about=About(callers=Callers.ADMINISTRATORS, owned=Owned(param="id", find=handlers.find, missing=_MISSING)),
        path_examples={"id": "1"},
        answers=(Answer(status=200, description="Done", kind=Removed, example={"removed": 1}),),
        problems=("NOT_FOUND",),
    )


class _Suppressions:
    def __init__(self, ledger: SuppressionLedger, clock: Clock, note: Note) -> None:
        self._ledger = ledger
        self._clock = clock
        self._note = note

    async def show(self, request: Request) -> Reply:
        query = request.query(SuppressionQuery)
        place, offset = _LISTED.place(query.cursor, query.page, query.page_size)
        names = ("channel", "address", "source", "kind")
        filters = {name: getattr(query, name) for name in names if getattr(query, name) is not UNSET}
        filters |= request.reach.filters()
        if query.shared is not UNSET and request.reach.every_tenant:
            filters["tenant_id"] = SHARED
        found, total = await self._ledger.suppressions({**filters, **place}, query.page_size + 1, offset)
        rows, cursor = _LISTED.cut(found, query.page_size, found)
        page = SuppressionPage(
            items=[_view(row) for row in rows],
            next_cursor=cursor,
            **counts(query.cursor, query.page, query.page_size, total),
        )
        return Reply(200, page)

    async def add(self, request: Request) -> Reply:
        body = request.json(SuppressionBody)
        wrong = unfit_suppression(body.channel, body.address)
        if wrong is not None:
            raise Problem("VALIDATION_ERROR", wrong[1], details=[Detail(wrong[1], wrong[0])])
        tenant, address = request.reach.tenant_id or "", canonical(body.channel, body.address)
        until_ms = None if body.expires_at is None else self._end_of(body.expires_at)
        asked = Suppression(body.channel, address, tenant, body.reason, "operator", until_ms=until_ms)
        await self._ledger.suppress([asked])
        key = {"channel": body.channel, "address": address, "tenant_id": tenant}
        rows, _ = await self._ledger.suppressions(key, 2, 0)
        own = [row for row in rows if row["tenant_id"] == tenant]
        if not own:
            raise Problem("CONFLICT", "it ended before it could be shown")
        reason = body.reason.replace(body.address, "the address")
        await self._noted(request, "suppress", tenant, body.channel, own[0]["suppression_id"], reason=reason)
        return Reply(200, _view(own[0]))

    async def remove(self, request: Request) -> Reply:
        query = request.query(SuppressionKey)
        tenant = request.reach.tenant_id or ""
        if not await self._ledger.unsuppress(query.channel, query.address, tenant):
            raise Problem("NOT_FOUND", _MISSING)
        await self._noted(request, "unsuppress", tenant, query.channel, None)
        return Reply(200, Removed(1))

    async def find(self, suppression_id: str, tenant_id: str | None) -> Found | None:
        """The suppression of this number, if the caller may change it."""
        del tenant_id
        known = suppression_id.isascii() and suppression_id.isdigit() and len(suppression_id) <= _DIGITS
        row = await self._ledger.suppression(int(suppression_id)) if known else None
        return None if row is None else Found(row, row["tenant_id"] or None, None)

    async def lift(self, request: Request) -> Reply:
        row = request.found
        if not await self._ledger.unsuppress(row["channel"], row["address"], row["tenant_id"]):
            raise Problem("NOT_FOUND", _MISSING)
        await self._noted(request, "unsuppress", row["tenant_id"], row["channel"], row["suppression_id"])
        return Reply(200, Removed(1))

    async def _noted(
        self, request: Request, action: str, tenant: str, channel: str, number: int | None, *, reason: str | None = None
    ) -> None:
        """Who did it, in the audit trail: by the suppression's number, because the trail holds no address."""
        done = AdminAction(
            actor=request.caller.actor,
            action=action,
            reason=reason,
            tenant_id=tenant or None,
            subject=None if number is None else str(number),
            detail={"channel": channel},
        )
        await self._note(done)

    def _end_of(self, text: str) -> int:
        moment = convert(text, dt.datetime, prefix="expiresAt")
        if moment.tzinfo is None:
            raise Problem("VALIDATION_ERROR", "expiresAt needs an offset from UTC", details=[_about("no offset")])
        if moment.timestamp() <= self._clock.wall():
            raise Problem("VALIDATION_ERROR", "expiresAt is over already", details=[_about("in the past")])
        return round(moment.timestamp() * 1000)


def _about(message: str) -> Detail:
    return Detail(message, "expiresAt")


def _view(row: dict[str, Any]) -> SuppressionView:
    expires = row["expires_at"]
    return SuppressionView(
        id=row["suppression_id"],
        kind=row["kind"],
        channel=row["channel"],
        address=row["address"],
        tenant_id=row["tenant_id"] or None,
        reason=row["reason"],
        source=row["source"],
        created_at=rfc3339_ms(row["created_at"]),
        expires_at=None if expires is None else rfc3339_ms(expires),
    )
