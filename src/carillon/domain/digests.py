"""Digests and throttles: many events of one person in one message, and at most so many of a category in a time."""

import datetime as dt
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol
from zoneinfo import ZoneInfo

import msgspec
from cronsim import CronSim, CronSimError

from carillon.domain.errors import BadIntent
from carillon.domain.intents import Intent
from carillon.domain.people import QuietHours
from carillon.domain.timing import Timing, duration

GATE = "digest"
WAITS = "gathered in a digest"
MOST = 1000
"""No digest has more events."""
USUAL = 100
LARGEST_BYTES = 256 * 1024
"""A digest whose events have so much data closes."""
_CRON_FIELDS = 5
THROTTLE = "throttle"
_SAID = re.compile(r"(\d{1,4}) in (\S+)")

Overflow = Literal["skip", "digest"]


class DigestEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One event on its way into the digest of one person; opens the digest if there is none."""

    digest_id: str
    """The id of the digest if this event opens it."""
    audience: str
    channels: str
    """With commas between them: events for other channels are other digests."""
    key: str
    closes_at_ms: int
    most: int
    size: int
    """The bytes of the event's data."""
    intent_json: str
    """The intent for this person, which the digest's own notification is made of."""
    quiet_hours: QuietHours | None = None
    """Those of the person; `explain` shows when a digest goes that closes in them."""


class GatheredEvent(msgspec.Struct, frozen=True):
    """One event of a digest that closes."""

    notification_id: str
    payload_json: str
    expires_at_ms: int | None = None


class DueDigest(msgspec.Struct, frozen=True, kw_only=True):
    """A digest that is closed and not told yet."""

    digest_id: str
    digest_key: str
    intent_json: str
    events: tuple[GatheredEvent, ...] = ()


class DigestLedger(Protocol):
    """The ledger as the closing of digests uses it."""

    async def close_digests(self, limit: int, lease_seconds: float) -> list[DueDigest]:
        """Close what is due and take it for so long; another process that asks meanwhile gets other digests."""
        ...

    async def told_digest(self, digest_id: str, error: str | None) -> None:
        """The digest's notification is stored, or never can be."""
        ...


def window_end(window: str, now: float, zone: str | None) -> float:
    """When a digest that opens now closes: after a duration, or at the next time of a cron line in this zone."""
    seconds = duration(window)
    if seconds is not None and seconds > 0.0:
        return now + seconds
    try:
        return next(CronSim(window, dt.datetime.fromtimestamp(now, ZoneInfo(zone or "UTC")))).timestamp()
    except (CronSimError, StopIteration) as error:
        raise _refused("window", f"{window!r} is no duration such as 1h and no cron line such as 0 9 * * *") from error


def check_window(window: str) -> None:
    """Raise BadIntent for what is neither a duration nor a cron line of five fields."""
    if duration(window) is None and len(window.split()) != _CRON_FIELDS:
        raise _refused("window", f"{window!r} is no duration such as 1h and no cron line such as 0 9 * * *")
    window_end(window, 0.0, None)


def _refused(field: str, why: str) -> BadIntent:
    return BadIntent("VALIDATION_ERROR", f"digest.{field}: {why}", field=f"digest.{field}")


def told_over(payloads: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The data of a digest's message: all events as `items`, their `count`, and the fields of the newest."""
    newest = payloads[-1] if payloads else {}
    return {**newest, "items": [dict(one) for one in payloads], "count": len(payloads)}


def digest_intent(due: DueDigest) -> Intent:
    """The intent that tells a digest; it keeps the digest's id, so that telling twice stores one notification."""
    first = msgspec.json.decode(due.intent_json, type=Intent)
    payloads = [msgspec.json.decode(event.payload_json, type=dict[str, Any]) for event in due.events]
    members = [event.notification_id for event in due.events]
    ends = [event.expires_at_ms for event in due.events if event.expires_at_ms is not None]
    return msgspec.structs.replace(
        first,
        notification_id=due.digest_id,
        payload=told_over(payloads),
        content={"digest": due.digest_id},
        idempotency_key=None,
        scheduled_for_ms=None,
        # A digest for several channels tries them one after the other too. It expires with the last of its events.
        timing=Timing(
            gathered=True,
            until=first.timing.until,
            after_seconds=first.timing.after_seconds,
            expires_at_ms=max(ends) if ends and len(ends) == len(members) else None,
        ),
        metadata={**first.metadata, "digest": {"key": due.digest_key, "count": len(members), "members": members}},
    )


class DigestRow(msgspec.Struct, kw_only=True):
    """An open digest while a batch of events joins it."""

    digest_id: str
    count: int
    size: int
    closed: bool = False
    joined: list[str] = msgspec.field(default_factory=list)
    """The notifications of this batch."""


def join(held: DigestRow | None, events: Sequence[tuple[str, DigestEntry]]) -> list[tuple[DigestRow, DigestEntry]]:
    """The digests that these events of one person and key go to, in order, each with the event that opened it.

    A digest that is full closes, and the next event opens another one.
    """
    found: list[tuple[DigestRow, DigestEntry]] = [] if held is None or not events else [(held, events[0][1])]
    for notification_id, entry in events:
        if not found or found[-1][0].closed:
            found.append((DigestRow(digest_id=entry.digest_id, count=0, size=0), entry))
        row = found[-1][0]
        row.joined.append(notification_id)
        row.count, row.size = row.count + 1, row.size + entry.size
        row.closed = row.count >= entry.most or row.size >= LARGEST_BYTES
    return found


class ThrottleRule(msgspec.Struct, frozen=True):
    """At most `most` notifications in `seconds`."""

    most: int
    seconds: float
    said: str
    overflow: Overflow = "skip"

    @property
    def reason(self) -> str:
        """The sentence of a route that is skipped."""
        return f"the person gets at most {self.said}"


class ThrottleEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One notification to one person that counts against a throttle."""

    audience: str
    category: str
    throttle: ThrottleRule
    instead: DigestEntry | None = None
    """The digest in which it is told if there are too many; without one it is skipped."""


def read_throttle(text: str, overflow: Overflow) -> ThrottleRule | None:
    """Read `3 in 1h`; None if the text says something else."""
    said = _SAID.fullmatch(text.strip())
    seconds = None if said is None else duration(said[2])
    if said is None or not seconds or not 1 <= int(said[1]) <= MOST:
        return None
    return ThrottleRule(int(said[1]), seconds, text.strip(), overflow)


def recent(times: list[int], throttle: ThrottleRule, now_ms: int) -> list[int]:
    """The times that still count; a window ends to the millisecond."""
    return [at for at in times if at > now_ms - throttle.seconds * 1000][-throttle.most :]


def is_full(times: list[int], throttle: ThrottleRule, now_ms: int) -> bool:
    """Whether one more would be too many."""
    return len(recent(times, throttle, now_ms)) >= throttle.most
