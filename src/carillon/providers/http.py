"""The one outbound HTTP client: one request, one deadline, one value back."""

import asyncio
import hashlib
import math
import re
import ssl
from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from types import SimpleNamespace

import aiohttp
import msgspec
from yarl import URL

from carillon.domain.outcomes import Outcome, Refused, Unavailable, Unknown
from carillon.providers.egress import BLOCKED_TEXT, Blocked
from carillon.providers.guard import BlockedAddress, Guard, GuardedResolver, guarded_sockets

MAX_BODY = 64 * 1024
MAX_EXCERPT = 1024
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\t\x20-\x7e]*")
_SAFE_ID = re.compile(r"[A-Za-z0-9_:/@+=-]{1,200}")
_SECONDS = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?")
_MAX_RETRY_AFTER_TEXT = 64
# Node closes idle connections after 5 s; ours must be gone before, or a request meets a closing peer.
_KEEP_ALIVE_SECONDS = 4.0


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One call; the deadline covers waiting for a connection, DNS, connect, TLS, sending and the whole answer."""

    url: str
    timeout_seconds: float
    body: bytes = b""
    headers: Mapping[str, str] = {}
    method: str = "POST"
    guard: Guard | None = None
    """The egress rules, for every URL that somebody other than the operator wrote."""


class Answer(msgspec.Struct, frozen=True):
    """A status came; header names are lower-case, `complete` is False when anything cut the body short."""

    status: int
    headers: dict[str, str]
    body: bytes
    complete: bool = True

    @property
    def ok(self) -> bool:
        return 200 <= self.status <= 299  # noqa: PLR2004 — HTTP's own numbers

    def excerpt(self) -> str:
        """The start of the body as one printable line, for an attempt's note."""
        text = self.body[:MAX_EXCERPT].decode("utf-8", "replace")
        return " ".join("".join(char if char.isprintable() else " " for char in text).split())


class NotSent(msgspec.Struct, frozen=True):
    """Nothing of the request left this machine."""

    error: str
    classification: str


class MaybeSent(msgspec.Struct, frozen=True):
    """A connection was there and no status came back: the peer may have acted on the request."""

    error: str
    classification: str


class HttpClient:
    """Opens nothing until the first request; whoever made it closes it."""

    def __init__(
        self, *, connections: int = 500, connections_per_host: int = 100, ssl_context: ssl.SSLContext | None = None
    ) -> None:
        self._connections = connections
        self._connections_per_host = connections_per_host
        self._ssl = ssl_context
        self._sessions: dict[Guard | None, aiohttp.ClientSession] = {}

    async def post(self, request: Request) -> Answer | NotSent | MaybeSent:
        """Make the call once; never raises for what the peer or the network did."""
        exchange = _Exchange()
        try:
            async with asyncio.timeout(request.timeout_seconds):
                return await self._call(request, exchange)
        except TimeoutError:
            return exchange.broken(f"no answer within {request.timeout_seconds:g} s", "timeout")
        except aiohttp.ClientConnectorError as error:
            return _not_connected(error)
        except ValueError as error:
            # A URL that yarl or aiohttp cannot take; they look before they connect.
            return exchange.broken(f"the request is malformed: {error}"[:MAX_EXCERPT], "bad_request")
        except (aiohttp.ClientError, OSError) as error:
            return exchange.broken(f"{type(error).__name__}: {error}"[:MAX_EXCERPT], "connection_lost")
        finally:
            exchange.close()

    async def aclose(self) -> None:
        sessions, self._sessions = self._sessions, {}
        for session in sessions.values():
            await session.close()

    async def _call(self, request: Request, exchange: "_Exchange") -> Answer | NotSent:
        for name, value in request.headers.items():
            if not _TOKEN.fullmatch(name) or not _VALUE.fullmatch(value):
                return NotSent("a header has a forbidden character", "bad_request")
        url = request.url
        if request.guard is not None:
            target = await request.guard.check(url)
            if isinstance(target, Blocked):
                return NotSent(target.error, "blocked_address")
            url = target.url
        exchange.response = await self._session(request.guard).request(
            request.method,
            # What was judged is what is sent: no second parser rewrites it.
            URL(url, encoded=True),
            data=request.body,
            headers=request.headers,
            allow_redirects=False,
            trace_request_ctx=exchange,
        )
        await exchange.read()
        return exchange.answer()

    def _session(self, guard: Guard | None) -> aiohttp.ClientSession:
        # A pool for each guard: a connection opened without the rules must never serve a request under them.
        session = self._sessions.get(guard)
        if session is None:
            session = self._sessions[guard] = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=self._connections,
                    limit_per_host=self._connections_per_host,
                    ssl=self._ssl or True,
                    keepalive_timeout=_KEEP_ALIVE_SECONDS,
                    use_dns_cache=guard is None,
                    resolver=None if guard is None else GuardedResolver(guard),
                    socket_factory=None if guard is None else guarded_sockets(guard),
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
                trace_configs=[_watch_connection()],
                headers={"Accept-Encoding": "identity"},
                # Also the most that is unpacked ahead of our reading.
                read_bufsize=MAX_BODY,
            )
        return session


class _Exchange:
    """How far one request got."""

    def __init__(self) -> None:
        self.connected = False
        self.response: aiohttp.ClientResponse | None = None
        self._body = bytearray()
        self._complete = False

    async def read(self) -> None:
        response = self.response
        if response is None:
            return
        async for chunk in response.content.iter_any():
            self._body += chunk
            if len(self._body) > MAX_BODY:
                return
        self._complete = True

    def answer(self) -> Answer:
        if self.response is None:
            raise RuntimeError("an answer was asked for before there was one")
        headers = {name.lower(): value for name, value in self.response.headers.items()}
        return Answer(self.response.status, headers, bytes(self._body[:MAX_BODY]), self._complete)

    def broken(self, error: str, classification: str) -> Answer | NotSent | MaybeSent:
        """The status is the answer, even if the body after it never ended."""
        if self.response is not None:
            return self.answer()
        return MaybeSent(error, classification) if self.connected else NotSent(error, classification)

    def close(self) -> None:
        if self.response is not None and not self._complete:
            self.response.close()


def _watch_connection() -> aiohttp.TraceConfig:
    # From the moment a request owns a connection we can no longer say that nothing was written.
    async def connected(_: aiohttp.ClientSession, context: SimpleNamespace, __: object) -> None:
        context.trace_request_ctx.connected = True

    trace = aiohttp.TraceConfig()
    trace.on_connection_create_end.append(connected)
    trace.on_connection_reuseconn.append(connected)
    return trace


def _not_connected(error: aiohttp.ClientConnectorError) -> NotSent:
    cause = error.os_error
    if isinstance(cause, BlockedAddress):
        return NotSent(BLOCKED_TEXT, "blocked_address")
    text = f"cannot connect: {cause}"[:MAX_EXCERPT]
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return NotSent(text, "dns")
    if isinstance(error, aiohttp.ClientSSLError):
        return NotSent(text, "tls")
    return NotSent(text, "connect")


def header_id(idempotency_key: str) -> str:
    """The key itself where any header, and a signature that separates by dots, can hold it; else its digest."""
    if _SAFE_ID.fullmatch(idempotency_key):
        return idempotency_key
    return f"msg_{hashlib.sha256(idempotency_key.encode()).hexdigest()}"


def unanswered(failure: NotSent | MaybeSent) -> Outcome:
    """The outcome of a call that got no status."""
    if isinstance(failure, MaybeSent):
        return Unknown(failure.error, classification=failure.classification)
    if failure.classification in {"blocked_address", "bad_request"}:
        return Refused(failure.error, classification=failure.classification)
    return Unavailable(failure.error, classification=failure.classification)


def parse_retry_after(value: str | None, wall_now: float) -> float | None:
    """Seconds to wait by a Retry-After header in either form; None when it says nothing usable."""
    if value is None or len(value) > _MAX_RETRY_AFTER_TEXT:
        return None
    text = value.strip()
    if _SECONDS.fullmatch(text):
        seconds = float(text)
    else:
        try:
            moment = parsedate_to_datetime(text)
        except (ValueError, TypeError, OverflowError):
            return None
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        seconds = moment.timestamp() - wall_now
    return max(0.0, seconds) if math.isfinite(seconds) else None
