"""When a notification goes and when it no longer may: what a request asks for, and how its words are read."""

import datetime as dt
import math
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from carillon.domain.errors import BadIntent

_UNITS = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "ms": 0.001,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
    "d": 86_400.0,
    "w": 604_800.0,
}
_LONGEST_TEXT = 100
_SHORT = re.compile(r"(?:\d{1,12}(?:\.\d{1,9})?(?:ns|us|µs|ms|s|m|h|d|w))+")
_PART = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)(ns|us|µs|ms|s|m|h|d|w)")
_ISO = re.compile(
    r"P(?=.)(?:(?P<w>\d{1,12})W)?(?:(?P<d>\d{1,12})D)?"
    r"(?:T(?=.)(?:(?P<h>\d{1,12})H)?(?:(?P<m>\d{1,12})M)?(?:(?P<s>\d{1,12}(?:\.\d{1,9})?)S)?)?"
)
LONGEST_SECONDS = 10 * 366 * 86_400.0
LATEST_MS = 253_402_300_799_999
"""The end of the year 9999."""
EXPIRED = "expired"
COLLAPSED = "collapsed"
CANCELLED = "cancelled"
REACHED = "reached"
QUIET_HOURS = "quiet_hours"
_SAID = {
    EXPIRED: "it expired before it could be sent",
    COLLAPSED: "replaced by notification {}",
    CANCELLED: "cancelled before delivery",
    REACHED: "another channel reached its goal: {}",
}
_NAMES = {
    "expiresAt": "expires_at",
    "ttl": "ttl",
    "collapseKey": "collapse_key",
    "digest": "digest",
    "until": "until",
    "after": "after",
}
GOALS = ("delivered", "read", "acknowledged")
"""What a chain of channels may be tried for, from the weakest; each also reaches those before it."""
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_KEY = re.compile(r"[^\x00-\x1f\x7f]{1,255}")


class DigestWish(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Gather this event with others of the same person and key, and tell them in one message."""

    key: str
    window: str
    """How long the first event waits: a duration, or a cron line in the person's time zone."""
    max: int | None = None
    """Tell the digest at once when it has so many events."""


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """What a request asks for beyond `scheduledFor`."""

    expires_at_ms: int | None = None
    """After this moment no provider is called."""
    ttl_seconds: float | None = None
    """The same, counted from acceptance."""
    collapse_key: str | None = None
    """Replaces what still waits for the same recipients under the same key."""
    digest: DigestWish | None = None
    gathered: bool = False
    """It tells a digest, which no throttle stops."""
    until: str | None = None
    """The goal of a chain: the next channel is tried only while the earlier ones have not reached it."""
    after_seconds: float | None = None
    """How long a channel of the chain has before the next one is tried."""
    local_time: str | None = None
    """Not before this time without an offset, in the recipient's time zone."""
    quiet_until_ms: int | None = None
    """When the quiet hours end that move it."""

    def expiry(self, now: float) -> int | None:
        """Unix milliseconds after which nothing is sent; the earlier one where both are given."""
        ends = [] if self.expires_at_ms is None else [self.expires_at_ms]
        if self.ttl_seconds is not None:
            ends.append(min(round((now + self.ttl_seconds) * 1000), LATEST_MS))
        return min(ends, default=None)


AT_ONCE = Timing()


class Stop(msgspec.Struct, frozen=True):
    """Why no route of a notification is attempted any more, as `records.stopped` holds it."""

    gate: str
    by: str = ""

    @property
    def reason(self) -> str:
        """The sentence that a route's story shows."""
        return _SAID[self.gate].format(self.by)

    def text(self) -> str:
        """What the column holds."""
        return f"{self.gate}:{self.by}" if self.by else self.gate


def read_stop(text: str) -> Stop:
    """Read what the column holds."""
    gate, _, by = text.partition(":")
    return Stop(gate, by)


def duration(said: object, longest: float = LONGEST_SECONDS) -> float | None:
    """Seconds of a number, a short form (`10m`, `1h30m`) or an ISO 8601 duration (`PT10M`); None if it is none.

    The only reader of durations: requests, settings, variables and options write them alike.
    """
    seconds = _seconds(said)
    return None if seconds is None or not 0.0 <= seconds <= longest else seconds


def _seconds(said: object) -> float | None:
    if isinstance(said, bool):
        return None
    if isinstance(said, int | float):
        return float(said)
    if not isinstance(said, str) or len(said) > _LONGEST_TEXT:
        return None
    if _SHORT.fullmatch(said):
        return math.fsum(float(number) * _UNITS[unit] for number, unit in _PART.findall(said))
    iso = _ISO.fullmatch(said)
    if iso is None:
        return float(said) if re.fullmatch(r"\d{1,12}(?:\.\d{1,6})?", said) else None
    return math.fsum(float(number) * _UNITS[unit] for unit, number in iso.groupdict().items() if number is not None)


def read_seconds(said: object, field: str) -> float | None:
    """A duration that must be above zero; None where nothing is said; raises BadIntent."""
    if said is None or said == "":
        return None
    seconds = duration(said)
    if seconds is None or seconds <= 0.0:
        longer = (duration(said, math.inf) or 0.0) > LONGEST_SECONDS
        wanted = (
            f"at most {LONGEST_SECONDS / 86_400:,.0f} days"
            if longer
            else "a duration above zero such as 90, 10m, 1h or PT10M"
        )
        raise BadIntent("VALIDATION_ERROR", f"{field} must be {wanted}", field=field)
    return seconds


def read_key(said: object, field: str) -> str | None:
    """A key of a producer; raises BadIntent."""
    if said is None or said == "":
        return None
    if not isinstance(said, str) or not _KEY.fullmatch(said):
        raise BadIntent(
            "VALIDATION_ERROR", f"{field} must be 1 to 255 characters without control characters", field=field
        )
    return said


def read_moment(said: object, field: str) -> int | None:
    """Unix milliseconds of an RFC 3339 text with an offset, or of a number of them; raises BadIntent."""
    if said is None or said == "":
        return None
    unix_ms = said if isinstance(said, int) and not isinstance(said, bool) else _unix_ms(said)
    if unix_ms is None or not 0 <= unix_ms <= LATEST_MS:
        raise BadIntent(
            "VALIDATION_ERROR", f"{field} must be a time with an offset, such as 2027-01-31T18:00:00Z", field=field
        )
    return unix_ms


def _unix_ms(said: object) -> int | None:
    moment = said
    if isinstance(said, str):
        if said.isascii() and said.isdecimal():
            return int(said) if len(said) <= len(str(LATEST_MS)) else None
        try:
            moment = dt.datetime.fromisoformat(said)
        except ValueError:
            return None
    if not isinstance(moment, dt.datetime) or moment.tzinfo is None:
        return None
    return (moment - _EPOCH) // dt.timedelta(milliseconds=1)


def timing_of(fields: Mapping[str, Any], local_time: str | None = None) -> Timing:
    """What a message asks for, under the names of HTTP or with underscores; raises BadIntent."""
    said = {name: fields.get(name, fields.get(other)) for name, other in _NAMES.items()}
    if local_time is None and all(value is None for value in said.values()):
        return AT_ONCE
    return Timing(
        expires_at_ms=read_moment(said["expiresAt"], "expiresAt"),
        ttl_seconds=read_seconds(said["ttl"], "ttl"),
        collapse_key=read_key(said["collapseKey"], "collapseKey"),
        digest=_digest(said["digest"]),
        until=_goal(said["until"]),
        after_seconds=read_seconds(said["after"], "after"),
        local_time=local_time,
    )


def _goal(said: object) -> str | None:
    if said is None or said == "":
        return None
    if said not in GOALS:
        raise BadIntent("VALIDATION_ERROR", f"until must be one of {', '.join(GOALS)}", field="until")
    return str(said)


def _digest(said: object) -> DigestWish | None:
    """A wish in an object, or in the JSON text of one; raises BadIntent."""
    if said is None or said == "":
        return None
    if isinstance(said, DigestWish):
        return said
    try:
        if isinstance(said, str):
            return msgspec.json.decode(said, type=DigestWish)
        return msgspec.convert(said, DigestWish)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise BadIntent("VALIDATION_ERROR", f"digest must have key and window: {error}", field="digest") from None
