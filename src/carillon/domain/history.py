"""Ended routes for history: how each ended, when, through which provider, and how long it took."""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Protocol

import msgspec


class Mark(msgspec.Struct, frozen=True, order=True):
    """A place in the order in which routes were last changed; the first mark is before everything."""

    changed_us: int = 0
    notification_id: str = ""
    route_id: str = ""


class Cursor(msgspec.Struct, frozen=True):
    """How far history has come, and up to when nothing can turn up any more that is not yet to be seen."""

    mark: Mark
    until_us: int


class EndedRoute(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One route that has ended; times are Unix microseconds. No address and no payload: neither is needed to count."""

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
    """When it was scheduled for; None is at once."""
    ended_us: int
    delivered_us: int | None

    @property
    def mark(self) -> Mark:
        """Where it stands."""
        return Mark(self.changed_us, self.notification_id, self.route_id)

    @property
    def latency_ms(self) -> int:
        """From when it could first be sent to its end."""
        return max(0, self.ended_us - max(self.accepted_us, self.wanted_us or 0)) // 1000

    @property
    def route(self) -> int:
        """A number in the place of the route's id, which may hold an address."""
        return int.from_bytes(blake2b(self.route_id.encode(), digest_size=8).digest())


class HistoryLedger(Protocol):
    """Where history is read from; every method raises LedgerUnavailable and has then done nothing."""

    async def take_history(self, owner: str, lease_seconds: float, lag_seconds: float) -> Cursor | None:
        """Be the one that keeps history until the lease ends; None while somebody else is.

        `until_us` lies so far back that every change before it is committed: what is read up to there is complete.
        """
        ...

    async def endings(self, after: Mark, until_us: int, limit: int) -> list[EndedRoute]:
        """What has ended and was last changed after the mark and before that time, in this order."""
        ...

    async def advance_history(self, owner: str, to: Mark) -> bool:
        """Everything up to here is kept; False, and nothing written, when somebody else keeps history by now."""
        ...

    async def rewind_history(self, to_us: int) -> None:
        """Copy again everything that changed since then; the running copier starts over."""
        ...


class Archive(Protocol):
    """Where history is kept; the same ending may come again and counts once."""

    async def add(self, endings: Sequence[EndedRoute]) -> None:
        """Keep them all, or raise ArchiveUnavailable and have kept any part of them."""
        ...
