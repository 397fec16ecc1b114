"""Twilio's status callbacks; their signature proves them."""

import base64
import hashlib
import hmac
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from carillon.border import clean_json
from carillon.domain.errors import Forged
from carillon.domain.receipts import Callback, CallbackReading, Receipt, ReceiptKind
from carillon.providers.answers import brief
from carillon.providers.tools import Secret
from carillon.providers.twilio.send import Settings

MAX_BODY = 64 * 1024
CALLBACK = Callback(
    path="/api/v1/webhooks/twilio/sms-status",
    name="twilioSmsStatus",
    summary="Twilio reports a text message",
    max_bytes=MAX_BODY,
    proof="auth_token",
    media_types=("application/x-www-form-urlencoded", "application/json"),
)
_MAX_FIELDS = 200
_MAX_SIGNATURE = 200
_MAX_KEY = 1000
_URL = re.compile(r"(?P<scheme>https?)://(?P<host>\[[^\]/?#]*\]|[^:/?#]*)(?::(?P<port>[0-9]+))?(?P<rest>.*)", re.DOTALL)
_ORIGIN = re.compile(r"\A[a-z]+://[^/?#]*", re.IGNORECASE)
_DEFAULT_PORTS = {"https": "443", "http": "80"}
_SID = re.compile(r"[A-Za-z0-9_-]{1,100}")
_CODE = re.compile(r"[0-9]{1,10}")
_KINDS = {
    "queued": ReceiptKind.QUEUED,
    "sent": ReceiptKind.SENT,
    "delivered": ReceiptKind.DELIVERED,
    "read": ReceiptKind.DELIVERED,
    "failed": ReceiptKind.FAILED,
    "undelivered": ReceiptKind.FAILED,
    "canceled": ReceiptKind.FAILED,
}
# Steps inside Twilio, which say nothing new about the message.
_STEPS = frozenset({"accepted", "scheduled", "sending"})
# Only codes that are certainly about the number: after any other failure another provider may succeed.
_GONE = frozenset({"21211", "21610", "21614"})

Fields = dict[str, list[str]]


class TwilioReceipts:
    """Reads status callbacks, as forms or as JSON."""

    def __init__(self, name: str, settings: Settings) -> None:
        self._name = name
        self._settings = settings

    def read(self, url: str, headers: Mapping[str, str], body: bytes) -> CallbackReading:
        called = self._called(url)
        fields = _verified(self._settings.auth_token, called, headers, body)
        one = {name: values[0] for name, values in fields.items() if len(set(values)) == 1}
        sid = one.get("MessageSid") or one.get("SmsSid") or ""
        status = one.get("MessageStatus") or one.get("SmsStatus") or ""
        if not _SID.fullmatch(sid):
            return CallbackReading(unread=("the report names no message",))
        if status in _STEPS:
            return CallbackReading()
        kind = _KINDS.get(status)
        if kind is None:
            return CallbackReading(unread=(brief(f"{sid}: no status we know: {status[:64]!r}"),))
        return CallbackReading(receipts=(self._receipt(sid, status, kind, one, called),))

    def _receipt(self, sid: str, status: str, kind: ReceiptKind, one: dict[str, str], url: str) -> Receipt:
        failed = kind is ReceiptKind.FAILED
        code = one.get("ErrorCode", "")
        known = failed and _CODE.fullmatch(code) is not None
        return Receipt(
            provider=self._name,
            kind=kind,
            provider_message_id=sid,
            idempotency_key=self._key(url),
            # Not Twilio's own token for a report: it is not signed, so a replay could change it.
            event_id=f"{sid}/{status}",
            address=one.get("To"),
            classification=(code if known else status) if failed else None,
            reason=brief(one["ErrorMessage"]) if failed and "ErrorMessage" in one else None,
            recipient_gone=known and self._gone(code),
        )

    def _gone(self, code: str) -> bool:
        rule = self._settings.answers.get(code)
        return code in _GONE if rule is None else rule.recipient_gone

    def _key(self, url: str) -> str | None:
        name = self._settings.callback_key
        if name is None:
            return None
        found = _query_value(url, name)
        return found if found and len(found) <= _MAX_KEY else None

    def _called(self, url: str) -> str:
        public = self._settings.public_base_url
        return url if public is None else f"{public.rstrip('/')}{_ORIGIN.sub('', url, count=1)}"


def _verified(token: Secret, url: str, headers: Mapping[str, str], body: bytes) -> Fields:
    """The fields of a callback with a valid signature."""
    signature = headers.get("x-twilio-signature", "")
    if not signature or len(signature) > _MAX_SIGNATURE or len(body) > MAX_BODY:
        raise Forged("the callback has no signature, or is too large to be Twilio's")
    is_json = headers.get("content-type", "").partition(";")[0].strip().lower() == "application/json"
    digest = _query_value(url, "bodySHA256") if is_json else None
    if digest is not None:
        if not _equal(hashlib.sha256(body).hexdigest(), digest.lower()):
            raise Forged("the body is not the one that was signed")
        _check(token, url, {}, signature)
        return _json_fields(body) or {}
    fields = _json_fields(body) if is_json else _form_fields(body)
    if fields is None:
        raise Forged("the body cannot be what was signed")
    _check(token, url, fields, signature)
    return fields


def _check(token: Secret, url: str, fields: Fields, signature: str) -> None:
    # Compute every candidate, so that the time taken does not show which one nearly matched.
    found = [_equal(sign(token, candidate, fields), signature) for candidate in _candidates(url)]
    if not any(found):
        raise Forged("the signature does not hold")


def sign(token: Secret, url: str, fields: Fields) -> str:
    """Twilio's signature over a URL and the fields of a form."""
    text = url + "".join(name + value for name in sorted(fields) for value in sorted(set(fields[name])))
    mac = hmac.new(token.reveal().encode(), text.encode("utf-8", "surrogatepass"), hashlib.sha1)
    return base64.b64encode(mac.digest()).decode()


def _candidates(url: str) -> set[str]:
    """The URL as called, without its port, and with the default port: Twilio signs any of them."""
    parts = _URL.fullmatch(url)
    if parts is None:
        return {url}
    scheme, host, rest = parts["scheme"], parts["host"], parts["rest"]
    port = parts["port"] or _DEFAULT_PORTS[scheme]
    return {url, f"{scheme}://{host}{rest}", f"{scheme}://{host}:{port}{rest}"}


def _query_value(url: str, name: str) -> str | None:
    # Not urlsplit: the caller chooses the host, and a malformed one must not raise here.
    fields = _form_fields(url.partition("#")[0].partition("?")[2].encode("utf-8", "surrogatepass")) or {}
    return fields.get(name, [None])[0]


def _form_fields(body: bytes) -> Fields | None:
    fields: Fields = {}
    try:
        pairs = parse_qsl(body.decode(), keep_blank_values=True, errors="strict", max_num_fields=_MAX_FIELDS)
    except ValueError:
        return None
    for name, value in pairs:
        fields.setdefault(name, []).append(value)
    return fields


def _json_fields(body: bytes) -> Fields | None:
    try:
        found = msgspec.json.decode(clean_json(body), type=dict[str, Any])
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    return {name: [_as_text(value)] for name, value in found.items()}


def _as_text(value: object) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else msgspec.json.encode(value).decode()


def _equal(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode("utf-8", "surrogatepass"), other.encode("utf-8", "surrogatepass"))


def reader(name: str, settings: Settings) -> TwilioReceipts:
    return TwilioReceipts(name, settings)
