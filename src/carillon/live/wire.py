"""What the stream and inbox endpoints take and give."""

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

UserId = Annotated[str, Meta(max_length=255, description="Whose; a token's own user needs none.")]
Before = Annotated[int, Meta(ge=1, le=2**62, description="Only what stands before this number.")]
TicketText = Annotated[str, Meta(description="A one-use ticket instead of a token.")]


class StreamQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whose stream, and after which notification."""

    user_id: UserId = ""
    last_event_id: Annotated[str, Meta(description="As the header Last-Event-ID, which goes before.")] = ""
    ticket: TicketText = ""


class PersonQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who asks, where no token says so."""

    user_id: UserId = ""
    ticket: TicketText = ""


class InboxQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which page."""

    limit: Annotated[int, Meta(ge=1, le=100)] = 100
    before: Before | UnsetType = UNSET
    ticket: TicketText = ""


class TicketBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """For whom."""

    user_id: UserId = ""


class TicketView(msgspec.Struct, frozen=True):
    """What opens one stream."""

    ticket: str
    user_id: str
    expires_in: float
    """Seconds."""


class AnswerBody(msgspec.Struct, frozen=True):
    """Who answers; nothing at all where a token says so."""

    user_id: UserId = ""
    ticket: str = ""


class ReadBody(msgspec.Struct, frozen=True):
    """Which; all without it."""

    notification_ids: Annotated[list[str], Meta(max_length=1000)] | None = None
    ticket: str = ""


class InboxEntry(msgspec.Struct, frozen=True):
    """A notification in somebody's inbox."""

    notification_id: str
    event_type: str
    priority: str
    event_timestamp: str
    payload: dict[str, Any]
    seq: int | None
    """Its number in the stream; null until it is pushed."""
    is_read: bool
    is_delivered: bool


class Inbox(msgspec.Struct, frozen=True):
    """The newest first."""

    user_id: str
    notifications: list[InboxEntry]
    count: int


class Unread(msgspec.Struct, frozen=True):
    """How many there are, and how many of them are unread."""

    user_id: str
    total: int
    unread: int


class Acknowledged(msgspec.Struct, frozen=True):
    """The notification has reached its reader."""

    notification_id: str
    status: str = "delivered"


class MarkedRead(msgspec.Struct, frozen=True):
    """How many were unread."""

    user_id: str
    marked: int
