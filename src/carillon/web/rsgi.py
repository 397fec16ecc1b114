"""Granian's own interface under our ASGI application: one call for a whole answer instead of two."""

from collections.abc import AsyncIterator, MutableMapping
from typing import Any
from urllib.parse import quote

from granian._granian import RSGIHTTPProtocol, RSGIProtocolClosed
from granian.rsgi import Scope

from carillon.web.application import ASGI

Message = MutableMapping[str, Any]
_NO_TEXT = b"\xff"
_WHOLE = 1_048_576
"""A body that names its length, and a smaller one than this, is taken in one piece."""


async def serve(application: ASGI, scope: Scope, protocol: RSGIHTTPProtocol) -> None:
    """Serve one request; the application sees it as ASGI."""
    exchange = _Exchange(protocol)
    headers = _headers(scope)
    exchange.whole = next((value for name, value in headers if name == b"content-length"), b"x")
    if scope.authority:
        headers.append((b"host", scope.authority.encode("latin-1")))
    path = scope.path
    await application(
        {
            "type": "http" if scope.proto == "http" else scope.proto,
            "method": scope.method,
            "path": path,
            "raw_path": quote(path).encode(),
            "query_string": scope.query_string.encode("latin-1", "replace"),
            "headers": headers,
            "client": scope.client.rsplit(":", 1),
        },
        exchange.receive,
        exchange.send,
    )


def _headers(scope: Scope) -> list[tuple[bytes, bytes]]:
    given = scope.headers.items()
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in given]
    names = scope.headers.keys()
    if len(names) != len(headers):
        # Granian leaves out a value that is no text; whoever asks for that header must see that it was there.
        headers += [(name.encode("latin-1"), _NO_TEXT) for name in set(names) - {name for name, _ in given}]
    return headers


class _Exchange:
    """The body on its way in, the answer on its way out."""

    __slots__ = ("_chunks", "_headers", "_protocol", "_read", "_status", "_stream", "whole")

    def __init__(self, protocol: RSGIHTTPProtocol) -> None:
        self._protocol = protocol
        self._chunks: AsyncIterator[bytes] | None = None
        self._status = 500
        self._read = False
        self._headers: list[tuple[str, str]] = []
        self._stream: Any = None
        self.whole = b""

    async def receive(self) -> Message:
        try:
            return await self._next()
        except RSGIProtocolClosed:
            return {"type": "http.disconnect"}

    async def _next(self) -> Message:
        if self._read:
            # The body is over: whoever asks again waits for the caller to leave.
            await self._protocol.client_disconnect()
            return {"type": "http.disconnect"}
        if self._chunks is None and self.whole.isdigit() and int(self.whole) <= _WHOLE:
            self._read = True
            return {"type": "http.request", "body": await self._protocol(), "more_body": False}
        if self._chunks is None:
            self._chunks = aiter(self._protocol)
        try:
            return {"type": "http.request", "body": bytes(await anext(self._chunks)), "more_body": True}
        except StopAsyncIteration:
            self._read = True
            return {"type": "http.request", "body": b"", "more_body": False}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            self._headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in message["headers"]]
        elif self._stream is None and not message.get("more_body"):
            self._protocol.response_bytes(self._status, self._headers, message.get("body", b""))
        else:
            if self._stream is None:
                self._stream = self._protocol.response_stream(self._status, self._headers)
            await self._stream.send_bytes(message.get("body", b""))
