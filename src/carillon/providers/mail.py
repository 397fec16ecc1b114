"""Email messages: addresses, the mail that every provider sends, and what the HTTP APIs of vendors have in common."""

import hashlib
import re
from collections.abc import Callable, Mapping
from email.headerregistry import Address
from typing import TypeVar
from urllib.parse import urlsplit

import idna
import msgspec

from carillon.border import json_elements
from carillon.domain.claims import Claim, Dispatch
from carillon.domain.content.calendar import FILENAME as INVITATION
from carillon.domain.content.calendar import write_invitation
from carillon.domain.content.mail import MailParts, read_content
from carillon.domain.errors import BadIntent, Forged
from carillon.domain.notifications import Message
from carillon.domain.outcomes import Refused
from carillon.domain.receipts import Receipt
from carillon.providers.tools import Secret

# Every character that some parser may read as the end of a line. Python before 3.11.15 accepts some of these.
_LINE_BREAKING = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_ATOM = re.compile(
    r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~\u00a1-\U0010ffff-]+(?:\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~\u00a1-\U0010ffff-]+)*"
)
# The library decodes and rewrites an encoded word: `=?utf-8?q?=0D=0ABcc:…?=` would become a header.
_ENCODED = "=?"
_LABEL = re.compile(r"(?!-)[A-Za-z0-9-]{1,63}(?<!-)")
_UNNAMEABLE = frozenset('"<>')
_MAX_LOCAL, _MAX_ADDRESS = 64, 254
LEAVE = "List-Unsubscribe"
"""The header with the link at which one click leaves a category."""
MAX_CALLBACK = 4 * 1024 * 1024
MAX_ID = 200
_MAX_REPORTS = 10_000
"""More than a vendor can say in a callback of the longest size."""
_MAX_UNREAD = 100
UNREADABLE = (ValueError, OverflowError, RecursionError, msgspec.DecodeError)
"""The exceptions that reading one report may raise."""
_TOKEN = re.compile(r"[\x21-\x7e]+")
_HEADER_NAME = re.compile(r"[A-Za-z0-9-]{1,64}")
_NO_PARTS = MailParts()


class Mailbox(msgspec.Struct, frozen=True):
    """A mail address that passed the checks."""

    local: str
    domain: str
    name: str = ""

    @property
    def address(self) -> str:
        return f"{self.local}@{self.domain}"

    @property
    def needs_utf8(self) -> bool:
        return not self.local.isascii()

    def header(self) -> Address:
        return Address(self.name, self.local, self.domain)


def parse_mailbox(text: str) -> Mailbox:
    """Read `local@domain`, strictly; raises ValueError."""
    local, at, domain = text.rpartition("@")
    if not at or _LINE_BREAKING.search(text) or _ENCODED in local or not _ATOM.fullmatch(local):
        raise ValueError("not a plain local@domain address")
    if not domain.isascii():
        try:
            domain = idna.encode(domain, uts46=True).decode()
        except (idna.IDNAError, UnicodeError):
            raise ValueError("the domain is not a valid international name") from None
    if not all(_LABEL.fullmatch(label) for label in domain.split(".")):
        raise ValueError("the domain is not a host name")
    if len(local.encode()) > _MAX_LOCAL or len(local.encode()) + 1 + len(domain) > _MAX_ADDRESS:
        raise ValueError("the address is too long")
    return Mailbox(local, domain)


def parse_sender(text: str) -> Mailbox:
    """Read `local@domain` or `Name <local@domain>`; raises ValueError."""
    before, opened, behind = text.partition("<")
    address, closed, rest = behind.partition(">")
    name = before.strip().removeprefix('"').removesuffix('"').strip()
    if not opened or not closed or rest.strip():
        return parse_mailbox(text)
    if _LINE_BREAKING.search(name) or _ENCODED in name or not _UNNAMEABLE.isdisjoint(name):
        raise ValueError("the name has a forbidden character")
    return msgspec.structs.replace(parse_mailbox(address), name=name)


def unsubscribe_headers(claim: Claim) -> dict[str, str]:
    """RFC 8058: mail programs offer one click to leave the category; none where it cannot be left."""
    if claim.unsubscribe_url is None:
        return {}
    return {LEAVE: f"<{claim.unsubscribe_url}>", "List-Unsubscribe-Post": "List-Unsubscribe=One-Click"}


Wanted = TypeVar("Wanted")


class MailFile(msgspec.Struct, frozen=True):
    """A file of a mail."""

    filename: str
    content_type: str
    content: bytes
    content_id: str | None = None
    """The name by which the HTML shows it; None of a file in the list."""
    parameters: dict[str, str] = {}
    """Parameters of the content type."""

    @property
    def typed(self) -> str:
        """The content type with its parameters."""
        return "; ".join([self.content_type, *(f"{name}={value}" for name, value in self.parameters.items())])


class Mail(msgspec.Struct, frozen=True, kw_only=True):
    """A mail that passed the checks; every provider and every repeat gets the same one."""

    sender: Mailbox
    recipient: Mailbox
    subject: str | None
    text: str
    html: str | None
    headers: dict[str, str]
    date: float
    """In Unix seconds: when the mail was accepted or due, not when it is sent, so that a repeat is the same mail."""
    cc: tuple[Mailbox, ...] = ()
    bcc: tuple[Mailbox, ...] = ()
    reply_to: Mailbox | None = None
    files: tuple[MailFile, ...] = ()

    @property
    def copies(self) -> tuple[Mailbox, ...]:
        return (*self.cc, *self.bcc)

    @property
    def needs_utf8(self) -> bool:
        written = (self.sender, self.recipient, *self.copies, *([self.reply_to] if self.reply_to else []))
        return any(mailbox.needs_utf8 for mailbox in written)


def read_mail(dispatch: Dispatch, sender: Mailbox, *, needs_subject: bool = True) -> Mail | Refused:
    """The mail of a dispatch, the same for every provider and repeat; `sender` is the provider's own."""
    claim, message = dispatch.claim, dispatch.message
    if message is None or claim.address is None:
        return Refused("a mail needs an address and a rendered message", classification="no_content")
    if needs_subject and not message.subject:
        return Refused("a mail needs an address and a rendered message with a subject", classification="no_content")
    try:
        return _mail(claim, message, sender)
    except (ValueError, BadIntent) as error:
        return Refused(f"this cannot become a mail: {error}", classification="bad_content")


def _mail(claim: Claim, message: Message, sender: Mailbox) -> Mail:
    """Raises ValueError for a character that could end a header."""
    parts = message.mail or _NO_PARTS
    for said, text in (("subject", message.subject or ""), ("notification id", claim.notification_id)):
        if _LINE_BREAKING.search(text):
            raise ValueError(f"the {said} has a forbidden character")
    if _ENCODED in claim.notification_id:
        raise ValueError("the notification id has a forbidden character")
    date = (claim.accepted_at_ms if parts.date_ms is None else parts.date_ms) / 1000
    headers = {
        **_sound_headers(parts.headers),
        "X-Carillon-Notification": claim.notification_id,
        # Tells out-of-office responders not to answer.
        "Auto-Submitted": "auto-generated",
        # Last, so that no header of a request stands in their place.
        **unsubscribe_headers(claim),
    }
    return Mail(
        sender=sender if parts.sender is None else parse_sender(parts.sender),
        recipient=parse_mailbox(claim.address or ""),
        subject=message.subject,
        text=message.text,
        html=message.html,
        headers=headers,
        date=date,
        cc=tuple(map(parse_mailbox, parts.cc)),
        bcc=tuple(map(parse_mailbox, parts.bcc)),
        reply_to=None if parts.reply_to is None else parse_mailbox(parts.reply_to),
        files=_files(claim, parts, date),
    )


def _sound_headers(headers: Mapping[str, str]) -> Mapping[str, str]:
    """The headers again: what was accepted under other settings, or written by hand, ends no line either."""
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name) or _LINE_BREAKING.search(value) or _ENCODED in value:
            raise ValueError("a header has a forbidden character")
    return headers


def _files(claim: Claim, parts: MailParts, date: float) -> tuple[MailFile, ...]:
    files = [
        MailFile(
            one.filename,
            one.content_type.lower(),
            read_content(one.content or "", "attachments"),
            one.filename if one.inline else None,
        )
        for one in parts.attachments
    ]
    if any(_LINE_BREAKING.search(file.filename) or '"' in file.filename for file in files):
        raise ValueError("a file name has a forbidden character")
    if parts.calendar is not None:
        uid = f"{hashlib.sha256(claim.idempotency_key.encode()).hexdigest()[:40]}@carillon"
        event = write_invitation(parts.calendar, [claim.address or "", *parts.cc], uid, date)
        parameters = {"method": parts.calendar.method, "charset": "utf-8"}
        files.append(MailFile(INVITATION, "text/calendar", event, None, parameters))
    return tuple(files)


def checked_origin(option: str, url: str) -> str:
    """The operator's URL without its last slash; raises ValueError if no path can follow it."""
    try:
        parts = urlsplit(url)
        sound = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        sound = False
    if not sound or parts.query or parts.fragment or "@" in parts.netloc or not _TOKEN.fullmatch(url):
        raise ValueError(f"{option}: expected https://host[:port][/path]")
    return url.rstrip("/")


def check_token(option: str, secret: Secret) -> None:
    """Raise ValueError for a character that no header can hold; usually the line end of a secret's file."""
    if not _TOKEN.fullmatch(secret.reveal()):
        raise ValueError(f"{option}: has a character that no header can carry")


def read_each(body: bytes, read: Callable[[bytes], Receipt | None]) -> tuple[list[Receipt], list[str]]:
    """Read every report of a callback by itself, so that an unreadable report does not affect the others."""
    reports = json_elements(body)
    if reports is None:
        return [], ["not a list of reports"]
    receipts: list[Receipt] = []
    unread: list[str] = []
    for number, report in enumerate(reports[:_MAX_REPORTS]):
        try:
            receipt = read(report)
        except UNREADABLE as error:
            unread.append(f"report {number}: {error}")
        else:
            receipts += [] if receipt is None else [receipt]
    if len(reports) > _MAX_REPORTS:
        unread.insert(0, f"more than {_MAX_REPORTS} reports in one call")
    if len(unread) > _MAX_UNREAD:
        unread[_MAX_UNREAD:] = [f"and {len(unread) - _MAX_UNREAD} more"]
    return receipts, unread


def understood(body: bytes, wanted: type[Wanted]) -> Wanted | None:
    """The body read as JSON; None if the vendor, or a proxy before it, answered something else."""
    try:
        return msgspec.json.decode(body, type=wanted)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def refuse_oversized(body: bytes) -> None:
    if len(body) > MAX_CALLBACK:
        raise Forged("a callback larger than the vendor sends")


def checked_id(text: str | None) -> str | None:
    if text is not None and len(text) > MAX_ID:
        raise ValueError(f"an id is longer than {MAX_ID} characters")
    return text or None


def slug(words: str) -> str:
    """A vendor's text as a classification: `Invalid Address` becomes `invalid_address`."""
    return re.sub(r"[^a-z0-9]+", "_", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", words[:64]).lower()).strip("_")
