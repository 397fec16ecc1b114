"""Replies that last: the next piece is written only when the kernel has taken the one before."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any, Protocol, TypeAlias

from carillon.domain.errors import CarillonError
from carillon.web.request import Receive

Send: TypeAlias = "Callable[[MutableMapping[str, Any]], Awaitable[None]]"
Pouring: TypeAlias = "Callable[[Outlet], Awaitable[None]]"
"""The body of a reply that lasts: a function that writes the pieces to an outlet."""
SINK = "carillon.sink"
"""The ASGI extension in which a server passes its Sink."""


class PeerGone(CarillonError):
    """The reader is gone; the last bytes written may not have arrived."""


class BrokenOff(CarillonError):
    """The code that writes a reply cannot finish it, and has said why where that is read."""


class Sink(Protocol):
    """The server's end of a reply that lasts; raises OSError once the reader is gone."""

    def put(self, data: bytes) -> bool:
        """Write; False if the caller must wait for `drained` before it writes more."""
        ...

    async def drained(self) -> None:
        """Return once the kernel has taken everything."""
        ...


class _Sending:
    """Satisfies Sink on an ASGI server that passes no Sink of its own."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._piece = b""

    def put(self, data: bytes) -> bool:
        self._piece = data
        return False

    async def drained(self) -> None:
        await self._send({"type": "http.response.body", "body": self._piece, "more_body": True})


class Outlet:
    """A reply that lasts, as the code that writes it sees it."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._task = asyncio.current_task()
        self.gone = asyncio.Event()
        """Set once the reader has left."""
        self.over = asyncio.Event()
        """Set once nothing more should be written: the reader has left, or the process stops."""
        self._on_gone: Callable[[], None] | None = None

    def when_gone(self, call: Callable[[], None]) -> None:
        """Call `call` once the reader has left; at once if it already has."""
        self._on_gone = call
        if self.gone.is_set():
            call()

    def put(self, data: bytes) -> bool:
        """Write; False if the caller must wait for `drained` before it puts more. PeerGone if the reader is gone."""
        if self.gone.is_set():
            raise PeerGone
        try:
            return self._sink.put(data)
        except OSError:
            self.left()
            raise PeerGone from None

    async def drained(self) -> None:
        """Return once the kernel has taken everything; PeerGone if the reader is gone."""
        try:
            await self._sink.drained()
        except OSError:
            self.left()
            raise PeerGone from None

    async def write(self, data: bytes) -> None:
        """Write, and return once the kernel has taken everything; PeerGone if the reader is gone."""
        if not self.put(data):
            await self.drained()

    def left(self) -> None:
        """Note that the reader is gone."""
        self.gone.set()
        self.over.set()
        if self._on_gone is not None:
            self._on_gone()

    def cut(self) -> None:
        """End the reply now, even in the middle of a write that waits."""
        self.gone.set()
        self.over.set()
        if self._task is not None:
            self._task.cancel()


class Lasting:
    """The replies of a process that are being written; they end when the process stops."""

    def __init__(self) -> None:
        self._outlets: set[Outlet] = set()
        self._over = False

    def add(self, outlet: Outlet) -> None:
        self._outlets.add(outlet)
        if self._over:
            outlet.over.set()

    def remove(self, outlet: Outlet) -> None:
        self._outlets.discard(outlet)

    def end(self) -> None:
        """Ask every reply to end, those that begin later too; a reply that goes on has the time of any request."""
        self._over = True
        for outlet in self._outlets:
            outlet.over.set()


async def pour(pouring: Pouring, receive: Receive, send: Send, lasting: Lasting, sink: Sink | None = None) -> None:
    """Run the code that writes a reply; a reply that breaks off looks unfinished to its reader."""
    outlet = Outlet(sink or _Sending(send))
    watching = asyncio.create_task(_watch(receive, outlet))
    lasting.add(outlet)
    try:
        await pouring(outlet)
        if not outlet.gone.is_set():
            with suppress(OSError):
                await send({"type": "http.response.body", "body": b"", "more_body": False})
    except PeerGone:
        return
    except asyncio.CancelledError:
        # `cut` ended the reply, and the connection ends with this call. Otherwise the server is stopping.
        if not outlet.gone.is_set():
            raise
    finally:
        lasting.remove(outlet)
        watching.cancel()


async def _watch(receive: Receive, outlet: Outlet) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    outlet.left()
