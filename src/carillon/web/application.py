"""The ASGI application made of declared endpoints."""

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

import msgspec

from carillon.domain.errors import BadIntent, DirectoryUnavailable, LedgerUnavailable, Overloaded
from carillon.web.auth import Guard, JwtSettings
from carillon.web.body import Receive
from carillon.web.declare import Endpoint
from carillon.web.docs import pages
from carillon.web.limits import Buckets, host_name, is_loopback
from carillon.web.openapi import document as openapi
from carillon.web.problems import MEDIA_TYPE, Problem, document, from_bad_intent, unavailable
from carillon.web.request import Reply, Request
from carillon.web.routing import Routes

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
ASGI = Callable[[Scope, Receive, Send], Awaitable[None]]

_log = logging.getLogger(__name__)
_SAFE = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
]
_API = [
    *_SAFE,
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
]


class WebSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of the HTTP surface and who may use it."""

    body_limit: int = 262_144
    body_seconds: float = 10.0
    max_in_flight: int = 1000
    requests_per_second: float | None = None
    """Per caller, or per address without tokens; None is no limit."""
    requests_burst: float = 200.0
    auth_failures_per_minute: float | None = None
    """Per address, 429 beyond it; a valid token is never held back by this. None is no limit."""
    jwt: JwtSettings | None = None
    allowed_hosts: tuple[str, ...] = ()
    """Host names served beside loopback; empty with a secret configured serves every name."""
    docs: bool = True
    """Serves /docs and /openapi.json, the latter to holders of a token where tokens are asked for."""
    title: str = "Carillon"
    version: str = "0"


def app(endpoints: Iterable[Endpoint], settings: WebSettings | None = None) -> ASGI:
    """One ASGI callable that serves the endpoints."""
    settings = settings or WebSettings()
    declared = list(endpoints)
    if settings.docs:
        text = openapi(declared, title=settings.title, version=settings.version, secured=settings.jwt is not None)
        declared += pages(text)
    return _Application(declared, settings).serve


class _Application:
    def __init__(self, endpoints: list[Endpoint], settings: WebSettings) -> None:
        self._settings = settings
        self._routes = Routes(endpoints)
        self._guard = Guard(settings.jwt) if settings.jwt else None
        self._in_flight = 0
        rate = settings.requests_per_second
        self._rate = Buckets(rate, settings.requests_burst) if rate else None
        failures = settings.auth_failures_per_minute
        self._failures = Buckets(failures / 60, failures) if failures else None

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await _refuse_other(scope, receive, send)
            return
        request = Request(scope, receive, self._settings.body_limit, self._settings.body_seconds)
        reply = await self._reply(request)
        body = reply.body if isinstance(reply.body, bytes) else msgspec.json.encode(reply.body)
        headers = [
            (b"content-type", reply.media_type.encode()),
            (b"content-length", str(len(body)).encode()),
            (b"x-correlation-id", request.correlation_id.encode()),
        ]
        if reply.headers:
            headers += [(name.lower().encode(), value.encode("latin-1")) for name, value in reply.headers.items()]
        headers += _SAFE if "Content-Security-Policy" in reply.headers else _API
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

    async def _reply(self, request: Request) -> Reply:
        try:
            return await self._admitted(request)
        except Problem as raised:
            problem = raised
        except BadIntent as error:
            problem = from_bad_intent(error)
        except (LedgerUnavailable, DirectoryUnavailable):
            problem = unavailable("what this needs cannot be reached now; nothing was changed", 2)
        except Overloaded:
            problem = unavailable("too much is waiting already; nothing was changed")
        except asyncio.CancelledError:
            # Only a server that has run out of patience cancels us; whether anything was written down is not known.
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
        self._check_host(request)
        endpoint, request.params = self._routes.find(scope["method"], scope["path"])
        if self._in_flight >= self._settings.max_in_flight and not endpoint.always:
            raise unavailable("too many requests are being served")
        request.check_single_headers()
        if self._guard is not None and endpoint.guarded:
            self._identify(request, endpoint)
        if self._rate is not None and not endpoint.always:
            _slow_down(self._rate, request.caller.sub or request.client)
        self._in_flight += 1
        try:
            return await endpoint.call(request)
        finally:
            self._in_flight -= 1

    def _check_host(self, request: Request) -> None:
        settings = self._settings
        if settings.jwt is not None and not settings.allowed_hosts:
            return
        name = host_name(request.headers.get(b"host", b""))
        if not is_loopback(name) and name not in settings.allowed_hosts:
            raise Problem("MISDIRECTED_REQUEST", "without a token secret only loopback names are served")

    def _identify(self, request: Request, endpoint: Endpoint) -> None:
        guard = self._guard
        if guard is None:
            return
        try:
            request.caller = guard.caller(request.headers.get(b"authorization"))
        except Problem:
            if self._failures is not None:
                _slow_down(self._failures, request.client)
            raise
        if endpoint.role is not None and request.caller.role != endpoint.role:
            raise Problem("FORBIDDEN", f"the role {endpoint.role} is required")


def _slow_down(buckets: Buckets, key: str) -> None:
    wait = buckets.take(key, time.monotonic())
    if wait > 0:
        raise Problem("TOO_MANY_REQUESTS", "slow down", headers={"Retry-After": str(max(1, math.ceil(wait)))})


async def _refuse_other(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 1000})
