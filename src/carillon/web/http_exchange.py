"""One request and its reply on an h11 connection, as an ASGI application sees them."""

import asyncio
from collections import deque
from collections.abc import MutableMapping, Sequence
from typing import Any, Protocol

import h11

from carillon.web.http_head import head, says_close

Message = MutableMapping[str, Any]
_MOST_BUFFERED = 65_536
_PERSISTENT = b"1.1"
_BODILESS = frozenset({204, 304})
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_LAST_CHUNK = b"0\r\n\r\n"


class Wire(Protocol):
    """The connection under an exchange."""

    transport: asyncio.Transport

    @property
    def ending(self) -> bool:
        """Whether the connection takes no further request."""
        ...

    def put(self, data: bytes) -> bool:
        """Write; False if the kernel has not taken everything yet."""
        ...

    async def drained(self) -> None:
        """Return once the kernel has taken everything."""
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
        self._answered_expectation = False
        """The client has heard whether the server wants the body."""
        self._head = b""
        self._chunked = False
        self._lasting = self._persistent and not says_close(request.headers)
        self._whole = False
        """The whole request has arrived."""
        self.ended = False
        """The whole reply was put."""

    @property
    def lasts(self) -> bool:
        """Whether another request may follow on the same connection."""
        return self.ended and self._whole and self._lasting

    def feed(self, chunk: bytes | None) -> None:
        """Take a piece of the request's body, or None for its end."""
        self._whole = chunk is None
        self._chunks.append(chunk)
        self._size += len(chunk or b"")
        self._arrived.set()
        if self._size > _MOST_BUFFERED:
            self._wire.transport.pause_reading()

    def leave(self) -> None:
        """Tell the application that the client is gone or breaks the protocol."""
        self._left = True
        self._arrived.set()

    async def receive(self) -> Message:
        if self._http.they_are_waiting_for_100_continue and not self._answered_expectation:
            self._answered_expectation = True
            self._wire.transport.write(_CONTINUE)
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
        """Write a piece of the reply; False if the caller must wait for `drained` before it writes the next."""
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
        self._answered_expectation = True
        measured = self._head_only or status in _BODILESS or any(name == b"content-length" for name, _ in headers)
        self._chunked = self._persistent and not measured
        # Without a length and without chunks, only the end of the connection tells the client that the reply is whole.
        ends = not self._lasting or self._wire.ending or not (measured or self._chunked)
        self._lasting = not ends and not says_close(headers)
        framing: list[tuple[bytes, bytes]] = []
        if ends and not says_close(headers):
            framing.append((b"connection", b"close"))
        if self._chunked:
            framing.append((b"transfer-encoding", b"chunked"))
        self._head = head(status, [*headers, *framing])
