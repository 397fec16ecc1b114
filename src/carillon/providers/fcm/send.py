"""Push messages through Firebase Cloud Messaging: its HTTP v1 API, and the legacy API that relays still offer."""

import re
from typing import Annotated, Literal
from urllib.parse import urlsplit

import msgspec

from carillon.domain.claims import Dispatch
from carillon.domain.outcomes import Outcome, Refused, Sent, Unavailable
from carillon.providers import Tools
from carillon.providers.answers import AnswerTable, Rule, brief
from carillon.providers.fcm.token import Account, NoToken, TokenSource, read_account
from carillon.providers.fcm.wire import (
    BLAMES_THE_MESSAGE,
    RULES,
    FcmAnswer,
    data,
    legacy_body,
    notification,
    read_legacy,
    read_v1,
    tag_of,
    token_refused,
    v1_body,
)
from carillon.providers.http import HttpAnswer, HttpRequest, MaybeSent, NotSent, parse_retry_after, unanswered
from carillon.providers.secret import Secret

CHANNELS = frozenset({"push"})
GOOGLE = "https://fcm.googleapis.com"
SCOPE = "https://www.googleapis.com/auth/firebase.messaging"
# No slash: `/topics/all` in place of one device would reach every device.
_DEVICE = re.compile(r"[A-Za-z0-9_:.~%=+-]{1,4096}")
_PROJECT = re.compile(r"[a-z0-9][a-z0-9.:-]{0,99}")
_KEY = re.compile(r"[\x21-\x7e]{1,4096}")
_RESERVED = re.compile(r"from|message_type|collapse_key|google\..*|gcm\..*")
_NOBODY = "probe-without-a-device"
_PROBE_SECONDS = 10.0


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

    def __init__(self, name: str, settings: Settings, tools: Tools, account: Account | None) -> None:
        self.name = name
        self._settings = settings
        self._clock = tools.clock
        self._http = tools.http
        self._table = AnswerTable(RULES, settings.answers)
        self._tokens = None if account is None else TokenSource(account, SCOPE, tools.http, tools.clock)
        base = settings.base_url.rstrip("/")
        project = settings.project_id or (account and account.project_id)
        self._url = f"{base}/fcm/send" if account is None else f"{base}/v1/projects/{project}/messages:send"

    async def send(self, dispatch: Dispatch) -> Outcome:
        claim = dispatch.claim
        if dispatch.message is None or not claim.address:
            return Refused("a push needs a device and a rendered message", classification="no_content")
        if not _DEVICE.fullmatch(claim.address):
            return Refused("this is not a registration token", classification="bad_address")
        write = legacy_body if self._tokens is None else v1_body
        tag = tag_of(claim) if self._settings.replace_repeats else None
        shown = notification(dispatch.message)
        body = write(claim.address, shown, data(claim, self._settings.data_variables), tag)
        return self._judge(await self._call(body, dispatch.timeout_seconds), claim.address)

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

    async def _call(self, body: bytes, seconds: float) -> HttpAnswer | NotSent | MaybeSent | NoToken:
        ends_at = self._clock.monotonic() + seconds
        if self._tokens is None:
            return await self._post(body, f"key={_revealed(self._settings.server_key)}", ends_at)
        token = await self._tokens.token(seconds)
        if isinstance(token, NoToken):
            return token
        answer = await self._post(body, f"Bearer {token.text.reveal()}", ends_at)
        if not token_refused(answer):
            return answer
        token = await self._tokens.token(ends_at - self._clock.monotonic(), instead_of=token)
        if isinstance(token, NoToken):
            return token
        return await self._post(body, f"Bearer {token.text.reveal()}", ends_at)

    async def _post(self, body: bytes, authorization: str, ends_at: float) -> HttpAnswer | NotSent | MaybeSent:
        return await self._http.post(
            HttpRequest(
                url=self._url,
                body=body,
                headers={"Authorization": authorization, "Content-Type": "application/json"},
                timeout_seconds=max(0.0, ends_at - self._clock.monotonic()),
            )
        )

    def _read(self, answer: HttpAnswer) -> FcmAnswer:
        return read_legacy(answer) if self._tokens is None else read_v1(answer)

    def _judge(self, answer: HttpAnswer | NotSent | MaybeSent | NoToken, address: str | None) -> Outcome:
        if isinstance(answer, NoToken):
            return Unavailable(answer.error, classification=answer.classification, retry_after=answer.retry_after)
        if not isinstance(answer, HttpAnswer):
            return unanswered(answer)
        said = self._read(answer)
        if said.taken:
            return Sent(message_id=said.message_id)
        retry_after = parse_retry_after(answer.headers.get("retry-after"), self._clock.wall())
        text = brief(said.text, address, _revealed(self._settings.server_key))
        return self._table.judge(said.codes, answer.status, text, retry_after)


def remarks(settings: Settings) -> list[str]:
    """Warnings about valid settings, for the start."""
    if settings.form == "legacy" and urlsplit(settings.base_url).hostname == urlsplit(GOOGLE).hostname:
        return ["Google switched FCM's legacy API off in 2024; only a relay of your own (base_url) still takes it"]
    return []


def _revealed(secret: Secret | None) -> str | None:
    return None if secret is None else secret.reveal()


def create(name: str, settings: Settings, tools: Tools) -> Fcm:
    parts = urlsplit(settings.base_url)
    if parts.scheme not in {"https", "http"} or not parts.hostname or parts.query or parts.fragment:
        raise ValueError("base_url: is not a URL of http or https")
    for variable in settings.data_variables:
        if _RESERVED.fullmatch(variable) or variable == "trace_id" or not variable:
            raise ValueError(f"data_variables: {variable[:100]!r} is a name FCM or we keep for ourselves")
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
