"""The sections about what messages carry: emails, text messages, and the messages of single templates."""

from typing import ClassVar, Literal

import msgspec

from carillon.config.sections import Bounds, Section
from carillon.domain.content.parts import InAppParts


class MailSettings(Section, frozen=True):
    """What emails may carry, and which files may be fetched for them."""

    bounds: ClassVar[dict[str, Bounds]] = {
        "attachment_bytes": (0, 64 * 1024 * 1024),
        "fetch_seconds": (0.001, 600),
        "copies": (0, 100),
    }

    attachment_bytes: int = 5 * 1024 * 1024
    """All attachments of one email together; `http.max_body_bytes` limits those that come inside a request."""
    types: list[str] = msgspec.field(default_factory=lambda: ["*/*"])
    """Content types of attachments, such as `application/pdf` or `image/*`."""
    copies: int = 20
    """Addresses in cc and bcc of one email together."""
    headers: list[str] = msgspec.field(default_factory=lambda: ["X-*", "In-Reply-To", "References"])
    """Headers that a request may set."""
    fetch_seconds: float = 10.0
    """How long fetching the attachments of one email may take."""
    allow_http: bool = False
    """True also fetches from http URLs; this and the next three exempt attachments from the egress rules."""
    allow_networks: list[str] = []
    allow_hosts: list[str] = []
    allow_ports: list[str | int] = []


class SmsSettings(Section, frozen=True):
    """To which numbers text messages go."""

    countries: list[str] = []
    """Two letters each, such as DE; empty is every country."""
    check: Literal["format", "possible", "valid"] = "format"
    """What a number must be: E.164, of a length that its country uses, or one that its country gives out."""


class PushSettings(Section, frozen=True):
    """What pushes of one template carry; `{{name}}` stands for a value of the request."""

    bounds: ClassVar[dict[str, Bounds]] = {"ttl_seconds": (0, 28 * 86_400), "badge": (0, 99_999)}

    image: str | None = None
    action_url: str | None = None
    """What a tap opens."""
    collapse_key: str | None = None
    """A newer message replaces an older one on the device."""
    ttl_seconds: int | None = None
    """How long the vendor keeps it for a sleeping device."""
    badge: int | None = None
    sound: str | None = None
    channel_id: str | None = None
    """The channel of notifications on Android."""
    data: dict[str, str] = {}


class MessageSettings(Section, frozen=True):
    """What messages of one template carry; the table's name is a template key, or a prefix with `*`."""

    bounds: ClassVar[dict[str, Bounds]] = {"max_segments": (1, 255)}

    sender: str | None = None
    """The sender of emails, in place of the tenant's and the provider's."""
    reply_to: str | None = None
    """Where answers to emails go, unless the request says so."""
    max_segments: int | None = None
    """A text message with more parts is refused."""
    transliterate: bool = False
    """True spells a text message in GSM-7 where all of it can be."""
    push: PushSettings | None = None
    in_app: InAppParts | None = None
