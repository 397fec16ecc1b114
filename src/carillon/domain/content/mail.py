"""What an email carries beside its text: attachments, copies, the address for answers, headers, an invitation."""

import base64
import binascii
import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from carillon.domain.addresses import unfit
from carillon.domain.errors import BadIntent

MOST_ATTACHMENTS, MOST_HEADERS = 20, 20
_TYPE = r"[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,63}/[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,63}"
_CONTENT_ID = re.compile(r"[A-Za-z0-9._-]{1,100}")
_HEADER = re.compile(r"[A-Za-z0-9-]{1,64}")
_HEADER_VALUE = re.compile(r"[\x20-\x7e]{0,500}")
_NEVER = re.compile(
    r"from|to|cc|bcc|sender|reply-to|subject|date|message-id|mime-version|content-.*|received|return-path|auto-submitted"
    r"|dkim-.*|arc-.*|authentication-results|resent-.*|x-carillon-.*|x-sg-.*|x-smtpapi|x-ms-.*"
    r"|list-unsubscribe.*",
    re.IGNORECASE,
)
"""Headers that Carillon, a mail server or a vendor writes: a second one would contradict the first."""
_NESTED = ("multipart/", "message/")
"""A mail program takes these apart instead of offering a file, and does not read them in base64."""
# A mail program reads `=?…?=` as encoded text, which may be anything.
_ENCODED = "=?"

MailAddress = Annotated[str, Meta(min_length=3, max_length=254, description="A plain local@domain address.")]
Copies = Annotated[tuple[MailAddress, ...], Meta(max_length=100)]


class Attachment(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, rename="camel", kw_only=True
):
    """A file of an email: its bytes, or a URL from which they are fetched before the first attempt."""

    filename: Annotated[str, Meta(pattern=r'^[^\x00-\x1f\x7f/\\"<>:|?*]{1,200}\Z', examples=["invoice.pdf"])]
    content_type: Annotated[str, Meta(pattern=rf"^{_TYPE}\Z", examples=["application/pdf"])]
    content: Annotated[str, Meta(description="The bytes in base64; this or `url`.")] | None = None
    url: Annotated[str, Meta(max_length=2048, description="Fetched under the egress rules.")] | None = None
    inline: Annotated[bool, Meta(description="Shown where the HTML says `cid:<filename>`, not in the list.")] = False

    def size(self) -> int:
        """The number of bytes; 0 of a file that is still to be fetched."""
        text = self.content or ""
        return len(text) * 3 // 4 - text[-2:].count("=")


class Invitation(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, rename="camel", kw_only=True
):
    """An event of a calendar; the email carries it as `invite.ics`."""

    title: Annotated[str, Meta(min_length=1, max_length=500)]
    start: Annotated[str, Meta(max_length=40, description="RFC 3339, with an offset.")]
    end: Annotated[str, Meta(max_length=40, description="RFC 3339, with an offset; after the start.")]
    organizer: (
        Annotated[MailAddress, Meta(description="Who gets the answers; needed for REQUEST and CANCEL.")] | None
    ) = None
    location: Annotated[str, Meta(max_length=500)] | None = None
    description: Annotated[str, Meta(max_length=5000)] | None = None
    url: Annotated[str, Meta(max_length=2048, pattern=r"^https?://[\x21-\x7e]+\Z")] | None = None
    uid: (
        Annotated[str, Meta(pattern=r"^[\x21-\x7e]{1,200}\Z", description="The same in every update; else made up.")]
        | None
    ) = None
    sequence: Annotated[int, Meta(ge=0, le=2_147_483_647, description="Grows with every update.")] = 0
    method: Literal["REQUEST", "PUBLISH", "CANCEL"] = "PUBLISH"
    reminder_minutes: Annotated[int, Meta(ge=0, le=40_320)] | None = None


class MailParts(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel", kw_only=True):
    """What an email carries beside subject, text and HTML; stored with the rendered message."""

    attachments: tuple[Attachment, ...] = ()
    cc: tuple[str, ...] = ()
    bcc: tuple[str, ...] = ()
    reply_to: str | None = None
    headers: dict[str, str] = {}
    calendar: Invitation | None = None
    sender: str | None = None
    """In place of the provider's sender; from the template or the tenant."""
    date_ms: int | None = None
    """The time in the header `Date`, if it is not that of acceptance."""
    left_out: tuple[str, ...] = ()
    """Copies that were not written to, because their address was suppressed at the attempt."""

    @property
    def copies(self) -> tuple[str, ...]:
        return (*self.cc, *self.bcc)

    @property
    def to_fetch(self) -> bool:
        """Whether bytes of an attachment are still to be fetched."""
        return any(one.content is None for one in self.attachments)


class MailRules(msgspec.Struct, frozen=True, kw_only=True):
    """What the operator allows."""

    attachment_bytes: int = 5 * 1024 * 1024
    """All attachments of one email together."""
    types: tuple[str, ...] = ("*/*",)
    copies: int = 20
    headers: tuple[str, ...] = ("X-*", "In-Reply-To", "References")
    sender_domains: frozenset[str] = frozenset()
    """The domains of senders that templates may name."""


def check_parts(parts: MailParts, recipient: str, rules: MailRules) -> None:
    """Raise BadIntent for parts that could not be sent; the error names the field."""
    _check_attachments(parts.attachments, rules)
    _check_copies(parts, recipient, rules)
    if parts.reply_to is not None:
        _check_mailbox(parts.reply_to, "replyTo")
    if parts.calendar is not None and parts.calendar.organizer is not None:
        _check_mailbox(parts.calendar.organizer, "calendar.organizer")
    _check_headers(parts.headers, rules)


def _check_attachments(attachments: Sequence[Attachment], rules: MailRules) -> None:
    if len(attachments) > MOST_ATTACHMENTS:
        raise _wrong("attachments", f"an email has at most {MOST_ATTACHMENTS} attachments")
    inline: set[str] = set()
    for number, one in enumerate(attachments):
        field = f"attachments[{number}]"
        if (one.content is None) == (one.url is None):
            raise _wrong(field, "give either content or url")
        if one.url is not None and unfit("webhook", one.url) is not None:
            raise _wrong(f"{field}.url", "must be an http or https URL without credentials")
        _check_type(one.content_type, f"{field}.contentType", rules)
        if one.content is not None:
            read_content(one.content, f"{field}.content")
        if one.inline:
            if not _CONTENT_ID.fullmatch(one.filename) or one.filename in inline:
                raise _wrong(
                    f"{field}.filename", "an inline file has a name of its own of A-Z, a-z, 0-9, '.', '_' and '-'"
                )
            inline.add(one.filename)
    if sum(one.size() for one in attachments) > rules.attachment_bytes:
        raise BadIntent(
            "PAYLOAD_TOO_LARGE",
            f"the attachments are larger than {rules.attachment_bytes} bytes (mail.attachment_bytes)",
            field="attachments",
        )


def _check_type(content_type: str, field: str, rules: MailRules) -> None:
    if content_type.lower().startswith(_NESTED):
        raise _wrong(field, "a file is no part of a mail: give application/octet-stream for a mail in a file")
    if not allowed_type(content_type, rules.types):
        raise _wrong(field, f"{content_type} is not among mail.types")


def read_content(text: str, field: str) -> bytes:
    """The bytes of an attachment; raises BadIntent unless it is plain base64."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise _wrong(field, "must be base64 without line breaks") from None


def _check_copies(parts: MailParts, recipient: str, rules: MailRules) -> None:
    seen = {recipient.casefold()}
    for name, addresses in (("cc", parts.cc), ("bcc", parts.bcc)):
        for number, address in enumerate(addresses):
            field = f"{name}[{number}]"
            _check_mailbox(address, field)
            if address.casefold() in seen:
                raise _wrong(field, "this address gets the email already")
            seen.add(address.casefold())
    if len(parts.copies) > rules.copies:
        raise _wrong("cc" if parts.cc else "bcc", f"an email has at most {rules.copies} copies (mail.copies)")


def _check_mailbox(address: str, field: str) -> None:
    wanted = unfit("email", address)
    if wanted is not None:
        raise _wrong(field, f"must be {wanted}")


def _check_headers(headers: dict[str, str], rules: MailRules) -> None:
    if len(headers) > MOST_HEADERS:
        raise _wrong("headers", f"an email has at most {MOST_HEADERS} headers of your own")
    if len({name.lower() for name in headers}) < len(headers):
        raise _wrong("headers", "a header is named twice")
    for name, value in headers.items():
        if not _HEADER.fullmatch(name) or _NEVER.fullmatch(name) or not _matches(name, rules.headers):
            raise _wrong("headers", f"{name[:64]!r} is not among the headers that mail.headers allows")
        if not _HEADER_VALUE.fullmatch(value) or _ENCODED in value:
            raise _wrong(f"headers.{name}", "a value is one line of at most 500 printable ASCII characters")


def allowed_type(content_type: str, types: Iterable[str]) -> bool:
    """Whether a content type is among patterns such as `image/*`."""
    return _matches(content_type, types)


def _matches(text: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(text.lower(), pattern.lower()) for pattern in patterns)


def _wrong(field: str, message: str) -> BadIntent:
    return BadIntent("VALIDATION_ERROR", f"{field}: {message}", field=field)
