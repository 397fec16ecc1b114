"""Composing a mail: strict addresses, headers without injection, the same Message-ID on every repeat."""

import hashlib
import re
from datetime import UTC, datetime
from email.header import Header
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP, SMTPUTF8
from email.utils import format_datetime

import idna
import msgspec

from carillon.domain.claims import Claim
from carillon.domain.notifications import Message

# Every character that some parser may read as the end of a line. Python before 3.11.15 accepts some of these.
_LINE_BREAKING = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_ATOM = re.compile(
    r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~\u00a1-\U0010ffff-]+(?:\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~\u00a1-\U0010ffff-]+)*"
)
# The library decodes and rewrites an encoded word: `=?utf-8?q?=0D=0ABcc:…?=` would become a header.
_ENCODED = "=?"
_LABEL = re.compile(r"(?!-)[A-Za-z0-9-]{1,63}(?<!-)")
_NAMED = re.compile(r'\s*"?(?P<name>[^"<>]*?)"?\s*<(?P<address>[^<>]+)>\s*')
_MAX_LOCAL, _MAX_ADDRESS = 64, 254
# Seven bits, so that a server without 8BITMIME can accept the mail.
_ASCII_POLICY = SMTP.clone(cte_type="7bit")
_UTF8_POLICY = SMTPUTF8.clone(cte_type="8bit")


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
    named = _NAMED.fullmatch(text)
    if named is None:
        return parse_mailbox(text)
    if _LINE_BREAKING.search(named["name"]) or _ENCODED in named["name"]:
        raise ValueError("the name has a forbidden character")
    return msgspec.structs.replace(parse_mailbox(named["address"]), name=named["name"].strip())


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
