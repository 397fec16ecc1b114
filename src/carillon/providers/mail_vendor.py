"""What email vendors with a JSON API share: checking a mail before sending, and reading a list of reports."""

import re
from collections.abc import Callable
from typing import TypeVar
from urllib.parse import urlsplit

import msgspec

from carillon.border import json_elements
from carillon.domain.claims import Dispatch
from carillon.domain.errors import Forged
from carillon.domain.outcomes import Refused
from carillon.domain.receipts import Receipt
from carillon.providers.secret import Secret
from carillon.providers.smtp.message import Mailbox, parse_mailbox

MAX_CALLBACK = 4 * 1024 * 1024
MAX_ID = 200
_MAX_UNREAD = 100
UNREADABLE = (ValueError, OverflowError, RecursionError, msgspec.DecodeError)
"""What reading one report may raise."""
# Every character that some program may read as the end of a line.
_LINE_BREAKING = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_ENCODED = "=?"
_TOKEN = re.compile(r"[\x21-\x7e]+")
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
    """Read every report of a callback by itself: one that `read` cannot make out costs none of the others."""
    reports = json_elements(body)
    if reports is None:
        return [], ["not a list of reports"]
    receipts: list[Receipt] = []
    unread: list[str] = []
    for number, report in enumerate(reports):
        try:
            receipt = read(report)
        except UNREADABLE as error:
            unread.append(f"report {number}: {error}")
        else:
            receipts += [] if receipt is None else [receipt]
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
        raise ValueError("an id is too long to be one")
    return text or None


def slug(words: str) -> str:
    """A vendor's text as a classification: `Invalid Address` becomes `invalid_address`."""
    return re.sub(r"[^a-z0-9]+", "_", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", words[:64]).lower()).strip("_")
