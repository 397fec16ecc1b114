"""Delivery reports of Azure, which Event Grid sends: a shared secret proves them, and each event is read on its own."""

import hmac
from collections.abc import Mapping
from datetime import UTC, datetime
from urllib.parse import parse_qsl, urlsplit

import msgspec

from carillon.domain.errors import Forged
from carillon.domain.receipts import Callback, CallbackReading, Receipt, ReceiptKind
from carillon.providers.acs.send import Settings
from carillon.providers.answers import brief
from carillon.providers.mail import checked_id, read_each, refuse_oversized, slug

CALLBACK = Callback(
    path="/api/v1/webhooks/azure/email-events",
    name="azureEmailEvents",
    summary="Event Grid reports mails of Azure",
    max_bytes=1024 * 1024,
    proof="webhook_secret",
)
SECRET_PARAMETER = "secret"  # noqa: S105 - the parameter's name, not a secret
SECRET_HEADER = "x-webhook-secret"  # noqa: S105
_HANDSHAKE = "Microsoft.EventGrid.SubscriptionValidationEvent"
_DELIVERY = "Microsoft.Communication.EmailDeliveryReportReceived"
_ENGAGEMENT = "Microsoft.Communication.EmailEngagementTrackingReportReceived"
_MAX_PARAMETERS = 50

# Azure: "Any value other than Delivered is considered failed". `Expanded` is the exception.
_STATUSES = {
    "Delivered": ReceiptKind.DELIVERED,
    "Bounced": ReceiptKind.BOUNCED,
    # The address is a list and Azure writes to its members: a second mail would reach them twice.
    "Expanded": ReceiptKind.SENT,
}
# Azure reports hard bounces only, and suppresses addresses that bounced before.
_GONE = frozenset({"Bounced", "Suppressed"})
_ENGAGEMENTS = {"view": ReceiptKind.OPENED, "click": ReceiptKind.CLICKED}


class _Details(msgspec.Struct):
    status_message: str | None = msgspec.field(default=None, name="statusMessage")


class _Data(msgspec.Struct, rename="camel"):
    validation_code: str | None = None
    message_id: str | None = None
    recipient: str | None = None
    status: str | None = None
    delivery_status_details: _Details | str | None = None
    delivery_attempt_time_stamp: str | None = None
    engagement_type: str | None = None
    user_action_time_stamp: str | None = None


class _GridEvent(msgspec.Struct, rename="camel"):
    event_type: str
    data: _Data
    id: str | None = None
    event_time: str | None = None


class AcsReceipts:
    """Reads the Event Grid event schema; without the right secret not even the handshake is answered."""

    def __init__(self, name: str, settings: Settings) -> None:
        self._name = name
        self._secret = settings.webhook_secret

    def read(self, url: str, headers: Mapping[str, str], body: bytes) -> CallbackReading:
        self._verify(url, headers)
        refuse_oversized(body)
        codes: list[str] = []
        receipts, unread = read_each(body, lambda report: self._read_one(report, codes))
        answer = {"validationResponse": codes[0]} if codes else None
        return CallbackReading(tuple(receipts), tuple(unread), answer)

    def _verify(self, url: str, headers: Mapping[str, str]) -> None:
        if self._secret is None:
            raise Forged("no webhook_secret is configured, so no callback can be verified")
        wanted = self._secret.reveal().encode()
        known = False
        for text in _offered(url, headers):
            known |= hmac.compare_digest(text.encode(errors="replace"), wanted)
        if not known:
            raise Forged("the secret is missing or wrong")

    def _read_one(self, raw: bytes, codes: list[str]) -> Receipt | None:
        event = msgspec.json.decode(raw, type=_GridEvent)
        if event.event_type == _HANDSHAKE:
            code = checked_id(event.data.validation_code)
            if code is None:
                raise ValueError("the handshake has no code")
            codes.append(code)
            return None
        message_id = checked_id(event.data.message_id)
        if message_id is None:
            raise ValueError("the event names no message")
        kind, classification, gone = _meaning(event)
        return Receipt(
            provider=self._name,
            kind=kind,
            provider_message_id=message_id.lower(),
            event_id=checked_id(event.id),
            address=None if event.data.recipient is None else event.data.recipient[:320],
            occurred_at_ms=_moment(event),
            classification=classification,
            reason=_reason(event.data),
            recipient_gone=gone,
        )


def _offered(url: str, headers: Mapping[str, str]) -> list[str]:
    try:
        pairs = parse_qsl(urlsplit(url).query, max_num_fields=_MAX_PARAMETERS)
    except ValueError:
        pairs = []
    texts = [headers.get(SECRET_HEADER, ""), *(value for name, value in pairs if name == SECRET_PARAMETER)]
    return [text for text in texts if text]


def _meaning(event: _GridEvent) -> tuple[ReceiptKind, str | None, bool]:
    """The kind of receipt, its cause, and whether the address is gone."""
    if event.event_type == _DELIVERY and event.data.status:
        status = event.data.status
        kind = _STATUSES.get(status, ReceiptKind.FAILED)
        return kind, None if kind is ReceiptKind.DELIVERED else slug(status), status in _GONE
    if event.event_type == _ENGAGEMENT and (engagement := _ENGAGEMENTS.get((event.data.engagement_type or "").lower())):
        return engagement, None, False
    raise ValueError(f"an event of the type {event.event_type[:80]!r} and this content is not known")


def _reason(data: _Data) -> str | None:
    details = data.delivery_status_details
    return brief((details.status_message if isinstance(details, _Details) else details) or "") or None


def _moment(event: _GridEvent) -> int | None:
    data = event.data
    text = data.delivery_attempt_time_stamp or data.user_action_time_stamp or event.event_time or ""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return max(0, int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000))


def reader(name: str, settings: Settings) -> AcsReceipts:
    return AcsReceipts(name, settings)
