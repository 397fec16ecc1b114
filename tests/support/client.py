"""What a producer or an operator does over HTTP, with the standard library alone."""

import http.client
import json
import select
import socket
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from tests.support.process import Program
from tests.support.waiting import wait_until

WELCOME: dict[str, Any] = {
    "templateKey": "welcome",
    "channel": "push",
    "recipient": "device-1",
    "data": {"name": "Ada", "link": "https://example.org/start"},
}


_REFUSED = 400


class Reply(NamedTuple):
    """An answer with its headers under lower-case names."""

    status: int
    headers: dict[str, str]
    body: Any


class Client:
    """Talks to one address; every call is a connection of its own, or all of them share one that is kept."""

    def __init__(self, address: str, *, keeps: bool = False) -> None:
        parts = urlsplit(address)
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 80
        self._kept = self._new() if keeps else None

    @classmethod
    def of(cls, program: Program) -> "Client":
        return cls(program.wait_ready()["addresses"][0])

    def call(
        self,
        method: str,
        path: str,
        body: object = None,
        headers: dict[str, str] | None = None,
        *,
        listen_seconds: float = 0.0,
    ) -> Reply:
        """The reply; of a stream, what comes up to its first notification, or until it is silent for so long."""
        content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        sent = {"Content-Type": "application/json", **(headers or {})} if content is not None else headers or {}
        connection = self._kept or self._new()
        ends = True
        try:
            _drop_ended(connection)
            connection.request(method, path, content, sent)
            # Of a reply that ends with its connection, http.client gives the socket away.
            wire = connection.sock
            answer = connection.getresponse()
            # A stream has no end to wait for.
            lasts = answer.getheader("Content-Type", "").startswith("text/event-stream")
            text = _heard(wire, answer, listen_seconds) if lasts else answer.read()
            # A listener that refuses a request before its body has arrived may hang up behind its reply.
            ends = lasts or (content is not None and answer.status >= _REFUSED)
        finally:
            if ends or self._kept is None:
                connection.close()
        found = {name.lower(): value for name, value in answer.getheaders()}
        return Reply(answer.status, found, _read(found.get("content-type", ""), text))

    def close(self) -> None:
        if self._kept is not None:
            self._kept.close()

    def _new(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self._host, self._port, timeout=30)

    def get(self, path: str, headers: dict[str, str] | None = None) -> Reply:
        return self.call("GET", path, headers=headers)

    def send(self, body: dict[str, Any] | None = None, *, key: str | None = None, **fields: object) -> Reply:
        headers = {} if key is None else {"Idempotency-Key": key}
        return self.call("POST", "/api/v1/notifications/send", {**(body or WELCOME), **fields}, headers)

    def story(self, notification_id: str) -> Any:
        return self.get(f"/api/v1/notifications/{notification_id}?include=attempts,message").body

    def settled(self, notification_id: str, timeout: float = 40) -> Any:
        """The story once nothing of it is queued any more."""
        what = f"{notification_id} to settle"
        wait_until(lambda: self.story(notification_id)["status"] != "queued", timeout=timeout, what=what)
        return self.story(notification_id)


def _drop_ended(connection: http.client.HTTPConnection) -> None:
    """The server may end a connection that nobody uses; the next request then opens another one."""
    if connection.sock is not None and select.select([connection.sock], [], [], 0)[0]:
        connection.close()


def _read(media_type: str, text: bytes) -> Any:
    """JSON as its value, lines of JSON as a list, anything else as its bytes."""
    if "ndjson" in media_type:
        return [json.loads(line) for line in text.splitlines()]
    return json.loads(text) if "json" in media_type and text else text


def _heard(wire: socket.socket, answer: http.client.HTTPResponse, seconds: float) -> bytes:
    if not seconds:
        return b""
    wire.settimeout(seconds)
    text = b""
    while b"event: notification" not in text:
        try:
            more = answer.read1(65_536)
        except (TimeoutError, http.client.IncompleteRead):
            break
        if not more:
            break
        text += more
    return text
