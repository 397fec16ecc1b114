"""The JSON of the send endpoints: what producers write and what they read."""

import datetime as dt
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

Channel = Literal["push", "sms", "email", "inApp", "webhook"]
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
Moment = Annotated[dt.datetime, Meta(tz=True, description="Not before this time; a past one means now.")]
Key = Annotated[str, Meta(pattern=r"^[\x21-\x7e]{1,255}\Z")]


class SendBody(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, rename="camel", kw_only=True):
    """One notification to be sent."""

    template_key: TemplateKey
    channel: Channel | None = None
    priority: Literal["high", "normal", "low"] = "normal"
    synchronous: bool = False
    user_id: UserId | None = None
    tenant_id: Tenant | None = None
    recipient: Address | None = None
    service_origin: Origin = "system"
    data: dict[str, Any] | None = None
    variables: Annotated[dict[str, Any], Meta(description="Another name for data.")] | None = None
    is_bulk: bool = False
    locale: Locale | None = None
    metadata: dict[str, Any] | None = None
    scheduled_for: Moment | None = None
    correlation_id: Correlation | None = None


class BatchItem(SendBody, forbid_unknown_fields=True, omit_defaults=True, rename="camel", kw_only=True):
    """One notification of a batch."""

    idempotency_key: Key | None = None


class BatchBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Many notifications in one request; each is accepted or rejected on its own."""

    notifications: Annotated[list[BatchItem], Meta(min_length=1, max_length=500)]


class BatchEnvelope(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The same batch before its items are looked at, so that one bad item costs no other."""

    notifications: Annotated[list[Any], Meta(min_length=1, max_length=500)]


class SendAnswer(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Accepted: the notification is written down."""

    notification_id: str
    queue_name: str
    status: Literal["queued"] = "queued"


class Delivered(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Delivered while the caller waited."""

    notification_id: str
    delivered_at: str
    provider_message_id: str | None = None
    status: Literal["delivered"] = "delivered"


class ItemError(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why an item was not accepted."""

    code: str
    message: str
    field: str | None = None


class ItemResult(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel", kw_only=True):
    """What became of one item."""

    index: int
    status: Literal["queued", "rejected"]
    notification_id: str | None = None
    queue_name: str | None = None
    replayed: bool = False
    error: ItemError | None = None


class BatchAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What became of every item, in the order they were given."""

    accepted: int
    rejected: int
    results: list[ItemResult]
