"""TCP peers that accept a connection and then behave as told."""

import asyncio
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Self

from carillon.providers.egress import EgressGuard
from carillon.providers.http import HttpRequest
from tests.support.waiting import some_turns

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
Behaviour = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Peer:
    """Lives in the test's own loop and counts who came."""

    def __init__(
        self, behaviour: Behaviour, *, host: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None
    ) -> None:
        self.host = host
        self.port = port
        self.connections = 0
        self.visited = asyncio.Event()
        self._behaviour = behaviour
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://{self.host}:{self.port}/"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, self.host, self.port, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
            await some_turns()
            for writer in self._writers:
                writer.transport.abort()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.visited.set()
        self._writers.add(writer)
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            await self._behaviour(reader, writer)
        self._writers.discard(writer)
        with suppress(OSError, ssl.SSLError):
            writer.close()


def request(
    url: str,
    body: bytes = b'{"a":1}',
    *,
    timeout_seconds: float = 30.0,
    headers: dict[str, str] | None = None,
    guard: EgressGuard | None = None,
) -> HttpRequest:
    return HttpRequest(url=url, timeout_seconds=timeout_seconds, body=body, headers=headers or {}, guard=guard)


async def read_request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(
        (int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0
    )
    return head + await reader.readexactly(length)


def reset(writer: asyncio.StreamWriter) -> None:
    connection = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def saying(*pieces: bytes, pause: float = 0.0) -> Behaviour:
    """Read one request, say the pieces with pauses between them, close."""

    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            if pause:
                await asyncio.sleep(pause)

    return behave


def saying_on_accept(text: bytes) -> Behaviour:
    """Speak first, whatever the other side says, and close."""

    async def behave(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(text)
        await writer.drain()

    return behave


async def silent(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    """Read everything, answer nothing, until the other side goes."""
    while await reader.read(65536):
        pass


async def closing(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Go as soon as somebody comes."""
    writer.close()


async def resetting(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Read the start of what is said, then reset."""
    await reader.read(1)
    reset(writer)
