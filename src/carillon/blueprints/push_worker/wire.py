"""The push-worker blueprint's messages, and the reasons in its dead letters."""

import re
from typing import Any

from carillon.border import read_wishes, strict_loads
from carillon.domain.claims import Settlement
from carillon.domain.content.wishes import wished, with_wishes
from carillon.domain.errors import BadIntent
from carillon.domain.intents import Intent, Malformed, Recipient
from carillon.domain.verdicts import Bury

SERVICE = "push_worker"
CHANNEL = "push"
REQUIRED = ("trace_id", "idempotency_key", "user_id", "notification_type", "recipient", "template_code")
KEPT = ("expiresAt", "ttl")
"""What a queue without a ledger can keep of the wishes of a message."""
LANGUAGE = "en"
LONGEST_KEY = 1024
_LANGUAGE = re.compile(r"[A-Za-z0-9*][A-Za-z0-9,;=.*_ -]{0,99}")
# A vendor's code has several capitals: NotRegistered, UNREGISTERED; the title of an error page has not.
_HTTP_CODE = re.compile(r"HTTP (\d{3})(?: (?:Error=)?([A-Z][A-Za-z]*[A-Z][A-Za-z_]*)(?=:|$))?")


def decode(body: bytes) -> Intent | Malformed:
    """Read one message of the queue; unknown fields are ignored."""
    try:
        return _intent(strict_loads(body))
    except BadIntent as error:
        return Malformed(stream_entry_id="", failure_code="INVALID_MESSAGE", failure_message=str(error), raw_fields={})


def _intent(content: object) -> Intent:
    if not isinstance(content, dict):
        raise BadIntent("INVALID_MESSAGE", "it is not a JSON object")
    given = {name: _text(content, name) for name in REQUIRED}
    if given["notification_type"] != CHANNEL:
        raise BadIntent("INVALID_MESSAGE", f"notification_type is {given['notification_type'][:100]!r}, not push")
    person = Recipient(
        ref=f"user:{given['user_id']}", user_id=given["user_id"], addresses={CHANNEL: given["recipient"]}
    )
    wishes = read_wishes(content)
    for name in wished(wishes):
        if name not in KEPT:
            said = f"{name}: this queue sends every message at once and alone; it keeps {' and '.join(KEPT)}"
            raise BadIntent("INVALID_MESSAGE", said, field=name)
    intent = Intent(
        notification_type=given["template_code"],
        producer=SERVICE,
        recipients=(person,),
        channels=(CHANNEL,),
        payload=_object(content, "variables"),
        content=content,
        idempotency_key=given["idempotency_key"],
        locale=_language(content),
        trace_id=given["trace_id"],
        metadata=_object(content, "metadata"),
    )
    return with_wishes(intent, wishes)


def _text(content: dict[str, Any], name: str) -> str:
    value = content.get(name)
    if not isinstance(value, str) or not value.strip():
        raise BadIntent("INVALID_MESSAGE", f"{name} must be a non-empty string")
    if len(value) > LONGEST_KEY and name != "recipient":
        raise BadIntent("INVALID_MESSAGE", f"{name} is longer than {LONGEST_KEY} characters")
    return value


def _object(content: dict[str, Any], name: str) -> dict[str, Any]:
    value = content.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadIntent("INVALID_MESSAGE", f"{name} must be an object")
    return value


def _language(content: dict[str, Any]) -> str:
    value = content.get("language")
    if value is None or value == "":
        return LANGUAGE
    # The language becomes a header.
    if not isinstance(value, str) or not _LANGUAGE.fullmatch(value):
        raise BadIntent("INVALID_MESSAGE", "language must be a language tag")
    return value


def reason(settlement: Settlement) -> str:
    """The reason of a dead letter, in the blueprint's fixed wording."""
    verdict, note = settlement.verdict, settlement.note
    said = verdict.reason if isinstance(verdict, Bury) else ""
    if note is None:
        return said
    error = note.error or ""
    if note.outcome == "refused":
        return f"FCM rejected: {_code(error)}"
    cause = f"FCM {_cause(error, note.classification)} after {settlement.claim.attempt - 1} retries"
    # The message whose own failure opened the breaker tells both: what FCM answered, and why there was no retry.
    opened = isinstance(verdict, Bury) and verdict.classification == "circuit_open"
    return f"{cause}; {said}" if opened else cause


def _code(error: str) -> str:
    found = _HTTP_CODE.match(error)
    if found is None:
        return error
    return found[2] or f"HTTP {found[1]}"


def _cause(error: str, classification: str | None) -> str:
    found = _HTTP_CODE.match(error)
    if found is not None:
        return f"HTTP {found[1]}"
    return "connection timeout" if classification == "timeout" else "connection failure"
