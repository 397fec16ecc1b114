"""SendGrid's event webhook: its signature proves it, and each event is read on its own."""

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
from carillon.domain.receipts import Callback, CallbackReading, Receipt, ReceiptKind
from carillon.providers.answers import brief
from carillon.providers.mail import checked_id, read_each, refuse_oversized, slug
from carillon.providers.sendgrid.send import NOTIFICATION_ARG, ROUTE_ARG, RouteSeal, Settings

CALLBACK = Callback(
    path="/api/v1/webhooks/sendgrid/events",
    name="sendgridEvents",
    summary="SendGrid reports events of mails",
    max_bytes=1024 * 1024,
    proof="webhook_public_key",
)
SIGNATURE = "x-twilio-email-event-webhook-signature"
TIMESTAMP = "x-twilio-email-event-webhook-timestamp"
_SECONDS = re.compile(r"[0-9]{1,12}")
# The longest DER signature of P-256 has 72 bytes, 96 characters.
_MAX_SIGNATURE = 128

# The names that SendGrid sends, and those that its older documentation uses.
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
# Events without an end of a message, or not about a message.
_IGNORED = frozenset({"processed", "deferred", "group_resubscribe", "account_status_change"})
# Reasons of a drop that are about the address: SendGrid will not try it again.
_DROPPED_FOR_GOOD = frozenset({"bounced_address", "unsubscribed_address", "spam_reporting_address", "invalid"})


class _MailEvent(msgspec.Struct, rename={"notification_id": NOTIFICATION_ARG, "route": ROUTE_ARG}):
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
    """Reads events that are signed with the key from SendGrid's console."""

    def __init__(self, name: str, settings: Settings, clock: Clock) -> None:
        self._name = name
        self._clock = clock
        self._key = settings.verification_key()
        self._tolerance = settings.webhook_tolerance_seconds
        self._seal = RouteSeal(settings.api_key)

    def read(self, url: str, headers: Mapping[str, str], body: bytes) -> CallbackReading:  # noqa: ARG002 - the port's shape
        refuse_oversized(body)
        self._verify(headers.get(SIGNATURE, ""), headers.get(TIMESTAMP, ""), body)
        receipts, unread = read_each(body, self._read_one)
        return CallbackReading(tuple(receipts), tuple(unread))

    def _verify(self, signature: str, timestamp: str, body: bytes) -> None:
        if self._key is None:
            raise Forged("no webhook_public_key is configured, so no callback can be verified")
        if not _SECONDS.fullmatch(timestamp) or not 0 < len(signature) <= _MAX_SIGNATURE:
            raise Forged("the signature or its timestamp is missing")
        try:
            # The signature covers the raw bytes, before any parsing.
            self._key.verify(base64.b64decode(signature, validate=True), timestamp.encode() + body, ECDSA(SHA256()))
        except (ValueError, InvalidSignature):
            raise Forged("the signature does not hold") from None
        if self._tolerance is not None and abs(self._clock.wall() - int(timestamp)) > self._tolerance:
            raise Forged("the timestamp is too far from now")

    def _read_one(self, raw: bytes) -> Receipt | None:
        event = msgspec.json.decode(raw, type=_MailEvent)
        if event.event in _IGNORED:
            return None
        kind = _KINDS.get(event.event)
        if kind is None:
            raise ValueError(f"an event of the name {event.event[:40]!r} is not known")
        key = self._our_key(event)
        # The id in the answer to the send is the part before the first dot.
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

    def _our_key(self, event: _MailEvent) -> str | None:
        key = None if event.route is None else self._seal.open(event.route)
        if key is not None:
            return key
        notification_id = checked_id(event.notification_id)
        # An empty route id: the ledger finds the route by the vendor's id or by the channel.
        return None if notification_id is None else f"{notification_id}/"


def _cause(event: _MailEvent) -> tuple[str | None, bool]:
    """The cause of the failure, and whether the address is gone."""
    match event.event:
        case "bounce":
            cause = slug(event.bounce_classification or event.type or "") or "bounce"
            # A `blocked` bounce is about us, the content or the moment; without a type the cause is uncertain.
            return cause, event.type == "bounce"
        case "dropped":
            cause = slug(event.reason or "")
            return (cause, True) if cause in _DROPPED_FOR_GOOD else ("dropped", False)
        case _:
            return None, False


def reader(name: str, settings: Settings, clock: Clock) -> SendGridReceipts:
    return SendGridReceipts(name, settings, clock)
