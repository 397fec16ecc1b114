"""What a push is made of: the part that the device shows, the data for the app, and how platforms treat it."""

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec

from carillon.domain.claims import Claim
from carillon.domain.intents import canonical
from carillon.domain.notifications import Message


def notification(message: Message) -> dict[str, str]:
    """The part that the device shows; the title is optional."""
    title = {} if message.subject is None else {"title": message.subject}
    return {**title, "body": message.text}


def data(claim: Claim, names: Sequence[str], *, with_id: bool) -> dict[str, str]:
    """The data that the app gets: the notification's id, the trace id and the configured variables, as text."""
    found = {"notification_id": claim.notification_id} if with_id else {}
    found |= {} if claim.trace_id is None else {"trace_id": claim.trace_id}
    payload = msgspec.json.decode(claim.payload_json)
    if isinstance(payload, dict):
        found |= {name: _as_text(payload[name]) for name in names if payload.get(name) is not None}
    return found


class Handling(msgspec.Struct, frozen=True):
    """How platforms treat a message: the tag that a repeat replaces, and whether it wakes a sleeping device."""

    tag: str | None = None
    urgent: bool | None = None
    """None leaves the choice to FCM."""


def v1_body(token: str, shown: dict[str, str], extra: dict[str, str], how: Handling) -> bytes:
    message: dict[str, Any] = {"token": token, "notification": shown}
    if extra:
        message["data"] = extra
    android: dict[str, Any] = {}
    apns: dict[str, str] = {}
    if how.urgent is not None:
        android["priority"] = "HIGH" if how.urgent else "NORMAL"
        apns["apns-priority"] = "10" if how.urgent else "5"
    if how.tag is not None:
        android["notification"] = {"tag": how.tag}
        apns["apns-collapse-id"] = how.tag
        message["webpush"] = {"notification": {"tag": how.tag}}
    if android:
        message |= {"android": android, "apns": {"headers": apns}}
    return msgspec.json.encode({"message": message})


def legacy_body(token: str, shown: dict[str, str], extra: dict[str, str], how: Handling) -> bytes:
    content: dict[str, Any] = {"to": token, "notification": shown if how.tag is None else {**shown, "tag": how.tag}}
    if how.urgent is not None:
        content["priority"] = "high" if how.urgent else "normal"
    if extra:
        content["data"] = extra
    return msgspec.json.encode(content)


def tag_of(claim: Claim) -> str:
    """The tag of a message, the same for every repeat; its length fits every platform."""
    return hashlib.sha256(claim.idempotency_key.encode()).hexdigest()


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else canonical(value)
