"""The server-sent events of a stream, as bytes."""

from collections.abc import Sequence
from functools import lru_cache

import msgspec

from carillon.domain.streams import Entry
from carillon.web.problems import rfc3339_ms

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


def heartbeat(unix_ms: float) -> bytes:
    return b'event: heartbeat\ndata: {"timestamp":"%b"}\n\n' % rfc3339_ms(unix_ms).encode()


def closing(reason: str) -> bytes:
    """The connection ends; the reader should reconnect, and loses nothing."""
    return b'event: closing\ndata: {"reason":"%b"}\n\n' % reason.encode()
