"""The fields of a send as they are written over HTTP: their types, limits and descriptions."""

from typing import Annotated, Literal

from msgspec import Meta

Channel = Literal["push", "sms", "email", "inApp", "webhook"]
Channels = Annotated[
    tuple[Channel, ...],
    Meta(
        max_length=5,
        description="Several channels: all at once, or with `until` and `after` one after the other.",
        examples=[["inApp", "push", "email"]],
    ),
]
TemplateKey = Annotated[str, Meta(pattern=r"^[a-z0-9._-]+\Z", min_length=1, max_length=200)]
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
Key = Annotated[str, Meta(pattern=r"^[\x21-\x7e]{1,255}\Z")]
