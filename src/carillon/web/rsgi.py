"""Granian's own interface under the application: one call reads a request's body, one call writes the whole answer."""

from collections.abc import AsyncIterator, MutableMapping
from functools import lru_cache
from typing import Any
from urllib.parse import quote

from granian.rsgi import HTTPProtocol, ProtocolClosed, Scope

from carillon.web.application import Application, encoded, head
from carillon.web.streaming import pour

Message = MutableMapping[str, Any]
_NO_TEXT = b"\xff"
_WHOLE_DIGITS = 6
"""A body whose length has at most this many digits, so below a megabyte, is read in one piece."""


async def serve(application: Application, scope: Scope, protocol: HTTPProtocol) -> None:
    """Serve one request; the application sees it as ASGI."""
    headers, length = _headers(scope)
    exchange = _Exchange(protocol, length)
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

    __slots__ = ("_chunks", "_head", "_protocol", "_read", "_stream", "_whole")

    def __init__(self, protocol: HTTPProtocol, length: str) -> None:
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
            return {"type": "http.request", "body": bytes(await anext(self._chunks)), "more_body": True}
        except StopAsyncIteration:
            self._read = True
            return {"type": "http.request", "body": b"", "more_body": False}

    def begin(self, status: int, headers: list[tuple[str, str]]) -> None:
        """Keep the head until the first piece of the answer goes with it."""
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
