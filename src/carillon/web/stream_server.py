"""The HTTP listener on h11, for replies that last and for probes: it waits for slow readers, which granian does not."""

import asyncio
import contextlib
import socket
from collections.abc import Callable

from carillon.web.application import ASGI
from carillon.web.http_connection import Connection
from carillon.web.listening import ServerSettings, listen

Refused = Callable[[int, float], None]
"""Hears the status and the seconds of a request that was refused before it reached the application."""

_CANCEL_SECONDS = 1.0


class StreamServer:
    """Serves one ASGI application until stopped; starts and stops as `Server` does."""

    def __init__(
        self, application: ASGI, settings: ServerSettings, refused: Refused = lambda _status, _seconds: None
    ) -> None:
        self.application = application
        self.settings = settings
        self.refused = refused
        self.port = settings.port
        self.connections: set[Connection] = set()
        self.stopping = False
        self._gone = asyncio.Event()
        self._listener: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen; returns when the server accepts connections."""
        listener = listen(self.settings)
        self.port = listener.getsockname()[1]
        _detect_dead_peers(listener, self.settings.write_seconds)
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(
            lambda: Connection(self), sock=listener, backlog=self.settings.backlog
        )

    async def stop(self, grace: float) -> None:
        """Stop accepting at once, let running requests finish for `grace` seconds, then cancel the rest."""
        if self._listener is None:
            return
        self.stopping = True
        self._listener.close()
        self._listener = None
        for connection in list(self.connections):
            connection.wind_up()
        await self._until_gone(grace)
        for connection in list(self.connections):
            connection.cancel()
        await self._until_gone(_CANCEL_SECONDS)
        for connection in list(self.connections):
            connection.abort()

    def left(self, connection: Connection) -> None:
        """Forget a connection that is gone."""
        self.connections.discard(connection)
        self._gone.set()

    async def _until_gone(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.connections:
                    self._gone.clear()
                    await self._gone.wait()


def _detect_dead_peers(listener: socket.socket, seconds: float) -> None:
    """Let the kernel end connections whose peer vanished or stopped reading; connections inherit the options."""
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    option = getattr(socket, "TCP_USER_TIMEOUT", None)
    if option is not None:
        listener.setsockopt(socket.IPPROTO_TCP, option, int(seconds * 3000))
