"""Requests of the client that a Carillon in the same process answers: the same endpoints, without a listener."""

import asyncio
from collections.abc import MutableMapping
from typing import Any, TypeVar
from urllib.parse import unquote

from carillon.client import ApiRequest, Unreachable
from carillon.client.exchange import read_answer
from carillon.client.wire import ApiAnswer
from carillon.web.application import Application
from carillon.web.streaming import BrokenOff

Answered = TypeVar("Answered")
WHERE = "the embedded Carillon"


class InProcessExchange:
    """As HttpExchange, without a connection: nothing can be lost on the way, so nothing is repeated."""

    def __init__(self, application: Application) -> None:
        self._application = application

    async def run(self, asked: ApiRequest[Answered]) -> Answered:
        """Raises Rejected when Carillon refuses, Unreachable while a server that it needs is away."""
        try:
            answer = await self._ask(asked)
        except BrokenOff as error:
            raise Unreachable(f"{WHERE} broke off: {error}", asked.key) from error
        return read_answer(asked, answer, WHERE)

    async def _ask(self, asked: ApiRequest[Any]) -> ApiAnswer:
        path, _, query = asked.path.partition("?")
        headers = [(b"host", b"localhost")]
        headers += [(name.lower().encode(), value.encode("latin-1")) for name, value in asked.headers.items()]
        if asked.body is not None:
            headers += [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(asked.body))]
        scope = {
            "type": "http",
            "method": asked.method,
            "path": unquote(path),
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": headers,
            "client": ("127.0.0.1", 0),
        }
        call = _Call(asked.body or b"")
        task = asyncio.current_task()
        cancelled = 0 if task is None else task.cancelling()
        await self._application(scope, call.receive, call.send)
        if task is not None and task.cancelling() > cancelled:
            # The application answers a cancelled request, as a server that stops does; here the caller gave up.
            raise asyncio.CancelledError
        return ApiAnswer(call.status, call.headers, b"".join(call.pieces))


class _Call:
    """One request and its answer, as ASGI asks for them."""

    def __init__(self, body: bytes) -> None:
        self._body: bytes | None = body
        self.status = 0
        self.headers: dict[str, str] = {}
        self.pieces: list[bytes] = []

    async def receive(self) -> MutableMapping[str, Any]:
        body, self._body = self._body, None
        if body is None:
            # The caller stays until the answer is whole.
            await asyncio.Event().wait()
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in message["headers"]}
        else:
            self.pieces.append(message.get("body", b""))
