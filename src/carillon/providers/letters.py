"""Letters: a mail as the bytes that SMTP carries, the same at every repeat."""

import hashlib
from datetime import UTC, datetime
from email.header import Header
from email.message import EmailMessage
from email.policy import SMTP, SMTPUTF8
from email.utils import format_datetime

import msgspec

from carillon.domain.claims import Claim
from carillon.providers.mail import Mail, Mailbox, MailFile

_ENCODED = "=?"
# Seven bits, so that a server without 8BITMIME can accept the mail. A line that is written as it shall be stays so.
_ASCII_POLICY = SMTP.clone(cte_type="7bit", refold_source="none")
_UTF8_POLICY = SMTPUTF8.clone(cte_type="8bit", refold_source="none")


class Letter(msgspec.Struct, frozen=True):
    """A composed mail with its envelope."""

    sender: Mailbox
    recipient: Mailbox
    message_id: str
    content: bytes
    copies: tuple[Mailbox, ...] = ()
    """Further addresses of the envelope; blind copies stand nowhere else."""
    needs_utf8: bool = False


def write_letter(claim: Claim, mail: Mail) -> Letter:
    """Compose the mail; raises ValueError for a text that no mail can hold."""
    letter = EmailMessage(policy=_UTF8_POLICY if mail.needs_utf8 else _ASCII_POLICY)
    letter["From"] = mail.sender.header()
    letter["To"] = mail.recipient.header()
    if mail.cc:
        letter["Cc"] = tuple(mailbox.header() for mailbox in mail.cc)
    if mail.reply_to is not None:
        letter["Reply-To"] = mail.reply_to.header()
    if mail.subject is not None:
        _set_subject(letter, mail.subject)
    letter["Date"] = format_datetime(datetime.fromtimestamp(int(mail.date), UTC))
    letter["Message-ID"] = message_id = _message_id(claim.idempotency_key, mail.sender.domain)
    for name, value in mail.headers.items():
        _set_header(letter, name, value)
    letter.set_content(mail.text)
    if mail.html is not None:
        letter.add_alternative(mail.html, subtype="html")
        _relate(letter, [file for file in mail.files if file.content_id is not None])
    for file in mail.files:
        if file.content_id is None or mail.html is None:
            _attach(letter, file)
    _name_boundaries(letter, message_id)
    return Letter(mail.sender, mail.recipient, message_id, letter.as_bytes(), mail.copies, mail.needs_utf8)


def _set_header(letter: EmailMessage, name: str, value: str) -> None:
    if value.isascii() and value.isprintable():
        # In one line, and no line may have more than 998 characters: the library would encode a link or an id that is
        # longer than 78, and no mail program knows an encoded `In-Reply-To`.
        letter.set_raw(name, value)
    else:
        letter[name] = value


def _relate(letter: EmailMessage, files: list[MailFile]) -> None:
    """Put the files that the HTML shows beside the HTML."""
    html = letter.get_body(("html",))
    if html is None:
        return
    for file in files:
        kind, _, subtype = file.content_type.partition("/")
        html.add_related(
            file.content,
            maintype=kind,
            subtype=subtype,
            cid=f"<{file.content_id}>",
            filename=file.filename,
            disposition="inline",
        )


def _attach(letter: EmailMessage, file: MailFile) -> None:
    kind, _, subtype = file.content_type.partition("/")
    letter.add_attachment(
        file.content, maintype=kind, subtype=subtype, filename=file.filename, params=file.parameters or None
    )


def _name_boundaries(letter: EmailMessage, message_id: str) -> None:
    # The default boundaries are random; a repeat must be the same mail byte for byte.
    for number, part in enumerate(part for part in letter.walk() if part.is_multipart()):
        seed = message_id if number == 0 else f"{message_id}/{number}"
        part.set_boundary(f"=_{hashlib.sha256(seed.encode()).hexdigest()[:32]}")


def _set_subject(letter: EmailMessage, subject: str) -> None:
    if _ENCODED in subject:
        # Encode here and store it raw, so that text which looks like an encoded word is not decoded.
        letter.set_raw("Subject", Header(subject, "utf-8", header_name="Subject").encode(linesep="\r\n"))
    else:
        letter["Subject"] = subject


def _message_id(idempotency_key: str, domain: str) -> str:
    digest = hashlib.sha256(idempotency_key.encode()).hexdigest()
    return f"<{digest[:40]}@{domain}>"
