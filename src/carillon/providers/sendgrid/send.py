"""Email through SendGrid's v3 API."""

import base64
import hmac
import re
from typing import Annotated, Any

import msgspec
from cryptography.exceptions import InvalidTag, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESSIV
from cryptography.hazmat.primitives.serialization import load_der_public_key

from carillon.domain.claims import Claim, Dispatch
from carillon.domain.outcomes import Outcome, Refused, Sent
from carillon.providers import Tools
from carillon.providers.answers import AnswerTable, Rule, brief
from carillon.providers.http import HttpAnswer, HttpRequest, Reply, parse_retry_after, unanswered
from carillon.providers.mail import (
    MAX_ID,
    Mail,
    MailFile,
    check_token,
    checked_origin,
    parse_sender,
    read_mail,
    understood,
)
from carillon.providers.tools import Secret
from carillon.providers.vendor import HeaderLines, HttpVendor

CHANNELS = frozenset({"email"})
TELLS = frozenset({"delivered", "read", "acknowledged"})
"""Its events name delivered, open and click."""
NOTIFICATION_ARG, ROUTE_ARG = "notificationId", "carillonRoute"
_ACCEPTED, _TOO_MANY = 202, 429
_PROBE_SECONDS = 10.0
_EPOCH = re.compile(r"[0-9]{9,11}")

# SendGrid has no codes: the text of an error and the field it names take their place.
ANSWERS = {
    "Maximum credits exceeded": Rule("unavailable", "quota_exhausted"),
    "personalizations.0.to.0.email": Rule("refused", "bad_address"),
    # The operator can fix these while messages wait.
    "from": Rule("unavailable", "sender_not_ready"),
    "from.email": Rule("unavailable", "sender_not_ready"),
    "200": Rule("unavailable", "not_queued"),
    "400": Rule("refused", "bad_request"),
    "401": Rule("unavailable", "auth_failed"),
    "403": Rule("unavailable", "forbidden"),
    "404": Rule("unavailable", "wrong_url"),
    "405": Rule("unavailable", "wrong_url"),
    "413": Rule("refused", "too_large"),
    "429": Rule("throttled", "rate_limited"),
    "451": Rule("unavailable", "wrong_region"),
}


class Settings(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The sender of the mails, and the key that proves a callback."""

    api_key: Secret
    sender: str
    """`local@domain` or `Name <local@domain>`, verified at SendGrid."""
    base_url: str = "https://api.sendgrid.com"
    webhook_public_key: str | None = None
    """The verification key of the event webhook, from SendGrid's console; without one every callback is refused."""
    webhook_tolerance_seconds: Annotated[float, msgspec.Meta(gt=0.0)] | None = 600.0
    """How far the timestamp of a callback may be from our clock; null disables the check."""
    answers: dict[str, Rule] = {}

    def verification_key(self) -> EllipticCurvePublicKey | None:
        """The key, or None if none is configured; raises ValueError if it is not a P-256 key."""
        if self.webhook_public_key is None:
            return None
        try:
            key = load_der_public_key(base64.b64decode(self.webhook_public_key, validate=True))
        except (ValueError, UnsupportedAlgorithm):
            key = None
        if isinstance(key, EllipticCurvePublicKey) and isinstance(key.curve, SECP256R1):
            return key
        raise ValueError("webhook_public_key: expected the base64 of a P-256 public key")


class _FieldError(msgspec.Struct):
    message: str | None = None
    field: str | None = None


class _Errors(msgspec.Struct):
    errors: list[_FieldError] = []


class _Scopes(msgspec.Struct):
    scopes: list[str] = []


class RouteSeal:
    """Encrypts the key of a route, which SendGrid keeps for years: a route id may contain an address.

    The same key always gives the same text. A text from an older API key cannot be decrypted; the ledger then finds
    the route by the vendor's id.
    """

    def __init__(self, api_key: Secret) -> None:
        self._cipher = AESSIV(hmac.digest(api_key.reveal().encode(), b"carillon/sendgrid/route", "sha512"))

    def close(self, idempotency_key: str) -> str:
        return base64.urlsafe_b64encode(self._cipher.encrypt(idempotency_key.encode(), None)).decode().rstrip("=")

    def open(self, text: str) -> str | None:
        try:
            sealed = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
            return self._cipher.decrypt(sealed, None).decode()
        except (ValueError, InvalidTag):
            return None


class SendGrid(HttpVendor):
    """One call for each mail."""

    def __init__(self, name: str, settings: Settings, tools: Tools) -> None:
        self.name = name
        self._clock = tools.clock
        self.http = tools.http
        self._url = checked_origin("base_url", settings.base_url)
        self._sender = parse_sender(settings.sender)
        check_token("api_key", settings.api_key)
        asks = {"Authorization": f"Bearer {settings.api_key.reveal()}", "Accept": "application/json"}
        self._asks = HeaderLines(asks | {"User-Agent": "Carillon"})
        self._sends = HeaderLines(asks | {"User-Agent": "Carillon", "Content-Type": "application/json"})
        self._seal = RouteSeal(settings.api_key)
        self._answers = AnswerTable(ANSWERS, settings.answers)
        # Report an unreadable key at the start, not at the first callback.
        settings.verification_key()

    def request(self, dispatch: Dispatch) -> HttpRequest | Outcome:
        mail = read_mail(dispatch, self._sender)
        if isinstance(mail, Refused):
            return mail
        try:
            body = msgspec.json.encode(self._content(dispatch.claim, mail))
        except UnicodeEncodeError:
            return Refused("the text is not valid Unicode", classification="bad_content")
        return HttpRequest(
            url=f"{self._url}/v3/mail/send",
            lines=self._sends.reveal(),
            body=body,
            timeout_seconds=dispatch.timeout_seconds,
        )

    def judged(self, dispatch: Dispatch, answer: Reply) -> Outcome:
        if not isinstance(answer, HttpAnswer):
            return unanswered(answer)
        if answer.status == _ACCEPTED:
            return Sent(message_id=answer.headers.get("x-message-id", "")[:MAX_ID] or None)
        return self._judge(answer, dispatch.claim.address or "")

    async def probe(self) -> str | None:
        answer = await self.http.post(
            HttpRequest(
                url=f"{self._url}/v3/scopes", method="GET", lines=self._asks.reveal(), timeout_seconds=_PROBE_SECONDS
            )
        )
        if not isinstance(answer, HttpAnswer):
            return answer.error
        if not answer.ok:
            return brief(f"HTTP {answer.status} {answer.excerpt()}")
        found = understood(answer.body, _Scopes)
        if found is None:
            return "the server does not answer like SendGrid"
        return None if "mail.send" in found.scopes else "the API key may not send mail"

    async def aclose(self) -> None:
        """Connections belong to the shared client."""

    def _content(self, claim: Claim, mail: Mail) -> dict[str, Any]:
        sender = {"email": mail.sender.address} | ({"name": mail.sender.name} if mail.sender.name else {})
        people = {"to": (mail.recipient,), "cc": mail.cc, "bcc": mail.bcc}
        written = {kind: [{"email": one.address} for one in found] for kind, found in people.items() if found}
        content = [{"type": "text/plain", "value": mail.text}]
        if mail.html is not None:
            content.append({"type": "text/html", "value": mail.html})
        said: dict[str, Any] = {
            "from": sender,
            "subject": mail.subject,
            "personalizations": [written],
            "content": content,
            "headers": mail.headers,
            "custom_args": {
                NOTIFICATION_ARG: claim.notification_id,
                ROUTE_ARG: self._seal.close(claim.idempotency_key),
            },
        }
        if mail.reply_to is not None:
            said["reply_to"] = {"email": mail.reply_to.address}
        if mail.files:
            said["attachments"] = [_attachment(file) for file in mail.files]
        return said

    def _judge(self, answer: HttpAnswer, address: str) -> Outcome:
        errors = (understood(answer.body, _Errors) or _Errors()).errors
        words = [error.message for error in errors if error.message]
        fields = [error.field for error in errors if error.field]
        said = brief(f"HTTP {answer.status} {' '.join(words) or answer.excerpt()}", address)
        return self._answers.judge([*words, *fields], answer.status, said, self._retry_after(answer))

    def _retry_after(self, answer: HttpAnswer) -> float | None:
        wait = parse_retry_after(answer.headers.get("retry-after"), self._clock.wall())
        reset = answer.headers.get("x-ratelimit-reset", "")
        if wait is None and answer.status == _TOO_MANY and _EPOCH.fullmatch(reset):
            return max(0.0, int(reset) - self._clock.wall())
        return wait


def _attachment(file: MailFile) -> dict[str, str]:
    shown = {"disposition": "attachment"}
    if file.content_id is not None:
        shown = {"disposition": "inline", "content_id": file.content_id}
    return {
        "content": base64.b64encode(file.content).decode(),
        "type": file.typed,
        "filename": file.filename,
        **shown,
    }


def create(name: str, settings: Settings, tools: Tools) -> SendGrid:
    return SendGrid(name, settings, tools)
