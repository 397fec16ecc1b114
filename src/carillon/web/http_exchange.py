"""One request on its way in and its reply on its way out, as ASGI sees them."""

import asyncio
import email.utils
import time
from collections import deque
from collections.abc import MutableMapping, Sequence
from functools import lru_cache
from http import HTTPStatus
from typing import Any, Protocol

import h11

from carillon.domain.errors import CarillonError

Message = MutableMapping[str, Any]
_MOST_BUFFERED = 65_536
_PERSISTENT = b"1.1"
_BODILESS = frozenset({204, 304})
_GO_ON = b"HTTP/1.1 100 Continue\r\n\r\n"
_LAST_CHUNK = b"0\r\n\r\n"


class UnfitHeader(CarillonError):
    """A header that would end its line and begin another."""


class Wire(Protocol):
    """What an exchange needs of its connection."""

    transport: asyncio.Transport

    def put(self, data: bytes) -> bool:
        """Whether the kernel has all of it."""
        ...

    async def drained(self) -> None:
        """Return once the kernel has all of it."""
        ...


class Exchange:
    """Satisfies Sink: a piece of the reply that the kernel takes at once costs no waiting."""

    def __init__(self, wire: Wire, http: h11.Connection, request: h11.Request) -> None:
        self._wire = wire
        self._http = http
        self._persistent = request.http_version >= _PERSISTENT
        self._head_only = request.method == b"HEAD"
        self._chunks: deque[bytes | None] = deque()
        self._size = 0
        self._arrived = asyncio.Event()
        self._left = False
        self._may_go_on = False
        """The client knows whether its body is wanted."""
        self._head = b""
        self._chunked = False
        self._lasting = self._persistent and not _says_close(request.headers)
        self._whole = False
        """All of the request is here."""
        self.ended = False
        """All of the reply was put."""

    @property
    def lasts(self) -> bool:
        """Whether another request may come after this one."""
        return self.ended and self._whole and self._lasting

    def feed(self, chunk: bytes | None) -> None:
        """A piece of the body, or its end."""
        self._whole = chunk is None
        self._chunks.append(chunk)
        self._size += len(chunk or b"")
        self._arrived.set()
        if self._size > _MOST_BUFFERED:
            self._wire.transport.pause_reading()

    def leave(self) -> None:
        """The client is gone, or speaks no HTTP."""
        self._left = True
        self._arrived.set()

    async def receive(self) -> Message:
        if self._http.they_are_waiting_for_100_continue and not self._may_go_on:
            self._may_go_on = True
            self._wire.transport.write(_GO_ON)
        while not self._chunks and not self._left:
            self._arrived.clear()
            await self._arrived.wait()
        if not self._chunks:
            return {"type": "http.disconnect"}
        chunk = self._chunks.popleft()
        if chunk is None:
            return {"type": "http.request", "body": b"", "more_body": False}
        self._size -= len(chunk)
        if self._size <= _MOST_BUFFERED:
            self._wire.transport.resume_reading()
        return {"type": "http.request", "body": chunk, "more_body": True}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._begin(message["status"], message["headers"])
            return
        self.ended = not message.get("more_body")
        if not self.put(message.get("body", b"")):
            await self.drained()

    def put(self, data: bytes) -> bool:
        """A piece of the reply; whether the kernel has all of it. If not, nothing follows before it is drained."""
        if self._chunked and data:
            data = b"%x\r\n%b\r\n" % (len(data), data)
        if self._head:
            data, self._head = self._head + data, b""
        if self.ended and self._chunked:
            data += _LAST_CHUNK
        return self._wire.put(data)

    async def drained(self) -> None:
        await self._wire.drained()

    def _begin(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> None:
        self._may_go_on = True
        measured = self._head_only or status in _BODILESS or any(name == b"content-length" for name, _ in headers)
        self._chunked = self._persistent and not measured
        # Where nothing says how long the reply is, its end is the connection's.
        ends = not self._lasting or not (measured or self._chunked)
        self._lasting = not ends and not _says_close(headers)
        framing: list[tuple[bytes, bytes]] = []
        if ends and not _says_close(headers):
            framing.append((b"connection", b"close"))
        if self._chunked:
            framing.append((b"transfer-encoding", b"chunked"))
        self._head = head(status, [*headers, *framing])


def head(status: int, headers: Sequence[tuple[bytes, bytes]]) -> bytes:
    """The head of a reply."""
    lines = b"".join([b"%b: %b\r\n" % header for header in headers])
    if lines.count(b"\n") != len(headers) or lines.count(b"\r") != len(headers) or b"\0" in lines:
        raise UnfitHeader(f"a header of {status} holds the end of a line")
    return b"%b%bdate: %b\r\n\r\n" % (_status_line(status), lines, _date(int(time.time())))


def _says_close(headers: Sequence[tuple[bytes, bytes]]) -> bool:
    return any(
        name == b"connection" and b"close" in {token.strip() for token in value.lower().split(b",")}
        for name, value in headers
    )


@lru_cache(maxsize=64)
def _status_line(status: int) -> bytes:
    known = HTTPStatus(status)
    return b"HTTP/1.1 %d %b\r\n" % (known, known.phrase.encode())


@lru_cache(maxsize=1)
def _date(second: int) -> bytes:
    return email.utils.formatdate(second, usegmt=True).encode()
