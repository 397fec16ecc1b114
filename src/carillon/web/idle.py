"""Closes idle connections of granian, which has one limit for all addresses and waits when it is reached.

Granian accepts in threads of its own and shows a connection only once a request is whole. The connections are
descriptors of this process, though: this module lists them, asks the kernel who is at the other end and how long it
has been silent, and shuts down those beyond the limits. Only Linux says all of that.
"""

import asyncio
import os
import socket
import stat
import struct
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Self

from carillon.web.peers import IdlePeer, Proxies, grouped, surplus
from carillon.web.settings import ServerSettings

DESCRIPTORS = "/proc/self/fd"
_LOOK_SECONDS = 0.25
_ALERT_SECONDS = 0.05
_AT_ONCE = 64
"""Descriptors that are looked at before other tasks have their turn."""
_HEADROOM = 8
"""One connection in so many is kept free for newcomers."""
_QUEUED_MS = 500
"""A connection that has said something less long ago may have a request that waits for its turn."""
INFO_BYTES = 136
_LAST_DATA_RECEIVED = struct.Struct("@52xI")
_BYTES_RECEIVED = struct.Struct("@128xQ")


class IdleConnections:
    """The idle connections of one listening port, as long as there are too many of them."""

    def __init__(self, port: int, settings: ServerSettings, busy: Callable[[], Collection[str]]) -> None:
        self._port = port
        self._most = settings.idle_per_address
        self._room = settings.max_connections - max(1, settings.max_connections // _HEADROOM)
        self._proxies = Proxies(settings.trusted_proxies)
        self._busy = busy
        self._calm = min(self._most or self._room, self._room)
        """With at most so many descriptors no limit can be exceeded, and there is nothing to look at."""

    async def run(self) -> None:
        """Look again and again; while connections must go, without much of a pause."""
        while hasattr(socket, "TCP_INFO"):
            gone = 0
            with suppress(OSError):
                # Without the list, or without a free descriptor to read it, the next look may fare better.
                gone = await self.look() if len(os.listdir(DESCRIPTORS)) > self._calm else 0  # noqa: PTH208 - names
            await asyncio.sleep(_ALERT_SECONDS if gone else _LOOK_SECONDS)

    async def look(self) -> int:
        """Close the connections beyond the limits; how many."""
        idle: list[IdlePeer] = []
        connections = 0
        busy = self._busy()
        for number, name in enumerate(os.listdir(DESCRIPTORS)):  # noqa: PTH208 - names
            if number % _AT_ONCE == _AT_ONCE - 1:
                await asyncio.sleep(0)
                busy = self._busy()
            found = self._peer(int(name), busy)
            connections += found is not None
            if isinstance(found, IdlePeer):
                idle.append(found)
        gone = surplus(idle, self._most, connections - self._room)
        for number, peer in enumerate(gone):
            if number % _AT_ONCE == _AT_ONCE - 1:
                await asyncio.sleep(0)
            self._close(peer)
        return len(gone)

    def _close(self, peer: IdlePeer) -> None:
        """Shut down a connection that is still the one that was found, and still idle."""
        with Borrowed(peer.descriptor) as connection:
            now = connection.idle(self._port, self._busy())
            if now is not None and grouped(now[0]) == peer.address and now[1] >= peer.silent_ms:
                connection.shut_down()

    def _peer(self, descriptor: int, busy: Collection[str]) -> IdlePeer | bool | None:
        """An idle connection of the port; True for one that is busy, None for everything else."""
        with Borrowed(descriptor) as connection:
            if not connection.accepted_at(self._port):
                return None
            found = connection.idle(self._port, busy)
            if found is None:
                return True
            address, silent = found
            return IdlePeer(grouped(address), silent, descriptor, address in self._proxies)


class Borrowed:
    """A descriptor of granian's, duplicated: it stays the same connection even if granian closes and reuses its own."""

    def __init__(self, descriptor: int) -> None:
        self._socket: socket.socket | None = None
        try:
            # Only a socket: to close a second descriptor of a file drops every lock of this process on the file, and a
            # SQLite ledger without its locks loses what it writes to other processes.
            if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                return
            own = os.dup(descriptor)
        except OSError:
            return
        try:
            # With a family Python does not ask the kernel which it is; addresses are read as the kernel gives them.
            self._socket = socket.socket(socket.AF_INET6, socket.SOCK_STREAM, fileno=own)
        except OSError:
            os.close(own)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the duplicate back; granian's own descriptor stays."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def accepted_at(self, port: int) -> bool:
        """Whether this is a connection that was accepted at this port."""
        if self._socket is None:
            return False
        try:
            own = self._socket.getsockname()
            return isinstance(own, tuple) and own[1] == port and bool(self._socket.getpeername())
        except (OSError, IndexError):
            return False

    def idle(self, port: int, busy: Collection[str]) -> tuple[str, int] | None:
        """The address and the silence in milliseconds of a connection that waits for no reply."""
        if self._socket is None or not self.accepted_at(port):
            return None
        peer, facts = self.peer(), self.facts()
        if facts is None or peer in busy:
            return None
        silent, received = _LAST_DATA_RECEIVED.unpack_from(facts)[0], _BYTES_RECEIVED.unpack_from(facts)[0]
        return None if received and silent < _QUEUED_MS else (peer.rpartition(":")[0], silent)

    def peer(self) -> str:
        """The address and the port of the other end, as granian writes them; empty for a connection that is over."""
        try:
            host, number = ("", 0) if self._socket is None else self._socket.getpeername()[:2]
        except OSError:
            return ""
        return f"{host}:{number}"

    def facts(self) -> bytes | None:
        """What the kernel knows about the connection."""
        if self._socket is None:
            return None
        try:
            found = self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, INFO_BYTES)
        except OSError:
            return None
        return found if len(found) == INFO_BYTES else None

    def shut_down(self) -> None:
        """End the connection in both directions; granian then closes it."""
        with suppress(OSError):
            if self._socket is not None:
                self._socket.shutdown(socket.SHUT_RDWR)
