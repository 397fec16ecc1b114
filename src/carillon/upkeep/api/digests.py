"""The endpoint that lists digests: which are open, how many events wait in each, and what became of the others."""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import msgspec
from msgspec import UNSET, UnsetType

from carillon.domain.store import Row
from carillon.upkeep.api.notifications_wire import Page, PageSize
from carillon.web import ADMINISTRATORS, Answer, Endpoint, Problem, Reply, Request
from carillon.web.paging import Cursor, CursorShape, counts
from carillon.web.problems import rfc3339_ms

MOST_EVENTS = 200
_LISTED = CursorShape("digests", {"before_us": ("place", int), "before_id": ("digest_id", str)})


class ListedDigests(Protocol):
    """Digests as an operator reads them."""

    async def digests(self, filters: dict[str, Any], limit: int, offset: int) -> tuple[list[Row], int]:
        """One page of digests, the newest first, and how many match."""
        ...

    async def digest_contents(self, digest_id: str, limit: int) -> list[Row]:
        """One digest with its events, one row each, the oldest first."""
        ...


class DigestQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """Which digests to list."""

    page: Page = 1
    page_size: PageSize = 50
    cursor: Cursor | UnsetType = UNSET
    open: bool | UnsetType = UNSET
    """Only those that are not told yet, or only those that are."""


class DigestView(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One digest."""

    id: str
    """Also the id of the notification that tells it."""
    tenant_id: str | None
    recipient: str
    channels: list[str]
    key: str
    events: int
    opened_at: str
    closes_at: str
    told_at: str | None
    error: str | None
    """Why it can never be told."""


class DigestEvent(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One event of a digest."""

    notification_id: str
    template_key: str | None
    """None if the event is no longer kept."""
    category: str | None
    accepted_at: str | None


class DigestContents(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One digest with its first events, the oldest first."""

    digest: DigestView
    events: list[DigestEvent]


class DigestPage(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One page of digests, the newest first."""

    items: list[DigestView]
    total_count: int | None
    """None behind a cursor: only pages are counted."""
    page_number: int | None
    page_size: int
    total_pages: int | None
    next_cursor: str | None
    """Goes on after the last item; None at the end."""


def endpoints(ledger: ListedDigests) -> list[Endpoint]:
    """The endpoints about digests."""

    async def show(request: Request) -> Reply:
        query = request.query(DigestQuery)
        place, offset = _LISTED.place(query.cursor, query.page, query.page_size)
        filters: dict[str, Any] = {} if query.open is UNSET else {"open": query.open}
        if not request.reach.every_tenant:
            filters["tenant_id"] = request.reach.tenant_id or ""
        found, total = await ledger.digests({**filters, **place}, query.page_size + 1, offset)
        rows, cursor = _LISTED.cut(found, query.page_size, found)
        figures = counts(query.cursor, query.page, query.page_size, total)
        return Reply(200, DigestPage(items=[digest_view(row) for row in rows], next_cursor=cursor, **figures))

    async def contents(request: Request) -> Reply:
        rows = await ledger.digest_contents(request.params["id"], MOST_EVENTS)
        tenant = request.reach.tenant_id or ""
        if not rows or not (request.reach.every_tenant or rows[0]["tenant_id"] == tenant):
            raise Problem("NOT_FOUND", "there is no digest with this id")
        events = [_event(row) for row in rows if row["notification_id"] is not None]
        return Reply(200, DigestContents(digest=digest_view(rows[0]), events=events))

    return [
        _show(contents),
        Endpoint(
            method="GET",
            path="/api/v1/digests",
            call=show,
            name="listDigests",
            summary="List digests, newest first",
            tag="Digests",
            about=ADMINISTRATORS,
            query=DigestQuery,
            answers=(Answer(status=200, description="One page", kind=DigestPage),),
        ),
    ]


def _show(contents: Callable[[Request], Awaitable[Reply]]) -> Endpoint:
    return Endpoint(
        method="GET",
        path="/api/v1/digests/{id}",
        call=contents,
        name="showDigest",
        summary="Show one digest and its events",
        description=f"At most {MOST_EVENTS} events, the oldest first.",
        tag="Digests",
        about=ADMINISTRATORS,
        path_examples={"id": "0198d2a4-5c1e-7d30-9a57-3f0c2b9e4d11"},
        answers=(Answer(status=200, description="The digest", kind=DigestContents),),
        problems=("NOT_FOUND",),
    )


def _event(row: Row) -> DigestEvent:
    accepted = row["accepted_at"]
    return DigestEvent(
        notification_id=row["notification_id"],
        template_key=row["notification_type"],
        category=row["category"],
        accepted_at=None if accepted is None else rfc3339_ms(accepted),
    )


def digest_view(row: Row) -> DigestView:
    return DigestView(
        id=row["digest_id"],
        tenant_id=row["tenant_id"] or None,
        recipient=row["audience"],
        channels=row["channels"].split(","),
        key=row["digest_key"],
        events=row["event_count"],
        opened_at=rfc3339_ms(row["opened_at"]),
        closes_at=rfc3339_ms(row["closes_at"]),
        told_at=None if row["told_at"] is None else rfc3339_ms(row["told_at"]),
        error=row["error"],
    )
