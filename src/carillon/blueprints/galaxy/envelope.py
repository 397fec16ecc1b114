"""The fields of an intent's stream entry; each reader raises BadIntent with a failure code."""

from collections.abc import Mapping
from typing import Any

import msgspec

from carillon.blueprints.galaxy.catalogue import PayloadKind
from carillon.border import read_wishes, strict_loads
from carillon.domain.content.wishes import NAMES, SendWishes
from carillon.domain.errors import BadIntent

REQUIRED = ("notification_type", "producer", "audience_kind", "idempotency_key", "occurred_at_ms", "payload_json")
OPTIONAL = ("recipient_user_ids_json", "request_id", "trace_id", *NAMES.values())

INVALID_ENVELOPE = "invalid_envelope"
UNSUPPORTED_TYPE = "unsupported_notification_type"
INVALID_AUDIENCE = "invalid_audience"
INVALID_RECIPIENTS = "invalid_recipients"
INVALID_PAYLOAD = "invalid_payload"

LONGEST_WORD = 512
LONGEST_USER_ID = 256
MOST_RECIPIENTS = 10_000
LARGEST_PAYLOAD = 64 * 1024
# Large enough for user ids with four bytes per character, or escaped.
LARGEST_RECIPIENTS = MOST_RECIPIENTS * LONGEST_USER_ID * 6
# The last millisecond of the year 9999, the limit of Python and of PostgreSQL's clients.
LATEST_MS = 253_402_300_799_999

_WORDS = ("idempotency_key", "request_id", "trace_id")
_LONGEST_KEPT = 128 * 1024
_MOST_KEPT = 256
_WANTED: dict[PayloadKind, str] = {"string": "a non-empty string", "integer": "an integer of 0 or more"}


class IntentEnvelope(msgspec.Struct, frozen=True, kw_only=True):
    """The fields that every type has."""

    notification_type: str
    producer: str
    audience_kind: str
    idempotency_key: str
    occurred_at_ms: int
    payload_json: str
    recipient_user_ids_json: str | None
    request_id: str | None
    trace_id: str | None


def read_envelope(fields: Mapping[str, str]) -> IntentEnvelope:
    """Read the required and the optional fields; others are ignored."""
    missing = [name for name in REQUIRED if not fields.get(name)]
    if missing:
        raise BadIntent(INVALID_ENVELOPE, f"missing or empty: {', '.join(missing)}")
    for name in _WORDS:
        _check_word(name, fields.get(name, ""))
    return IntentEnvelope(
        notification_type=fields["notification_type"],
        producer=fields["producer"],
        audience_kind=fields["audience_kind"],
        idempotency_key=fields["idempotency_key"],
        occurred_at_ms=_milliseconds(fields["occurred_at_ms"]),
        payload_json=fields["payload_json"],
        recipient_user_ids_json=fields.get("recipient_user_ids_json"),
        request_id=fields.get("request_id") or None,
        trace_id=fields.get("trace_id") or None,
    )


def _check_word(name: str, word: str) -> None:
    if len(word) > LONGEST_WORD:
        raise BadIntent(INVALID_ENVELOPE, f"{name} is longer than {LONGEST_WORD} characters")
    # UTF-8 can encode every character but lone surrogates.
    if "\x00" in word or (not word.isascii() and word.encode("utf-8", "ignore").decode() != word):
        raise BadIntent(INVALID_ENVELOPE, f"{name} contains U+0000 or bytes that are not UTF-8")


def _milliseconds(digits: str) -> int:
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= len(str(LATEST_MS))):
        raise BadIntent(INVALID_ENVELOPE, "occurred_at_ms must be Unix milliseconds in decimal digits")
    moment = int(digits)
    if not 0 < moment <= LATEST_MS:
        raise BadIntent(INVALID_ENVELOPE, f"occurred_at_ms must lie between 1 and {LATEST_MS}")
    return moment


def read_asked(fields: Mapping[str, str]) -> SendWishes:
    """The optional fields beyond the document: when the notification goes, what it replaces, what people chose."""
    try:
        return read_wishes(fields)
    except BadIntent as error:
        raise BadIntent(INVALID_ENVELOPE, str(error)) from None


def read_user_ids(text: str | None) -> list[str]:
    """The recipients of a user audience, sorted and without repeats."""
    if not text:
        raise BadIntent(INVALID_RECIPIENTS, "audience_kind=user needs recipient_user_ids_json")
    found = _json("recipient_user_ids_json", text, INVALID_RECIPIENTS, LARGEST_RECIPIENTS)
    if not isinstance(found, list) or not found:
        raise BadIntent(INVALID_RECIPIENTS, "recipient_user_ids_json must be an array of one or more user ids")
    if len(found) > MOST_RECIPIENTS:
        raise BadIntent(INVALID_RECIPIENTS, f"recipient_user_ids_json names more than {MOST_RECIPIENTS} users")
    for user_id in found:
        if not isinstance(user_id, str) or not user_id or len(user_id) > LONGEST_USER_ID:
            raise BadIntent(INVALID_RECIPIENTS, f"every user id must be a string of 1 to {LONGEST_USER_ID} characters")
    if len(set(found)) != len(found):
        raise BadIntent(INVALID_RECIPIENTS, "recipient_user_ids_json names a user twice")
    return sorted(found)


def read_payload(text: str, required: Mapping[str, PayloadKind]) -> dict[str, Any]:
    """The payload, checked for the fields that its type requires; other fields are kept."""
    found = _json("payload_json", text, INVALID_PAYLOAD, LARGEST_PAYLOAD)
    if not isinstance(found, dict):
        raise BadIntent(INVALID_PAYLOAD, "payload_json must be an object")
    wrong = [f"{name} must be {_WANTED[kind]}" for name, kind in required.items() if not _fits(found.get(name), kind)]
    if wrong:
        raise BadIntent(INVALID_PAYLOAD, f"payload_json: {'; '.join(wrong)}")
    return found


def _json(name: str, text: str, code: str, largest: int) -> object:
    try:
        body = text.encode()
    except UnicodeEncodeError:
        raise BadIntent(code, f"{name} is not UTF-8") from None
    if len(body) > largest:
        raise BadIntent(code, f"{name} is larger than {largest} bytes")
    try:
        found: object = strict_loads(body)
    except BadIntent as error:
        raise BadIntent(code, f"{name}: {error}") from None
    return found


def _fits(value: object, kind: PayloadKind) -> bool:
    # In Python a bool is an int, in JSON it is not: compare the exact type.
    return (type(value) is int and value >= 0) if kind == "integer" else (type(value) is str and value != "")


def kept(fields: Mapping[str, str]) -> dict[str, str]:
    """The fields of a malformed entry as they are stored, limited in number and size."""
    return {name[:LONGEST_WORD]: fields[name][:_LONGEST_KEPT] for name in list(fields)[:_MOST_KEPT]}
