"""Live connections: the seats of readers at one replica, the bus between replicas, tickets that open a stream."""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Protocol

import msgspec

from carillon.domain.tail import Tail


class Seat:
    """One connection that reads one person's log."""

    __slots__ = ("closing", "key", "tail", "user_id", "wake")

    def __init__(self, user_id: str, key: str, tail: Tail, wake: Callable[[], None]) -> None:
        """`key` names the caller whose number of seats is limited."""
        self.user_id = user_id
        self.key = key
        self.tail = tail
        self.wake = wake
        """Wakes the connection: there are new entries, or it must end."""
        self.closing = False
        """The replica stops: the reader should reconnect to another one."""


class Seated(StrEnum):
    """The answer to a request for a seat."""

    SEATED = "seated"
    FULL = "full"
    """The replica has reached its limit."""
    CROWDED = "crowded"
    """The key has reached its limit."""
    CLOSING = "closing"


class Seats(Protocol):
    """The seats of one replica, as a connection uses them."""

    @property
    def taken(self) -> int:
        """How many connections read here now."""
        ...

    def join(self, seat: Seat) -> Seated:
        """Take a seat; from then on it gets every new entry."""
        ...

    def wrote(self, seat: Seat) -> None:
        """The cursor of the seat has moved: the kernel has every entry before it."""
        ...

    def part(self, seat: Seat) -> None:
        """Give the seat back; repeating it is harmless."""
        ...


class NotifyBus(Protocol):
    """Messages between replicas; a message may be lost, so a sender that needs an answer has a timeout."""

    async def send(self, messages: Mapping[str, Sequence[str]]) -> None:
        """Send each replica its messages; never raises for a network error."""
        ...

    async def run(self, replica: str, receive: Callable[[str], None]) -> None:
        """Receive this replica's messages until cancelled; reopens broken connections."""
        ...


class Ticket(msgspec.Struct, frozen=True, kw_only=True):
    """The right to open one stream, in place of a token in a URL."""

    user_id: str
    """The person's own id."""
    tenant_id: str | None = None
    expires_at_ms: int | None = None
    """When the token expires for which the ticket was issued."""
    token_id: str | None = None
    """The `jti` of the token, by which it can be revoked."""


class TicketLedger(Protocol):
    """Where tickets are kept, by the digest of their text."""

    async def add_ticket(self, digest: str, ticket: Ticket, seconds: float) -> None:
        """Store a ticket that opens one stream within `seconds`; raises LedgerUnavailable."""
        ...

    async def open_ticket(self, digest: str, seconds: float) -> Ticket | None:
        """Use the ticket, once in the whole fleet; for `seconds` more it identifies the reader of that stream."""
        ...

    async def ticket(self, digest: str) -> Ticket | None:
        """The ticket, while it or its stream is valid."""
        ...
