"""One HTTP/1.1 request and its reply: heads are read strictly and written whole, bodies go through ASGI."""

import asyncio
import email.utils
import re
import time
from collections import deque
from collections.abc import MutableMapping, Sequence
from functools import lru_cache
from http import HTTPStatus
from typing import Any

import h11
import msgspec

from carillon.domain.errors import CarillonError

PROBLEM_TYPE = b"application/problem+json"
_END = b"\r\n\r\n"
_MOST_HEADERS = 100
_VERSIONS = frozenset({b"1.0", b"1.1"})
# h11 forgives bare line feeds, folded lines, control characters and a length said twice. A proxy in front of the server
# may read such a head differently, so the server refuses it.
_AMBIGUOUS = re.compile(rb"(?<!\r)\n|\r(?!\n)|\r\n[ \t]|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_LENGTH = re.compile(rb"\r\ncontent-length:([^\r]*)", re.IGNORECASE)
_CHUNK = re.compile(rb"([0-9a-f]{1,8})[ \t]*(?:;[\t\x20-\x7e]*)?\r\n", re.IGNORECASE)
_LONGEST_CHUNK_LINE = 256
Message = MutableMapping[str, Any]
_MOST_BUFFERED = 65_536
_PERSISTENT = b"1.1"
_BODILESS = frozenset({204, 304})
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_LAST_CHUNK = b"0\r\n\r\n"


class UnfitHeader(CarillonError):
    """A header of a reply that would end its line and begin another."""


class ProblemSummary(msgspec.Struct, frozen=True):
    """The problem document of a request that reaches no application."""

    title: str
    status: int
    type: str = "about:blank"


def summary(status: int) -> ProblemSummary:
    return ProblemSummary(HTTPStatus(status).phrase, status)


class HeadReader:
    """Collects the bytes of one request head after the other; a head it refuses is an h11.RemoteProtocolError."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._arrived = bytearray()
        self.body_at = 0
        """Where the body begins in the bytes that `feed` returned last."""

    @property
    def begun(self) -> bool:
        """Whether a part of a head is here."""
        return bool(self._arrived)

    def feed(self, data: bytes) -> bytes | None:
        """The whole head together with the bytes behind it; None while the head is incomplete."""
        arrived = self._arrived
        start = max(0, len(arrived) - len(_END) + 1)
        arrived += data
        while arrived.startswith(b"\r\n"):
            # RFC 9112 asks servers to ignore empty lines before a request.
            del arrived[:2]
            start = 0
        end = arrived.find(_END, start, self._most)
        if end < 0:
            if len(arrived) >= self._most:
                raise _refused("the head is too large", HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
            if arrived and arrived[0] <= ord(" ") and arrived != b"\r":
                raise _refused("no request begins with this byte")
            return None
        if _AMBIGUOUS.search(arrived, 0, end) or not _plain(_LENGTH.findall(arrived, 0, end)):
            raise _refused("the head is ambiguous")
        whole = bytes(arrived)
        arrived.clear()
        self.body_at = end + len(_END)
        return whole


class ChunkLines:
    """Checks the lines between the chunks of a body: h11 forgives control characters there and sizes beyond reason."""

    def __init__(self) -> None:
        self._line = bytearray()
        self._skip = 0
        """How many bytes of content lie before the next line."""
        self._over = False

    def feed(self, data: bytes) -> None:
        """Look at the next bytes of the body; a line that two parsers may read differently is refused."""
        at = 0
        while at < len(data) and not self._over:
            if self._skip:
                step = min(self._skip, len(data) - at)
                self._skip -= step
                at += step
                continue
            end = data.find(b"\n", at) + 1 or len(data)
            self._line += data[at:end]
            at = end
            if len(self._line) > _LONGEST_CHUNK_LINE:
                raise _refused("the line of a chunk is too long")
            if self._line.endswith(b"\n"):
                self._take_line()

    def _take_line(self) -> None:
        found = _CHUNK.fullmatch(self._line)
        if found is None:
            raise _refused("the line of a chunk is ambiguous")
        size = int(found[1], 16)
        self._over = size == 0
        self._skip = size + len(b"\r\n")
        self._line.clear()


def check(request: h11.Request, most: int) -> None:
    """Refuse a head that h11 accepts and this server does not."""
    if request.http_version not in _VERSIONS:
        raise _refused("only HTTP/1.0 and HTTP/1.1 are served")
    size = len(request.target) + sum(len(name) + len(value) for name, value in request.headers)
    if size > most or len(request.headers) > _MOST_HEADERS:
        raise _refused("the head is too large", HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
    names = {name for name, _ in request.headers}
    if {b"transfer-encoding", b"content-length"} <= names:
        raise _refused("the body has two lengths")
    if b"transfer-encoding" in names and request.http_version != _PERSISTENT:
        raise _refused("HTTP/1.0 knows no chunks")


def refuse_trailers(end: h11.EndOfMessage) -> None:
    """Refuse headers behind a body: no endpoint reads them, and h11 forgives folded lines and line feeds there."""
    if end.headers:
        raise _refused("headers behind the body are not read")


def _plain(lengths: list[bytes]) -> bool:
    """Whether the head declares no length, or one number; h11 forgives a number that is said twice."""
    return not lengths or (len(lengths) == 1 and lengths[0].strip(b" \t").isdigit())


def _refused(reason: str, status: HTTPStatus = HTTPStatus.BAD_REQUEST) -> h11.RemoteProtocolError:
    return h11.RemoteProtocolError(reason, error_status_hint=status)


def head(status: int, headers: Sequence[tuple[bytes, bytes]]) -> bytes:
    """The head of a reply; UnfitHeader if a header holds the end of a line."""
    lines = b"".join([b"%b: %b\r\n" % header for header in headers])
    if lines.count(b"\n") != len(headers) or lines.count(b"\r") != len(headers) or b"\0" in lines:
        raise UnfitHeader(f"a header of {status} holds the end of a line")
    return b"%b%bdate: %b\r\n\r\n" % (_status_line(status), lines, _date(int(time.time())))


def refusal(status: int) -> bytes:
    """The whole reply to a request that reaches no application."""
    body = msgspec.json.encode(summary(status))
    headers = [(b"content-type", PROBLEM_TYPE), (b"content-length", b"%d" % len(body)), (b"connection", b"close")]
    return head(status, headers) + body


def says_close(headers: Sequence[tuple[bytes, bytes]]) -> bool:
    """Whether the connection is to end after this request or reply."""
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


class ReplyWriter:
    """Writes to one connection, and says when the kernel has not taken everything."""

    def __init__(self, transport: asyncio.Transport, write_seconds: float) -> None:
        self.transport = transport
        self._write_seconds = write_seconds
        self.paused = False
        """True while the kernel has not taken everything that was written."""
        self._drained: asyncio.Future[None] | None = None
        self.ending = False
        """True once the connection takes no further request."""

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    def put(self, data: bytes) -> bool:
        """Write; False if the kernel has not taken everything: the caller then waits for `drained`."""
        if self.transport.is_closing():
            raise ConnectionResetError
        self.transport.write(data)
        if self.transport.is_closing():
            # The kernel refused the bytes: the reader is gone.
            raise ConnectionResetError
        return not self.paused

    async def drained(self) -> None:
        """Return once the kernel has taken everything; cut off a reader that makes no room in time."""
        if self.paused:
            await self._room()
        if self.transport.is_closing():
            raise ConnectionResetError

    async def _room(self) -> None:
        self._drained = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(self._write_seconds):
                await self._drained
        except TimeoutError:
            self.transport.abort()
        finally:
            self._drained = None


class Exchange:
    """Satisfies Sink: a piece of the reply that the kernel takes at once costs no waiting."""

    def __init__(self, writer: ReplyWriter, http: h11.Connection, request: h11.Request) -> None:
        self._writer = writer
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
            self._writer.transport.pause_reading()

    def leave(self) -> None:
        """Tell the application that the client is gone or breaks the protocol."""
        self._left = True
        self._arrived.set()

    async def receive(self) -> Message:
        if self._http.they_are_waiting_for_100_continue and not self._answered_expectation:
            self._answered_expectation = True
            self._writer.transport.write(_CONTINUE)
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
            self._writer.transport.resume_reading()
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
        return self._writer.put(data)

    async def drained(self) -> None:
        await self._writer.drained()

    def _begin(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> None:
        self._answered_expectation = True
        measured = self._head_only or status in _BODILESS or any(name == b"content-length" for name, _ in headers)
        self._chunked = self._persistent and not measured
        # Without a length and without chunks, only the end of the connection tells the client that the reply is whole.
        framed = measured or self._chunked
        # A body that is still on its way would be read as the next request.
        ends = not (self._lasting and self._whole and framed) or self._writer.ending
        self._lasting = not ends and not says_close(headers)
        framing: list[tuple[bytes, bytes]] = []
        if ends and not says_close(headers):
            framing.append((b"connection", b"close"))
        if self._chunked:
            framing.append((b"transfer-encoding", b"chunked"))
        self._head = head(status, [*headers, *framing])
