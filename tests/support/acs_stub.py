"""Azure Communication Services as far as Carillon speaks to it: verifies signatures, keeps operations by their id."""

import base64
import hashlib
import hmac
import json
import re
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.support.vendor import Entry, Reply, Vendor

ACCESS_KEY = base64.b64encode(b"a key of Azure, thirty-two bytes").decode()
VERSIONS = {"2023-03-31", "2025-09-01"}
_SIGNED = "HMAC-SHA256 SignedHeaders=x-ms-date;host;x-ms-content-sha256&Signature="
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_ADDRESS = re.compile(r"[!-?A-~]+@[A-Za-z0-9.-]+")
_TOP = {"senderAddress", "recipients", "content", "headers", "userEngagementTrackingDisabled", "replyTo", "attachments"}
_FILE = {"name", "contentType", "contentInBase64"}
_CLOCK_SKEW = 300


class AcsStub(Vendor):
    """`mails` holds what was accepted, by operation; a repeated operation is answered and not sent again."""

    def __init__(self, ledger: Path, *, now: float | None = None) -> None:
        super().__init__(ledger, id_header="operation-id")
        self.default = self._serve
        self.now = now
        self.mails: dict[str, dict[str, Any]] = {}

    def _serve(self, entry: Entry) -> Reply:
        wrong = self._unproven(entry)
        if wrong is not None:
            return failure(401, "Denied", wrong)
        url = urlsplit(entry["path"])
        if not VERSIONS & set(parse_qs(url.query).get("api-version", [])):
            return failure(400, "UnsupportedApiVersion", "no such version")
        if entry["method"] == "POST" and url.path == "/emails:send":
            return self._take(entry)
        operation = url.path.removeprefix("/emails/operations/")
        if entry["method"] == "GET" and operation in self.mails:
            return Reply(body={"id": operation, "status": "Succeeded", "error": None})
        return failure(404, "NotFound", "no such operation")

    def _unproven(self, entry: Entry) -> str | None:
        headers, body = entry["headers"], entry["body"].encode()
        date, digest = headers.get("x-ms-date", ""), base64.b64encode(hashlib.sha256(body).digest()).decode()
        if headers.get("x-ms-content-sha256") != digest:
            return "the content is not what was hashed"
        if self.now is not None and abs(parsedate_to_datetime(date).timestamp() - self.now) > _CLOCK_SKEW:
            return "the date is too far from now"
        text = f"{entry['method']}\n{entry['path']}\n{date};{headers['host']};{digest}"
        right = base64.b64encode(hmac.digest(base64.b64decode(ACCESS_KEY), text.encode(), "sha256")).decode()
        return None if headers.get("authorization") == _SIGNED + right else "the signature does not hold"

    def _take(self, entry: Entry) -> Reply:
        operation = entry["headers"].get("operation-id", "")
        if not _UUID.fullmatch(operation) or entry["headers"].get("content-type") != "application/json":
            return failure(400, "BadRequest", "an operation needs an id, a mail is JSON")
        mail = json.loads(entry["body"])
        wrong = _mistake(mail, inline="2025-09-01" in entry["path"])
        if wrong is not None:
            return failure(400, "BadRequest", wrong)
        self.mails.setdefault(operation, mail)
        place = f"{self.url}/emails/operations/{operation}?api-version=2023-03-31"
        # The wait is for asking about the operation, not for sending another one.
        return Reply(202, {"Operation-Location": place, "retry-after": "1"}, {"id": operation, "status": "Running"})


def failure(status: int, code: str, message: str, **headers: str) -> Reply:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(status, {"x-ms-error-code": code, **named}, {"error": {"code": code, "message": message}})


def _mistake_of_files(mail: dict[str, Any], *, inline: bool) -> str | None:
    copies = [person for kind in ("cc", "bcc") for person in mail["recipients"].get(kind, [])]
    if not all(_ADDRESS.fullmatch(person.get("address", "")) for person in (*copies, *mail.get("replyTo", []))):
        return "an invalid address"
    for file in mail.get("attachments", []):
        if file.keys() - _FILE - ({"contentId"} if inline else set()):
            return "an unknown property of an attachment"
        base64.b64decode(file["contentInBase64"], validate=True)
    return None


def _mistake(mail: dict[str, Any], *, inline: bool) -> str | None:
    if mail.keys() - _TOP:
        return "an unknown property"
    if not _ADDRESS.fullmatch(mail.get("senderAddress", "")):
        return "senderAddress is one plain address"
    recipients = mail.get("recipients", {}).get("to", [])
    if not recipients or not all(_ADDRESS.fullmatch(person.get("address", "")) for person in recipients):
        return "an invalid recipient"
    wrong = _mistake_of_files(mail, inline=inline)
    if wrong is not None:
        return wrong
    content = mail.get("content", {})
    if not content.get("subject") or not (content.get("plainText") or content.get("html")):
        return "a mail needs a subject and a content"
    lines = (content["subject"], *mail.get("headers", {}).values())
    return "a header is one line" if any("\n" in text or "\r" in text for text in lines) else None


def delivery_report(message_id: str, status: str, **data: Any) -> dict[str, Any]:
    """One event as Event Grid brings it."""
    return {
        "id": f"event-{status}",
        "topic": "/subscriptions/s/resourceGroups/g/providers/microsoft.communication/communicationservices/r",
        "subject": f"sender/bells@carillon.example/message/{message_id}",
        "data": {
            "sender": "bells@carillon.example",
            "recipient": "ada@example.com",
            "messageId": message_id,
            "status": status,
            "deliveryAttemptTimeStamp": "2020-09-18T00:22:20.2855749Z",
            **data,
        },
        "eventType": "Microsoft.Communication.EmailDeliveryReportReceived",
        "dataVersion": "1.0",
        "metadataVersion": "1",
        "eventTime": "2020-09-18T00:22:21Z",
    }


def handshake(code: str) -> dict[str, Any]:
    """The event by which Event Grid asks whether we want the others."""
    return {
        "id": "2d1781af-3a4c-4d7c-bd0c-e34b19da4e66",
        "topic": "/subscriptions/s",
        "subject": "",
        "data": {"validationCode": code, "validationUrl": "https://rp-eastus2.eventgrid.example/validate?id=x"},
        "eventType": "Microsoft.EventGrid.SubscriptionValidationEvent",
        "eventTime": "2022-10-28T04:23:35.1981776Z",
        "metadataVersion": "1",
        "dataVersion": "1",
    }
