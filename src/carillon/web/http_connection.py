"""One HTTP/1.1 connection on h11: requests in turn, a deadline for every wait, a bound on every buffer."""

import asyncio
import contextlib
import logging
import re
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import cast
from urllib.parse import unquote

import h11

from carillon.web.application import ASGI
from carillon.web.http_exchange import (
    ChunkLines,
    Exchange,
    HeadReader,
    Message,
    ReplyWriter,
    check,
    refusal,
    refuse_trailers,
)
from carillon.web.peers import Proxies, grouped
from carillon.web.settings import ServerSettings
from carillon.web.streaming import SINK

Refused = Callable[[int, float], None]
"""Called with the status and the duration of a request that was refused before it reached the application."""

BEGAN = "carillon.began"
"""The ASGI extension that says when the first byte of the request arrived, in the event loop's time."""

_log = logging.getLogger(__name__)
_LINGER_SECONDS = 1.0
_ABSOLUTE = re.compile(rb"https?://([^/?#]*)", re.IGNORECASE)
_OVER = frozenset({h11.CLOSED, h11.ERROR})


class Connections:
    """The open connections of one server, and what they share."""

    def __init__(self, application: ASGI, settings: ServerSettings, refused: Refused) -> None:
        self.application = application
        self.settings = settings
        self.refused = refused
        self.stopping = False
        """True: no connection takes another request."""
        self._open: set[Connection] = set()
        self._gone = asyncio.Event()
        self._proxies = Proxies(settings.trusted_proxies)
        self._idle: dict[str, dict[Connection, None]] = {}
        """The connections without a request under way by address, the longest idle first."""

    def __iter__(self) -> Iterator["Connection"]:
        return iter(self._open)

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, connection: "Connection") -> bool:
        """Take a new connection, at the cost of the longest idle one if there are too many; false if none is idle."""
        if self.stopping:
            return False
        if len(self._open) >= self.settings.max_connections and not self._close_idle():
            return False
        self._open.add(connection)
        self.rests(connection)
        return True

    def rests(self, connection: "Connection") -> None:
        """Note that the connection waits for a request; one too many of its address ends the longest idle."""
        resting = self._idle.setdefault(grouped(connection.address), {})
        resting[connection] = None
        if 0 < self.settings.idle_per_address < len(resting) and connection.address not in self._proxies:
            self._close(next(iter(resting)))

    def works(self, connection: "Connection") -> None:
        """Note that the connection has a request under way."""
        address = grouped(connection.address)
        resting = self._idle.get(address, {})
        resting.pop(connection, None)
        if not resting:
            self._idle.pop(address, None)

    def left(self, connection: "Connection") -> None:
        """Forget a connection that is gone."""
        self._open.discard(connection)
        self.works(connection)
        self._gone.set()

    def _close_idle(self) -> bool:
        """Close the longest idle connection of the address that has most of them."""
        if not self._idle:
            return False
        heaviest: dict[Connection, None] = max(self._idle.values(), key=len)
        self._close(next(iter(heaviest)))
        return True

    def _close(self, connection: "Connection") -> None:
        connection.abort()
        self.left(connection)

    async def stop(self, grace: float, cancel_seconds: float) -> None:
        """Let running requests finish for `grace` seconds, then cancel the rest, then close what is left."""
        self.stopping = True
        for connection in list(self._open):
            connection.wind_up()
        await self._until_gone(grace)
        for connection in list(self._open):
            connection.cancel()
        await self._until_gone(cancel_seconds)
        for connection in list(self._open):
            connection.abort()

    async def _until_gone(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._open:
                    self._gone.clear()
                    await self._gone.wait()


class Connection(asyncio.Protocol):
    """One client."""

    def __init__(self, server: Connections) -> None:
        self._server = server
        self._heads = HeadReader(server.settings.head_bytes)
        self._http: h11.Connection
        """The parser of the request under way; every request has its own."""
        self._chunks: ChunkLines | None = None
        """Checks the body of the request under way, if that comes in chunks."""
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._began: float | None = None
        """When the first byte of the request under way arrived; None between requests."""
        self._kept = False
        """True once a request was served: a kept connection may be silent for longer than a head may take."""
        self._exchange: Exchange | None = None
        self._task: asyncio.Task[None] | None = None
        self._closing = False
        self.address = ""
        """The peer's, for limits."""
        self.transport: asyncio.Transport
        self.writer: ReplyWriter

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports satisfy the interface without inheriting from it.
        self.transport = cast("asyncio.Transport", transport)
        self.writer = ReplyWriter(self.transport, self._server.settings.write_seconds)
        peer = transport.get_extra_info("peername")
        self.address = str(peer[0]) if peer else ""
        if not self._server.admit(self):
            self.transport.abort()
            return
        # The transport buffers nothing without notice: paused means that the kernel did not take everything.
        self.transport.set_write_buffer_limits(high=0)
        self._wait(self._server.settings.head_seconds)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the protocol's signature
        self._stop_waiting()
        if self._exchange is not None:
            self._exchange.leave()
        self.resume_writing()
        self._server.left(self)

    def pause_writing(self) -> None:
        self.writer.pause()

    def resume_writing(self) -> None:
        self.writer.resume()

    def data_received(self, data: bytes) -> None:
        if self._closing:
            return
        if self._exchange is None:
            self._begin(data)
        else:
            self._go_on(data)

    def eof_received(self) -> bool:
        """A client that sends no more has left its stream; a reply under way is still written."""
        if self._exchange is None or self._closing:
            return False
        self._http.receive_data(b"")
        self._advance()
        self._exchange.leave()
        return True

    def _begin(self, data: bytes) -> None:
        """Read the head of the next request."""
        if self._began is None:
            self._began = self._loop.time()
            if self._kept:
                self._wait(self._server.settings.head_seconds)
        try:
            whole = self._heads.feed(data)
        except h11.RemoteProtocolError as error:
            self._refuse(error.error_status_hint)
            return
        if whole is not None:
            self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=self._server.settings.head_bytes)
            self._chunks = None
            self._http.receive_data(whole)
            self._advance(whole[self._heads.body_at :])

    def _go_on(self, data: bytes) -> None:
        """Read more of the body."""
        try:
            if self._chunks is not None:
                self._chunks.feed(data)
        except h11.RemoteProtocolError as error:
            self._refuse(error.error_status_hint)
            return
        self._http.receive_data(data)
        self._advance()

    def _advance(self, behind: bytes = b"") -> None:
        """Process the bytes that have arrived; those that came with a head lie `behind` it."""
        try:
            while not self.transport.is_closing():
                event = self._http.next_event()
                if event is h11.NEED_DATA or isinstance(event, h11.ConnectionClosed):
                    return
                if event is h11.PAUSED:
                    self.transport.pause_reading()
                    return
                self._take(event, behind)
        except h11.RemoteProtocolError as error:
            self._refuse(error.error_status_hint)

    def _take(self, event: object, behind: bytes) -> None:
        if isinstance(event, h11.Request):
            check(event, self._server.settings.head_bytes)
            self._stop_waiting()
            self._server.works(self)
            self._exchange = Exchange(self.writer, self._http, event)
            self._task = self._loop.create_task(self._serve(self._exchange, event))
            if any(name == b"transfer-encoding" for name, _ in event.headers):
                self._chunks = ChunkLines()
                self._chunks.feed(behind)
        elif isinstance(event, h11.Data) and self._exchange is not None:
            self._exchange.feed(bytes(event.data))
        elif isinstance(event, h11.EndOfMessage) and self._exchange is not None:
            refuse_trailers(event)
            self._exchange.feed(None)

    async def _serve(self, exchange: Exchange, request: h11.Request) -> None:
        try:
            await self._server.application(self._scope(exchange, request), exchange.receive, exchange.send)
        except OSError:
            self.transport.abort()
        except Exception:  # noqa: BLE001 - a bug in one reply ends that reply, and the log has it
            # The log line leaves the query out, because a query may hold a ticket.
            _log.exception("reply failed: %r", request.target.partition(b"?")[0])
            self.transport.abort()
        finally:
            self._exchange, self._task = None, None
            self._next(exchange)

    def _next(self, served: Exchange) -> None:
        """Wait for another request, or hang up."""
        if not served.ended:
            # The client must see that this reply is incomplete.
            self.transport.abort()
        elif served.lasts and self._http.their_state not in _OVER and not self._server.stopping:
            arrived, closed = self._http.trailing_data
            self._began, self._kept = None, True
            self._server.rests(self)
            self.transport.resume_reading()
            if arrived:
                self._begin(arrived)
            elif closed:
                self._hang_up()
            else:
                self._wait(self._server.settings.idle_seconds)
        else:
            self._hang_up()

    def _scope(self, exchange: Exchange, request: h11.Request) -> Message:
        headers, target = list(request.headers), request.target
        absolute = _ABSOLUTE.match(target)
        if absolute is not None:
            # The address in the first line counts, as on granian; RFC 9112 lets a server ignore the header then.
            target = target[absolute.end() :]
            headers = [(b"host", absolute[1]), *(pair for pair in headers if pair[0] != b"host")]
        target, _, query = target.partition(b"?")
        peer = self.transport.get_extra_info("peername") or ("", 0)
        return {
            "type": "http",
            "method": request.method.decode(),
            "path": unquote(target.decode("ascii", "replace"), errors="replace") or "/",
            "raw_path": target or b"/",
            "query_string": query,
            "headers": headers,
            "client": [str(peer[0]), str(peer[1])],
            "extensions": {SINK: exchange, BEGAN: self._began},
        }

    def wind_up(self) -> None:
        """Finish the request that has begun and take no other."""
        self.writer.ending = True
        if self._exchange is None and not self._heads.begun:
            self._hang_up()

    def cancel(self) -> None:
        """Cancel the request under way."""
        if self._task is not None:
            self._task.cancel()

    def abort(self) -> None:
        """Close the connection without another byte."""
        self.transport.abort()

    def _refuse(self, status: int) -> None:
        if status == HTTPStatus.NOT_IMPLEMENTED:
            # h11's word for a coding other than `chunked`: granian says 400, and so do both listeners.
            status = HTTPStatus.BAD_REQUEST
        if self._exchange is not None:
            # The application is reading this body: it answers.
            self.transport.pause_reading()
            self._exchange.leave()
            return
        self.transport.write(refusal(status))
        self._server.refused(status, 0.0 if self._began is None else self._loop.time() - self._began)
        self._hang_up()

    def _hang_up(self) -> None:
        """Send the end of the stream, and leave the client time to read the last reply before the connection closes."""
        if self._closing or self.transport.is_closing():
            return
        self._closing = True
        with contextlib.suppress(OSError):
            self.transport.write_eof()
        self._wait(_LINGER_SECONDS)

    def _wait(self, seconds: float) -> None:
        self._stop_waiting()
        self._timer = self._loop.call_later(seconds, self._too_late)

    def _too_late(self) -> None:
        if self._closing:
            self.transport.abort()
        elif self._began is None:
            self._hang_up()
        else:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
