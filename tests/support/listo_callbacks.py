"""What the vendors of the listo blueprint post back, signed as each of them does."""

import json
import time
import uuid
from itertools import count
from typing import Any

from carillon.providers.tools import Secret
from carillon.providers.webhook.signing import sign_x_webhook
from tests.support import acs_stub, twilio_stub
from tests.support.client import Reply
from tests.support.listo_stand import ACS_WEBHOOK_SECRET, FCM_WEBHOOK_SECRET, Listo
from tests.support.waiting import wait_until

TWILIO = "/api/v1/webhooks/twilio/sms-status"
SENDGRID = "/api/v1/webhooks/sendgrid/events"
FCM = "/api/v1/webhooks/fcm/delivery-status"
AZURE = "/api/v1/webhooks/azure/email-events"

_numbers = count(1)


def phone() -> str:
    """A number nobody else has."""
    return f"+1415555{next(_numbers):04d}"


def email() -> str:
    return f"user-{next(_numbers)}@example.com"


def device() -> str:
    return f"device-token-{next(_numbers):06d}"


def texted(listo: Listo, **fields: Any) -> tuple[str, str]:
    """Send a text message through Twilio; its notification and its sid."""
    one = listo.sent("order_confirmed", "sms", **{"recipient": phone(), **fields})
    return one, listo.until(one, "delivered")["providerMessageIds"][-1]


def mailed(listo: Listo, **fields: Any) -> tuple[str, str]:
    """Send a mail through SendGrid; its notification and its message id."""
    one = listo.sent("order_confirmed", "email", **{"recipient": email(), **fields})
    return one, listo.until(one, "delivered")["providerMessageIds"][-1]


def pushed(listo: Listo, **fields: Any) -> tuple[str, str]:
    """Send a push through FCM; its notification and its message id."""
    one = listo.sent("order_confirmed", "push", **{"recipient": device(), **fields})
    return one, listo.until(one, "delivered")["providerMessageIds"][-1]


def post(listo: Listo, path: str, body: bytes, headers: dict[str, str]) -> Reply:
    """Bytes as they are, with a content type of their own."""
    named = {"Content-Type" if name.lower() == "content-type" else name: value for name, value in headers.items()}
    return listo.client.call("POST", path, body, named)


def route_of(listo: Listo, notification_id: str) -> dict[str, Any]:
    """The one route of a notification, past the program."""
    found = [row for row in listo.rows("SELECT * FROM routes") if row["notification_id"] == notification_id]
    assert len(found) == 1
    return dict(found[0])


def until_route(listo: Listo, notification_id: str, **wanted: Any) -> dict[str, Any]:
    """The same, once it holds these values."""

    def there() -> bool:
        row = route_of(listo, notification_id)
        return {name: row[name] for name in wanted} == wanted

    wait_until(there, timeout=20, what=f"the route of {notification_id} to be {wanted}")
    return route_of(listo, notification_id)


def receipts_of(listo: Listo, message: str) -> list[dict[str, Any]]:
    """What was written down about a vendor's message."""
    return [dict(row) for row in listo.rows("SELECT * FROM receipts") if row["provider_message_id"] == message]


def twilio(listo: Listo, sid: str, status: str, *, query: str = "", base: str | None = None, **fields: str) -> Reply:
    """A status callback; `base` is the address it was signed for, where that is not the listener's own."""
    form = {
        "MessageSid": sid,
        "SmsSid": sid,
        "MessageStatus": status,
        "SmsStatus": status,
        "AccountSid": twilio_stub.ACCOUNT,
        "From": twilio_stub.SENDER,
        "To": "+14155550100",
        "ApiVersion": "2010-04-01",
        **fields,
    }
    headers, body = twilio_stub.signed(f"{base or listo.address}{TWILIO}{query}", form)
    return post(listo, f"{TWILIO}{query}", body, headers)


def sendgrid(listo: Listo, *events: Any, age: int = 0) -> Reply:
    """One call with these events."""
    body = json.dumps(events).encode()
    return post(listo, SENDGRID, body, listo.signer.headers(body, int(time.time()) - age))


def event(kind: str, message: str | None, **fields: Any) -> dict[str, Any]:
    """One event of SendGrid's, with an id of its own."""
    told = {"event": kind, "sg_event_id": uuid.uuid4().hex, "timestamp": int(time.time()), **fields}
    return told if message is None else {**told, "sg_message_id": f"{message}.filter0001.16648.5515E0B88.0"}


def relay(listo: Listo, *reports: dict[str, Any], secret: str = FCM_WEBHOOK_SECRET) -> Reply:
    """What the operator's relay posts about pushes."""
    body = json.dumps(reports[0] if len(reports) == 1 else reports).encode()
    now = int(time.time())
    signature = sign_x_webhook(Secret(secret), now, body)
    headers = {"x-webhook-timestamp": str(now), "x-webhook-signature": signature, "content-type": "application/json"}
    return post(listo, FCM, body, headers)


def azure(listo: Listo, *events: dict[str, Any], secret: str = ACS_WEBHOOK_SECRET) -> Reply:
    """What Event Grid brings."""
    return listo.client.call("POST", f"{AZURE}?secret={secret}", list(events))


def azure_report(message: str, status: str, **data: Any) -> dict[str, Any]:
    return {**acs_stub.delivery_report(message, status, **data), "id": uuid.uuid4().hex}
