"""What a push and a message of the inbox carry beside their text, and what the operator says about a template."""

import re
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from carillon.domain.errors import BadIntent

LONGEST_URL = 2048
MOST_DATA = 3000
"""Bytes of names and values; FCM takes 4096 of a whole message."""
LONGEST_TTL = 28 * 86_400
"""FCM keeps a message for four weeks."""
_LINK = re.compile(r"(?:https?://|mailto:|tel:|/(?!/))[^\x00-\x20\x7f-\xa0\xad\u200b-\u200f\u2028-\u202f\ufeff\\]*")
"""A link whose scheme runs nothing, or a path of the application; no character in it is skipped by browsers."""
_RESERVED = re.compile(r"from|message_type|collapse_key|notification_id|trace_id|action_url|google\..*|gcm\..*")

Link = Annotated[str, Meta(max_length=LONGEST_URL)]
Word = Annotated[str, Meta(pattern=r"^[^\x00-\x1f\x7f]{1,100}\Z")]
Text = Annotated[str, Meta(min_length=1, max_length=2000)]


class PushParts(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, rename="camel", kw_only=True
):
    """One shape of a push for every vendor and platform."""

    title: Text | None = None
    """In place of the template's subject."""
    body: Text | None = None
    """In place of the template's text."""
    image: Link | None = None
    action_url: Annotated[Link, Meta(description="What a tap opens; the app gets it as data too.")] | None = None
    collapse_key: Annotated[Word, Meta(description="A newer message replaces an older one on the device.")] | None = (
        None
    )
    ttl_seconds: (
        Annotated[int, Meta(ge=0, le=LONGEST_TTL, description="How long the vendor keeps it for a sleeping device.")]
        | None
    ) = None
    badge: Annotated[int, Meta(ge=0, le=99_999)] | None = None
    sound: Word | None = None
    channel_id: Annotated[Word, Meta(description="The channel of notifications on Android.")] | None = None
    data: dict[str, str] = {}


class InAppAction(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A button under a message of the inbox."""

    label: Annotated[str, Meta(pattern=r"^[^\x00-\x1f\x7f]{1,100}\Z")]
    url: Link


class InAppParts(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """What a message of the inbox carries; the inbox component shows the same names in a payload."""

    title: Text | None = None
    """In place of the template's subject."""
    body: Text | None = None
    """In place of the template's text."""
    url: Link | None = None
    icon: Link | None = None
    actions: Annotated[tuple[InAppAction, ...], Meta(max_length=5)] = ()


class MessageRule(msgspec.Struct, frozen=True, kw_only=True):
    """What the operator says about messages of a template."""

    sender: str | None = None
    reply_to: str | None = None
    max_segments: int | None = None
    transliterate: bool = False
    push: PushParts | None = None
    in_app: InAppParts | None = None


def rule_for(key: str, rules: Mapping[str, MessageRule]) -> MessageRule | None:
    """The rule of a template: by its key, else by the longest `prefix*` that fits it."""
    if key in rules:
        return rules[key]
    fitting = [name for name in rules if name.endswith("*") and key.startswith(name[:-1])]
    return rules[max(fitting, key=len)] if fitting else None


def joined(first: msgspec.Struct, then: msgspec.Struct | None, kind: type[Any]) -> Any:  # noqa: ANN401 - of that kind
    """Two sets of parts as one of the kind: what the second one says counts."""
    said, nothing = {name: getattr(first, name) for name in kind.__struct_fields__}, kind()
    for name in () if then is None else kind.__struct_fields__:
        value = getattr(then, name)
        if value != getattr(nothing, name):
            said[name] = {**said[name], **value} if isinstance(value, dict) else value
    return kind(**said)


def check_push(parts: PushParts, prefix: str = "push") -> None:
    """Raise BadIntent for what no device could show."""
    _check_links({f"{prefix}.image": parts.image, f"{prefix}.actionUrl": parts.action_url})
    for name in parts.data:
        if not name or _RESERVED.fullmatch(name):
            raise _wrong(f"{prefix}.data", f"{name[:64]!r} is a name that the vendor or Carillon uses")
    if sum(len(name.encode()) + len(value.encode()) for name, value in parts.data.items()) > MOST_DATA:
        raise _wrong(f"{prefix}.data", f"is larger than {MOST_DATA} bytes")


def check_in_app(parts: InAppParts, prefix: str = "inApp") -> None:
    """Raise BadIntent for a link that an inbox must not offer."""
    links = {f"{prefix}.url": parts.url, f"{prefix}.icon": parts.icon}
    links |= {f"{prefix}.actions[{number}].url": one.url for number, one in enumerate(parts.actions)}
    _check_links(links)


def _check_links(links: Mapping[str, str | None]) -> None:
    for field, url in links.items():
        if url is not None and not _LINK.fullmatch(url):
            raise _wrong(field, "must begin with https://, http://, mailto:, tel: or / and hold no spaces")


def _wrong(field: str, message: str) -> BadIntent:
    return BadIntent("VALIDATION_ERROR", f"{field}: {message}", field=field)
