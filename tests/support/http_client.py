"""A plain HTTP client for black-box tests: it can also send what a well-behaved client never would."""

import http.client
import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.support.process import Program

ROOM = 262_144


class Answer:
    """A response, read to its end."""

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.status = status
        self.headers = {name.lower(): value for name, value in headers.items()}
        self.body = body

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """The machine's word of a problem document."""
        assert self.headers["content-type"] == "application/problem+json", self.body
        return str(self.json["error"]["code"])


class Client:
    """One address, a new connection for every request."""

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        assert parts.hostname is not None
        assert parts.port is not None
        self.host, self.port = parts.hostname, parts.port
        self.address = address

    def call(self, method: str, path: str, body: bytes | str | Iterator[bytes] | None = None, **headers: str) -> Answer:
        """Headers are given with underscores: `content_type="text/plain"`."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=30)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            connection.request(method, path, body.encode() if isinstance(body, str) else body, named)
            response = connection.getresponse()
            return Answer(response.status, dict(response.getheaders()), response.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Answer:
        return self.call("GET", path, **headers)

    def post(self, path: str, value: Any, **headers: str) -> Answer:
        return self.call("POST", path, json.dumps(value), **{"content_type": "application/json", **headers})

    def send(self, value: Any, **headers: str) -> Answer:
        return self.post("/api/v1/notifications/send", value, **headers)

    def batch(self, items: Any, **headers: str) -> Answer:
        return self.post("/api/v1/notifications/batch", {"notifications": items}, **headers)

    def raw(self, *pieces: bytes, hang_up: bool = False, seconds: float = 40.0) -> bytes:
        """Bytes as they are; what came back until the other side stopped, empty when it closed without a word."""
        with socket.create_connection((self.host, self.port), timeout=seconds) as connection:
            received = b""
            try:
                for piece in pieces:
                    connection.sendall(piece)
                if hang_up:
                    connection.shutdown(socket.SHUT_WR)
            except OSError:
                # An early refusal may close the door while we are still talking; its words are read below.
                pass
            try:
                while chunk := connection.recv(ROOM):
                    received += chunk
            except OSError:
                pass
            return received

    def count(self) -> int:
        """How many notifications are written down."""
        return int(self.get("/api/v1/notifications?pageSize=1").json["totalCount"])


@contextmanager
def serving(folder: Path, *args: str, **env: str) -> Iterator[tuple[Program, Client]]:
    """The real program on a free port over SQLite in its own folder."""
    settings = {"CARILLON_HTTP__PORT": "0", "DATABASE_URL": f"sqlite:///{folder / 'carillon.db'}", **env}
    with Program("serve", *args, env=settings, cwd=folder) as program:
        yield program, Client(program.wait_ready()["addresses"][0])
