"""Email through Azure Communication Services."""

import base64
import binascii
import hashlib
import hmac
import uuid
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec

from carillon.domain.claims import Claim, Dispatch
from carillon.domain.outcomes import Outcome, Refused, Sent
from carillon.providers import Tools
from carillon.providers.answers import AnswerTable, Rule, brief
from carillon.providers.http import HttpAnswer, HttpRequest, Reply, parse_retry_after, unanswered
from carillon.providers.mail import MAX_ID, Mail, MailFile, checked_origin, parse_sender, read_mail, understood
from carillon.providers.tools import Secret
from carillon.providers.vendor import HttpVendor

CHANNELS = frozenset({"email"})
TELLS = frozenset({"delivered", "read", "acknowledged"})
"""Its events name Delivered, view and click."""
API_VERSION = "2023-03-31"
_INLINE_VERSION = "2025-09-01"
"""The first version that shows a file inside the HTML."""
_OPERATIONS = uuid.uuid5(uuid.NAMESPACE_URL, "urn:carillon:acs:operations")
_ACCEPTED, _NOT_FOUND = 202, 404
_PROBE_SECONDS = 10.0
_DEFAULT_PORTS = {"http": 80, "https": 443}
_GIVEN_UP = frozenset({"Failed", "Canceled"})

ANSWERS = {
    "EmailDroppedAllRecipientsSuppressed": Rule("refused", "recipient_suppressed", recipient_gone=True),
    # The operator can fix these while messages wait.
    "Denied": Rule("unavailable", "auth_failed"),
    "DomainNotLinked": Rule("unavailable", "sender_not_ready"),
    "InvalidSenderUserName": Rule("unavailable", "sender_not_ready"),
    "400": Rule("refused", "bad_request"),
    "401": Rule("unavailable", "auth_failed"),
    "403": Rule("unavailable", "forbidden"),
    "404": Rule("unavailable", "wrong_url"),
    "405": Rule("unavailable", "wrong_url"),
    # The conflict may be with the operation of an earlier attempt.
    "409": Rule("unknown", "operation_exists"),
    "413": Rule("refused", "too_large"),
    "429": Rule("throttled", "rate_limited"),
}


class Settings(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The resource that sends, and the secret that proves a callback."""

    endpoint: str
    """`https://<resource>.communication.azure.com`."""
    access_key: Secret
    """Base64, as the portal shows it."""
    sender: str
    """`local@domain` of a linked domain; the portal sets the display name, one given here is not sent."""
    webhook_secret: Secret | None = None
    """The secret that Event Grid sends with every callback; without one every callback is refused."""
    answers: dict[str, Rule] = {}


class _Error(msgspec.Struct):
    code: str | None = None
    message: str | None = None


class _Operation(msgspec.Struct):
    id: str | None = None
    status: str | None = None
    error: _Error | None = None


class Acs(HttpVendor):
    """One operation for each mail; every repeat has the same operation id."""

    def __init__(self, name: str, settings: Settings, tools: Tools) -> None:
        self.name = name
        self._clock = tools.clock
        self.http = tools.http
        self._endpoint = checked_origin("endpoint", settings.endpoint)
        self._sender = parse_sender(settings.sender)
        self._key = settings.access_key
        decoded_key(settings.access_key)
        self._answers = AnswerTable(ANSWERS, settings.answers)

    def request(self, dispatch: Dispatch) -> HttpRequest | Outcome:
        mail = read_mail(dispatch, self._sender)
        if isinstance(mail, Refused):
            return mail
        try:
            body = msgspec.json.encode(self._content(mail))
        except UnicodeEncodeError:
            return Refused("the text is not valid Unicode", classification="bad_content")
        operation = _operation_of(dispatch.claim)
        version = _INLINE_VERSION if any(file.content_id for file in mail.files) else API_VERSION
        headers = {"Operation-Id": operation}
        return self._request("POST", "/emails:send", dispatch.timeout_seconds, body, headers, version=version)

    def judged(self, dispatch: Dispatch, answer: Reply) -> Outcome:
        if not isinstance(answer, HttpAnswer):
            return unanswered(answer)
        return self._judge(answer, _operation_of(dispatch.claim), dispatch.claim.address or "")

    async def probe(self) -> str | None:
        answer = await self.http.post(
            self._request("GET", f"/emails/operations/{operation_id('probe')}", _PROBE_SECONDS)
        )
        if not isinstance(answer, HttpAnswer):
            return answer.error
        # A 404 proves that the key is valid: Azure checks it before it looks for the operation.
        if answer.status == _NOT_FOUND or answer.ok:
            return None
        return brief(f"HTTP {answer.status} {answer.excerpt()}")

    async def aclose(self) -> None:
        """Connections belong to the shared client."""

    def _content(self, mail: Mail) -> dict[str, Any]:
        content = {"subject": mail.subject, "plainText": mail.text}
        if mail.html is not None:
            content["html"] = mail.html
        people = {"to": (mail.recipient,), "cc": mail.cc, "bcc": mail.bcc}
        said: dict[str, Any] = {
            "senderAddress": mail.sender.address,
            "recipients": {
                kind: [{"address": one.address} for one in found] for kind, found in people.items() if found
            },
            "content": content,
            "headers": mail.headers,
        }
        if mail.reply_to is not None:
            said["replyTo"] = [{"address": mail.reply_to.address}]
        if mail.files:
            said["attachments"] = [_attachment(file) for file in mail.files]
        return said

    def _request(
        self,
        method: Literal["GET", "POST"],
        path: str,
        seconds: float,
        body: bytes = b"",
        headers: dict[str, str] | None = None,
        *,
        version: str = API_VERSION,
    ) -> HttpRequest:
        url = f"{self._endpoint}{path}?api-version={version}"
        sent = {
            "Accept": "application/json",
            "User-Agent": "Carillon",
            **(headers or {}),
            **({"Content-Type": "application/json"} if body else {}),
            **signed_headers(self._key, method, url, body, self._clock.wall()),
        }
        return HttpRequest(
            url=url, method=method, headers=sent, body=body, timeout_seconds=seconds, secrets=[self._key.reveal()]
        )

    def _judge(self, answer: HttpAnswer, operation: str, address: str) -> Outcome:
        said = understood(answer.body, _Operation) or _Operation()
        if answer.status == _ACCEPTED and said.status not in _GIVEN_UP:
            # Lower-case, as the id in reports is: the ledger compares the two.
            return Sent(message_id=(said.id or operation).lower()[:MAX_ID])
        error = said.error or _Error(code=answer.headers.get("x-ms-error-code"))
        text = brief(f"HTTP {answer.status} {_words(error) or answer.excerpt()}", address)
        retry_after = parse_retry_after(answer.headers.get("retry-after"), self._clock.wall())
        return self._answers.judge([error.code] if error.code else [], answer.status, text, retry_after)


def _attachment(file: MailFile) -> dict[str, str]:
    shown = {} if file.content_id is None else {"contentId": file.content_id}
    content = base64.b64encode(file.content).decode()
    return {"name": file.filename, "contentType": file.typed, "contentInBase64": content, **shown}


def _words(error: _Error) -> str:
    return " ".join(part for part in (error.code, error.message) if part)


def _operation_of(claim: Claim) -> str:
    """The same id on every repeat; a new one after Azure reported a failure, as Azure ignores a known id."""
    key = claim.idempotency_key
    return operation_id(f"{key}#{claim.attempts_before}" if claim.attempts_before else key)


def operation_id(idempotency_key: str) -> str:
    """The operation id of a message: the same on every repeat, from every process."""
    return str(uuid.uuid5(_OPERATIONS, idempotency_key))


def decoded_key(key: Secret) -> bytes:
    """The signing key; raises ValueError if it is not base64."""
    try:
        decoded = base64.b64decode(key.reveal(), validate=True)
    except (ValueError, binascii.Error):
        decoded = b""
    if not decoded:
        raise ValueError("access_key: expected base64")
    return decoded


def signed_headers(key: Secret, method: str, url: str, body: bytes, wall: float) -> dict[str, str]:
    """The headers that sign a request: its method, path, time, host and body."""
    parts = urlsplit(url)
    target = f"{parts.path}?{parts.query}" if parts.query else parts.path
    # The Host header has the port only if it is not the default one.
    port = "" if parts.port in {None, _DEFAULT_PORTS[parts.scheme]} else f":{parts.port}"
    host = f"{parts.netloc.rpartition(':')[0] if parts.port is not None else parts.netloc}{port}"
    date = format_datetime(datetime.fromtimestamp(int(wall), UTC), usegmt=True)
    digest = base64.b64encode(hashlib.sha256(body).digest()).decode()
    signed = hmac.digest(decoded_key(key), f"{method}\n{target}\n{date};{host};{digest}".encode(), "sha256")
    signature = base64.b64encode(signed).decode()
    return {
        "Host": host,
        "x-ms-date": date,
        "x-ms-content-sha256": digest,
        "Authorization": f"HMAC-SHA256 SignedHeaders=x-ms-date;host;x-ms-content-sha256&Signature={signature}",
    }


def create(name: str, settings: Settings, tools: Tools) -> Acs:
    return Acs(name, settings, tools)
