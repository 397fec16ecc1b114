"""The fields of a send as they are written over HTTP: their types, limits and descriptions."""

import datetime as dt
from typing import Annotated, Literal

from msgspec import Meta

from carillon.domain.consent import NAME
from carillon.domain.timing import DigestWish

Channel = Literal["push", "sms", "email", "inApp", "webhook"]
Channels = Annotated[
    tuple[Channel, ...],
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
TemplateKey = Annotated[str, Meta(pattern=r"^[a-z0-9._-]+\Z", min_length=1, max_length=200)]
CategoryName = Annotated[
    str, Meta(pattern=NAME, description="What kind of message it is, so that people can choose.", examples=["orders"])
]
Origin = Annotated[
    str,
    Meta(
        pattern=r"^[a-z0-9_-]{1,64}\Z",
        description="The part of your system that speaks.",
        examples=["auth", "orders", "ridesharing", "products", "system"],
    ),
]
Tenant = Annotated[str, Meta(pattern=r"^[A-Za-z0-9._:-]{1,64}\Z")]
UserId = Annotated[str, Meta(pattern=r"^[^\x00-\x1f\x7f]{1,255}\Z")]
Address = Annotated[
    str,
    Meta(
        pattern=r"^[^\x00-\x20\x7f]{1,2000}\Z",
        description="sms: E.164 number; email: address; push: device token; inApp: user id; webhook: URL.",
    ),
]
Locale = Annotated[str, Meta(pattern=r"^[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8}){0,4}\Z", examples=["en-US"])]
Correlation = Annotated[str, Meta(pattern=r"^[A-Za-z0-9._:/+=@~-]{1,128}\Z")]
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
Key = Annotated[str, Meta(pattern=r"^[\x21-\x7e]{1,255}\Z")]
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
