"""Every endpoint behind its guard, and the h11 listener's connections, fed inside one process."""

import asyncio
import json
import re
import weakref
from typing import Any, cast

import msgspec

from carillon.web import Endpoint, Found, Reply, Request, WebSettings
from carillon.web.application import Application
from carillon.web.auth import JwtSettings
from carillon.web.http_connection import Connection, Connections
from carillon.web.settings import ServerSettings
from tests.fuzz.running import SERVER_ERROR, Target
from tests.support.declared import declared
from tests.unit.test_web_auth import SECRET

UUID = "0198d2a4-5c1e-7d30-9a57-3f0c2b9e4d11"
_STATUS = re.compile(rb"HTTP/1\.1 ([0-9]{3})")
_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9a-z-]{1,60}")
_NOT_SPOKEN = frozenset({b"501", b"505"})
"""Another transfer coding or version of HTTP than this listener speaks: what the RFC asks it to say."""
TURNS = 6
"""How often the loop goes round before a request counts as waiting for more bytes."""


def reading(one: Endpoint) -> Endpoint:
    """The endpoint with a handler that reads what it declares and touches nothing."""

    async def call(request: Request) -> Reply:
        if one.raw is not None:
            return Reply(200, {"bytes": len(request.body)})
        if one.body is not None:
            request.json(one.body)
        if one.query is not None:
            request.query(one.query)
        return Reply(200, {})

    async def find(*_: str | None) -> Found | None:
        return Found("it", "acme", "ada")

    about = one.about
    if about.owned is not None:
        about = msgspec.structs.replace(about, owned=msgspec.structs.replace(about.owned, find=find))
    return msgspec.structs.replace(one, call=call, about=about)


class Endpoints:
    """An input is four parts, each on a line: method and path, query, one header, body."""

    def __init__(self) -> None:
        found = declared()
        self._loop = asyncio.new_event_loop()
        weakref.finalize(self, self._loop.close)
        # One application asks for tokens, the other lets everybody in.
        self._open = Application([reading(one) for one in found], WebSettings())
        self._closed = Application([reading(one) for one in found], WebSettings(jwt=JwtSettings(secret=SECRET)))
        self.seeds = tuple(_seed(one) for one in found)

    def call(self, body: bytes) -> str:
        where, query, header, content = (*body.split(b"\n", 3), b"", b"", b"")[:4]
        method, _, path = where.partition(b" ")
        name, _, value = header.partition(b":")
        headers = [(b"host", b"localhost"), (b"content-length", b"%d" % len(content))]
        if _NAME.fullmatch(name):
            headers.append((name, value.strip()))
        else:
            headers.append((b"content-type", b"application/json"))
        scope = {
            "type": "http",
            "method": method.decode("latin-1") or "GET",
            "path": path.decode("utf-8", "replace"),
            "raw_path": path,
            "query_string": query.replace(b" ", b"+"),
            "headers": headers,
            "client": ("192.0.2.1", 1),
        }
        self._loop.run_until_complete(self._ask(self._closed, dict(scope), content))
        status = self._loop.run_until_complete(self._ask(self._open, dict(scope), content))
        return f"{status // 100}xx"

    async def _ask(self, served: Application, scope: dict[str, Any], content: bytes) -> int:
        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": content, "more_body": False}

        reply = await served.reply(served.request(scope, receive))
        if reply.status >= SERVER_ERROR:
            raise AssertionError(f"{scope['method']} {scope['path']!r} is answered {reply.status}")
        return reply.status


def _seed(one: Endpoint) -> bytes:
    path = re.sub(r"\{\w+\}", UUID, one.path)
    example: object = next(iter(one.body_examples.values()), {}) if one.body is not None else {}
    kind = "application/json" if one.raw is None else one.raw.media_types[0]
    body = json.dumps(example).encode() if one.body is not None or one.raw is not None else b""
    query = "&".join(f"{name}=1" for name in one.query.__struct_encode_fields__) if one.query is not None else ""
    return f"{one.method} {path}\n{query}\ncontent-type: {kind}\n".encode() + body


class _Transport:
    """Keeps what is written."""

    def __init__(self) -> None:
        self.written = b""
        self.closed = False

    def write(self, data: bytes) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self.closed

    def abort(self) -> None:
        self.closed = True

    def write_eof(self) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def set_write_buffer_limits(self, **_: int) -> None:
        pass

    def get_extra_info(self, _: str) -> tuple[str, int]:
        return ("192.0.2.1", 1)


class Wire:
    """Bytes as they come over a socket, in pieces that the first byte chooses."""

    seeds = (
        b"GET /notifications/stream HTTP/1.1\r\nHost: localhost\r\nLast-Event-ID: 7\r\n\r\n",
        b"POST /a?b=c HTTP/1.1\r\nHost: localhost\r\nContent-Length: 7\r\n\r\n{'a':1}GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX: y\r\n\r\n",
        b"HEAD http://a/b HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
        b"POST /a HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nhi",
    )

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        weakref.finalize(self, self._loop.close)
        self._server = Connections(self._serve, ServerSettings(), lambda _status, _seconds: None)
        self._failures: list[BaseException] = []
        self._loop.set_exception_handler(
            lambda _, context: self._failures.append(context.get("exception") or Exception(context["message"]))
        )

    async def _serve(self, scope: Any, receive: Any, send: Any) -> None:
        size = 0
        while True:
            message = await receive()
            size += len(message.get("body", b""))
            if message["type"] == "http.disconnect" or not message.get("more_body"):
                break
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})
        if not isinstance(scope["path"], str) or (
            not scope["path"].isprintable() and "\n" in scope["raw_path"].decode("latin-1")
        ):
            raise AssertionError("a line break reached the application")

    def call(self, body: bytes) -> str:
        status = self._loop.run_until_complete(self._connect(body))
        if self._failures:
            raise self._failures.pop()
        return f"{status[:1].decode()}xx" if status else "no answer"

    async def _connect(self, body: bytes) -> bytes:
        transport = _Transport()
        connection = Connection(self._server)
        connection.connection_made(cast("asyncio.Transport", transport))
        step = max(1, len(body) // (1 + (body[-1] % 4))) if body else 1
        for at in range(0, len(body), step):
            if transport.closed:
                break
            connection.data_received(body[at : at + step])
            for _ in range(TURNS):
                await asyncio.sleep(0)
        connection.eof_received()
        connection.cancel()
        for _ in range(TURNS):
            await asyncio.sleep(0)
        connection.connection_lost(None)
        for _ in range(TURNS):
            await asyncio.sleep(0)
        said: list[bytes] = _STATUS.findall(transport.written)
        bad = [status for status in said if status >= b"500" and status not in _NOT_SPOKEN]
        if bad:
            raise AssertionError(f"the listener answers {bad[0].decode()}")
        if len(self._server) != 0:
            raise AssertionError("a connection that is gone is still counted")
        return said[0] if said else b""


def targets() -> dict[str, Target]:
    endpoints, wire = Endpoints(), Wire()
    return {
        "web.endpoints": Target(endpoints.call, endpoints.seeds),
        "web.h11": Target(wire.call, wire.seeds),
    }
