"""Delivery reports of pushes: FCM sends none, so the operator's own relay does."""

import math
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

import msgspec

from carillon.border import clean_json, json_elements
from carillon.domain.errors import Forged
from carillon.domain.receipts import Callback, CallbackReading, Receipt, ReceiptKind
from carillon.providers.answers import brief
from carillon.providers.fcm.send import RULES, Settings
from carillon.providers.fcm.token import read_account
from carillon.providers.mail import UNREADABLE
from carillon.providers.webhook.signing import Check, verify_x_webhook

MAX_BODY = 256 * 1024
CALLBACK = Callback(
    path="/api/v1/webhooks/fcm/delivery-status",
    name="fcmDeliveryStatus",
    summary="A relay reports pushes",
    max_bytes=MAX_BODY,
    proof="webhook_secret",
)
MAX_REPORTS = 1000
_KINDS = {"delivered": ReceiptKind.DELIVERED, "failed": ReceiptKind.FAILED}
_MAX_ID = 500
# Unix seconds reach this number in the year 5138, Unix milliseconds reached it in 1973.
_SURELY_MILLISECONDS = 1e11
_LAST_MILLISECOND = 1e14


class _Report(msgspec.Struct):
    messageId: str  # noqa: N815 - the wire's name
    status: str
    deviceToken: str | None = None  # noqa: N815 - the wire's name
    error: str | None = None
    timestamp: str | int | float | None = None


class FcmReceipts:
    """Believes what is signed with the relay's secret; without a secret it believes nobody."""

    def __init__(self, name: str, settings: Settings, wall: Callable[[], float], project: str | None) -> None:
        self._name = name
        self._secret = settings.webhook_secret
        self._wall = wall
        self._prefix = f"projects/{project}/messages/" if project else ""

    def read(self, url: str, headers: Mapping[str, str], body: bytes) -> CallbackReading:  # noqa: ARG002 - not part of what is signed
        if len(body) > MAX_BODY:
            raise Forged(f"a callback of more than {MAX_BODY} bytes")
        if self._secret is None:
            raise Forged("no webhook_secret is configured, so no callback can be verified")
        checked = verify_x_webhook([self._secret], headers.items(), body, now=self._wall())
        if checked is not Check.OK:
            raise Forged(f"the relay's signature: {checked}")
        # A lone report is an object; several are a list of them.
        listed = json_elements(body)
        reports = [clean_json(body)] if listed is None else listed
        # The id in the header belongs to the whole call: it identifies a report only if there is one.
        event_id = headers.get("x-webhook-event-id") if len(reports) == 1 else None
        return self._read_all(reports, event_id)

    def _read_all(self, reports: list[bytes], event_id: str | None) -> CallbackReading:
        receipts: list[Receipt] = []
        unread = [f"more than {MAX_REPORTS} reports in one call"] if len(reports) > MAX_REPORTS else []
        for number, report in enumerate(reports[:MAX_REPORTS]):
            try:
                receipts.append(self._receipt(msgspec.json.decode(report, type=_Report), event_id))
            except UNREADABLE as error:
                unread.append(brief(f"report {number}: {error}"))
        return CallbackReading(tuple(receipts), tuple(unread))

    def _receipt(self, report: _Report, event_id: str | None) -> Receipt:
        kind = _KINDS.get(report.status.lower())
        if kind is None:
            raise ValueError(f"unknown status {report.status[:64]!r}")
        if not 0 < len(report.messageId) <= _MAX_ID:
            raise ValueError(f"messageId: between 1 and {_MAX_ID} characters")
        failed = kind is ReceiptKind.FAILED
        rule = RULES.get(report.error or "") if failed else None
        return Receipt(
            provider=self._name,
            kind=kind,
            provider_message_id=self._full_id(report.messageId),
            event_id=event_id[:_MAX_ID] if event_id else None,
            address=report.deviceToken or None,
            occurred_at_ms=_milliseconds(report.timestamp),
            classification=rule.classification if rule else ("failed" if failed else None),
            reason=brief(report.error, report.deviceToken) if failed and report.error else None,
            recipient_gone=rule is not None and rule.recipient_gone,
        )

    def _full_id(self, message_id: str) -> str:
        # FCM tells the app only the last part of the id that it told the sender.
        return message_id if "/" in message_id else self._prefix + message_id


def _milliseconds(said: str | float | None) -> int | None:
    if said is None:
        return None
    if isinstance(said, str):
        try:
            moment = datetime.fromisoformat(said)
        except ValueError:
            return None
        said = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    if not math.isfinite(said):
        return None
    milliseconds = said if abs(said) >= _SURELY_MILLISECONDS else said * 1000
    return int(milliseconds) if 0 <= milliseconds <= _LAST_MILLISECOND else None


def reader(name: str, settings: Settings, wall: Callable[[], float] = time.time) -> FcmReceipts:
    """The reader of one provider's reports; only v1 puts the project into message ids."""
    project = settings.project_id
    if project is None and settings.form == "v1" and settings.credentials_file is not None:
        project = read_account(settings.credentials_file).project_id
    return FcmReceipts(name, settings, wall, project if settings.form == "v1" else None)
