"""Live connections: the seats of readers at one replica, the post between replicas, tickets that open a stream."""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Protocol

import msgspec

from carillon.domain.tail import Tail


class Seat:
    """One connection that reads one person's log."""

    __slots__ = ("closing", "key", "tail", "user_id", "wake")

    def __init__(self, user_id: str, key: str, tail: Tail, wake: Callable[[], None]) -> None:
        """`key` is whoever may have only so many seats."""
        self.user_id = user_id
        self.key = key
        self.tail = tail
        self.wake = wake
        """Say that there may be something to write, or that it is time to go."""
        self.closing = False
        """The replica stops: the reader should come again, and will find another."""


class Seated(StrEnum):
    """What becomes of somebody who asks for a seat."""

    SEATED = "seated"
    FULL = "full"
    """This replica serves as many as it may."""
    CROWDED = "crowded"
    """This key has as many seats as it may."""
    CLOSING = "closing"


class Seats(Protocol):
    """The seats of one replica, as those see them who sit down."""

    @property
    def taken(self) -> int:
        """How many read here now."""
        ...

    def join(self, seat: Seat) -> Seated:
        """From here on the seat is told of whatever is appended."""
        ...

    def wrote(self, seat: Seat) -> None:
        """The seat's cursor has moved: the kernel has what stands before it."""
        ...

    def part(self, seat: Seat) -> None:
        """The connection is gone; again is harmless."""
        ...


class Post(Protocol):
    """Letters between replicas; one may be lost, and whoever needs an answer waits only so long."""

    async def send(self, letters: Mapping[str, Sequence[str]]) -> None:
        """Replica to its letters; never raises for what the network did."""
        ...

    async def run(self, replica: str, heard: Callable[[str], None]) -> None:
        """Hear this replica's letters until cancelled; connections that break are made again."""
        ...


class Ticket(msgspec.Struct, frozen=True, kw_only=True):
    """Who may read what for how long, without showing a token in a URL."""

    user_id: str
    """The person's own id."""
    tenant_id: str | None = None
    expires_at_ms: int | None = None
    """When the token ends that the ticket was given for."""
    token_id: str | None = None
    """The token's `jti`, by which it can be taken back."""


class TicketLedger(Protocol):
    """Where tickets are kept, by the digest of their text."""

    async def add_ticket(self, digest: str, ticket: Ticket, seconds: float) -> None:
        """Good for opening one stream within so many seconds; raises LedgerUnavailable."""
        ...

    async def open_ticket(self, digest: str, seconds: float) -> Ticket | None:
        """Use it up, once in the whole fleet; for so many seconds it still tells who acknowledges."""
        ...

    async def ticket(self, digest: str) -> Ticket | None:
        """Whose it is, while it or the stream it opened may live."""
        ...
