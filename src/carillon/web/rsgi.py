"""Granian's own interface under our application: a request is read and its whole answer given in one call each."""

from collections.abc import AsyncIterator, MutableMapping
from functools import lru_cache
from typing import Any
from urllib.parse import quote

from granian._granian import RSGIHTTPProtocol, RSGIProtocolClosed
from granian.rsgi import Scope

from carillon.web.application import Application, encoded, head
from carillon.web.streaming import pour

Message = MutableMapping[str, Any]
_NO_TEXT = b"\xff"
_WHOLE_DIGITS = 6
"""A body that names its length in so many digits, below a megabyte, is taken in one piece."""


async def serve(application: Application, scope: Scope, protocol: RSGIHTTPProtocol) -> None:
    """Serve one request; the application sees it as ASGI."""
    headers = _headers(scope)
    exchange = _Exchange(protocol, next((value for name, value in headers if name == b"content-length"), b""))
    if scope.authority:
        headers.append((b"host", scope.authority.encode("latin-1")))
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
        await pour(reply.body, exchange.receive, exchange.send)
        return
    body = encoded(reply.body)
    protocol.response_bytes(reply.status, head(request, reply, len(body)), b"" if method == "HEAD" else body)


@lru_cache(maxsize=256)
def _quoted(path: str) -> bytes:
    """Granian tells a path decoded; most requests go to a few of them."""
    return quote(path).encode()


def _headers(scope: Scope) -> list[tuple[bytes, bytes]]:
    given = scope.headers.items()
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in given]
    names = scope.headers.keys()
    if len(names) != len(headers):
        # Granian leaves out a value that is no text; whoever asks for that header must see that it was there.
        headers += [(name.encode("latin-1"), _NO_TEXT) for name in set(names) - {name for name, _ in given}]
    return headers


class _Exchange:
    """The body on its way in, and an answer that writes itself on its way out."""

    __slots__ = ("_chunks", "_head", "_protocol", "_read", "_stream", "_whole")

    def __init__(self, protocol: RSGIHTTPProtocol, length: bytes) -> None:
        self._protocol = protocol
        self._chunks: AsyncIterator[bytes] | None = None
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
        except RSGIProtocolClosed:
            return {"type": "http.disconnect"}

    async def _next(self) -> Message:
        if self._read:
            # The body is over: whoever asks again waits for the caller to leave.
            await self._protocol.client_disconnect()
            return {"type": "http.disconnect"}
        if self._chunks is None:
            self._chunks = aiter(self._protocol)
        try:
            return {"type": "http.request", "body": bytes(await anext(self._chunks)), "more_body": True}
        except StopAsyncIteration:
            self._read = True
            return {"type": "http.request", "body": b"", "more_body": False}

    def begin(self, status: int, headers: list[tuple[str, str]]) -> None:
        """What goes before the first piece of the answer, and with it."""
        self._head = (status, headers)

    async def send(self, message: Message) -> None:
        """Write a piece of the answer."""
        body = message.get("body", b"")
        if self._stream is None and not message.get("more_body"):
            self._protocol.response_bytes(*self._head, body)
            return
        if self._stream is None:
            self._stream = self._protocol.response_stream(*self._head)
        await self._stream.send_bytes(body)
