"""The wire formats of FCM's two APIs: their requests and the meaning of their answers."""

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec

from carillon.domain.canonical import canonical
from carillon.domain.claims import Claim
from carillon.domain.notifications import Message
from carillon.providers.answers import Rule
from carillon.providers.http import HttpAnswer

BAD_TOKEN = "INVALID_ARGUMENT/token"  # noqa: S105 - a code, not a credential
"""Our code for an INVALID_ARGUMENT that is only about the registration token."""

RULES = {
    # HTTP v1
    "UNREGISTERED": Rule("refused", "unregistered", recipient_gone=True),
    BAD_TOKEN: Rule("refused", "invalid_token", recipient_gone=True),
    "INVALID_ARGUMENT": Rule("refused", "invalid_argument"),
    "SENDER_ID_MISMATCH": Rule("refused", "sender_mismatch"),
    "QUOTA_EXCEEDED": Rule("throttled", "quota_exceeded", wait_seconds=60.0),
    "UNAVAILABLE": Rule("unavailable", "vendor_unavailable"),
    "INTERNAL": Rule("unavailable", "vendor_internal"),
    "THIRD_PARTY_AUTH_ERROR": Rule("refused", "third_party_auth"),
    "UNAUTHENTICATED": Rule("refused", "bad_credentials"),
    "PERMISSION_DENIED": Rule("refused", "bad_credentials"),
    # The legacy API
    "NotRegistered": Rule("refused", "unregistered", recipient_gone=True),
    "InvalidRegistration": Rule("refused", "invalid_token", recipient_gone=True),
    "MissingRegistration": Rule("refused", "invalid_argument"),
    "InvalidPackageName": Rule("refused", "invalid_argument"),
    "InvalidParameters": Rule("refused", "invalid_argument"),
    "InvalidDataKey": Rule("refused", "invalid_argument"),
    "InvalidTtl": Rule("refused", "invalid_argument"),
    "MessageTooBig": Rule("refused", "invalid_argument"),
    "MismatchSenderId": Rule("refused", "sender_mismatch"),
    "InvalidApnsCredential": Rule("refused", "third_party_auth"),
    "DeviceMessageRateExceeded": Rule("throttled", "quota_exceeded", wait_seconds=60.0),
    "TopicsMessageRateExceeded": Rule("throttled", "quota_exceeded", wait_seconds=60.0),
    "Unavailable": Rule("unavailable", "vendor_unavailable"),
    "InternalServerError": Rule("unavailable", "vendor_internal"),
    # Both, for an answer without a code
    "401": Rule("refused", "bad_credentials"),
    "403": Rule("refused", "bad_credentials"),
    "429": Rule("throttled", "quota_exceeded", wait_seconds=60.0),
}
BLAMES_THE_MESSAGE = frozenset(
    {"INVALID_ARGUMENT", "UNREGISTERED", "InvalidRegistration", "NotRegistered", "InvalidParameters"}
)
"""Codes that prove that FCM is healthy and accepts our credentials."""

_FCM_ERROR = "type.googleapis.com/google.firebase.fcm.v1.FcmError"
_BAD_REQUEST = "type.googleapis.com/google.rpc.BadRequest"
_UNAUTHORIZED = 401


class FcmAnswer(msgspec.Struct, frozen=True):
    """A parsed answer: the id of an accepted message, or the codes and the text of a failure."""

    taken: bool
    message_id: str | None = None
    codes: Sequence[str] = ()
    text: str = ""


def notification(message: Message) -> dict[str, str]:
    """The part that the device shows; the title is optional."""
    title = {} if message.subject is None else {"title": message.subject}
    return {**title, "body": message.text}


def data(claim: Claim, names: Sequence[str]) -> dict[str, str]:
    """The data that the app gets: the trace id and the configured variables, as text."""
    found = {} if claim.trace_id is None else {"trace_id": claim.trace_id}
    payload = msgspec.json.decode(claim.payload_json)
    if isinstance(payload, dict):
        found |= {name: _as_text(payload[name]) for name in names if payload.get(name) is not None}
    return found


def v1_body(token: str, shown: dict[str, str], extra: dict[str, str], tag: str | None) -> bytes:
    message: dict[str, Any] = {"token": token, "notification": shown}
    if extra:
        message["data"] = extra
    if tag is not None:
        message["android"] = {"notification": {"tag": tag}}
        message["apns"] = {"headers": {"apns-collapse-id": tag}}
        message["webpush"] = {"notification": {"tag": tag}}
    return msgspec.json.encode({"message": message})


def legacy_body(token: str, shown: dict[str, str], extra: dict[str, str], tag: str | None) -> bytes:
    content: dict[str, Any] = {"to": token, "notification": shown if tag is None else {**shown, "tag": tag}}
    if extra:
        content["data"] = extra
    return msgspec.json.encode(content)


def tag_of(claim: Claim) -> str:
    """The tag of a message, the same for every repeat; its length fits every platform."""
    return hashlib.sha256(claim.idempotency_key.encode()).hexdigest()


def read_v1(answer: HttpAnswer) -> FcmAnswer:
    content = _decoded(answer.body)
    if answer.ok:
        return FcmAnswer(taken=True, message_id=_text(content.get("name")))
    error = _dict(content.get("error"))
    details = [_dict(detail) for detail in _list(error.get("details"))]
    codes = [_text(detail.get("errorCode")) for detail in details if detail.get("@type") == _FCM_ERROR]
    named = [code for code in codes if code]
    words = _text(error.get("message")) or answer.excerpt()
    specific = [BAD_TOKEN] if "INVALID_ARGUMENT" in named and _blames_token(words, details) else []
    status = _text(error.get("status"))
    known = [*specific, *named, *([status] if status else [])]
    said = named[0] if named else status
    text = f"HTTP {answer.status} {said}: {words}" if said else f"HTTP {answer.status} {words}"
    return FcmAnswer(taken=False, codes=known, text=text)


def read_legacy(answer: HttpAnswer) -> FcmAnswer:
    content = _decoded(answer.body)
    results = _list(content.get("results"))
    first = _dict(results[0]) if results else {}
    if not answer.ok:
        # A bad request is plain text: Error=MissingRegistration.
        words = answer.excerpt()
        code = words.removeprefix("Error=") if words.startswith("Error=") else _text(content.get("error"))
        return FcmAnswer(taken=False, codes=[code] if code else (), text=f"HTTP {answer.status} {words}")
    code = _text(first.get("error"))
    failures = content.get("failure")
    if code is None and not (isinstance(failures, int) and failures > 0):
        return FcmAnswer(taken=True, message_id=_text(first.get("message_id")))
    return FcmAnswer(taken=False, codes=[code] if code else (), text=f"HTTP {answer.status} {code or 'failure'}")


def token_refused(answer: object) -> bool:
    """Whether FCM refused our access token, before it looked at the message."""
    if not isinstance(answer, HttpAnswer) or answer.status != _UNAUTHORIZED:
        return False
    # A bad credential of Apple or of a browser vendor has the same status, and a new token does not help there.
    return set(read_v1(answer).codes) <= {"UNAUTHENTICATED"}


def _blames_token(words: str, details: list[dict[str, Any]]) -> bool:
    violations = [
        _dict(violation).get("field")
        for detail in details
        if detail.get("@type") == _BAD_REQUEST
        for violation in _list(detail.get("fieldViolations"))
    ]
    if any(detail.get("@type") == _BAD_REQUEST for detail in details):
        return bool(violations) and all(field == "message.token" for field in violations)
    return "registration token" in words.lower()


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else canonical(value)


def _decoded(body: bytes) -> dict[str, Any]:
    try:
        return _dict(msgspec.json.decode(body))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: object) -> str | None:
    return str(value)[:500] if isinstance(value, str | int) and value != "" else None
