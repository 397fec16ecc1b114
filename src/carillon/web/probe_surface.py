"""The surface of a process that serves probes alone: a few fixed answers on the h11 listener."""

import asyncio
from collections.abc import Callable, Mapping
from http import HTTPStatus

import msgspec

from carillon.domain.events import PartStarted, PartStopped, RequestServed
from carillon.domain.ports import Observer
from carillon.web.application import Scope, Send
from carillon.web.body import Receive
from carillon.web.http_connection import BEGAN
from carillon.web.http_head import PROBLEM_TYPE, ProblemSummary, summary
from carillon.web.listening import ServerSettings
from carillon.web.stream_server import StreamServer

Probe = Callable[[], tuple[int, object]]
"""Answers at once, with a status and a value that becomes JSON."""

PART = "http"
_LARGEST_BODY = 65_536
_LONGEST_PATH = 200
_READING = ("GET", "HEAD")
_LAST_REPLIES = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.REQUEST_ENTITY_TOO_LARGE})
_UNREAD = frozenset({b"expect", b"transfer-encoding"})
"""A body of unknown length, or one that waits for leave, is not read: the connection ends with the reply."""
_SAFE = [(b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff")]


class ProbeServer:
    """Serves fixed paths until stopped and reports every request; starts and stops as `Server` does."""

    def __init__(self, probes: Mapping[str, Probe], settings: ServerSettings, observer: Observer) -> None:
        self._probes = probes
        self._settings = settings
        self._observe = observer
        self._started = False
        # A head is a part of its request: it has no more time than the whole.
        patience = msgspec.structs.replace(settings, head_seconds=min(settings.head_seconds, settings.read_seconds))
        self._server = StreamServer(self._serve, patience, self._refused)

    @property
    def port(self) -> int:
        return self._server.port

    async def start(self) -> None:
        """Listen; returns when the server accepts connections."""
        await self._server.start()
        self._started = True
        self._observe(PartStarted(part=PART, detail=f"{self._settings.host}:{self.port}"))

    async def stop(self, grace: float) -> None:
        """Stop accepting at once, let running requests finish for `grace` seconds, then hang up."""
        if not self._started:
            return
        self._started = False
        await self._server.stop(grace)
        self._observe(PartStopped(part=PART))

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        began: float = scope["extensions"][BEGAN]
        path = scope["raw_path"].decode("ascii", "replace")
        given = dict(scope["headers"])
        refused = await self._take_body(given, receive, began)
        status, body = self._answer(scope["method"], path) if refused is None else (refused, summary(refused))
        text = msgspec.json.encode(body)
        kind = PROBLEM_TYPE if isinstance(body, ProblemSummary) else b"application/json"
        headers = [(b"content-type", kind), (b"content-length", b"%d" % len(text)), *_SAFE]
        if status is HTTPStatus.METHOD_NOT_ALLOWED:
            headers.append((b"allow", ", ".join(_READING).encode()))
        if status in _LAST_REPLIES or not _UNREAD.isdisjoint(given):
            headers.append((b"connection", b"close"))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else text})
        self._report(scope["method"], path, status, asyncio.get_running_loop().time() - began)

    async def _take_body(self, headers: Mapping[bytes, bytes], receive: Receive, began: float) -> HTTPStatus | None:
        """Skip the body, because the next request begins behind it; a status refuses the request."""
        length = int(headers.get(b"content-length", b"0"))
        if length > _LARGEST_BODY:
            return HTTPStatus.REQUEST_ENTITY_TOO_LARGE
        if length == 0 or not _UNREAD.isdisjoint(headers):
            return None
        try:
            async with asyncio.timeout_at(began + self._settings.read_seconds):
                while (await receive()).get("more_body"):
                    pass
        except TimeoutError:
            return HTTPStatus.REQUEST_TIMEOUT
        return None

    def _answer(self, method: str, path: str) -> tuple[HTTPStatus, object]:
        probe = self._probes.get(path)
        if probe is None:
            return HTTPStatus.NOT_FOUND, summary(HTTPStatus.NOT_FOUND)
        if method not in _READING:
            return HTTPStatus.METHOD_NOT_ALLOWED, summary(HTTPStatus.METHOD_NOT_ALLOWED)
        status, body = probe()
        return HTTPStatus(status), body

    def _refused(self, status: int, seconds: float) -> None:
        self._report("-", "-", status, seconds)

    def _report(self, method: str, path: str, status: int, seconds: float) -> None:
        served = RequestServed(method=method, path=path[:_LONGEST_PATH], status=status, duration_ms=seconds * 1000)
        self._observe(served)
