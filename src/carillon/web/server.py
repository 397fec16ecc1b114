"""The HTTP server of the API: granian inside the program's own event loop."""

import asyncio
import socket
from typing import Any

from granian.constants import HTTPModes, Interfaces
from granian.http import HTTP1Settings
from granian.log import LogLevels
from granian.rsgi import HTTPProtocol, Scope
from granian.server import embed

from carillon.web.application import Application
from carillon.web.listening import ServerSettings, refused, reserve, share
from carillon.web.rsgi import serve

_CANCEL_SECONDS = 1.0
_START_SECONDS = 10.0
_LOOK_SECONDS = 0.001


class NoServer:
    """The server of a process that serves no HTTP."""

    port = 0

    async def start(self) -> None:
        """Do nothing."""

    async def stop(self, grace: float) -> None:
        """Do nothing."""


class Server:
    """Serves one application until stopped; the caller handles signals."""

    def __init__(self, application: Application, settings: ServerSettings) -> None:
        self._application = application
        self._settings = settings
        self._running: set[asyncio.Task[Any]] = set()
        self._reserved: socket.socket | None = None
        self._granian: Any = None
        self._serving: asyncio.Task[None] | None = None
        self.port = settings.port

    async def start(self) -> None:
        """Listen; returns when the server accepts connections."""
        # Granian binds with SO_REUSEPORT always and does not say which free port it took. So this socket takes the
        # port, alone unless the settings share it, and admits granian's socket beside it.
        self._reserved = reserve(self._settings)
        address, self.port = self._reserved.getsockname()[:2]
        share(self._reserved, shared=True)
        self._granian = self._embedded(address)
        self._serving = asyncio.create_task(self._granian.serve(), name="http-server")
        await self._until_listening(address)
        share(self._reserved, shared=self._settings.share_port)

    async def stop(self, grace: float) -> None:
        """Stop accepting at once, let running requests finish for `grace` seconds, then cancel the rest."""
        if self._granian is None or self._serving is None or self._reserved is None:
            return
        self._granian.stop()
        await asyncio.wait({self._serving}, timeout=grace)
        for task in list(self._running):
            task.cancel()
        await asyncio.wait({self._serving}, timeout=_CANCEL_SECONDS)
        self._reserved.close()

    def _embedded(self, address: str) -> embed.Server:
        settings = self._settings
        return embed.Server(
            self._tracked,
            address=address,
            port=self.port,
            interface=Interfaces.RSGI,
            http=HTTPModes.http1,
            websockets=False,
            backlog=settings.backlog,
            backpressure=settings.max_connections,
            http1_settings=HTTP1Settings(
                header_read_timeout=int(settings.head_seconds * 1000), max_buffer_size=max(8192, settings.head_bytes)
            ),
            log_level=LogLevels.error,
            # Incremental sets only the level: the program's own log handlers stay in charge.
            log_dictconfig={"incremental": True, "handlers": {}, "loggers": {}},
        )

    async def _until_listening(self, address: str) -> None:
        """Granian does not say when it listens: a connection that it accepts proves it."""
        loop = asyncio.get_running_loop()
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        deadline = loop.time() + _START_SECONDS
        while True:
            if self._serving is not None and self._serving.done():
                raise refused(self._settings, self._serving.exception() or RuntimeError("granian ended"))
            with socket.socket(family, socket.SOCK_STREAM) as client:
                client.setblocking(False)  # noqa: FBT003 - the socket module's own signature
                try:
                    await loop.sock_connect(client, (address, self.port))
                except ConnectionRefusedError as error:
                    if loop.time() > deadline:
                        raise refused(self._settings, error) from None
                else:
                    return
            await asyncio.sleep(_LOOK_SECONDS)

    async def _tracked(self, scope: Scope, protocol: HTTPProtocol) -> None:
        task = asyncio.current_task()
        if task is None:
            return
        self._running.add(task)
        try:
            await serve(self._application, scope, protocol)
        finally:
            self._running.discard(task)
