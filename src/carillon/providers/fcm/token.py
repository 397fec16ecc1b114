"""Google's access tokens from a service account: one fetch for all waiting calls, and before the old one expires."""

import asyncio
import re
from functools import lru_cache
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlencode

import msgspec
from google.auth import crypt, jwt

from carillon.domain.ports import Clock
from carillon.providers.answers import brief
from carillon.providers.http import HttpAnswer, HttpClient, HttpRequest, MaybeSent, NotSent, parse_retry_after
from carillon.providers.tools import Secret

_AUDIENCE = "https://oauth2.googleapis.com/token"
_GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_ASSERTION_SECONDS = 3600
_FETCH_SECONDS = 10.0
_AHEAD_SECONDS, _AHEAD_PAUSE_SECONDS = 300.0, 10.0
_SAFETY_SECONDS = 10.0
_USUAL_SECONDS = 3600.0
_HEADER_TEXT = re.compile(r"[\x21-\x7e]{1,8192}")
_FIRST_OF_SERVER = 500


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a service account's key file."""

    email: str
    token_uri: str
    project_id: str | None
    signer: Any
    """Google's signer; it holds the private key."""

    def assertion(self, scope: str, now: int) -> str:
        """The signed JWT that Google exchanges for a token."""
        claims = {
            "iat": now,
            "exp": now + _ASSERTION_SECONDS,
            "iss": self.email,
            # Google wants its own endpoint here, even if another URL is called.
            "aud": _AUDIENCE,
            "scope": scope,
        }
        return cast("bytes", jwt.encode(self.signer, claims)).decode()  # type: ignore[no-untyped-call]


class Token(msgspec.Struct, frozen=True):
    """Valid until `ends_at`; a new one is fetched from `stale_at` on."""

    text: Secret
    stale_at: float
    ends_at: float


class NoToken(msgspec.Struct, frozen=True):
    """There is no token, so nothing was sent."""

    error: str
    classification: str
    retry_after: float | None = None


class _KeyFile(msgspec.Struct):
    type: str
    client_email: str
    private_key: str
    token_uri: str
    private_key_id: str | None = None
    project_id: str | None = None


def read_account(path: str) -> Account:
    """Read a key file; raises ValueError, whose text never shows the key."""
    if "{" in path:
        raise ValueError("credentials_file: takes the path of the key file, not what is in it")
    try:
        content = Path(path).expanduser().read_bytes()
    except OSError as error:
        raise ValueError(f"credentials_file: {path}: {error.strerror}") from None
    try:
        found = msgspec.json.decode(content, type=_KeyFile)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"credentials_file: {path} is not a service account's key file: {error}") from None
    if found.type != "service_account":
        raise ValueError(f"credentials_file: {path} holds {found.type[:64]!r}; only a service_account can be used")
    if not found.token_uri.startswith(("https://", "http://")):
        raise ValueError(f"credentials_file: {path}: token_uri is not a URL")
    try:
        signer = _signer(found.private_key, found.private_key_id)
    except Exception:  # noqa: BLE001 - the text of any parser error may quote the key
        raise ValueError(f"credentials_file: {path}: private_key is not an RSA key in PEM") from None
    return Account(
        email=found.client_email, token_uri=found.token_uri, project_id=found.project_id or None, signer=signer
    )


@lru_cache(maxsize=4)
def _signer(private_key: str, key_id: str | None) -> crypt.RSASigner:
    """Google's signer; kept, because parsing a key takes 50 ms and a start reads the same file for each use of it."""
    signer = crypt.RSASigner.from_string(private_key, key_id)  # type: ignore[no-untyped-call]
    # A key that is not RSA is read without an error and fails only here.
    signer.sign(b"")
    return cast("crypt.RSASigner", signer)


class _Fetch:
    """One fetch in flight, and the number of calls that wait for it."""

    def __init__(self, task: asyncio.Task[Token | NoToken]) -> None:
        self.task = task
        self.waiting = 0


class TokenSource:
    """Holds one token; calls that need it while it is fetched all wait for the same fetch."""

    def __init__(self, account: Account, scope: str, http: HttpClient, clock: Clock) -> None:
        self._account = account
        self._scope = scope
        self._http = http
        self._clock = clock
        self._held: Token | None = None
        self._fetching: _Fetch | None = None
        self._next_ahead = 0.0

    async def token(self, seconds: float, *, instead_of: Token | None = None) -> Token | NoToken:
        """A token, waiting at most `seconds`; never the one in `instead_of`, which Google has refused."""
        held = self.held()
        if held is not None and held is not instead_of:
            return held
        return await self._await(self._fetching or self._start(), seconds)

    def held(self) -> Token | None:
        """The token if it is still valid; one that expires soon is fetched anew meanwhile."""
        held, now = self._held, self._clock.monotonic()
        if held is None or now >= held.ends_at:
            return None
        if now >= held.stale_at and self._fetching is None and now >= self._next_ahead:
            # No call waits for this fetch: count one, so that no caller's deadline cancels it.
            self._next_ahead = now + _AHEAD_PAUSE_SECONDS
            self._start().waiting = 1
        return held

    async def aclose(self) -> None:
        fetch, self._fetching = self._fetching, None
        if fetch is not None:
            fetch.task.cancel()
            await asyncio.wait({fetch.task})

    def _start(self) -> _Fetch:
        fetch = self._fetching = _Fetch(asyncio.get_running_loop().create_task(self._fetch()))
        fetch.task.add_done_callback(lambda _: self._forget(fetch))
        return fetch

    def _forget(self, fetch: _Fetch) -> None:
        if self._fetching is fetch:
            self._fetching = None

    async def _await(self, fetch: _Fetch, seconds: float) -> Token | NoToken:
        fetch.waiting += 1
        try:
            done, _ = await asyncio.wait({fetch.task}, timeout=max(0.0, seconds))
        finally:
            fetch.waiting -= 1
            if not fetch.waiting and not fetch.task.done():
                # The last waiting call cancels the fetch; the next call must start a new one.
                self._forget(fetch)
                fetch.task.cancel()
        if not done or fetch.task.cancelled():
            return NoToken(f"no access token within {seconds:g} s", "token_timeout")
        return fetch.task.result()

    async def _fetch(self) -> Token | NoToken:
        began = self._clock.monotonic()
        content = {"assertion": self._account.assertion(self._scope, int(self._clock.wall())), "grant_type": _GRANT}
        request = HttpRequest(
            url=self._account.token_uri,
            body=urlencode(content).encode(),
            headers={"Content-Type": "application/x-www-form-urlencoded"},
            timeout_seconds=_FETCH_SECONDS,
            secrets=[content["assertion"]],
        )
        found = self._read(await self._http.post(request), began)
        if isinstance(found, Token):
            self._held = found
        return found

    def _read(self, answer: HttpAnswer | NotSent | MaybeSent, began: float) -> Token | NoToken:
        if not isinstance(answer, HttpAnswer):
            return NoToken(f"no access token: {answer.error}", "token_unavailable")
        said = _decoded(answer.body)
        text = said.get("access_token")
        if answer.ok and isinstance(text, str) and _HEADER_TEXT.fullmatch(text):
            return _token(text, said.get("expires_in"), began)
        # Never quote the body of a 2xx answer: it may hold a token.
        words = "without a usable token" if answer.ok else " ".join(_words(said)) or answer.excerpt()
        return NoToken(
            brief(f"no access token: HTTP {answer.status} {words}"),
            "token_unavailable" if answer.ok or answer.status >= _FIRST_OF_SERVER else "token_refused",
            parse_retry_after(answer.headers.get("retry-after"), self._clock.wall()),
        )


def _words(said: dict[str, Any]) -> list[str]:
    return [str(said[key]) for key in ("error", "error_description") if key in said]


def _token(text: str, expires_in: object, began: float) -> Token:
    seconds = float(expires_in) if isinstance(expires_in, int | float) and expires_in > 0 else _USUAL_SECONDS
    # Counted from the request: the answer may have been slow.
    ends_at = began + seconds
    return Token(Secret(text), ends_at - min(_AHEAD_SECONDS, seconds / 2), ends_at - min(_SAFETY_SECONDS, seconds / 10))


def _decoded(body: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}
