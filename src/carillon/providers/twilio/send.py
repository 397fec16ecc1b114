"""Text messages through Twilio."""

import base64
import re
from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import urlencode

import msgspec

from carillon.domain.claims import Dispatch
from carillon.domain.outcomes import Outcome, Refused, Sent
from carillon.providers import Tools
from carillon.providers.answers import AnswerTable, Rule, brief
from carillon.providers.http import HttpAnswer, HttpRequest, Reply, parse_retry_after, unanswered
from carillon.providers.tools import Secret
from carillon.providers.vendor import HeaderLines, HttpVendor

CHANNELS = frozenset({"sms"})
TELLS = frozenset({"delivered"})
"""A text message is delivered; nobody knows whether it is read."""
_VERSION = "2010-04-01"
_NUMBER = re.compile(r"(?:[a-z]{2,20}:)?\+[1-9][0-9]{1,14}")
_PROBE_SECONDS = 10.0
_FAILED = frozenset({"failed", "undelivered", "canceled"})
_REFUSED_STATUS = 400

ANSWERS: dict[str, Rule] = {
    "14107": Rule("throttled", "rate_limited", wait_seconds=30.0),
    "20003": Rule("refused", "credentials"),
    "20005": Rule("refused", "account_inactive"),
    "20404": Rule("refused", "credentials"),
    "20429": Rule("throttled", "rate_limited"),
    "20500": Rule("unavailable", "unavailable"),
    "20503": Rule("unavailable", "unavailable"),
    "21211": Rule("refused", "invalid_number", recipient_gone=True),
    "21212": Rule("refused", "bad_sender"),
    "21217": Rule("refused", "invalid_number", recipient_gone=True),
    "21408": Rule("refused", "region_not_enabled"),
    "21606": Rule("refused", "bad_sender"),
    "21610": Rule("refused", "opted_out", recipient_gone=True),
    "21611": Rule("throttled", "queue_full", wait_seconds=60.0),
    "21612": Rule("refused", "unroutable"),
    "21614": Rule("refused", "not_mobile", recipient_gone=True),
    "21617": Rule("refused", "too_long"),
    "21635": Rule("refused", "landline", recipient_gone=True),
    "21659": Rule("refused", "bad_sender"),
    "30001": Rule("throttled", "queue_full", wait_seconds=60.0),
    "30002": Rule("refused", "account_suspended"),
    "30003": Rule("unavailable", "unreachable"),
    "30004": Rule("refused", "blocked"),
    "30005": Rule("refused", "unknown_handset"),
    "30006": Rule("refused", "landline", recipient_gone=True),
    "30007": Rule("refused", "filtered"),
    # Twilio does not know the outcome: the policy decides about possible duplicates.
    "30008": Rule("unknown", "unknown_error"),
    "401": Rule("refused", "credentials"),
    "403": Rule("refused", "credentials"),
}

Url = Annotated[str, msgspec.Meta(pattern=r"^https?://[^\s/?#]+\S*$")]


class Settings(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The account, the sender, and the URL to which Twilio reports back."""

    account_sid: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9]{1,64}$")]
    auth_token: Secret
    sender: str | None = None
    """The number or name of the sender; required without a messaging service."""
    messaging_service_sid: str | None = None
    base_url: Url = "https://api.twilio.com"
    status_callback: Annotated[str, msgspec.Meta(pattern=r"^(https?://[^\s/?#]+|/)\S*$")] | None = None
    """The URL to which Twilio reports the status of a message; one that begins with `/` is relative to
    `public_base_url`, and without that Twilio is not asked to report."""
    callback_key: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_]{1,64}$")] | None = None
    """The query parameter of that URL that holds the message's id, so that a report finds its message even when the
    answer to the send was lost."""
    public_base_url: Url | None = None
    """Scheme, host and prefix under which Twilio reaches us, if a proxy changes them."""
    answers: dict[str, Rule] = {}


class _TwilioAnswer(msgspec.Struct):
    """The fields of Twilio's answers that we use; a message and an error share the field `status`."""

    sid: Annotated[str, msgspec.Meta(max_length=100)] | None = None
    status: str | int | None = None
    code: int | None = None
    message: str | None = None
    error_code: int | None = None
    error_message: str | None = None


class Twilio(HttpVendor):
    """One POST for each message; Twilio cannot recognise a repeat."""

    def __init__(self, name: str, settings: Settings, tools: Tools) -> None:
        self.name = name
        self._settings = settings
        self._clock = tools.clock
        self.http = tools.http
        self._table = AnswerTable(ANSWERS, settings.answers)
        self._callback_url = _callback_url(settings)
        self._account = f"{settings.base_url.rstrip('/')}/{_VERSION}/Accounts/{settings.account_sid}"
        self._messages = f"{self._account}/Messages.json"
        self._lines = HeaderLines(self._headers() | {"Content-Type": "application/x-www-form-urlencoded"})

    def request(self, dispatch: Dispatch) -> HttpRequest | Outcome:
        address, message = dispatch.claim.address, dispatch.message
        if message is None:
            return Refused("a text message needs a rendered message", classification="no_content")
        if address is None or not _NUMBER.fullmatch(address):
            return Refused("a text message needs a number in the form of E.164", classification="bad_address")
        return HttpRequest(
            url=self._messages,
            body=self._form(address, message.text, dispatch.claim.idempotency_key),
            lines=self._lines.reveal(),
            timeout_seconds=dispatch.timeout_seconds,
        )

    async def probe(self) -> str | None:
        request = HttpRequest(
            url=f"{self._account}.json", method="GET", headers=self._headers(), timeout_seconds=_PROBE_SECONDS
        )
        answer = await self.http.post(request)
        if not isinstance(answer, HttpAnswer):
            return answer.error
        said = _read(answer.body)
        if not answer.ok:
            return self._words(answer, said)
        return None if said.status in {None, "active"} else brief(f"the account is {said.status}")

    async def aclose(self) -> None:
        """Connections belong to the shared client."""

    def _form(self, address: str, text: str, key: str) -> bytes:
        settings = self._settings
        fields = {
            "To": address,
            "StatusCallback": self._callback(key),
            "From": settings.sender,
            "MessagingServiceSid": settings.messaging_service_sid,
            "Body": text,
        }
        return urlencode({name: value for name, value in fields.items() if value is not None}).encode()

    def _callback(self, key: str) -> str | None:
        url, name = self._callback_url, self._settings.callback_key
        if url is None or name is None:
            return url
        place, hash_sign, fragment = url.partition("#")
        return f"{place}{'&' if '?' in place else '?'}{urlencode({name: key})}{hash_sign}{fragment}"

    def _headers(self) -> dict[str, str]:
        word = f"{self._settings.account_sid}:{self._settings.auth_token.reveal()}"
        return {"Authorization": f"Basic {base64.b64encode(word.encode()).decode()}", "Accept": "application/json"}

    def judged(self, dispatch: Dispatch, answer: Reply) -> Outcome:
        del dispatch
        if not isinstance(answer, HttpAnswer):
            return unanswered(answer)
        said = _read(answer.body)
        if answer.ok and said.status not in _FAILED:
            return Sent(message_id=said.sid)
        code = said.error_code if answer.ok else said.code
        return self._table.judge(
            [] if code is None else [str(code)],
            _REFUSED_STATUS if answer.ok else answer.status,
            self._words(answer, said),
            parse_retry_after(answer.headers.get("retry-after"), self._clock.wall()),
        )

    def _words(self, answer: HttpAnswer, said: _TwilioAnswer) -> str:
        code, text = (said.error_code, said.error_message) if answer.ok else (said.code, said.message)
        words = answer.excerpt() if text is None else f"{code or ''} {text}"
        return brief(f"HTTP {answer.status} {words}")


def _read(body: bytes) -> _TwilioAnswer:
    try:
        return msgspec.json.decode(body, type=_TwilioAnswer)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _TwilioAnswer()


def is_told(options: Mapping[str, Any]) -> bool:
    """Whether Twilio knows where to report: each message says it, or the messaging service has a URL of its own."""
    place = str(options.get("status_callback") or "")
    reachable = not place.startswith("/") or bool(options.get("public_base_url"))
    return bool(options.get("messaging_service_sid")) or (bool(place) and reachable)


def _callback_url(settings: Settings) -> str | None:
    place, public = settings.status_callback, settings.public_base_url
    if place is None or not place.startswith("/"):
        return place
    return None if public is None else f"{public.rstrip('/')}{place}"


def create(name: str, settings: Settings, tools: Tools) -> Twilio:
    if settings.sender is None and settings.messaging_service_sid is None:
        raise ValueError("sender: a number to send from is needed, or messaging_service_sid")
    return Twilio(name, settings, tools)
