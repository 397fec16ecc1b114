"""Text messages through Amazon SNS; needs the extra `sns`."""

import hashlib
import html
import re
from datetime import UTC, datetime
from typing import Annotated, Literal
from urllib.parse import urlencode

import msgspec
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from carillon.domain.claims import Dispatch
from carillon.domain.outcomes import Outcome, Refused, Sent
from carillon.providers import Tools
from carillon.providers.answers import AnswerTable, Rule, brief
from carillon.providers.http import HttpAnswer, HttpRequest, Reply, parse_retry_after, unanswered
from carillon.providers.tools import Secret
from carillon.providers.vendor import HttpVendor

CHANNELS = frozenset({"sms"})
TELLS: frozenset[str] = frozenset()
"""Nothing comes back."""
_VERSION = "2010-03-31"
_NUMBER = re.compile(r"\+[1-9][0-9]{1,14}")
_ABOUT_THE_NUMBER = re.compile(r"phone\s?number", re.IGNORECASE)
_PROBE_SECONDS = 10.0
_DIGEST_OF_NOTHING = hashlib.sha256(b"").hexdigest()

_CREDENTIALS = Rule("refused", "credentials")
_THROTTLED = Rule("throttled", "throttled")
_UNAVAILABLE = Rule("unavailable", "unavailable")
ANSWERS: dict[str, Rule] = {
    "AccessDenied": _CREDENTIALS,
    "AuthorizationError": _CREDENTIALS,
    "ExpiredToken": _CREDENTIALS,
    "IncompleteSignature": _CREDENTIALS,
    "InternalError": _UNAVAILABLE,
    "InternalFailure": _UNAVAILABLE,
    "InvalidClientTokenId": _CREDENTIALS,
    "InvalidParameter": Rule("refused", "invalid_parameter"),
    "InvalidParameter:PhoneNumber": Rule("refused", "invalid_number", recipient_gone=True),
    "InvalidSecurity": _CREDENTIALS,
    "MissingAuthenticationToken": _CREDENTIALS,
    "OptInRequired": _CREDENTIALS,
    "OptedOut": Rule("refused", "opted_out", recipient_gone=True),
    "ParameterValueInvalid": Rule("refused", "invalid_parameter"),
    "ParameterValueInvalid:PhoneNumber": Rule("refused", "invalid_number", recipient_gone=True),
    "RequestExpired": _CREDENTIALS,
    "RequestLimitExceeded": _THROTTLED,
    "ServiceUnavailable": _UNAVAILABLE,
    "SignatureDoesNotMatch": _CREDENTIALS,
    "Throttled": _THROTTLED,
    "Throttling": _THROTTLED,
    "TooManyRequests": _THROTTLED,
    "UnrecognizedClient": _CREDENTIALS,
}


class Settings(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The AWS account, the region, and the sender of the messages."""

    region: Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9-]{1,40}$")]
    access_key_id: Annotated[str, msgspec.Meta(pattern=r"^\w{1,128}$")]
    secret_access_key: Secret
    endpoint_url: Annotated[str, msgspec.Meta(pattern=r"^https?://[^\s/?#]+/?$")] | None = None
    """Replaces the endpoint of the region."""
    sender_id: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9-]{1,11}$")] | None = None
    """The sender's name, for countries that allow one."""
    sms_type: Literal["Transactional", "Promotional"] = "Transactional"
    answers: dict[str, Rule] = {}
    """Keys are codes of SNS, with or without `Exception`; `InvalidParameter:PhoneNumber` is about the number."""


class Sns(HttpVendor):
    """One signed Publish for each message; SNS accepts no id by which it could recognise a repeat."""

    def __init__(self, name: str, settings: Settings, tools: Tools) -> None:
        self.name = name
        self._settings = settings
        self._clock = tools.clock
        self.http = tools.http
        self._table = AnswerTable(ANSWERS, settings.answers)
        self._url = f"{(settings.endpoint_url or _regional(settings.region)).rstrip('/')}/"
        credentials = Credentials(settings.access_key_id, settings.secret_access_key.reveal())
        self._signature = _Signature(credentials, "sns", settings.region, self._url)
        self._attributes = _attributes(settings)

    def request(self, dispatch: Dispatch) -> HttpRequest | Outcome:
        address, message = dispatch.claim.address, dispatch.message
        if message is None:
            return Refused("a text message needs a rendered message", classification="no_content")
        if address is None or not _NUMBER.fullmatch(address):
            return Refused("a text message needs a number in the form of E.164", classification="bad_address")
        said = urlencode({"PhoneNumber": address, "Message": message.text})
        return self._request("Publish", f"&{said}{self._attributes}", dispatch.timeout_seconds)

    async def probe(self) -> str | None:
        answer = await self.http.post(self._request("GetSMSAttributes", "", _PROBE_SECONDS))
        if not isinstance(answer, HttpAnswer):
            return answer.error
        return None if answer.ok else self._words(answer)

    async def aclose(self) -> None:
        """Connections belong to the shared client."""

    def _request(self, action: str, parameters: str, timeout_seconds: float) -> HttpRequest:
        body = f"Action={action}&Version={_VERSION}{parameters}".encode()
        signed = self._signature.headers(body, self._clock.wall())
        secrets = [self._settings.secret_access_key.reveal()]
        return HttpRequest(url=self._url, body=body, headers=signed, timeout_seconds=timeout_seconds, secrets=secrets)

    def judged(self, dispatch: Dispatch, answer: Reply) -> Outcome:
        del dispatch
        if not isinstance(answer, HttpAnswer):
            return unanswered(answer)
        if answer.ok:
            return Sent(message_id=_element(answer, "MessageId"))
        return self._table.judge(
            _codes(answer),
            answer.status,
            self._words(answer),
            parse_retry_after(answer.headers.get("retry-after"), self._clock.wall()),
        )

    def _words(self, answer: HttpAnswer) -> str:
        code, text = _element(answer, "Code"), _element(answer, "Message")
        words = answer.excerpt() if code is None else f"{code} {text or ''}"
        return brief(f"HTTP {answer.status} {words}")


class _SignedForm(msgspec.Struct, frozen=True):
    """What all requests of one second share."""

    request: AWSRequest
    canonical: str
    """The canonical request without its last line, the digest of the body."""
    headers: dict[str, str]
    authorization: str
    """The Authorization header without its end, the signature."""


class _Signature(SigV4Auth):  # type: ignore[misc] # ships no types
    """botocore's signature with our clock; it builds the form once per second and signs each body."""

    def __init__(self, credentials: Credentials, service: str, region: str, url: str) -> None:
        super().__init__(credentials, service, region)
        self._url = url
        self._forms: dict[int, _SignedForm] = {}

    def headers(self, body: bytes, wall: float) -> dict[str, str]:
        form = self._forms.get(int(wall)) or self._form(wall)
        canonical = form.canonical + hashlib.sha256(body).hexdigest()
        signature = self.signature(self.string_to_sign(form.request, canonical), form.request)
        return {**form.headers, "Authorization": form.authorization + signature}

    def _form(self, wall: float) -> _SignedForm:
        given = {"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"}
        request = AWSRequest(method="POST", url=self._url, data=b"", headers=given)
        request.context["timestamp"] = datetime.fromtimestamp(wall, UTC).strftime("%Y%m%dT%H%M%SZ")
        self._modify_request_before_signing(request)
        canonical = self.canonical_request(request)
        self._inject_signature_to_request(request, self.signature(self.string_to_sign(request, canonical), request))
        headers = dict(request.headers.items())
        head, mark, _ = headers["Authorization"].rpartition("Signature=")
        form = _SignedForm(request, canonical.removesuffix(_DIGEST_OF_NOTHING), headers, head + mark)
        self._forms = {int(wall): form}
        return form


def _attributes(settings: Settings) -> str:
    """The part of the body that is the same for every message: its type and its sender."""
    given = {"AWS.SNS.SMS.SMSType": settings.sms_type, "AWS.SNS.SMS.SenderID": settings.sender_id}
    found = [(name, value) for name, value in given.items() if value is not None]
    parameters: dict[str, str] = {}
    for number, (name, value) in enumerate(found, 1):
        entry = f"MessageAttributes.entry.{number}"
        parameters |= {f"{entry}.Name": name, f"{entry}.Value.DataType": "String"}
        parameters[f"{entry}.Value.StringValue"] = value
    return f"&{urlencode(parameters)}"


def _codes(answer: HttpAnswer) -> list[str]:
    found = _element(answer, "Code")
    if found is None:
        return []
    # One protocol calls an error Throttled, another ThrottledException.
    codes = list(dict.fromkeys((found, found.removesuffix("Exception"))))
    if _ABOUT_THE_NUMBER.search(_element(answer, "Message") or ""):
        return [f"{code}:PhoneNumber" for code in codes] + codes
    return codes


def _element(answer: HttpAnswer, name: str) -> str | None:
    """The text of the first element of that name; by a pattern, as an XML parser would open an attack surface."""
    found = re.search(rf"<{name}>([^<]{{1,2000}})</{name}>", answer.body.decode("utf-8", "replace"))
    return None if found is None else html.unescape(found[1]).strip()


def _regional(region: str) -> str:
    return f"https://sns.{region}.amazonaws.com{'.cn' if region.startswith('cn-') else ''}"


def create(name: str, settings: Settings, tools: Tools) -> Sns:
    return Sns(name, settings, tools)
