"""SendGrid as far as Carillon speaks to it: checks key and shape as the documentation says, answers as it does."""

import base64
import itertools
import json
import re
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tests.support.vendor import Entry, Reply, Vendor

API_KEY = "SG.stub.0123456789"
_ADDRESS = re.compile(r"[!-?A-~]+@[A-Za-z0-9.-]+")
_TOP = {"personalizations", "from", "subject", "content", "headers", "custom_args", "reply_to", "attachments"}
_RESERVED = {"x-sg-id", "x-sg-eid", "received", "dkim-signature", "content-type", "content-transfer-encoding"}
_RESERVED |= {"to", "from", "subject", "reply-to", "cc", "bcc"}
_MAX_CUSTOM_ARGS = 10_000


class SendGridStub(Vendor):
    """`mails` holds what was accepted, in order, by its X-Message-Id."""

    def __init__(self, ledger: Path, *, scopes: list[str] | None = None) -> None:
        super().__init__(ledger)
        self.default = self._serve
        self.scopes = ["mail.send", "alerts.read"] if scopes is None else scopes
        self.mails: dict[str, dict[str, Any]] = {}
        self._numbers = itertools.count(1)

    def _serve(self, entry: Entry) -> Reply:
        if entry["headers"].get("authorization") != f"Bearer {API_KEY}":
            return complaint(401, "The provided authorization grant is invalid, expired, or revoked")
        match entry["method"], entry["path"]:
            case "GET", "/v3/scopes":
                return Reply(body={"scopes": self.scopes})
            case "POST", "/v3/mail/send":
                return self._take(entry)
            case _:
                return complaint(404, "not found")

    def _take(self, entry: Entry) -> Reply:
        if entry["headers"].get("content-type") != "application/json":
            return complaint(415, "Content-Type should be application/json.")
        mail = json.loads(entry["body"])
        for field, message in _mistakes(mail):
            return complaint(400, message, field)
        message_id = f"stub{next(self._numbers):018d}"
        self.mails[message_id] = mail
        return Reply(202, {"X-Message-Id": message_id}, b"")


def complaint(status: int, message: str, field: str | None = None, **headers: str) -> Reply:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(status, named, {"errors": [{"message": message, "field": field, "help": None}]})


def _mistakes(mail: dict[str, Any]) -> list[tuple[str, str]]:
    wrong = [(name, "Invalid property") for name in mail.keys() - _TOP]
    recipients = [person for each in mail.get("personalizations", []) for person in each.get("to", [])]
    wrong += _mistakes_of_files(mail)
    if not recipients:
        wrong.append(("personalizations", "The personalizations field is required"))
    for number, person in enumerate(recipients):
        if not _ADDRESS.fullmatch(person.get("email", "")):
            wrong.append((f"personalizations.{number}.to.0.email", "Does not contain a valid address."))
    if not _ADDRESS.fullmatch(mail.get("from", {}).get("email", "")):
        wrong.append(("from.email", "The from email does not contain a valid address."))
    subject = mail.get("subject") or ""
    if not subject or "\n" in subject or "\r" in subject:
        wrong.append(("subject", "The subject is required and is one line."))
    kinds = [part.get("type") for part in mail.get("content", []) if part.get("value")]
    if kinds not in (["text/plain"], ["text/plain", "text/html"]):
        wrong.append(("content", "The content is required: plain text first, then HTML."))
    for name, value in mail.get("headers", {}).items():
        if name.lower() in _RESERVED or "\n" in value or "\r" in value:
            wrong.append(("headers", "The header is reserved or broken."))
    args = mail.get("custom_args", {})
    if not all(isinstance(value, str) for value in args.values()) or len(json.dumps(args)) > _MAX_CUSTOM_ARGS:
        wrong.append(("custom_args", "Only short text is allowed."))
    return wrong


def _mistakes_of_files(mail: dict[str, Any]) -> list[tuple[str, str]]:
    wrong: list[tuple[str, str]] = []
    people = [person for each in mail.get("personalizations", []) for kind in each.values() for person in kind]
    addresses = [person.get("email", "").lower() for person in people]
    if len(set(addresses)) < len(addresses):
        wrong.append(("personalizations", "Each email address should be unique between to, cc, and bcc."))
    for file in mail.get("attachments", []):
        if file.keys() - {"content", "type", "filename", "disposition", "content_id"} or not _is_base64(
            file["content"]
        ):
            wrong.append(("attachments.0.content", "The attachment content must be base64 encoded."))
        if ";" in file["type"].partition(";")[0] or "\n" in file["type"] or "\n" in file["filename"]:
            wrong.append(("attachments.0.type", "The attachment type cannot contain CRLF characters."))
    return wrong


def _is_base64(text: str) -> bool:
    try:
        return bool(base64.b64decode(text, validate=True))
    except ValueError:
        return False


class EventSigner:
    """Signs callbacks as SendGrid does, with a key of its own."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        public = self._key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        self.public_key = base64.b64encode(public).decode()

    def headers(self, body: bytes, timestamp: int) -> dict[str, str]:
        signature = self._key.sign(str(timestamp).encode() + body, ec.ECDSA(SHA256()))
        return {
            "content-type": "application/json",
            "x-twilio-email-event-webhook-signature": base64.b64encode(signature).decode(),
            "x-twilio-email-event-webhook-timestamp": str(timestamp),
        }
