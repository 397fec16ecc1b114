"""A TCP proxy that can be slow, silent, stuck or rude on demand."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable
from typing import Self

from tests.support.waiting import some_turns


class FaultProxy:
    """Stands between a client and host:port; faults may change while connections live."""

    def __init__(self, host: str, port: int) -> None:
        self._upstream = (host, port)
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._swallowing = False
        self._deaf = False
        self.port = 0
        self.connections = 0
        self.latency = 0.0
        self.refusing = False
        self.cut_after: int | None = None
        self.received = 0
        self.to_upstream = 0
        self.to_client = 0
        self.cuts = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        await some_turns()
        self.reset()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def pause(self) -> None:
        """Hold bytes back; resume() delivers them."""
        self._flowing.clear()

    def resume(self) -> None:
        self._flowing.set()

    def blackhole(self) -> None:
        """Keep every connection open and swallow what passes: the peer sees neither answer nor end."""
        self._swallowing = True

    def deafen(self) -> None:
        """One way only: upstream hears everything, and its answers are swallowed."""
        self._deaf = True

    def reset(self) -> None:
        """Answer every open connection, on both sides, with RST."""
        for writer in tuple(self._writers):
            _reset(writer)

    def lead_to(self, port: int) -> None:
        """As a balancer after a failover: new connections go to another server, and those that are open stay."""
        self._upstream = (self._upstream[0], port)

    def refuse(self) -> None:
        """Reset what is open and everything that comes."""
        self.refusing = True
        self.reset()

    def cut(self, after: int) -> None:
        """Reset a connection once this many further bytes went from upstream to the client, over all connections."""
        self.cut_after = self.to_client + after

    def heal(self) -> None:
        """Pass everything on again; connections that swallowed bytes are reset, for their streams are torn."""
        if self._swallowing or self._deaf:
            self.reset()
        self._swallowing = self._deaf = False
        self.refusing = False
        self.cut_after = None
        self.latency = 0.0
        self.resume()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if self.refusing:
            _reset(writer)
            return
        # A reset that comes while the other half is made concerns this one, too.
        self._writers.add(writer)
        try:
            upstream_reader, upstream_writer = await asyncio.open_connection(*self._upstream)
        except BaseException as error:
            self._writers.discard(writer)
            _reset(writer)
            if isinstance(error, OSError):
                return
            raise
        if writer.transport.is_closing():
            self._writers.discard(writer)
            _reset(upstream_writer)
            return
        self._writers.add(upstream_writer)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(reader, upstream_writer, self._forward))
                group.create_task(self._pump(upstream_reader, writer, self._back))
        except* (OSError, _CutError):
            _reset(writer)
            _reset(upstream_writer)
        finally:
            self._writers -= {writer, upstream_writer}
            writer.close()
            upstream_writer.close()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, count: Callable[[bytes], bytes]
    ) -> None:
        while data := await reader.read(65536):
            self.received += len(data)
            if self.latency:
                await asyncio.sleep(self.latency)
            await self._flowing.wait()
            if self._swallowing or (self._deaf and count == self._back):
                continue
            passed = count(data)
            writer.write(passed)
            await writer.drain()
            if len(passed) < len(data):
                self.cuts += 1
                raise _CutError
        # A half-close is part of the conversation, so it is passed on, or swallowed, as well.
        if not self._swallowing:
            with contextlib.suppress(OSError):
                writer.write_eof()

    def _forward(self, data: bytes) -> bytes:
        self.to_upstream += len(data)
        return data

    def _back(self, data: bytes) -> bytes:
        if self.cut_after is not None:
            data = data[: max(0, self.cut_after - self.to_client)]
        self.to_client += len(data)
        return data


class _CutError(Exception):
    pass


def _reset(writer: asyncio.StreamWriter) -> None:
    # Lingering for zero seconds makes the kernel send RST instead of FIN.
    connection = writer.get_extra_info("socket")
    if connection is not None and connection.fileno() != -1:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
