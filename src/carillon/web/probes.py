"""A listener for probes alone: a few fixed answers, and every client cut off that takes its time."""

import asyncio
import email.utils
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import cast

import msgspec

from carillon.domain.events import PartStarted, PartStopped, RequestServed
from carillon.domain.ports import Observer
from carillon.web.http1 import Head, read_head
from carillon.web.listening import ServerSettings, listen
from carillon.web.problems import MEDIA_TYPE

Probe = Callable[[], tuple[int, object]]
"""Answers at once, with a status and what becomes JSON."""

PART = "http"
_LARGEST_BODY = 65_536
_LONGEST_PATH = 200
_LAST_WORDS_SECONDS = 1.0
_SAFE = "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
_READING = ("GET", "HEAD")


class ProbeServer:
    """Serves fixed paths until stopped; starts and stops as `Server` does."""

    def __init__(self, probes: Mapping[str, Probe], settings: ServerSettings, observer: Observer) -> None:
        self.probes = probes
        self.settings = settings
        self.observe = observer
        self.port = settings.port
        self.connections: set[_Connection] = set()
        self.stopping = False
        self._gone = asyncio.Event()
        self._listener: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen; returns when connections are being accepted."""
        listener = listen(self.settings)
        self.port = listener.getsockname()[1]
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(
            lambda: _Connection(self), sock=listener, backlog=self.settings.backlog
        )
        self.observe(PartStarted(part=PART, detail=f"{self.settings.host}:{self.port}"))

    async def stop(self, grace: float) -> None:
        """Stop accepting at once, let what has begun finish for `grace` seconds, then hang up."""
        if self._listener is None:
            return
        self.stopping = True
        self._listener.close()
        for connection in list(self.connections):
            connection.wind_up()
        try:
            async with asyncio.timeout(grace):
                while self.connections:
                    self._gone.clear()
                    await self._gone.wait()
        except TimeoutError:
            for connection in list(self.connections):
                connection.cut()
        self._listener = None
        self.observe(PartStopped(part=PART))

    def left(self, connection: "_Connection") -> None:
        """Forget a connection that is gone."""
        self.connections.discard(connection)
        self._gone.set()

    def answer(self, head: Head) -> tuple[HTTPStatus, object]:
        """What a path says to a method."""
        probe = self.probes.get(head.path)
        if probe is None:
            return _problem(HTTPStatus.NOT_FOUND)
        if head.method not in _READING:
            return _problem(HTTPStatus.METHOD_NOT_ALLOWED)
        status, body = probe()
        return HTTPStatus(status), body


class _Connection(asyncio.Protocol):
    """One client: its head, the whole of a request and the silence in between each have their own time."""

    def __init__(self, server: ProbeServer) -> None:
        self._server = server
        self._head_seconds = min(server.settings.head_seconds, server.settings.read_seconds)
        self._loop = asyncio.get_running_loop()
        self._buffer = bytearray()
        self._head: Head | None = None
        self._missing = 0
        self._began: float | None = None
        """When the request under way sent its first byte; None between requests."""
        self._served = 0
        self._closing = False
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports satisfy the interface without inheriting from it.
        self._transport = cast("asyncio.Transport", transport)
        if len(self._server.connections) >= self._server.settings.max_connections or self._server.stopping:
            self._transport.abort()
            return
        self._server.connections.add(self)
        self._wait(self._head_seconds)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the protocol's signature
        if self._timer is not None:
            self._timer.cancel()
        self._server.left(self)

    def pause_writing(self) -> None:
        # Who does not read answers is not asked for more; the timer that runs ends it.
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        if self._closing:
            return
        if self._began is None:
            self._began = time.monotonic()
            if self._served:
                self._wait(self._head_seconds)
        self._buffer += data
        while self._take_head() and self._take_body():
            self._answer()

    def wind_up(self) -> None:
        """Serve what has begun and nothing after it."""
        if self._began is None:
            self._hang_up()

    def cut(self) -> None:
        """End it without another word."""
        self._transport.abort()

    def _wait(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(max(0.0, seconds), self._too_late)

    def _too_late(self) -> None:
        if self._closing:
            self._transport.abort()
        elif self._began is None:
            self._hang_up()
        else:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT)

    def _take_head(self) -> bool:
        if self._head is not None or self._closing:
            return not self._closing
        settings = self._server.settings
        while self._buffer.startswith(b"\r\n"):
            del self._buffer[:2]
        end = self._buffer.find(b"\r\n\r\n", 0, settings.head_bytes)
        if end < 0:
            if len(self._buffer) >= settings.head_bytes:
                self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
            return False
        head = read_head(bytes(self._buffer[:end]))
        del self._buffer[: end + 4]
        if head is None or head.length > _LARGEST_BODY:
            self._refuse(HTTPStatus.BAD_REQUEST if head is None else HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            return False
        self._head, self._missing = head, 0 if head.open_ended else head.length
        self._wait(settings.read_seconds - self._lasted())
        return True

    def _take_body(self) -> bool:
        """Nobody reads it, but the next request begins behind it."""
        here = min(self._missing, len(self._buffer))
        del self._buffer[:here]
        self._missing -= here
        return self._missing == 0

    def _answer(self) -> None:
        head = self._head
        if head is None:
            return
        status, body = self._server.answer(head)
        stays = head.keep_alive and not head.open_ended and not self._server.stopping
        self._write(head.method, status, body, stays=stays)
        self._told(head.method, head.path, status)
        self._head, self._began = None, None
        self._served += 1
        if not stays:
            self._hang_up()
        elif self._buffer:
            self._began = time.monotonic()
            self._wait(self._head_seconds)
        else:
            self._wait(self._server.settings.idle_seconds)

    def _refuse(self, status: HTTPStatus) -> None:
        head = self._head or Head("-", "-")
        self._write(head.method, *_problem(status), stays=False)
        self._told(head.method, head.path, status)
        self._hang_up()

    def _told(self, method: str, path: str, status: HTTPStatus) -> None:
        served = RequestServed(
            method=method, path=path[:_LONGEST_PATH], status=status, duration_ms=self._lasted() * 1000
        )
        self._server.observe(served)

    def _lasted(self) -> float:
        return 0.0 if self._began is None else time.monotonic() - self._began

    def _write(self, method: str, status: HTTPStatus, body: object, *, stays: bool) -> None:
        text = msgspec.json.encode(body)
        kind = MEDIA_TYPE if isinstance(body, _Problem) else "application/json"
        head = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\nDate: {email.utils.formatdate(usegmt=True)}\r\n"
            f"Content-Type: {kind}\r\nContent-Length: {len(text)}\r\n{_SAFE}"
        )
        if status is HTTPStatus.METHOD_NOT_ALLOWED:
            head += f"Allow: {', '.join(_READING)}\r\n"
        if not stays:
            head += "Connection: close\r\n"
        self._transport.write(head.encode() + b"\r\n" + (b"" if method == "HEAD" else text))

    def _hang_up(self) -> None:
        """Say that nothing more comes, and give the last answer time to be read before the connection goes."""
        self._closing = True
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self._wait(_LAST_WORDS_SECONDS)


def _problem(status: HTTPStatus) -> tuple[HTTPStatus, "_Problem"]:
    return status, _Problem(status.phrase, status.value)


class _Problem(msgspec.Struct, frozen=True):
    title: str
    status: int
    type: str = "about:blank"
