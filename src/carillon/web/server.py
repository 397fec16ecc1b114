"""The HTTP server inside our own event loop."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

from granian import _granian
from granian._granian import RSGIHTTPProtocol
from granian.constants import HTTPModes, Interfaces
from granian.http import HTTP1Settings
from granian.log import LogLevels
from granian.rsgi import Scope
from granian.server import embed

from carillon.web.application import Application
from carillon.web.listening import ServerSettings, listen
from carillon.web.rsgi import serve

_LAST_WORDS_SECONDS = 1.0

Served = Callable[[Scope, RSGIHTTPProtocol], Awaitable[None]]


class NoServer:
    """Where nobody listens."""

    port = 0

    async def start(self) -> None:
        """There is nothing to begin."""

    async def stop(self, grace: float) -> None:
        """There is nothing to end."""


class Server:
    """Serves one application until stopped; signals stay the caller's business."""

    def __init__(self, application: Application, settings: ServerSettings) -> None:
        self._application = application
        self._settings = settings
        self._running: set[asyncio.Task[Any]] = set()
        self._granian: Any = None
        self._serving: asyncio.Task[None] | None = None
        self.port = settings.port

    async def start(self) -> None:
        """Listen; returns when connections are being accepted."""
        listener = listen(self._settings)
        self.port = listener.getsockname()[1]
        self._granian = _Granian(self._tracked, self._settings, listener)
        self._serving = asyncio.create_task(self._granian.serve(), name="http-server")
        # The kernel queues connections from here on; one turn of the loop lets the acceptor begin.
        await asyncio.sleep(0)

    async def stop(self, grace: float) -> None:
        """Stop accepting at once, let running requests finish for `grace` seconds, then cancel the rest."""
        if self._granian is None or self._serving is None:
            return
        self._granian.stop()
        await asyncio.wait({self._serving}, timeout=grace)
        for task in list(self._running):
            task.cancel()
        await asyncio.wait({self._serving}, timeout=_LAST_WORDS_SECONDS)

    async def _tracked(self, scope: Scope, protocol: RSGIHTTPProtocol) -> None:
        task = asyncio.current_task()
        if task is None:
            return
        self._running.add(task)
        try:
            await serve(self._application, scope, protocol)
        finally:
            self._running.discard(task)


class _Granian(embed.Server):
    """Granian on a socket of ours, because its own always shares the port and cannot tell which free one it took."""

    def __init__(self, application: Served, settings: ServerSettings, listener: socket.socket) -> None:
        super().__init__(
            application,
            address=settings.host,
            port=listener.getsockname()[1],
            interface=Interfaces.RSGI,
            http=HTTPModes.http1,
            websockets=False,
            backlog=settings.backlog,
            backpressure=settings.max_connections,
            http1_settings=HTTP1Settings(
                header_read_timeout=int(settings.head_seconds * 1000), max_buffer_size=max(8192, settings.head_bytes)
            ),
            log_level=LogLevels.error,
            # Incremental: only the level is set, so that the program's own log handlers stay in charge.
            log_dictconfig={"incremental": True, "handlers": {}, "loggers": {}},
        )
        self._listener = listener

    def _init_shared_socket(self) -> None:
        # The holder takes the descriptor over and closes it with the last accept.
        holder: Any = _granian.SocketHolder
        self._shd = holder(self._listener.detach(), False, self.backlog)  # noqa: FBT003 - no unix socket
        self._ssp = None
