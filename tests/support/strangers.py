"""A stranger who holds connections of one address against a listener, and another caller at another address."""

import selectors
import socket
import time
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

STRANGER, OTHER = "127.0.0.2", "127.0.0.3"
HEAD = "Host: localhost\r\nContent-Type: application/json\r\n"


class Stranger:
    """Connections from one address, all of which end with the block."""

    def __init__(self, url: str, source: str = STRANGER) -> None:
        parts = urlsplit(url)
        self._place = (parts.hostname or "127.0.0.1", parts.port or 80)
        self._source = source
        self.connections: list[socket.socket] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for connection in self.connections:
            connection.close()

    def connect(self, said: bytes = b"", seconds: float = 10.0) -> socket.socket:
        """One connection on which `said` was said."""
        connection = socket.create_connection(self._place, timeout=seconds, source_address=(self._source, 0))
        self.connections.append(connection)
        if said:
            connection.sendall(said)
        return connection

    def hold(self, count: int, said: bytes = b"") -> list[socket.socket]:
        """So many connections, as fast as the listener takes them; those that it turns away at once do not count."""
        held = []
        for _ in range(count):
            try:
                held.append(self.connect(said))
            except OSError:
                continue
        return held


def post(path: str, length: int, more: str = "") -> bytes:
    """The head of a request whose body has this length."""
    return f"POST {path} HTTP/1.1\r\n{HEAD}Content-Length: {length}\r\n{more}\r\n".encode()


def get(path: str, more: str = "Connection: close\r\n") -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{more}\r\n".encode()


def status(connection: socket.socket, seconds: float = 10.0) -> int:
    """The status of the next reply; 0 if the server closes or says nothing in time."""
    connection.settimeout(seconds)
    said = b""
    try:
        while b"\r\n" not in said:
            piece = connection.recv(4096)
            if not piece:
                return 0
            said += piece
    except OSError:
        return 0
    return int(said.split(b" ", 2)[1])


def asked(url: str, request: bytes, source: str = OTHER, seconds: float = 10.0) -> int:
    """The status that another caller gets; 0 for none in time."""
    with Stranger(url, source) as caller:
        try:
            return status(caller.connect(request, seconds), seconds)
        except OSError:
            return 0


def readable(connections: list[socket.socket], enough: int, seconds: float) -> list[socket.socket]:
    """The connections on which the server said something or closed, as soon as there are `enough` of them."""
    found: list[socket.socket] = []
    until = time.monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        for connection in connections:
            selector.register(connection, selectors.EVENT_READ, connection)
        while len(found) < enough and (left := until - time.monotonic()) > 0:
            for key, _ in selector.select(left):
                selector.unregister(key.fileobj)
                found.append(key.data)
    return found
