"""One HTTP/1.1 connection: requests one after the other, every wait bounded, nothing buffered without end."""

import asyncio
import contextlib
import logging
import re
from typing import Protocol, cast
from urllib.parse import unquote

import h11

from carillon.web.application import ASGI
from carillon.web.http_exchange import Exchange, Message, head
from carillon.web.listening import ServerSettings
from carillon.web.streaming import SINK

_log = logging.getLogger(__name__)
_MOST_HEADERS = 100
_LAST_WORDS_SECONDS = 1.0
_ABSOLUTE = re.compile(rb"https?://[^/?#]*", re.IGNORECASE)
_HEAD_TOO_LARGE = 431
_BAD_REQUEST = 400
_OVER = frozenset({h11.CLOSED, h11.ERROR})


class Serving(Protocol):
    """What a connection needs of its server."""

    application: ASGI
    settings: ServerSettings
    stopping: bool
    connections: "set[Connection]"

    def left(self, connection: "Connection") -> None: ...


class Connection(asyncio.Protocol):
    """One client."""

    def __init__(self, server: Serving) -> None:
        self._server = server
        self._http = self._parser()
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._exchange: Exchange | None = None
        self._task: asyncio.Task[None] | None = None
        self._drained: asyncio.Future[None] | None = None
        self._closing = False
        self._silent = False
        """Between two requests."""
        self.paused = False
        """The kernel has not taken all that was written."""
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports satisfy the interface without inheriting from it.
        self.transport = cast("asyncio.Transport", transport)
        if self._server.stopping or len(self._server.connections) >= self._server.settings.max_connections:
            self.transport.abort()
            return
        # Nothing of ours waits in user space unnoticed: paused means that the kernel did not take all.
        self.transport.set_write_buffer_limits(high=0)
        self._server.connections.add(self)
        self._wait(self._server.settings.head_seconds)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the protocol's signature
        self._stop_waiting()
        if self._exchange is not None:
            self._exchange.leave()
        self.resume_writing()
        self._server.left(self)

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    def data_received(self, data: bytes) -> None:
        if self._closing:
            return
        if self._silent:
            self._silent = False
            self._wait(self._server.settings.head_seconds)
        self._http.receive_data(data)
        self.advance()

    def eof_received(self) -> bool:
        """A client that will send no more has left its stream; an answer under way is still written."""
        if self._exchange is None or self._closing:
            return False
        self._http.receive_data(b"")
        self.advance()
        self._exchange.leave()
        return True

    def advance(self) -> None:
        """Take what has arrived as far as it can be taken now."""
        try:
            while not self.transport.is_closing():
                event = self._http.next_event()
                if event is h11.NEED_DATA or isinstance(event, h11.ConnectionClosed):
                    return
                if event is h11.PAUSED:
                    self.transport.pause_reading()
                    return
                self._take(event)
        except h11.RemoteProtocolError as error:
            self._refuse(error.error_status_hint)

    def _take(self, event: object) -> None:
        if isinstance(event, h11.Request):
            self._silent = False
            self._stop_waiting()
            _check(event, self._server.settings.head_bytes)
            self._exchange = Exchange(self, self._http, event)
            self._task = self._loop.create_task(self._serve(self._exchange, event))
        elif isinstance(event, h11.Data) and self._exchange is not None:
            self._exchange.feed(bytes(event.data))
        elif isinstance(event, h11.EndOfMessage) and self._exchange is not None:
            self._exchange.feed(None)

    async def _serve(self, exchange: Exchange, request: h11.Request) -> None:
        try:
            await self._server.application(self._scope(exchange, request), exchange.receive, exchange.send)
        except OSError:
            self.transport.abort()
        except Exception:  # noqa: BLE001 - a bug in one reply ends that reply, and the log has it
            # Without the query, which may hold a ticket.
            _log.exception("reply failed: %r", request.target.partition(b"?")[0])
            self.transport.abort()
        finally:
            self._exchange, self._task = None, None
            self._next(exchange)

    def _next(self, served: Exchange) -> None:
        """Ready for another request, or the end."""
        if not served.ended:
            # A reply that did not end must not look as if it had.
            self.transport.abort()
        elif served.lasts and self._http.their_state not in _OVER and not self._server.stopping:
            self._begin_anew()
            self._silent = True
            self._wait(self._server.settings.idle_seconds)
            self.transport.resume_reading()
            self.advance()
        else:
            self._hang_up()

    def _parser(self) -> h11.Connection:
        return h11.Connection(h11.SERVER, max_incomplete_event_size=self._server.settings.head_bytes)

    def _begin_anew(self) -> None:
        """A parser for the next request: replies are not written through it, so it does not know that one was."""
        arrived, closed = self._http.trailing_data
        self._http = self._parser()
        if arrived:
            self._http.receive_data(arrived)
        if closed:
            self._http.receive_data(b"")

    def _scope(self, exchange: Exchange, request: h11.Request) -> Message:
        target, _, query = _ABSOLUTE.sub(b"", request.target, count=1).partition(b"?")
        peer = self.transport.get_extra_info("peername") or ("", 0)
        return {
            "type": "http",
            "method": request.method.decode(),
            "path": unquote(target.decode("ascii", "replace"), errors="replace") or "/",
            "raw_path": target or b"/",
            "query_string": query,
            "headers": list(request.headers),
            "client": [str(peer[0]), str(peer[1])],
            "extensions": {SINK: exchange},
        }

    def put(self, data: bytes) -> bool:
        """Whether the kernel has all of it; if not, it waits here until it is drained."""
        if self.transport.is_closing():
            raise ConnectionResetError
        self.transport.write(data)
        if self.transport.is_closing():
            # The kernel refused it: the reader is gone.
            raise ConnectionResetError
        return not self.paused

    async def drained(self) -> None:
        """Return once the kernel has all of it; a reader who does not make room for it in time is cut off."""
        if self.paused:
            await self._room()
        if self.transport.is_closing():
            raise ConnectionResetError

    async def _room(self) -> None:
        self._drained = self._loop.create_future()
        try:
            async with asyncio.timeout(self._server.settings.write_seconds):
                await self._drained
        except TimeoutError:
            self.transport.abort()
        finally:
            self._drained = None

    def wind_up(self) -> None:
        """Serve what has begun and nothing after it."""
        if self._exchange is None:
            self._hang_up()

    def cancel(self) -> None:
        """End the request under way."""
        if self._task is not None:
            self._task.cancel()

    def abort(self) -> None:
        """End it without another word."""
        self.transport.abort()

    def _refuse(self, status: int) -> None:
        if self._exchange is not None:
            # The application is in the middle of this body and answers for it.
            self.transport.pause_reading()
            self._exchange.leave()
            return
        self.transport.write(head(status or _BAD_REQUEST, [(b"content-length", b"0"), (b"connection", b"close")]))
        self._hang_up()

    def _hang_up(self) -> None:
        """Say that nothing more comes, and give the last answer time to be read before the connection goes."""
        if self._closing or self.transport.is_closing():
            return
        self._closing = True
        with contextlib.suppress(OSError):
            self.transport.write_eof()
        self._wait(_LAST_WORDS_SECONDS)

    def _wait(self, seconds: float) -> None:
        self._stop_waiting()
        self._timer = self._loop.call_later(seconds, self.transport.abort)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _check(request: h11.Request, head_bytes: int) -> None:
    size = len(request.target) + sum(len(name) + len(value) for name, value in request.headers)
    if size > head_bytes or len(request.headers) > _MOST_HEADERS:
        raise h11.RemoteProtocolError("the head is too large", error_status_hint=_HEAD_TOO_LARGE)
    names = {name for name, _ in request.headers}
    if {b"transfer-encoding", b"content-length"} <= names:
        # Two readers of such a request could see two different ones.
        raise h11.RemoteProtocolError("two lengths")
