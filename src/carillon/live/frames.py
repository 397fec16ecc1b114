"""Server-sent events: what stands on the wire of a stream."""

from collections.abc import Sequence
from functools import lru_cache

import msgspec

from carillon.domain.streams import Entry
from carillon.web.problems import rfc3339_ms

PRIORITIES = {1: "HIGH", 2: "MEDIUM", 3: "LOW"}
_LINE_ENDS = frozenset("\r\n")
_MOST_SHARED = 4


class Told(msgspec.Struct, frozen=True):
    """A notification as its reader sees it."""

    notification_id: str
    event_type: str
    priority: str
    event_timestamp: str
    payload: msgspec.Raw


def told(entry: Entry) -> Told:
    return Told(
        entry.notification_id,
        entry.event_type,
        PRIORITIES.get(entry.priority, "MEDIUM"),
        rfc3339_ms(entry.event_timestamp_ms),
        payload_of(entry),
    )


def payload_of(entry: Entry) -> msgspec.Raw:
    """The payload as it was written down; on one line, because a line's end is the frame's own."""
    text = entry.payload_json
    if not _LINE_ENDS.isdisjoint(text):
        text = msgspec.json.encode(msgspec.json.decode(text)).decode()
    return msgspec.Raw(text.encode())


def connected(after: int, retry_ms: int) -> bytes:
    """The first frame; its id is where the reader resumes who hears nothing before it has to."""
    return b'event: connected\ndata: {"status":"connected"}\nretry: %d\nid: %d\n\n' % (retry_ms, after)


def notifications(entries: Sequence[Entry]) -> bytes:
    """One frame each; the number is what a reader resumes from."""
    return _written_once(tuple(entries)) if len(entries) <= _MOST_SHARED else _written(entries)


# A crowd is told the same at the same time: the frames are made for the first of them and kept for the others. Not what
# somebody catches up with, which may be much and is nobody else's.
@lru_cache(maxsize=8)
def _written_once(entries: tuple[Entry, ...]) -> bytes:
    return _written(entries)


def _written(entries: Sequence[Entry]) -> bytes:
    return b"".join(
        b"id: %d\nevent: notification\ndata: %b\n\n" % (entry.seq, msgspec.json.encode(told(entry)))
        for entry in entries
    )


def gap(missed_after: int, oldest: int) -> bytes:
    """What the reader asks for is not kept any more; its inbox shows what is."""
    return b'event: gap\ndata: {"last_event_id":%d,"oldest":%d}\n\n' % (missed_after, oldest)


def heartbeat(unix_ms: float) -> bytes:
    return b'event: heartbeat\ndata: {"timestamp":"%b"}\n\n' % rfc3339_ms(unix_ms).encode()


def closing(reason: str) -> bytes:
    """Come again: nothing is lost."""
    return b'event: closing\ndata: {"reason":"%b"}\n\n' % reason.encode()
