"""Push messages through Firebase Cloud Messaging: its HTTP v1 API, and the legacy API that relays still offer."""

import re
from collections.abc import Callable, Coroutine, Sequence
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import msgspec

from carillon.domain.claims import Dispatch
from carillon.domain.intents import Priority
from carillon.domain.outcomes import Outcome, Refused, Sent, Unavailable
from carillon.providers import Tools
from carillon.providers.answers import AnswerTable, Rule, brief
from carillon.providers.fcm.body import Handling, data, legacy_body, notification, tag_of, v1_body
from carillon.providers.fcm.parts import carries, with_parts
from carillon.providers.fcm.token import Account, NoToken, Token, TokenSource, read_account
from carillon.providers.http import HttpAnswer, HttpRequest, Reply, parse_retry_after, unanswered
from carillon.providers.tools import Secret
from carillon.providers.vendor import HeaderLines, Tell, VendorCall, nothing

BAD_TOKEN = "INVALID_ARGUMENT/token"  # noqa: S105 - a code, not a credential
"""Our code for an INVALID_ARGUMENT that is only about the registration token."""
DEVICE_QUOTA = "QUOTA_EXCEEDED/device"
"""Our code for a QUOTA_EXCEEDED that is about one device, which gets too many messages."""

RULES = {
    # HTTP v1
    "UNREGISTERED": Rule("refused", "unregistered", recipient_gone=True),
    BAD_TOKEN: Rule("refused", "invalid_token", recipient_gone=True),
    "INVALID_ARGUMENT": Rule("refused", "invalid_argument"),
    "SENDER_ID_MISMATCH": Rule("refused", "sender_mismatch"),
    DEVICE_QUOTA: Rule("throttled", "device_quota", wait_seconds=60.0, one_recipient=True),
    "QUOTA_EXCEEDED": Rule("throttled", "quota_exceeded", wait_seconds=60.0),
    "UNAVAILABLE": Rule("unavailable", "vendor_unavailable"),
    "INTERNAL": Rule("unavailable", "vendor_internal"),
    "THIRD_PARTY_AUTH_ERROR": Rule("refused", "third_party_auth"),
    "UNAUTHENTICATED": Rule("refused", "bad_credentials"),
    "PERMISSION_DENIED": Rule("refused", "bad_credentials"),
    # The legacy API
    "NotRegistered": Rule("refused", "unregistered", recipient_gone=True),
    "InvalidRegistration": Rule("refused", "invalid_token", recipient_gone=True),
    "MissingRegistration": Rule("refused", "invalid_argument"),
    "InvalidPackageName": Rule("refused", "invalid_argument"),
    "InvalidParameters": Rule("refused", "invalid_argument"),
    "InvalidDataKey": Rule("refused", "invalid_argument"),
    "InvalidTtl": Rule("refused", "invalid_argument"),
    "MessageTooBig": Rule("refused", "invalid_argument"),
    "MismatchSenderId": Rule("refused", "sender_mismatch"),
    "InvalidApnsCredential": Rule("refused", "third_party_auth"),
    "DeviceMessageRateExceeded": Rule("throttled", "device_quota", wait_seconds=60.0, one_recipient=True),
    "TopicsMessageRateExceeded": Rule("throttled", "quota_exceeded", wait_seconds=60.0),
    "Unavailable": Rule("unavailable", "vendor_unavailable"),
    "InternalServerError": Rule("unavailable", "vendor_internal"),
    # Both, for an answer without a code
    "401": Rule("refused", "bad_credentials"),
    "403": Rule("refused", "bad_credentials"),
    "429": Rule("throttled", "quota_exceeded", wait_seconds=60.0),
}
BLAMES_THE_MESSAGE = frozenset(
    {"INVALID_ARGUMENT", "UNREGISTERED", "InvalidRegistration", "NotRegistered", "InvalidParameters"}
)
"""Codes that prove that FCM is healthy and accepts our credentials."""

_FCM_ERROR = "type.googleapis.com/google.firebase.fcm.v1.FcmError"
_BAD_REQUEST = "type.googleapis.com/google.rpc.BadRequest"
_UNAUTHORIZED = 401
CHANNELS = frozenset({"push"})
TELLS = frozenset({"delivered", "read", "acknowledged"})
"""The application that gets the push reports over the API."""
GOOGLE = "https://fcm.googleapis.com"
SCOPE = "https://www.googleapis.com/auth/firebase.messaging"
# No slash: `/topics/all` in place of one device would reach every device.
_DEVICE = re.compile(r"[A-Za-z0-9_:.~%=+-]{1,4096}")
_PROJECT = re.compile(r"[a-z0-9][a-z0-9.:-]{0,99}")
_KEY = re.compile(r"[\x21-\x7e]{1,4096}")
_RESERVED = re.compile(r"from|message_type|collapse_key|google\..*|gcm\..*")
_OURS = frozenset({"notification_id", "trace_id"})
_ABOUT_A_DEVICE = re.compile(r"\bdevice\b", re.IGNORECASE)
_NOBODY = "probe-without-a-device"
_PROBE_SECONDS = 10.0


class FcmAnswer(msgspec.Struct, frozen=True):
    """A parsed answer: the id of an accepted message, or the codes and the text of a failure."""

    taken: bool
    message_id: str | None = None
    codes: Sequence[str] = ()
    text: str = ""


def read_v1(answer: HttpAnswer) -> FcmAnswer:
    content = _decoded(answer.body)
    if answer.ok:
        return FcmAnswer(taken=True, message_id=_text(content.get("name")))
    error = _dict(content.get("error"))
    details = [_dict(detail) for detail in _list(error.get("details"))]
    codes = [_text(detail.get("errorCode")) for detail in details if detail.get("@type") == _FCM_ERROR]
    named = [code for code in codes if code]
    words = _text(error.get("message")) or answer.excerpt()
    specific = [BAD_TOKEN] if "INVALID_ARGUMENT" in named and _blames_token(words, details) else []
    if "QUOTA_EXCEEDED" in named and _ABOUT_A_DEVICE.search(words):
        specific.append(DEVICE_QUOTA)
    status = _text(error.get("status"))
    known = [*specific, *named, *([status] if status else [])]
    said = named[0] if named else status
    text = f"HTTP {answer.status} {said}: {words}" if said else f"HTTP {answer.status} {words}"
    return FcmAnswer(taken=False, codes=known, text=text)


def read_legacy(answer: HttpAnswer) -> FcmAnswer:
    content = _decoded(answer.body)
    results = _list(content.get("results"))
    first = _dict(results[0]) if results else {}
    if not answer.ok:
        # A bad request is plain text: Error=MissingRegistration.
        words = answer.excerpt()
        code = words.removeprefix("Error=") if words.startswith("Error=") else _text(content.get("error"))
        return FcmAnswer(taken=False, codes=[code] if code else (), text=f"HTTP {answer.status} {words}")
    code = _text(first.get("error"))
    failures = content.get("failure")
    if code is None and not (isinstance(failures, int) and failures > 0):
        return FcmAnswer(taken=True, message_id=_text(first.get("message_id")))
    return FcmAnswer(taken=False, codes=[code] if code else (), text=f"HTTP {answer.status} {code or 'failure'}")


def token_refused(answer: object) -> bool:
    """Whether FCM refused our access token, before it looked at the message."""
    if not isinstance(answer, HttpAnswer) or answer.status != _UNAUTHORIZED:
        return False
    # A bad credential of Apple or of a browser vendor has the same status, and a new token does not help there.
    return set(read_v1(answer).codes) <= {"UNAUTHENTICATED"}


def _blames_token(words: str, details: list[dict[str, Any]]) -> bool:
    violations = [
        _dict(violation).get("field")
        for detail in details
        if detail.get("@type") == _BAD_REQUEST
        for violation in _list(detail.get("fieldViolations"))
    ]
    if any(detail.get("@type") == _BAD_REQUEST for detail in details):
        return bool(violations) and all(field == "message.token" for field in violations)
    return "registration token" in words.lower()


def _decoded(body: bytes) -> dict[str, Any]:
    try:
        return _dict(msgspec.json.decode(body))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: object) -> str | None:
    return str(value)[:500] if isinstance(value, str | int) and value != "" else None


class Settings(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Which API to use, and with which credentials."""

    api: Literal["v1", "legacy"] | None = None
    """None means v1 if a service account or a project is given, otherwise legacy."""
    base_url: str = GOOGLE
    server_key: Secret | None = None
    """The credential of the legacy API."""
    project_id: str | None = None
    """None means the service account's own project."""
    credentials_file: str | None = None
    """A service account's key file."""
    data_variables: Annotated[list[str], msgspec.Meta(max_length=100)] = msgspec.field(default_factory=lambda: ["link"])
    """Variables of the payload that the app gets as data, if they are present."""
    with_id: bool = True
    """Put the notification's id into the data, as `notification_id`."""
    replace_repeats: bool = False
    """Tag every message, so that a repeat replaces the notification on the device instead of adding a second one."""
    answers: dict[str, Rule] = {}
    """Overrides of the meaning of FCM's codes and statuses."""
    webhook_secret: Secret | None = None
    """The secret with which the operator's relay signs delivery reports."""

    @property
    def form(self) -> Literal["v1", "legacy"]:
        return self.api or ("v1" if self.credentials_file or self.project_id else "legacy")


class Fcm:
    """One call for each message; after a refused access token a second call with a new one, as nothing was sent."""

    learns_rates = True

    def __init__(self, name: str, settings: Settings, tools: Tools, account: Account | None) -> None:
        self.name = name
        self._settings = settings
        self._clock = tools.clock
        self._http = tools.http
        self.calls_at_once = tools.http.calls_per_host
        self._table = AnswerTable(RULES, settings.answers)
        self._tokens = None if account is None else TokenSource(account, SCOPE, tools.http, tools.clock)
        base = settings.base_url.rstrip("/")
        project = settings.project_id or (account and account.project_id)
        self._lines: tuple[Token | None, HeaderLines | None] = (None, None)
        """The token of the last request, and its header lines."""
        self._url = f"{base}/fcm/send" if account is None else f"{base}/v1/projects/{project}/messages:send"

    async def send(self, dispatch: Dispatch) -> Outcome:
        body = self._body(dispatch)
        if not isinstance(body, bytes):
            return body
        return self._judge(await self._call(body, dispatch.timeout_seconds), dispatch.claim.address)

    def start(self, dispatch: Dispatch, tell: Tell) -> Callable[[], None]:
        body = self._body(dispatch)
        if not isinstance(body, bytes):
            tell(body)
            return nothing
        call = VendorCall(tell)
        ends_at = self._clock.monotonic() + dispatch.timeout_seconds
        token = None if self._tokens is None else self._tokens.held()
        if self._tokens is not None and token is None:
            # Fetching a token takes a request of its own: many calls wait for one fetch, each in a task.
            call.wait_for(self.send(dispatch))
            return call.cancel

        def judge(answer: Reply) -> Outcome | Coroutine[Any, Any, Outcome]:
            if token is not None and token_refused(answer):
                return self._again(body, token, ends_at, dispatch.claim.address)
            return self._judge(answer, dispatch.claim.address)

        call.begin(self._http, self._request(body, self._authorization(token), ends_at), judge)
        return call.cancel

    async def _again(self, body: bytes, refused: Token, ends_at: float, address: str | None) -> Outcome:
        return self._judge(await self._with_another(body, refused, ends_at), address)

    def _body(self, dispatch: Dispatch) -> bytes | Outcome:
        """The request's body, or the outcome of a message that cannot be sent."""
        claim = dispatch.claim
        if dispatch.message is None or not claim.address:
            return Refused("a push needs a device and a rendered message", classification="no_content")
        if not _DEVICE.fullmatch(claim.address):
            return Refused("this is not a registration token", classification="bad_address")
        write = legacy_body if self._tokens is None else v1_body
        settings = self._settings
        how = Handling(
            tag=tag_of(claim) if settings.replace_repeats else None,
            urgent=None if claim.priority is None else claim.priority == Priority.HIGH,
        )
        extra = data(claim, settings.data_variables, with_id=settings.with_id)
        body = write(claim.address, notification(dispatch.message), extra, how)
        return with_parts(body, dispatch, legacy=self._tokens is None) if carries(dispatch) else body

    async def probe(self) -> str | None:
        """Validate a message to a device that does not exist: FCM's refusal of it proves that FCM is healthy."""
        if self._tokens is None:
            body = msgspec.json.encode({"to": _NOBODY, "dry_run": True})
        else:
            body = msgspec.json.encode({"validate_only": True, "message": {"token": _NOBODY}})
        answer = await self._call(body, _PROBE_SECONDS)
        if isinstance(answer, HttpAnswer):
            said = self._read(answer)
            return None if said.taken or BLAMES_THE_MESSAGE.intersection(said.codes) else brief(said.text)
        return answer.error

    async def aclose(self) -> None:
        """Connections belong to the shared client."""
        if self._tokens is not None:
            await self._tokens.aclose()

    async def _call(self, body: bytes, seconds: float) -> Reply | NoToken:
        ends_at = self._clock.monotonic() + seconds
        if self._tokens is None:
            return await self._http.post(self._request(body, self._authorization(None), ends_at))
        token = await self._tokens.token(seconds)
        if isinstance(token, NoToken):
            return token
        answer = await self._http.post(self._request(body, self._authorization(token), ends_at))
        return await self._with_another(body, token, ends_at) if token_refused(answer) else answer

    async def _with_another(self, body: bytes, refused: Token, ends_at: float) -> Reply | NoToken:
        """Call again with a new token: FCM refused the old one before it looked at the message."""
        if self._tokens is None:
            raise RuntimeError("the legacy API has no tokens")
        token = await self._tokens.token(ends_at - self._clock.monotonic(), instead_of=refused)
        if isinstance(token, NoToken):
            return token
        return await self._http.post(self._request(body, self._authorization(token), ends_at))

    def _authorization(self, token: Token | None) -> tuple[str, ...]:
        """The header lines of a request, checked once for each token; without one, those of the legacy API."""
        held, lines = self._lines
        if lines is None or held is not token:
            secret = self._settings.server_key or Secret("")
            value = f"key={secret.reveal()}" if token is None else f"Bearer {token.text.reveal()}"
            lines = HeaderLines({"Authorization": value, "Content-Type": "application/json"})
            self._lines = (token, lines)
        return lines.reveal()

    def _request(self, body: bytes, lines: tuple[str, ...], ends_at: float) -> HttpRequest:
        left = max(0.0, ends_at - self._clock.monotonic())
        return HttpRequest(url=self._url, body=body, lines=lines, timeout_seconds=left)

    def _read(self, answer: HttpAnswer) -> FcmAnswer:
        return read_legacy(answer) if self._tokens is None else read_v1(answer)

    def _judge(self, answer: Reply | NoToken, address: str | None) -> Outcome:
        if isinstance(answer, NoToken):
            return Unavailable(answer.error, classification=answer.classification, retry_after=answer.retry_after)
        if not isinstance(answer, HttpAnswer):
            return unanswered(answer)
        said = self._read(answer)
        if said.taken:
            return Sent(message_id=said.message_id)
        retry_after = parse_retry_after(answer.headers.get("retry-after"), self._clock.wall())
        text = brief(said.text, address)
        return self._table.judge(said.codes, answer.status, text, retry_after)


def remarks(settings: Settings) -> list[str]:
    """Warnings about valid settings, for the start."""
    if settings.form == "legacy" and urlsplit(settings.base_url).hostname == urlsplit(GOOGLE).hostname:
        return ["Google switched FCM's legacy API off in 2024; only a relay of your own (base_url) still takes it"]
    return []


def create(name: str, settings: Settings, tools: Tools) -> Fcm:
    parts = urlsplit(settings.base_url)
    if parts.scheme not in {"https", "http"} or not parts.hostname or parts.query or parts.fragment:
        raise ValueError("base_url: is not a URL of http or https")
    for variable in settings.data_variables:
        if _RESERVED.fullmatch(variable) or variable in _OURS or not variable:
            raise ValueError(f"data_variables: {variable[:100]!r} is a name that FCM or Carillon reserves")
    if settings.form == "legacy":
        if settings.server_key is None or not _KEY.fullmatch(settings.server_key.reveal()):
            raise ValueError("server_key: the legacy form needs one, without blanks")
        return Fcm(name, settings, tools, None)
    if settings.credentials_file is None:
        raise ValueError("credentials_file: v1 needs a service account's key file")
    account = read_account(settings.credentials_file)
    project = settings.project_id or account.project_id
    if project is None or not _PROJECT.fullmatch(project):
        raise ValueError("project_id: neither here nor in the service account's key file is a project's id")
    return Fcm(name, settings, tools, account)
