"""Replies that do not end by themselves: written piece by piece, each only when the one before has left."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any, Protocol, TypeAlias

from carillon.domain.errors import CarillonError
from carillon.web.body import Receive

Send: TypeAlias = "Callable[[MutableMapping[str, Any]], Awaitable[None]]"
Pouring: TypeAlias = "Callable[[Outlet], Awaitable[None]]"
"""The body of a reply that writes itself."""
SINK = "carillon.sink"
"""The ASGI extension by which a server offers one."""


class PeerGone(CarillonError):
    """Nobody reads any more; what was written last may not have arrived."""


class Sink(Protocol):
    """Where a server takes the pieces of a reply; raises OSError once the reader is gone."""

    def put(self, data: bytes) -> bool:
        """Whether the kernel has all of it; if not, nothing may follow before it is drained."""
        ...

    async def drained(self) -> None:
        """Return once the kernel has all of it."""
        ...


class _Sending:
    """Satisfies Sink with what every ASGI server has."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._piece = b""

    def put(self, data: bytes) -> bool:
        self._piece = data
        return False

    async def drained(self) -> None:
        await self._send({"type": "http.response.body", "body": self._piece, "more_body": True})


class Outlet:
    """Where a reply is written to while its reader is there."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._task = asyncio.current_task()
        self.gone = asyncio.Event()
        """Set when the reader has left."""
        self._on_gone: Callable[[], None] | None = None

    def when_gone(self, call: Callable[[], None]) -> None:
        """Call once the reader has left; at once if it already has."""
        self._on_gone = call
        if self.gone.is_set():
            call()

    def put(self, data: bytes) -> bool:
        """Whether the kernel has all of it; if not, nothing may be put before it is drained. PeerGone as in `write`."""
        if self.gone.is_set():
            raise PeerGone
        try:
            return self._sink.put(data)
        except OSError:
            self.left()
            raise PeerGone from None

    async def drained(self) -> None:
        """Return once the kernel has all that was put; PeerGone as in `write`."""
        try:
            await self._sink.drained()
        except OSError:
            self.left()
            raise PeerGone from None

    async def write(self, data: bytes) -> None:
        """Return once the kernel has all of it; PeerGone when it cannot be written any more."""
        if not self.put(data):
            await self.drained()

    def left(self) -> None:
        """The reader is not there any more."""
        self.gone.set()
        if self._on_gone is not None:
            self._on_gone()

    def cut(self) -> None:
        """End the reply where it is, also in the middle of a write that waits."""
        self.gone.set()
        if self._task is not None:
            self._task.cancel()


async def pour(pouring: Pouring, receive: Receive, send: Send, sink: Sink | None = None) -> None:
    """Let a reply write itself; what breaks it off leaves it visibly unfinished."""
    outlet = Outlet(sink or _Sending(send))
    watching = asyncio.create_task(_watch(receive, outlet))
    try:
        await pouring(outlet)
        if not outlet.gone.is_set():
            with suppress(OSError):
                await send({"type": "http.response.body", "body": b"", "more_body": False})
    except PeerGone:
        return
    except asyncio.CancelledError:
        # Cut from inside: the connection ends with this call. From outside: the server is stopping.
        if not outlet.gone.is_set():
            raise
    finally:
        watching.cancel()


async def _watch(receive: Receive, outlet: Outlet) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    outlet.left()
