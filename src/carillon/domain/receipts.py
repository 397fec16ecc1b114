"""A vendor's later word about a message, in our words."""

from enum import StrEnum
from typing import Any

import msgspec


class ReceiptKind(StrEnum):
    """What a vendor says became of a message."""

    QUEUED = "queued"
    SENT = "sent"
    DELIVERED = "delivered"
    OPENED = "opened"
    CLICKED = "clicked"
    FAILED = "failed"
    """The vendor gave up or the network refused: another provider may still succeed."""
    BOUNCED = "bounced"
    COMPLAINED = "complained"
    """The person called it spam: nothing more is sent."""
    UNSUBSCRIBED = "unsubscribed"


class Callback(msgspec.Struct, frozen=True, kw_only=True):
    """The endpoint at which one kind of vendor reports back."""

    path: str
    name: str
    summary: str
    max_bytes: int
    media_types: tuple[str, ...] = ("application/json",)
    """What `Content-Type` may say."""


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """One thing a vendor reported."""

    provider: str
    kind: ReceiptKind
    provider_message_id: str | None = None
    """The vendor's id, as `Sent` carried it."""
    idempotency_key: str | None = None
    """Our own `<notification_id>/<route_id>`, where the vendor hands it back."""
    event_id: str | None = None
    """The vendor's id of this very report, for recognising it when it comes again."""
    address: str | None = None
    occurred_at_ms: int | None = None
    classification: str | None = None
    reason: str | None = None
    recipient_gone: bool = False
    """The address is dead: later messages to it are not worth sending."""


class AmendRules(msgspec.Struct, frozen=True, kw_only=True):
    """What a failed delivery leads to."""

    chains: dict[str, tuple[str, ...]]
    """Channel to its providers in the order of failover."""
    lanes: dict[int, int] = {}
    """Lanes that no worker claims from, each with the lane a route of it waits in when it is opened again."""
    bounces_before_silence: int = 2
    """Hard bounces of one address before nothing more is sent there."""
    silence_seconds: float | None = None
    """How long an address stays silent; None is for ever."""


class Amended(msgspec.Struct, frozen=True, kw_only=True):
    """What a receipt did."""

    receipt: Receipt
    effect: str
    """noted, failed_over, retried, buried, ignored, waiting, or repeated when it had come before."""
    notification_id: str | None = None
    route_id: str | None = None
    tenant_id: str | None = None
    user_id: str | None = None


class Reading(msgspec.Struct, frozen=True):
    """What a callback said, and what its sender wants to hear back."""

    receipts: tuple[Receipt, ...] = ()
    unread: tuple[str, ...] = ()
    """Why single reports of the callback could not be understood; the others count."""
    answer: dict[str, Any] | None = None
    """The body of the reply, for vendors that expect one (a handshake)."""
