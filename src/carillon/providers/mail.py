"""Email messages: addresses, letters, and what the HTTP APIs of mail vendors have in common."""

import hashlib
import re
from collections.abc import Callable
from datetime import UTC, datetime
from email.header import Header
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP, SMTPUTF8
from email.utils import format_datetime
from typing import TypeVar
from urllib.parse import urlsplit

import idna
import msgspec

from carillon.border import json_elements
from carillon.domain.claims import Claim, Dispatch
from carillon.domain.errors import Forged
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
# Seven bits, so that a server without 8BITMIME can accept the mail.
_ASCII_POLICY = SMTP.clone(cte_type="7bit")
_UTF8_POLICY = SMTPUTF8.clone(cte_type="8bit")
MAX_CALLBACK = 4 * 1024 * 1024
MAX_ID = 200
_MAX_REPORTS = 10_000
"""More than a vendor can say in a callback of the longest size."""
_MAX_UNREAD = 100
UNREADABLE = (ValueError, OverflowError, RecursionError, msgspec.DecodeError)
"""The exceptions that reading one report may raise."""
_TOKEN = re.compile(r"[\x21-\x7e]+")


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


class Letter(msgspec.Struct, frozen=True):
    """A composed mail with its envelope."""

    sender: Mailbox
    recipient: Mailbox
    message_id: str
    content: bytes

    @property
    def needs_utf8(self) -> bool:
        return self.sender.needs_utf8 or self.recipient.needs_utf8


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


def write_letter(claim: Claim, message: Message, sender: Mailbox, wall: float) -> Letter:
    """Compose the mail; raises ValueError for a forbidden character."""
    recipient = parse_mailbox(claim.address or "")
    if _LINE_BREAKING.search(message.subject or ""):
        raise ValueError("the subject has a forbidden character")
    if _LINE_BREAKING.search(claim.notification_id) or _ENCODED in claim.notification_id:
        raise ValueError("the notification id has a forbidden character")
    utf8 = sender.needs_utf8 or recipient.needs_utf8
    letter = EmailMessage(policy=_UTF8_POLICY if utf8 else _ASCII_POLICY)
    letter["From"] = sender.header()
    letter["To"] = recipient.header()
    if message.subject is not None:
        _set_subject(letter, message.subject)
    letter["Date"] = format_datetime(datetime.fromtimestamp(wall, UTC))
    letter["Message-ID"] = message_id = _message_id(claim.idempotency_key, sender.domain)
    letter["X-Carillon-Notification"] = claim.notification_id
    # Tells out-of-office responders not to answer.
    letter["Auto-Submitted"] = "auto-generated"
    letter.set_content(message.text)
    if message.html is not None:
        letter.add_alternative(message.html, subtype="html")
        # The default boundary is random; a repeat must be the same mail byte for byte.
        letter.set_boundary(f"=_{hashlib.sha256(message_id.encode()).hexdigest()[:32]}")
    return Letter(sender, recipient, message_id, letter.as_bytes())


def _set_subject(letter: EmailMessage, subject: str) -> None:
    if _ENCODED in subject:
        # Encode here and store it raw, so that text which looks like an encoded word is not decoded.
        letter.set_raw("Subject", Header(subject, "utf-8", header_name="Subject").encode(linesep="\r\n"))
    else:
        letter["Subject"] = subject


def _message_id(idempotency_key: str, domain: str) -> str:
    digest = hashlib.sha256(idempotency_key.encode()).hexdigest()
    return f"<{digest[:40]}@{domain}>"


Wanted = TypeVar("Wanted")


class Mail(msgspec.Struct, frozen=True):
    """A mail that passed the checks."""

    recipient: Mailbox
    subject: str
    text: str
    html: str | None
    headers: dict[str, str]


def read_mail(dispatch: Dispatch) -> Mail | Refused:
    """The mail of a dispatch; the vendor writes the headers, so no text may contain the end of a line."""
    claim, message = dispatch.claim, dispatch.message
    if message is None or claim.address is None or not message.subject:
        return Refused("a mail needs an address and a rendered message with a subject", classification="no_content")
    try:
        recipient = parse_mailbox(claim.address)
    except ValueError as error:
        return Refused(f"this cannot become a mail: {error}", classification="bad_content")
    if _LINE_BREAKING.search(message.subject):
        return Refused("the subject has a forbidden character", classification="bad_content")
    if _LINE_BREAKING.search(claim.notification_id) or _ENCODED in claim.notification_id:
        return Refused("the notification id has a forbidden character", classification="bad_content")
    headers = {
        # Tells out-of-office responders not to answer.
        "Auto-Submitted": "auto-generated",
        "X-Carillon-Notification": claim.notification_id,
    }
    return Mail(recipient, message.subject, message.text, message.html, headers)


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
