"""The endpoint that lists digests: which are open, how many events wait in each, and what became of the others."""

from typing import Any, Protocol

import msgspec
from msgspec import UNSET, UnsetType

from carillon.domain.store import Row
from carillon.upkeep.api.notifications_wire import Page, PageSize
from carillon.web import ADMINISTRATORS, Answer, Endpoint, Problem, Reply, Request
from carillon.web.problems import rfc3339_ms

_DEEPEST = 10_000


class ListedDigests(Protocol):
    """Digests as an operator reads them."""

    async def digests(self, filters: dict[str, Any], limit: int, offset: int) -> tuple[list[Row], int]:
        """One page of digests, the newest first, and how many match."""
        ...


class DigestQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """Which digests to list."""

    page: Page = 1
    page_size: PageSize = 50
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


class DigestPage(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One page of digests, the newest first."""

    items: list[DigestView]
    total_count: int
    page_number: int
    page_size: int


def endpoints(ledger: ListedDigests) -> list[Endpoint]:
    """The endpoints about digests."""

    async def show(request: Request) -> Reply:
        query = request.query(DigestQuery)
        if query.page * query.page_size > _DEEPEST:
            raise Problem("VALIDATION_ERROR", f"only the first {_DEEPEST} can be paged through")
        filters: dict[str, Any] = {} if query.open is UNSET else {"open": query.open}
        if not request.reach.every_tenant:
            filters["tenant_id"] = request.reach.tenant_id or ""
        rows, total = await ledger.digests(filters, query.page_size, (query.page - 1) * query.page_size)
        items = [_view(row) for row in rows]
        return Reply(200, DigestPage(items=items, total_count=total, page_number=query.page, page_size=query.page_size))

    return [
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
        )
    ]


def _view(row: Row) -> DigestView:
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
