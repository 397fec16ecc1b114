"""The ASGI application made of declared endpoints."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

import msgspec

from carillon.domain.errors import BadIntent, DirectoryUnavailable, LedgerUnavailable, Overloaded
from carillon.web.endpoint import Endpoint, Routes
from carillon.web.files import pages
from carillon.web.gate import Gate
from carillon.web.openapi import document as openapi
from carillon.web.peers import Proxies, SlowBodies
from carillon.web.problems import MEDIA_TYPE, Problem, document, from_bad_intent, unavailable
from carillon.web.request import Receive, Reply, Request
from carillon.web.settings import WebSettings
from carillon.web.streaming import SINK, Lasting, pour

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
ASGI = Callable[[Scope, Receive, Send], Awaitable[None]]

_log = logging.getLogger(__name__)
_BODILESS = frozenset({204, 304})
_SAFE = [
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
]
_OWN_CACHING = [*_SAFE, ("content-security-policy", "default-src 'none'; frame-ancestors 'none'")]
_API = [*_OWN_CACHING, ("cache-control", "no-store")]


def app(endpoints: Iterable[Endpoint], settings: WebSettings | None = None) -> "Application":
    """One application that serves the endpoints, over ASGI or to a server that writes its replies."""
    settings = settings or WebSettings()
    declared = list(endpoints)
    if settings.docs:
        shown = [*declared]
        # A quarter of the work of a start, and most processes are never asked for it.
        declared += pages(lambda: openapi(shown, title=settings.title, version=settings.version, secured=settings.asks))
    return Application(declared, settings)


class Application:
    """Satisfies ASGI; a server with an interface of its own makes the request and writes the reply itself."""

    def __init__(self, endpoints: list[Endpoint], settings: WebSettings) -> None:
        self._settings = settings
        self._routes = Routes(endpoints)
        self._gate = Gate(settings)
        self._proxies = Proxies(settings.trusted_proxies)
        self._slow = SlowBodies(settings.slow_bodies_per_address)
        self._in_flight = 0
        self.lasting = Lasting()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await _refuse_other(scope, receive, send)
            return
        request = self.request(scope, receive)
        reply = await self.reply(request)
        if callable(reply.body) and scope["method"] != "HEAD":
            await send(_start(reply, head(request, reply, None)))
            await pour(reply.body, receive, send, self.lasting, scope.get("extensions", {}).get(SINK))
            return
        body = encoded(reply.body)
        await send(_start(reply, head(request, reply, len(body))))
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

    def request(self, scope: Scope, receive: Receive) -> Request:
        """A request under this application's limits."""
        request = Request(scope, receive, self._settings.body_limit, self._settings.body_seconds, self._slow)
        if self._proxies:
            request.client = self._proxies.client(request.client, request.headers)
        return request

    async def reply(self, request: Request) -> Reply:
        """The reply; every exception becomes a problem document."""
        try:
            return await self._admitted(request)
        except Problem as raised:
            problem = raised
        except BadIntent as error:
            problem = from_bad_intent(error)
        except (LedgerUnavailable, DirectoryUnavailable):
            problem = unavailable("a server that this needs cannot be reached now; nothing was changed", 2)
        except Overloaded:
            problem = unavailable("too much is waiting already; nothing was changed")
        except asyncio.CancelledError:
            # Only a server that stops cancels a request; it is unknown whether anything was written.
            problem = unavailable("the server is shutting down; repeat with the same idempotency key", 2)
        except Exception:  # noqa: BLE001 - the last line of defence: logged with its trace, answered without
            _log.exception("request failed: %s %r", request.scope["method"], request.scope["path"])
            problem = Problem("INTERNAL_ERROR", "the request could not be served; the log has the reason")
        text = document(
            problem,
            instance=request.scope.get("raw_path", b"").decode("ascii", "replace"),
            trace_id=request.trace_id or request.correlation_id,
        )
        return Reply(problem.status, text, problem.headers, MEDIA_TYPE)

    async def _admitted(self, request: Request) -> Reply:
        scope = request.scope
        request.check_headers()
        self._gate.check_host(request)
        endpoint, request.params = self._routes.find(scope["method"], scope["path"])
        self._refuse_beyond_bound(endpoint)
        try:
            await self._gate.admit(request, endpoint)
            if endpoint.body is not None or endpoint.raw is not None:
                await request.read(optional=endpoint.body_optional, raw=endpoint.raw)
                # Others may have come while the body did.
                self._refuse_beyond_bound(endpoint)
            return await self._answered(request, endpoint)
        except Problem as problem:
            self._gate.failed(request, endpoint, problem)
            raise

    async def _answered(self, request: Request, endpoint: Endpoint) -> Reply:
        """A place in flight is taken when all of the request is there: a slow body costs only its sender."""
        self._in_flight += 1
        try:
            await self._gate.let_reach(request, endpoint)
            return await endpoint.call(request)
        finally:
            self._in_flight -= 1

    def _refuse_beyond_bound(self, endpoint: Endpoint) -> None:
        if self._in_flight >= self._settings.max_in_flight and not endpoint.always:
            raise unavailable("too many requests are being served")


def encoded(body: object) -> bytes:
    """The bytes of a reply's body; none for a body that writes itself."""
    if callable(body):
        return b""
    return body if isinstance(body, bytes) else msgspec.json.encode(body)


def head(request: Request, reply: Reply, length: int | None) -> list[tuple[str, str]]:
    """All of a reply's headers; one that writes itself has no length, and its connection serves nothing after it."""
    headers = [("x-correlation-id", request.correlation_id)]
    if reply.status not in _BODILESS:
        headers.append(("content-type", reply.media_type))
        headers.append(("connection", "close") if length is None else ("content-length", str(length)))
    if not reply.headers:
        return headers + _API
    headers += [(name.lower(), value) for name, value in reply.headers.items()]
    if "Content-Security-Policy" in reply.headers:
        return headers + _SAFE
    return headers + (_API if "Cache-Control" not in reply.headers else _OWN_CACHING)


def _start(reply: Reply, headers: list[tuple[str, str]]) -> MutableMapping[str, Any]:
    pairs = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
    return {"type": "http.response.start", "status": reply.status, "headers": pairs}


async def _refuse_other(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 1000})
