"""What the stream and inbox endpoints take and give: JSON bodies, and server-sent events as bytes."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from carillon.domain.streams import Entry
from carillon.web.paging import Cursor
from carillon.web.problems import rfc3339_ms

UserId = Annotated[str, Meta(max_length=255, description="Whose; a token's own user needs none.")]
Before = Annotated[int, Meta(ge=1, le=2**62, description="Only what stands before this number.")]
NotificationIds = Annotated[list[str], Meta(max_length=1000)]
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
    cursor: Cursor | UnsetType = UNSET
    archived: Annotated[bool, Meta(description="True shows the archive instead.")] = False
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


class ReadBody(msgspec.Struct, frozen=True):
    """Which; all without it."""

    notification_ids: NotificationIds | None = None
    read: Annotated[bool, Meta(description="False marks as unread again.")] = True


class ArchiveBody(msgspec.Struct, frozen=True):
    """Which; without it everything that is read."""

    notification_ids: NotificationIds | None = None
    archived: Annotated[bool, Meta(description="False moves back to the inbox.")] = True


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
    is_archived: bool = False


class Inbox(msgspec.Struct, frozen=True):
    """The newest first."""

    user_id: str
    notifications: list[InboxEntry]
    count: int
    next_cursor: str | None = None
    """Goes on after the last one; null at the end."""


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
    """How many were unread; or read, if they were marked as unread."""

    user_id: str
    marked: int


class Archived(msgspec.Struct, frozen=True):
    """How many have moved."""

    user_id: str
    moved: int


PRIORITIES = {1: "HIGH", 2: "MEDIUM", 3: "LOW"}
_LINE_ENDS = frozenset("\r\n")
_MOST_SHARED = 4


class SseNotification(msgspec.Struct, frozen=True):
    """The data of a notification event."""

    notification_id: str
    event_type: str
    priority: str
    event_timestamp: str
    payload: msgspec.Raw


def sse_notification(entry: Entry) -> SseNotification:
    return SseNotification(
        entry.notification_id,
        entry.event_type,
        PRIORITIES.get(entry.priority, "MEDIUM"),
        rfc3339_ms(entry.event_timestamp_ms),
        payload_of(entry),
    )


def payload_of(entry: Entry) -> msgspec.Raw:
    """The payload in one line: a line end would end the field."""
    text = entry.payload_json
    if not _LINE_ENDS.isdisjoint(text):
        text = msgspec.json.encode(msgspec.json.decode(text)).decode()
    return msgspec.Raw(text.encode())


def connected(after: int, retry_ms: int) -> bytes:
    """The first event; its id is the position from which the reader resumes if no other event follows."""
    return b'event: connected\ndata: {"status":"connected"}\nretry: %d\nid: %d\n\n' % (retry_ms, after)


def notifications(entries: Sequence[Entry]) -> bytes:
    """One event for each entry; its id is the position from which a reader resumes."""
    return _written_once(tuple(entries)) if len(entries) <= _MOST_SHARED else _written(entries)


# Many readers get the same entry at the same time: encode it once. Not for long catch-ups, which one reader needs.
@lru_cache(maxsize=8)
def _written_once(entries: tuple[Entry, ...]) -> bytes:
    return _written(entries)


def _written(entries: Sequence[Entry]) -> bytes:
    return b"".join(
        b"id: %d\nevent: notification\ndata: %b\n\n" % (entry.seq, msgspec.json.encode(sse_notification(entry)))
        for entry in entries
    )


def gap(missed_after: int, oldest: int) -> bytes:
    """The entries that the reader asks for were pruned; the inbox has the rest."""
    return b'event: gap\ndata: {"last_event_id":%d,"oldest":%d}\n\n' % (missed_after, oldest)


def changed() -> bytes:
    """The person has marked or archived something; the reader loads what it shows again."""
    return b"event: changed\ndata: {}\n\n"


def heartbeat(unix_ms: float) -> bytes:
    return b'event: heartbeat\ndata: {"timestamp":"%b"}\n\n' % rfc3339_ms(unix_ms).encode()


def closing(reason: str) -> bytes:
    """The connection ends; the reader should reconnect, and loses nothing."""
    return b'event: closing\ndata: {"reason":"%b"}\n\n' % reason.encode()


def in_inbox(entry: Entry) -> InboxEntry:
    """What a list of a person's notifications says of one."""
    told = sse_notification(entry)
    return InboxEntry(
        told.notification_id,
        told.event_type,
        told.priority,
        told.event_timestamp,
        _read_payload(told.payload),
        entry.seq or None,
        entry.read,
        entry.delivered,
        entry.archived,
    )


_read_payload: Callable[[msgspec.Raw], dict[str, object]] = msgspec.json.Decoder(dict[str, object]).decode
