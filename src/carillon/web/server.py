"""The HTTP server of the API: granian inside the program's own event loop, and its interface under the application."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from functools import lru_cache
from typing import Any
from urllib.parse import quote

from granian.constants import HTTPModes, Interfaces
from granian.http import HTTP1Settings
from granian.log import LogLevels
from granian.rsgi import HTTPProtocol, ProtocolClosed, Scope
from granian.server import embed

from carillon.web.application import Application, encoded, head
from carillon.web.idle import IdleConnections
from carillon.web.pacing import PacedSink, connection_of
from carillon.web.settings import ServerSettings, fitted, refused, reserve, share
from carillon.web.streaming import BrokenOff, Pouring, pour

Message = MutableMapping[str, Any]
_NO_TEXT = b"\xff"
_WHOLE_DIGITS = 6
"""A body whose length has at most this many digits, so below a megabyte, is read in one piece."""
_CANCEL_SECONDS = 1.0
_START_SECONDS = 10.0
_LOOK_SECONDS = 0.001


async def serve(application: Application, scope: Scope, protocol: HTTPProtocol, last: "Last") -> None:
    """Serve one request; the application sees it as ASGI. `last` writes a reply that lasts."""
    headers, length = _headers(scope)
    exchange = _Exchange(protocol, length)
    if scope.authority:
        headers = _addressed(headers, scope.authority.encode("latin-1"))
    method, path = scope.method, scope.path
    request = application.request(
        {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": _quoted(path),
            "query_string": scope.query_string.encode("latin-1", "replace"),
            "headers": headers,
            "client": scope.client.rsplit(":", 1),
        },
        exchange.receive,
    )
    reply = await application.reply(request)
    if callable(reply.body) and method != "HEAD":
        exchange.begin(reply.status, head(request, reply, None))
        await last(reply.body, exchange, scope.client)
        return
    body = encoded(reply.body)
    protocol.response_bytes(reply.status, head(request, reply, len(body)), b"" if method == "HEAD" else body)


def _addressed(headers: list[tuple[bytes, bytes]], authority: bytes) -> list[tuple[bytes, bytes]]:
    """The headers with the address of the first line, which counts: RFC 9112 lets a server ignore `Host` then."""
    hosts = [pair for pair in headers if pair[0] == b"host"]
    if len(hosts) > 1:
        return headers
    return [(b"host", authority), *(pair for pair in headers if pair[0] != b"host")]


@lru_cache(maxsize=256)
def _quoted(path: str) -> bytes:
    """The path as a URL spells it, because granian gives it decoded; most requests go to a few paths."""
    return quote(path).encode()


def _headers(scope: Scope) -> tuple[list[tuple[bytes, bytes]], str]:
    """The headers as ASGI spells them, and the length that the body declares."""
    given = scope.headers
    pairs = given.items()
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in pairs]
    names = given.keys()
    if len(names) != len(headers):
        # Granian leaves out a value that is no text; the application must see that the header was there.
        headers += [(name.encode("latin-1"), _NO_TEXT) for name in set(names) - {name for name, _ in pairs}]
    return headers, given.get("content-length", "")


class _Exchange:
    """Reads the body of a request, and writes an answer that comes in pieces."""

    __slots__ = ("_chunks", "_empty", "_head", "_protocol", "_read", "_stream", "_whole")

    def __init__(self, protocol: HTTPProtocol, length: str) -> None:
        self._protocol = protocol
        self._chunks: AsyncIterator[bytes] | None = None
        self._empty = 0
        """How many empty pieces came."""
        self._read = False
        self._head: tuple[int, list[tuple[str, str]]]
        self._stream: Any = None
        self._whole = length.isdigit() and len(length) <= _WHOLE_DIGITS

    async def receive(self) -> Message:
        try:
            if self._whole and not self._read:
                self._read = True
                return {"type": "http.request", "body": await self._protocol(), "more_body": False}
            return await self._next()
        except ProtocolClosed:
            return {"type": "http.disconnect"}

    async def _next(self) -> Message:
        if self._read:
            # The body is over: the only thing left to wait for is that the client leaves.
            await self._protocol.client_disconnect()
            return {"type": "http.disconnect"}
        if self._chunks is None:
            self._chunks = aiter(self._protocol)
        try:
            chunk = bytes(await anext(self._chunks))
        except StopAsyncIteration:
            self._read = True
            return {"type": "http.request", "body": b"", "more_body": False}
        self._empty += not chunk
        if self._empty > 1:
            # Granian ends a whole body with one empty piece, and a body that breaks off, or has headers behind it, with
            # two. Without this the part that arrived would pass for the whole.
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": chunk, "more_body": True}

    def begin(self, status: int, headers: list[tuple[str, str]]) -> None:
        """Keep the head until the first piece of the answer goes with it."""
        self._head = (status, headers)

    async def send(self, message: Message) -> None:
        """Write a piece of the answer; ConnectionResetError once the client has left."""
        body = message.get("body", b"")
        try:
            if self._stream is None and not message.get("more_body"):
                self._protocol.response_bytes(*self._head, body)
                return
            if self._stream is None:
                self._stream = self._protocol.response_stream(*self._head)
            if body:
                await self._stream.send_bytes(body)
        except ProtocolClosed:
            raise ConnectionResetError("the client has left") from None

    async def piece(self, data: bytes) -> None:
        """Write a piece after which others come."""
        await self.send({"body": data, "more_body": True})

    def end(self) -> None:
        """End an answer that came in pieces: granian sends its end when nothing holds the stream any more.

        To leave that to the garbage collector would leave the client waiting: requests are parts of cycles.
        """
        self._stream = None


Last = Callable[[Pouring, _Exchange, str], Awaitable[None]]


class NoServer:
    """The server of a process that serves no HTTP."""

    port = 0

    async def start(self) -> None:
        """Do nothing."""

    async def stop(self, grace: float) -> None:
        """Do nothing."""


class Server:
    """Serves one application until stopped; the caller handles signals."""

    def __init__(self, application: Application, settings: ServerSettings) -> None:
        self._application = application
        self._settings = fitted(settings)
        self._running: dict[asyncio.Task[Any], str] = {}
        """The requests under way, and the connections they came on."""
        self._closing_idle: asyncio.Task[None] | None = None
        self._stopping = False
        self._reserved: socket.socket | None = None
        self._granian: Any = None
        self._serving: asyncio.Task[None] | None = None
        self.port = settings.port

    async def start(self) -> None:
        """Listen; returns when the server accepts connections."""
        # Granian binds with SO_REUSEPORT always and does not say which free port it took. So this socket takes the
        # port, alone unless the settings share it, and admits granian's socket beside it.
        self._reserved = reserve(self._settings)
        address, self.port = self._reserved.getsockname()[:2]
        share(self._reserved, shared=True)
        self._granian = self._embedded(address)
        self._serving = asyncio.create_task(self._granian.serve(), name="http-server")
        await self._until_listening(address)
        share(self._reserved, shared=self._settings.share_port)
        idle = IdleConnections(self.port, self._settings, self._busy)
        self._closing_idle = asyncio.create_task(idle.run(), name="http-idle")

    def _busy(self) -> set[str]:
        return set(self._running.values())

    async def stop(self, grace: float) -> None:
        """Stop accepting at once, let running requests finish for `grace` seconds, then cancel the rest."""
        if self._granian is None or self._serving is None or self._reserved is None:
            return
        if self._closing_idle is not None:
            self._closing_idle.cancel()
        self._stopping = True
        self._granian.stop()
        await asyncio.wait({self._serving}, timeout=grace)
        for task in list(self._running):
            task.cancel()
        await asyncio.wait({self._serving}, timeout=_CANCEL_SECONDS)
        self._reserved.close()

    def _embedded(self, address: str) -> embed.Server:
        settings = self._settings
        return embed.Server(
            self._tracked,
            address=address,
            port=self.port,
            interface=Interfaces.RSGI,
            http=HTTPModes.http1,
            websockets=False,
            backlog=settings.backlog,
            backpressure=settings.max_connections,
            http1_settings=HTTP1Settings(
                header_read_timeout=int(settings.head_seconds * 1000), max_buffer_size=max(8192, settings.head_bytes)
            ),
            log_level=LogLevels.error,
            # Incremental sets only the level: the program's own log handlers stay in charge.
            log_dictconfig={"incremental": True, "handlers": {}, "loggers": {}},
        )

    async def _until_listening(self, address: str) -> None:
        """Granian does not say when it listens: a connection that it accepts proves it."""
        loop = asyncio.get_running_loop()
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        deadline = loop.time() + _START_SECONDS
        while True:
            if self._serving is not None and self._serving.done():
                raise refused(self._settings, self._serving.exception() or RuntimeError("granian ended"))
            with socket.socket(family, socket.SOCK_STREAM) as client:
                client.setblocking(False)  # noqa: FBT003 - the socket module's own signature
                try:
                    await loop.sock_connect(client, (address, self.port))
                except ConnectionRefusedError as error:
                    if loop.time() > deadline:
                        raise refused(self._settings, error) from None
                else:
                    return
            await asyncio.sleep(_LOOK_SECONDS)

    async def _tracked(self, scope: Scope, protocol: HTTPProtocol) -> None:
        task = asyncio.current_task()
        if task is None:
            return
        self._running[task] = scope.client
        try:
            await serve(self._application, scope, protocol, self._last)
        except asyncio.CancelledError:
            # `stop` cancels what outlasts its grace; granian would log its own call as an error of the application.
            if not self._stopping:
                raise
        finally:
            del self._running[task]

    async def _last(self, pouring: Pouring, exchange: _Exchange, client: str) -> None:
        """Write a reply that lasts, at the pace of its reader; one that breaks off is cut: it must look unfinished."""
        sink = PacedSink(connection_of(self.port, client), exchange.piece, self._settings.write_seconds)
        try:
            await pour(pouring, exchange.receive, exchange.send, self._application.lasting, sink)
        except BrokenOff:
            sink.cut()
        except BaseException:
            sink.cut()
            raise
        finally:
            exchange.end()
            sink.close()
