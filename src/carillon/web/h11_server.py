"""The HTTP servers on h11, for streams and for probes: they wait for slow readers, which granian does not."""

import asyncio
import socket
from collections.abc import Callable, Mapping
from http import HTTPStatus

import msgspec

from carillon.domain.events import PartStarted, PartStopped, RequestServed
from carillon.domain.ports import Observer
from carillon.web.application import ASGI, Scope, Send
from carillon.web.http_connection import BEGAN, Connection, Connections, Refused
from carillon.web.http_exchange import PROBLEM_TYPE, ProblemSummary, summary
from carillon.web.request import Receive
from carillon.web.settings import ServerSettings, fitted, listen

_CANCEL_SECONDS = 1.0
Probe = Callable[[], tuple[int, object]]
"""Answers at once, with a status and a value that becomes JSON."""

PART = "http"
_LARGEST_BODY = 65_536
_LONGEST_PATH = 200
_READING = ("GET", "HEAD")
_LAST_REPLIES = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.REQUEST_ENTITY_TOO_LARGE})
_UNREAD = frozenset({b"expect", b"transfer-encoding"})
"""The server does not read a body of unknown length or behind `Expect`: the connection ends with the reply."""
_SAFE = [(b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff")]


class StreamServer:
    """Serves one ASGI application until stopped; starts and stops as `Server` does."""

    def __init__(
        self, application: ASGI, settings: ServerSettings, refused: Refused = lambda _status, _seconds: None
    ) -> None:
        self._settings = settings = fitted(settings)
        self.connections = Connections(application, settings, refused)
        self._listener: asyncio.Server | None = None
        self.port = settings.port

    async def start(self) -> None:
        """Listen; returns when the server accepts connections."""
        listener = listen(self._settings)
        self.port = listener.getsockname()[1]
        _detect_dead_peers(listener, self._settings.write_seconds)
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(
            lambda: Connection(self.connections), sock=listener, backlog=self._settings.backlog
        )

    async def stop(self, grace: float) -> None:
        """Stop accepting at once, let running requests finish for `grace` seconds, then cancel the rest."""
        if self._listener is None:
            return
        self._listener.close()
        self._listener = None
        await self.connections.stop(grace, _CANCEL_SECONDS)


def _detect_dead_peers(listener: socket.socket, seconds: float) -> None:
    """Let the kernel end connections whose peer vanished or stopped reading; connections inherit the options."""
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    option = getattr(socket, "TCP_USER_TIMEOUT", None)
    if option is not None:
        listener.setsockopt(socket.IPPROTO_TCP, option, int(seconds * 3000))


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
