"""An HTTP vendor that writes down every request before it answers, and can pull the plug in between."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import ssl
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from aiohttp import web

from tests.support.daemon import send

Entry = dict[str, Any]


@dataclass(frozen=True)
class Reply:
    """What one request gets.

    `drip` is the pause between single body bytes, `half` breaks off in mid-answer, `gate` holds the answer until then.
    """

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | str | dict[str, Any] = b"{}"
    delay: float = 0.0
    hang: bool = False
    drip: float = 0.0
    reset: bool = False
    half: bool = False
    gate: threading.Event | None = None

    def content(self) -> bytes:
        if isinstance(self.body, dict):
            return json.dumps(self.body).encode()
        return self.body.encode() if isinstance(self.body, str) else self.body


Answer = Reply | Callable[[Entry], Reply]


class Vendor:
    """Serves in its own thread; `ledger` survives whatever happens to the test."""

    def __init__(
        self, ledger: Path, *, id_header: str = "webhook-id", port: int = 0, tls: ssl.SSLContext | None = None
    ) -> None:
        self.ledger = ledger
        self.id_header = id_header
        self.port = port
        self.default: Answer = Reply()
        self.entries: list[Entry] = []
        self.most_entries: int | None = None
        """For long runs, which read the ledger afterwards: how many entries stay in memory."""
        self._seen = 0
        self._tls = tls
        self._scripts: list[tuple[str | None, deque[Answer]]] = []
        self._strikes: dict[int, list[tuple[int, int]]] = {}
        self._poisons: list[tuple[str, int, int]] = []
        self._news = threading.Condition()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._runner: web.AppRunner | None = None
        self._closing = asyncio.Event()
        self._file = -1

    def __enter__(self) -> Self:
        # Appending is one system call per line, so lines of several writers stay whole.
        self._file = os.open(self.ledger, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._open(), self._loop).result(timeout=40)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(timeout=40)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=40)
        self._loop.close()
        os.close(self._file)

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    def answer(self, *answers: Answer, path: str | None = None) -> None:
        """Give the next requests (whose path starts with `path`) these answers, in order; then the default."""
        with self._news:
            self._scripts.append((path, deque(answers)))

    def forget(self) -> None:
        """Go back to the default: answers that were not used are given to nobody."""
        with self._news:
            self._scripts.clear()

    def strike(self, pid: int, *, on: int, signum: int = signal.SIGKILL) -> None:
        """Signal pid when the on-th request, counted from the first ever, is recorded and not yet answered."""
        with self._news:
            self._strikes.setdefault(on, []).append((pid, signum))

    def strike_after(self, pid: int, more: int, *, signum: int = signal.SIGKILL) -> None:
        """Signal pid on the `more`-th request from now."""
        with self._news:
            self._strikes.setdefault(self._seen + more, []).append((pid, signum))

    def strike_path(self, pid: int, path: str, *, signum: int = signal.SIGKILL) -> None:
        """Signal pid on every request whose path starts with the prefix: a message that kills its sender."""
        with self._news:
            self._poisons = [(path, pid, signum)]

    def wait_for(
        self, number: int = 1, predicate: Callable[[Entry], bool] | None = None, timeout: float = 40
    ) -> list[Entry]:
        def matching() -> list[Entry]:
            return [entry for entry in self.entries if predicate is None or predicate(entry)]

        with self._news:
            if not self._news.wait_for(lambda: len(matching()) >= number, timeout):
                raise TimeoutError(f"{len(matching())} of {number} requests arrived within {timeout} s")
            return matching()

    async def until(
        self,
        number: int = 1,
        predicate: Callable[[Entry], bool] | None = None,
        timeout: float = 40,  # noqa: ASYNC109 - mirrors wait_for
    ) -> list[Entry]:
        return await asyncio.to_thread(self.wait_for, number, predicate, timeout)

    async def _open(self) -> None:
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port, ssl_context=self._tls).start()
        self.port = self._runner.addresses[0][1]

    async def _close(self) -> None:
        self._closing.set()
        if self._runner is not None:
            await self._runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        entry: Entry = {
            "id": request.headers.get(self.id_header),
            "method": request.method,
            "path": request.path_qs,
            "headers": {name.lower(): value for name, value in request.headers.items()},
            "body": (await request.read()).decode(errors="backslashreplace"),
        }
        reply, strikes = self._record(entry)
        for pid, signum in strikes:
            send(pid, signum)
        if reply.delay:
            await self._waited(reply.delay)
        while reply.gate is not None and not reply.gate.is_set() and not await self._waited(0.01):
            """The event is another thread's."""
        if reply.hang:
            await self._closing.wait()
        if reply.reset:
            return self._reset(request)
        return await self._respond(request, reply)

    async def _waited(self, seconds: float) -> bool:
        """Wait so long, or until the stub is closed: then nobody hears the answer."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._closing.wait()
        return self._closing.is_set()

    def _record(self, entry: Entry) -> tuple[Reply, list[tuple[int, int]]]:
        with self._news:
            answer = self._choose(entry["path"])
            reply = answer(entry) if callable(answer) else answer
            # Status 0 says the caller never learns the outcome.
            entry["status"] = 0 if reply.hang or reply.reset else reply.status
            self._seen += 1
            entry |= {"n": self._seen, "time_us": time.time_ns() // 1000, "pid": os.getpid()}
            os.write(self._file, json.dumps(entry).encode() + b"\n")
            self.entries.append(entry)
            if self.most_entries is not None and len(self.entries) > self.most_entries:
                del self.entries[: self.most_entries // 2]
            self._news.notify_all()
            poisons = [(pid, signum) for path, pid, signum in self._poisons if entry["path"].startswith(path)]
            return reply, self._strikes.pop(entry["n"], []) + poisons

    def _choose(self, path: str) -> Answer:
        for prefix, answers in self._scripts:
            if answers and (prefix is None or path.startswith(prefix)):
                return answers.popleft()
        return self.default

    async def _respond(self, request: web.Request, reply: Reply) -> web.StreamResponse:
        headers = {"Content-Type": "application/json", **reply.headers}
        if reply.half:
            torn = web.StreamResponse(status=reply.status, headers=headers)
            torn.content_length = len(reply.content()) + 100
            await torn.prepare(request)
            await torn.write(reply.content()[:10])
            return self._reset(request)
        if not reply.drip:
            return web.Response(status=reply.status, headers=headers, body=reply.content())
        response = web.StreamResponse(status=reply.status, headers=headers)
        response.content_length = len(reply.content())
        await response.prepare(request)
        for byte in reply.content():
            await response.write(bytes([byte]))
            await asyncio.sleep(reply.drip)
        return response

    def _reset(self, request: web.Request) -> web.StreamResponse:
        transport = request.transport
        if transport is not None:
            connection = transport.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            transport.abort()
        return web.Response()
