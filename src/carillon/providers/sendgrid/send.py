"""Email through SendGrid's v3 interface."""

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
from carillon.providers.http import Answer, MaybeSent, NotSent, Request, parse_retry_after, unanswered
from carillon.providers.mail_vendor import MAX_ID, Mail, check_token, checked_origin, read_mail, understood
from carillon.providers.secret import Secret
from carillon.providers.smtp.message import parse_sender

CHANNELS = frozenset({"email"})
NOTIFICATION_ARG, ROUTE_ARG = "notificationId", "carillonRoute"
_ACCEPTED, _TOO_MANY = 202, 429
_PROBE_SECONDS = 10.0
_EPOCH = re.compile(r"[0-9]{9,11}")

# SendGrid has no codes: the words of an error and the field it names stand for them.
ANSWERS = {
    "Maximum credits exceeded": Rule("unavailable", "quota_exhausted"),
    "personalizations.0.to.0.email": Rule("refused", "bad_address"),
    # Whoever runs Carillon can mend these while messages wait.
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
    """As whom to send, and what proves a callback."""

    api_key: Secret
    sender: str
    """`local@domain` or `Name <local@domain>`, verified at SendGrid."""
    base_url: str = "https://api.sendgrid.com"
    webhook_public_key: str | None = None
    """The verification key of the event webhook, as the console shows it; without one no callback is believed."""
    webhook_tolerance_seconds: Annotated[float, msgspec.Meta(gt=0.0)] | None = 600.0
    """How far a callback's timestamp may be from our clock; null switches the check off."""
    answers: dict[str, Rule] = {}

    def verification_key(self) -> EllipticCurvePublicKey | None:
        """The key, or None where none is configured; raises ValueError for what is no P-256 key."""
        if self.webhook_public_key is None:
            return None
        try:
            key = load_der_public_key(base64.b64decode(self.webhook_public_key, validate=True))
        except (ValueError, UnsupportedAlgorithm):
            key = None
        if isinstance(key, EllipticCurvePublicKey) and isinstance(key.curve, SECP256R1):
            return key
        raise ValueError("webhook_public_key: expected the base64 of a P-256 public key")


class _Complaint(msgspec.Struct):
    message: str | None = None
    field: str | None = None


class _Complaints(msgspec.Struct):
    errors: list[_Complaint] = []


class _Scopes(msgspec.Struct):
    scopes: list[str] = []


class RouteSeal:
    """Hides a route's key in what SendGrid keeps for years: a route may be named after an address.

    The same key always seals to the same text. Seals of an older API key are not opened; such reports are found by
    the vendor's id.
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


class SendGrid:
    """One call for each mail."""

    def __init__(self, name: str, settings: Settings, tools: Tools) -> None:
        self.name = name
        self._clock = tools.clock
        self._http = tools.http
        self._url = checked_origin("base_url", settings.base_url)
        self._sender = parse_sender(settings.sender)
        self._key = settings.api_key
        check_token("api_key", settings.api_key)
        self._seal = RouteSeal(settings.api_key)
        self._answers = AnswerTable(ANSWERS, settings.answers)
        # A key that cannot be read is reported at the start, not at the first callback.
        settings.verification_key()

    async def send(self, dispatch: Dispatch) -> Outcome:
        mail = read_mail(dispatch)
        if isinstance(mail, Refused):
            return mail
        try:
            body = msgspec.json.encode(self._content(dispatch.claim, mail))
        except UnicodeEncodeError:
            return Refused("the text is not valid Unicode", classification="bad_content")
        answer = await self._call("POST", "/v3/mail/send", dispatch.timeout_seconds, body)
        if not isinstance(answer, Answer):
            return unanswered(answer)
        if answer.status == _ACCEPTED:
            return Sent(message_id=answer.headers.get("x-message-id", "")[:MAX_ID] or None)
        return self._judge(answer, mail.recipient.address)

    async def probe(self) -> str | None:
        answer = await self._call("GET", "/v3/scopes", _PROBE_SECONDS)
        if not isinstance(answer, Answer):
            return answer.error
        if not answer.ok:
            return brief(f"HTTP {answer.status} {answer.excerpt()}", self._key.reveal())
        found = understood(answer.body, _Scopes)
        if found is None:
            return "this does not answer like SendGrid"
        return None if "mail.send" in found.scopes else "the API key may not send mail"

    async def aclose(self) -> None:
        """Connections belong to the shared client."""

    def _content(self, claim: Claim, mail: Mail) -> dict[str, Any]:
        sender = {"email": self._sender.address} | ({"name": self._sender.name} if self._sender.name else {})
        content = [{"type": "text/plain", "value": mail.text}]
        if mail.html is not None:
            content.append({"type": "text/html", "value": mail.html})
        return {
            "from": sender,
            "subject": mail.subject,
            "personalizations": [{"to": [{"email": mail.recipient.address}]}],
            "content": content,
            "headers": mail.headers,
            "custom_args": {
                NOTIFICATION_ARG: claim.notification_id,
                ROUTE_ARG: self._seal.close(claim.idempotency_key),
            },
        }

    async def _call(self, method: str, path: str, seconds: float, body: bytes = b"") -> Answer | NotSent | MaybeSent:
        headers = {
            "Authorization": f"Bearer {self._key.reveal()}",
            "Accept": "application/json",
            "User-Agent": "Carillon",
        }
        if body:
            headers["Content-Type"] = "application/json"
        url = self._url + path
        return await self._http.post(
            Request(url=url, method=method, headers=headers, body=body, timeout_seconds=seconds)
        )

    def _judge(self, answer: Answer, address: str) -> Outcome:
        errors = (understood(answer.body, _Complaints) or _Complaints()).errors
        words = [error.message for error in errors if error.message]
        fields = [error.field for error in errors if error.field]
        said = brief(f"HTTP {answer.status} {' '.join(words) or answer.excerpt()}", self._key.reveal(), address)
        return self._answers.judge([*words, *fields], answer.status, said, self._patience(answer))

    def _patience(self, answer: Answer) -> float | None:
        wait = parse_retry_after(answer.headers.get("retry-after"), self._clock.wall())
        reset = answer.headers.get("x-ratelimit-reset", "")
        if wait is None and answer.status == _TOO_MANY and _EPOCH.fullmatch(reset):
            return max(0.0, int(reset) - self._clock.wall())
        return wait


def create(name: str, settings: Settings, tools: Tools) -> SendGrid:
    return SendGrid(name, settings, tools)
