"""What a request of any door may ask for beside its words: consent, timing, and what its message carries."""

import datetime as dt
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from carillon.domain.consent import NAME
from carillon.domain.content.mail import Attachment, Copies, Invitation, MailAddress, MailParts
from carillon.domain.content.parts import InAppParts, PushParts
from carillon.domain.errors import BadIntent
from carillon.domain.intents import Intent
from carillon.domain.timing import DigestWish, timing_of

Channels = Annotated[
    tuple[str, ...],
    Meta(
        max_length=5,
        description="Several channels: all at once, or with `until` and `after` one after the other.",
        examples=[["inApp", "push", "email"]],
    ),
]
Until = Annotated[
    Literal["delivered", "read", "acknowledged"],
    Meta(description="The next of `channels` is tried only while the earlier ones have not reached this goal."),
]
After = Annotated[
    float | str,
    Meta(
        description="How long a channel has before the next one is tried: seconds, or a duration.",
        examples=[600, "10m", "PT10M"],
    ),
]
CategoryName = Annotated[
    str, Meta(pattern=NAME, description="What kind of message it is, so that people can choose.", examples=["orders"])
]
Moment = Annotated[
    dt.datetime,
    Meta(description="Not before this time, with an offset, or without one and `timeZone`; a past one means now."),
]
TimeZone = Annotated[
    Literal["recipient"],
    Meta(
        description="`scheduledFor` has no offset: it is the time on the recipient's clock, UTC where no zone is known."
    ),
]
Expiry = Annotated[
    dt.datetime, Meta(tz=True, description="Nothing is sent after this time; what still waits is skipped as expired.")
]
Ttl = Annotated[
    float | str,
    Meta(description="The same, counted from acceptance: seconds, or a duration.", examples=[600, "10m", "PT10M"]),
]
CollapseKey = Annotated[
    str,
    Meta(
        pattern=r"^[^\x00-\x1f\x7f]{1,255}\Z",
        description="Replaces what still waits for the same recipient under the same key.",
    ),
]
Digest = Annotated[
    DigestWish,
    Meta(
        description="Tell this event with others of the same person and key in one message. `window` is a duration or "
        "a cron line in the person's time zone; `max` events close the digest at once.",
        examples=[{"key": "comments", "window": "1h", "max": 20}],
    ),
]


class SendWishes(msgspec.Struct, omit_defaults=True, rename="camel", kw_only=True):
    """The fields that every door reads; a door adds those by which it knows a message and its people."""

    channels: Channels = ()
    until: Until | None = None
    after: After | None = None
    scheduled_for: Moment | None = None
    time_zone: TimeZone | None = None
    expires_at: Expiry | None = None
    ttl: Ttl | None = None
    collapse_key: CollapseKey | None = None
    category: CategoryName | None = None
    digest: Digest | None = None
    attachments: Annotated[tuple[Attachment, ...], Meta(description="Files of an email.")] = ()
    cc: Copies = ()
    bcc: Copies = ()
    reply_to: Annotated[MailAddress, Meta(description="Where answers to an email go.")] | None = None
    headers: Annotated[dict[str, str], Meta(description="Headers of an email that `mail.headers` allows.")] = {}
    calendar: Annotated[Invitation, Meta(description="An event; the email carries it as invite.ics.")] | None = None
    push: Annotated[PushParts, Meta(description="What a push carries beside its text.")] | None = None
    in_app: Annotated[InAppParts, Meta(description="What a message of the inbox carries beside its text.")] | None = (
        None
    )


def with_wishes(intent: Intent, wishes: SendWishes) -> Intent:
    """The intent of a door with what its sender asks for; raises BadIntent for wishes that contradict each other.

    The channels and the content are the door's own: it knows which channels a message may have.
    """
    said = timing_of(
        {
            "expiresAt": wishes.expires_at,
            "ttl": wishes.ttl,
            "collapseKey": wishes.collapse_key,
            "digest": wishes.digest,
            "until": wishes.until,
            "after": wishes.after,
        },
        local_time=_local(wishes),
    )
    return replace(
        intent,
        category=wishes.category or intent.category,
        timing=said,
        scheduled_for_ms=_scheduled(wishes),
        mail=_mail(wishes),
        push=wishes.push,
        in_app=wishes.in_app,
    )


def wished(wishes: SendWishes) -> dict[str, Any]:
    """What was asked for, under the names of HTTP: a part of the request's content."""
    # Of this type alone: a door's own body has other fields too.
    return {name: value for name, value in msgspec.to_builtins(wishes).items() if name in NAMES}


def _mail(wishes: SendWishes) -> MailParts | None:
    parts = MailParts(
        attachments=wishes.attachments,
        cc=wishes.cc,
        bcc=wishes.bcc,
        reply_to=wishes.reply_to,
        headers=wishes.headers,
        calendar=wishes.calendar,
    )
    return None if parts == MailParts() else parts


def _local(wishes: SendWishes) -> str | None:
    """The schedule on the recipient's clock."""
    if wishes.time_zone is None:
        return None
    if wishes.scheduled_for is None or wishes.scheduled_for.tzinfo is not None:
        wanted = "timeZone goes with a scheduledFor without an offset, such as 2027-01-31T18:00:00"
        raise BadIntent("VALIDATION_ERROR", wanted, field="timeZone")
    return wishes.scheduled_for.isoformat()


def _scheduled(wishes: SendWishes) -> int | None:
    if wishes.scheduled_for is None or wishes.time_zone is not None:
        return None
    if wishes.scheduled_for.tzinfo is None:
        wanted = "scheduledFor needs an offset, such as 2027-01-31T18:00:00Z, or timeZone: recipient"
        raise BadIntent("VALIDATION_ERROR", wanted, field="scheduledFor")
    unix_ms = round(wishes.scheduled_for.timestamp() * 1000)
    if unix_ms < 0:
        raise BadIntent("VALIDATION_ERROR", "scheduledFor is before 1970", field="scheduledFor")
    return unix_ms


NO_WISHES = SendWishes()
NAMES = {field.encode_name: field.name for field in msgspec.structs.fields(SendWishes)}
"""Every field by its name over HTTP, with the name that has underscores."""
STRUCTURED = frozenset({"channels", "digest", "attachments", "cc", "bcc", "headers", "calendar", "push", "inApp"})
"""Those that hold more than a text; where every field is a text, they are the JSON of it."""
MOMENTS = frozenset({"scheduledFor", "expiresAt"})
