"""A reply that lasts, on granian: no more is written ahead of its reader than the reader's kernel takes.

Granian keeps every piece in memory until its client reads, and returns at once. The connection is a descriptor of this
process, though: the kernel says how many bytes the client has acknowledged. Only Linux says that; elsewhere a reply
that lasts is not slowed down.
"""

import asyncio
import os
import socket
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress

from carillon.web.idle import DESCRIPTORS, Borrowed

AHEAD_BYTES = 1 << 20
"""So much may be written and not yet acknowledged; the kernel holds a part of it, granian the rest."""
_FIRST_SECONDS, _LONGEST_SECONDS = 0.002, 0.1
_STATE = struct.Struct("@B")
_BYTES_ACKNOWLEDGED = struct.Struct("@120xQ")
_CLOSED = 7

SendPiece = Callable[[bytes], Awaitable[None]]


class PacedSink:
    """Satisfies Sink on granian; a reader that takes nothing for `seconds` is cut off."""

    def __init__(self, connection: Borrowed | None, send: SendPiece, seconds: float) -> None:
        self._connection = connection
        self._send = send
        self._seconds = seconds
        self._pieces: list[bytes] = []
        self._written = 0
        self._before = self._acknowledged() or 0

    def put(self, data: bytes) -> bool:
        self._pieces.append(data)
        return False

    async def drained(self) -> None:
        pieces, self._pieces = self._pieces, []
        for piece in pieces:
            await self._send(piece)
            self._written += len(piece)
        await self._caught_up(AHEAD_BYTES)

    async def _caught_up(self, ahead: int) -> None:
        """Return once the reader is less than `ahead` bytes behind; ConnectionResetError if the reader is gone."""
        loop = asyncio.get_running_loop()
        wait, taken, since = _FIRST_SECONDS, -1, loop.time()
        while (acknowledged := self._acknowledged()) is not None:
            read = acknowledged - self._before
            if self._written - read <= ahead:
                return
            if read > taken:
                wait, taken, since = _FIRST_SECONDS, read, loop.time()
            elif loop.time() - since > self._seconds:
                self.cut()
                raise ConnectionResetError("the client reads nothing")
            await asyncio.sleep(wait)
            wait = min(wait * 2, _LONGEST_SECONDS)

    def cut(self) -> None:
        """End the connection now: what was written so far must not look whole."""
        if self._connection is not None:
            self._connection.shut_down()

    def close(self) -> None:
        """Give the descriptor back."""
        if self._connection is not None:
            self._connection.close()

    def _acknowledged(self) -> int | None:
        """The bytes that the client's kernel has; None where nobody can tell."""
        if self._connection is None:
            return None
        facts = self._connection.facts()
        if facts is None:
            return None
        if _STATE.unpack_from(facts)[0] == _CLOSED:
            raise ConnectionResetError("the client has left")
        return int(_BYTES_ACKNOWLEDGED.unpack_from(facts)[0])


def connection_of(port: int, client: str) -> Borrowed | None:
    """The connection on which this client's request came; None where it cannot be found."""
    if not hasattr(socket, "TCP_INFO"):
        return None
    with suppress(OSError):
        for name in os.listdir(DESCRIPTORS):  # noqa: PTH208 - names
            found = Borrowed(int(name))
            if found.accepted_at(port) and found.peer() == client and found.facts() is not None:
                return found
            found.close()
    return None
