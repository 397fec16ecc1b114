"""Ended routes for history: how each ended, when, through which provider, and how long it took."""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Protocol

import msgspec


class Mark(msgspec.Struct, frozen=True, order=True):
    """A position in the order in which routes were last changed; the default is before all of them."""

    changed_us: int = 0
    notification_id: str = ""
    route_id: str = ""


class Cursor(msgspec.Struct, frozen=True):
    """The mark up to which history is copied, and the time before which every change is visible."""

    mark: Mark
    until_us: int


class EndedRoute(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One ended route; times are Unix microseconds. It has no address and no payload: statistics need neither."""

    changed_us: int
    notification_id: str
    route_id: str
    notification_type: str
    producer: str
    tenant_id: str | None
    user_id: str | None
    channel: str
    provider: str
    lane: int
    status: str
    attempts: int
    error: str | None
    accepted_us: int
    wanted_us: int | None
    """The scheduled time; None if the route was due at once."""
    ended_us: int
    delivered_us: int | None

    @property
    def mark(self) -> Mark:
        """The route's position."""
        return Mark(self.changed_us, self.notification_id, self.route_id)

    @property
    def latency_ms(self) -> int:
        """Milliseconds between the time the route was first due and its end."""
        return max(0, self.ended_us - max(self.accepted_us, self.wanted_us or 0)) // 1000

    @property
    def route(self) -> int:
        """A number that replaces the route's id, because the id may contain an address."""
        return int.from_bytes(blake2b(self.route_id.encode(), digest_size=8).digest())


class HistoryLedger(Protocol):
    """The ledger as the copier of history uses it; a method that raises LedgerUnavailable has changed nothing."""

    async def take_history(self, owner: str, lease_seconds: float, lag_seconds: float) -> Cursor | None:
        """Lease the copying of history to `owner`; None while another process holds the lease.

        `until_us` lies so far back that every change before it is committed, so a read up to it is complete.
        """
        ...

    async def endings(self, after: Mark, until_us: int, limit: int) -> list[EndedRoute]:
        """Ended routes that were last changed after the mark and before `until_us`, in the order of their marks."""
        ...

    async def still_there(self, notification_ids: Sequence[str]) -> set[str]:
        """Which of these notifications the ledger still has."""
        ...

    async def advance_history(self, owner: str, to: Mark) -> bool:
        """Store the mark up to which history is copied; False, and nothing written, if the lease was lost."""
        ...

    async def rewind_history(self, to_us: int) -> None:
        """Copy every change since `to_us` again; the running copier starts over from there."""
        ...


class Archive(Protocol):
    """The archive of ended routes; a route that is added twice counts once."""

    async def add(self, endings: Sequence[EndedRoute]) -> None:
        """Store all of them; after ArchiveUnavailable, any part of them may be stored."""
        ...

    async def forget_notifications(self, notification_ids: Sequence[str]) -> None:
        """Remove the lines of notifications; returns once they are gone."""
        ...
