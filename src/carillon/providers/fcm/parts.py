"""What a push carries beside its text, as FCM says it to Android, Apple's devices and browsers."""

import hashlib
import math
from typing import Any

import msgspec

from carillon.domain.claims import Dispatch
from carillon.domain.content.parts import PushParts

_NO_PARTS = PushParts()
_LONGEST_ID = 64
"""Bytes of a collapse id at Apple."""


def carries(dispatch: Dispatch) -> bool:
    """Whether there is more to say than title and body."""
    return dispatch.claim.expires_in is not None or bool(dispatch.message and dispatch.message.push)


def with_parts(body: bytes, dispatch: Dispatch, *, legacy: bool) -> bytes:
    """The request's body with the parts of the message, in the form of either API."""
    said = msgspec.json.decode(body)
    parts = (dispatch.message and dispatch.message.push) or _NO_PARTS
    seconds = _ttl(parts, dispatch.claim.expires_in)
    if legacy:
        _add_legacy(said, parts, seconds)
    else:
        _add_v1(said["message"], parts, seconds, dispatch.claim.accepted_at_ms // 1000)
    return msgspec.json.encode(said)


def _ttl(parts: PushParts, expires_in: float | None) -> int | None:
    """How long FCM keeps the message for a sleeping device: never longer than the notification is worth sending."""
    ends = [] if parts.ttl_seconds is None else [parts.ttl_seconds]
    if expires_in is not None:
        ends.append(max(0, math.floor(expires_in)))
    return min(ends, default=None)


def _data(parts: PushParts) -> dict[str, str]:
    return parts.data if parts.action_url is None else {**parts.data, "action_url": parts.action_url}


def _add_v1(message: dict[str, Any], parts: PushParts, seconds: int | None, accepted: int) -> None:
    if parts.image is not None:
        message["notification"]["image"] = parts.image
    if data := _data(parts):
        message["data"] = message.get("data", {}) | data
    given = {"sound": parts.sound, "channel_id": parts.channel_id, "notification_count": parts.badge}
    _put(message, ("android", "notification"), given)
    kept = None if seconds is None else f"{seconds}s"
    _put(message, ("android",), {"collapse_key": parts.collapse_key, "ttl": kept})
    aps = {"badge": parts.badge, "sound": parts.sound, "mutable-content": None if parts.image is None else 1}
    _put(message, ("apns", "payload", "aps"), aps)
    _put(message, ("apns", "fcm_options"), {"image": parts.image})
    until = None if seconds is None else str(accepted + seconds)
    _put(message, ("apns", "headers"), {"apns-collapse-id": _short(parts.collapse_key), "apns-expiration": until})
    _put(message, ("webpush", "headers"), {"TTL": None if seconds is None else str(seconds)})
    _put(message, ("webpush", "notification"), {"image": parts.image, "tag": parts.collapse_key})
    # FCM takes a link of https alone; an app reads the others in its data.
    link = parts.action_url if (parts.action_url or "").startswith("https://") else None
    _put(message, ("webpush", "fcm_options"), {"link": link})


def _add_legacy(content: dict[str, Any], parts: PushParts, seconds: int | None) -> None:
    shown = {"image": parts.image, "sound": parts.sound, "android_channel_id": parts.channel_id}
    shown |= {"badge": None if parts.badge is None else str(parts.badge), "click_action": parts.action_url}
    _put(content, ("notification",), shown)
    _put(content, (), {"collapse_key": parts.collapse_key, "time_to_live": seconds})
    if data := _data(parts):
        content["data"] = content.get("data", {}) | data


def _put(into: dict[str, Any], path: tuple[str, ...], values: dict[str, Any]) -> None:
    """Set the values that are given, in a place that is made only for them."""
    given = {name: value for name, value in values.items() if value is not None}
    if given:
        for step in path:
            into = into.setdefault(step, {})
        into.update(given)


def _short(key: str | None) -> str | None:
    if key is None or len(key.encode()) <= _LONGEST_ID:
        return key
    return hashlib.sha256(key.encode()).hexdigest()
