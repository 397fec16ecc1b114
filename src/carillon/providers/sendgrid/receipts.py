"""SendGrid's event webhook: believed by its signature, read event by event."""

import base64
import re
from collections.abc import Mapping
from typing import Annotated

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
from cryptography.hazmat.primitives.hashes import SHA256

from carillon.domain.errors import Forged
from carillon.domain.ports import Clock
from carillon.domain.receipts import Reading, Receipt, ReceiptKind
from carillon.providers.answers import brief
from carillon.providers.mail_vendor import checked_id, read_each, refuse_oversized, slug
from carillon.providers.sendgrid.send import NOTIFICATION_ARG, ROUTE_ARG, RouteSeal, Settings

SIGNATURE = "x-twilio-email-event-webhook-signature"
TIMESTAMP = "x-twilio-email-event-webhook-timestamp"
_SECONDS = re.compile(r"[0-9]{1,12}")
# The longest DER signature of P-256 has 72 bytes, 96 characters.
_MAX_SIGNATURE = 128

# What SendGrid sends, and beside it the names some of its older descriptions use.
_KINDS = {
    "delivered": ReceiptKind.DELIVERED,
    "open": ReceiptKind.OPENED,
    "opened": ReceiptKind.OPENED,
    "click": ReceiptKind.CLICKED,
    "clicked": ReceiptKind.CLICKED,
    "bounce": ReceiptKind.BOUNCED,
    "dropped": ReceiptKind.FAILED,
    "spamreport": ReceiptKind.COMPLAINED,
    "spam_report": ReceiptKind.COMPLAINED,
    "unsubscribe": ReceiptKind.UNSUBSCRIBED,
    "group_unsubscribe": ReceiptKind.UNSUBSCRIBED,
}
# On its way, or not about a message.
_IGNORED = frozenset({"processed", "deferred", "group_resubscribe", "account_status_change"})
# Reasons of a drop that lie with the address: SendGrid will not try it again.
_DROPPED_FOR_GOOD = frozenset({"bounced_address", "unsubscribed_address", "spam_reporting_address", "invalid"})


class _Event(msgspec.Struct, rename={"notification_id": NOTIFICATION_ARG, "route": ROUTE_ARG}):
    event: str
    sg_event_id: str | None = None
    sg_message_id: str | None = None
    notification_id: str | None = None
    route: str | None = None
    email: str | None = None
    timestamp: Annotated[int, msgspec.Meta(ge=0, le=10**11)] | None = None
    type: str | None = None
    reason: str | None = None
    response: str | None = None
    bounce_classification: str | None = None


class SendGridReceipts:
    """Events signed with the key of the console, and with nothing else."""

    def __init__(self, name: str, settings: Settings, clock: Clock) -> None:
        self._name = name
        self._clock = clock
        self._key = settings.verification_key()
        self._tolerance = settings.webhook_tolerance_seconds
        self._seal = RouteSeal(settings.api_key)

    def read(self, url: str, headers: Mapping[str, str], body: bytes) -> Reading:  # noqa: ARG002 - the port's shape
        refuse_oversized(body)
        self._verify(headers.get(SIGNATURE, ""), headers.get(TIMESTAMP, ""), body)
        receipts, unread = read_each(body, self._read_one)
        return Reading(tuple(receipts), tuple(unread))

    def _verify(self, signature: str, timestamp: str, body: bytes) -> None:
        if self._key is None:
            raise Forged("no webhook_public_key is configured, so nothing can be believed")
        if not _SECONDS.fullmatch(timestamp) or not 0 < len(signature) <= _MAX_SIGNATURE:
            raise Forged("the signature or its timestamp is missing")
        try:
            # The bytes as they came: what a parser makes of them is no longer what was signed.
            self._key.verify(base64.b64decode(signature, validate=True), timestamp.encode() + body, ECDSA(SHA256()))
        except (ValueError, InvalidSignature):
            raise Forged("the signature does not hold") from None
        if self._tolerance is not None and abs(self._clock.wall() - int(timestamp)) > self._tolerance:
            raise Forged("the timestamp is too far from now")

    def _read_one(self, raw: msgspec.Raw) -> Receipt | None:
        event = msgspec.json.decode(raw, type=_Event)
        if event.event in _IGNORED:
            return None
        kind = _KINDS.get(event.event)
        if kind is None:
            raise ValueError(f"an event of the name {event.event[:40]!r} is not known")
        key = self._our_key(event)
        # The id of the answer to the send is the part before the first dot.
        message_id = checked_id((event.sg_message_id or "").partition(".")[0])
        if key is None and message_id is None:
            raise ValueError("the event names no message")
        classification, gone = _cause(event)
        return Receipt(
            provider=self._name,
            kind=kind,
            provider_message_id=message_id,
            idempotency_key=key,
            event_id=checked_id(event.sg_event_id),
            address=None if event.email is None else event.email[:320],
            occurred_at_ms=None if event.timestamp is None else event.timestamp * 1000,
            classification=classification,
            reason=brief(event.reason or event.response or "") or None,
            recipient_gone=gone,
        )

    def _our_key(self, event: _Event) -> str | None:
        key = None if event.route is None else self._seal.open(event.route)
        if key is not None:
            return key
        notification_id = checked_id(event.notification_id)
        # No route is called nothing: which one of the notification's it was, the vendor's id or its channel tells.
        return None if notification_id is None else f"{notification_id}/"


def _cause(event: _Event) -> tuple[str | None, bool]:
    """Why it went wrong, and whether the address itself is at fault."""
    match event.event:
        case "bounce":
            cause = slug(event.bounce_classification or event.type or "") or "bounce"
            # A block is about us, the content or the moment; without a type nothing is known for certain.
            return cause, event.type == "bounce"
        case "dropped":
            cause = slug(event.reason or "")
            return (cause, True) if cause in _DROPPED_FOR_GOOD else ("dropped", False)
        case _:
            return None, False


def reader(name: str, settings: Settings, clock: Clock) -> SendGridReceipts:
    return SendGridReceipts(name, settings, clock)
