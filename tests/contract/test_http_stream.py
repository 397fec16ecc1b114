"""Streaming replies over real sockets: bytes that a reader has not read wait in the kernel, not in our memory."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from carillon.web import KNOWN, Answer, Endpoint, Outlet, Reply, Request, ServerSettings, app
from carillon.web.h11_server import StreamServer
from carillon.web.server import Server
from carillon.web.streaming import PeerGone
from tests.support.waiting import until

PIECE = b"x" * 65_536
PATIENCE = 30.0


class Pouring:
    """A reply that writes what the test hands it."""

    def __init__(self) -> None:
        self.pieces: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.opened = asyncio.Event()
        self.ended = asyncio.Event()
        self.written = 0
        self.how = ""
        self.outlet: Outlet

    async def __call__(self, outlet: Outlet) -> None:
        self.outlet = outlet
        self.opened.set()
        outlet.when_gone(lambda: self.pieces.put_nowait(None))
        try:
            while (piece := await self.pieces.get()) is not None:
                await outlet.write(piece)
                self.written += len(piece)
            self.how = "gone" if outlet.gone.is_set() else "done"
        except PeerGone:
            self.how = "gone"
            raise
        except asyncio.CancelledError:
            self.how = "cut"
            raise
        finally:
            self.ended.set()


@asynccontextmanager
async def pouring(**settings: Any) -> AsyncIterator[tuple[Pouring, StreamServer]]:
    poured = Pouring()

    async def call(_: Request) -> Reply:
        return Reply(200, poured, {"Cache-Control": "no-cache"}, "text/event-stream")

    answers = (Answer(status=200, description="Fine"),)
    endpoint = Endpoint(method="GET", path="/", call=call, name="pour", summary="Pour", answers=answers, about=KNOWN)
    server = StreamServer(app([endpoint]), ServerSettings(**{"port": 0, **settings}))
    await server.start()
    try:
        yield poured, server
    finally:
        await server.stop(1)


def connect(server: StreamServer, *, method: str = "GET", room: int = 4096) -> socket.socket:
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
    client.connect(("127.0.0.1", server.port))
    client.sendall(f"{method} / HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    client.settimeout(PATIENCE)
    return client


async def until_stuck(poured: Pouring, server: StreamServer) -> int:
    """Pour until the kernel takes no more; how much it took."""
    await asyncio.wait_for(poured.opened.wait(), PATIENCE)
    (connection,) = server.connections
    while True:
        before = poured.written
        poured.pieces.put_nowait(PIECE)

        async def met(*, moved: bool, before: int = before) -> bool:
            return poured.written > before or (connection.writer.paused and not moved)

        await until(lambda: met(moved=False), timeout=PATIENCE, what="a piece written or stuck")
        if poured.written == before:
            try:
                await until(lambda: met(moved=True), timeout=1, what="moving again")
            except TimeoutError:
                return before


async def read_all(client: socket.socket) -> bytes:
    def read() -> bytes:
        text = b""
        try:
            while piece := client.recv(1 << 20):
                text += piece
        except OSError:
            pass
        return text

    return await asyncio.to_thread(read)


async def test_a_piece_is_written_when_the_kernel_has_it() -> None:
    async with pouring() as (poured, server):
        with connect(server) as client:
            poured.pieces.put_nowait(b"one\n\n")
            poured.pieces.put_nowait(None)
            text = await read_all(client)
            assert b"content-type: text/event-stream\r\n" in text
            assert b"content-length" not in text
            assert text.endswith(b"5\r\none\n\n\r\n0\r\n\r\n")
            assert poured.how == "done"


async def test_a_reader_who_does_not_read_stops_the_writer_and_then_loses_its_place() -> None:
    async with pouring(write_seconds=4.0) as (poured, server):
        with connect(server):
            taken = await until_stuck(poured, server)
            for _ in range(50):
                poured.pieces.put_nowait(PIECE)
            await asyncio.wait_for(poured.ended.wait(), PATIENCE)
            assert poured.how == "gone"
            assert poured.written == taken
            assert not server.connections


async def test_a_slow_reader_is_waited_for() -> None:
    async with pouring(write_seconds=PATIENCE) as (poured, server):
        with connect(server) as client:
            taken = await until_stuck(poured, server)
            reading = asyncio.create_task(read_all(client))
            poured.pieces.put_nowait(b"last")
            poured.pieces.put_nowait(None)
            text = await asyncio.wait_for(reading, PATIENCE)
            assert text.partition(b"\r\n\r\n")[2].count(b"x") == taken + len(PIECE)
            assert text.endswith(b"last\r\n0\r\n\r\n")


@pytest.mark.parametrize("how", ["close", "half-close", "reset"])
async def test_a_reader_who_leaves_is_missed_at_once(how: str) -> None:
    async with pouring() as (poured, server):
        client = connect(server)
        await asyncio.wait_for(poured.opened.wait(), PATIENCE)
        if how == "half-close":
            client.shutdown(socket.SHUT_WR)
        else:
            if how == "reset":
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            client.close()
        await asyncio.wait_for(poured.ended.wait(), PATIENCE)
        assert poured.how == "gone"
        with pytest.raises(PeerGone):
            await poured.outlet.write(b"late")
        client.close()


async def test_what_the_kernel_refuses_was_not_written() -> None:
    async with pouring() as (poured, server):
        client = connect(server)
        await asyncio.wait_for(poured.opened.wait(), PATIENCE)
        assert poured.outlet.put(b"first")
        await asyncio.to_thread(client.recv, 65_536)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        client.close()
        # Nobody has told us yet that the reader is gone: writing is what finds out.
        with pytest.raises(PeerGone):
            poured.outlet.put(b"late")
        assert poured.outlet.gone.is_set()


async def test_a_reply_that_is_cut_looks_unfinished() -> None:
    async with pouring(write_seconds=PATIENCE) as (poured, server):
        with connect(server) as client:
            await until_stuck(poured, server)
            poured.outlet.cut()
            await asyncio.wait_for(poured.ended.wait(), PATIENCE)
            assert poured.how == "cut"
            assert not (await read_all(client)).endswith(b"0\r\n\r\n")


async def test_stopping_ends_what_does_not_end_by_itself() -> None:
    async with pouring() as (poured, server):
        with connect(server) as client:
            await asyncio.wait_for(poured.opened.wait(), PATIENCE)
            await asyncio.wait_for(server.stop(0.1), PATIENCE)
            assert poured.how == "cut"
            assert not (await read_all(client)).endswith(b"0\r\n\r\n")


async def test_a_head_alone_is_not_poured_after() -> None:
    async with pouring() as (poured, server):
        with connect(server, method="HEAD") as client:
            client.shutdown(socket.SHUT_WR)
            assert (await read_all(client)).endswith(b"\r\n\r\n")
            assert not poured.opened.is_set()


async def test_a_second_head_has_as_little_time_as_the_first() -> None:
    async with pouring(head_seconds=0.5, idle_seconds=60) as (_, server):
        with connect(server, method="HEAD") as client:
            assert (await asyncio.to_thread(client.recv, 65_536)).startswith(b"HTTP/1.1 200 ")
            await asyncio.to_thread(client.sendall, b"GET / HT")
            assert (await read_all(client)).startswith(b"HTTP/1.1 408 ")


async def test_on_granian_a_reader_that_leaves_is_gone_and_no_error() -> None:
    """Otherwise every page that is closed leaves a traceback in the log."""
    ends: list[str] = []

    async def poured(outlet: Outlet) -> None:
        try:
            while True:
                await outlet.write(b"retry: 3000\n\n")
                await asyncio.sleep(0.001)
        except BaseException as error:
            ends.append(type(error).__name__)
            raise

    async def call(_: Request) -> Reply:
        return Reply(200, poured, {"Cache-Control": "no-cache"}, "text/event-stream")

    answers = (Answer(status=200, description="Fine"),)
    endpoint = Endpoint(method="GET", path="/", call=call, name="pour", summary="Pour", answers=answers, about=KNOWN)
    server = Server(app([endpoint]), ServerSettings(port=0))
    await server.start()
    try:
        for _ in range(10):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await reader.readline()
            writer.close()

        async def over() -> bool:
            return len(ends) == 10

        await until(over, timeout=PATIENCE, what="ten readers gone")
    finally:
        await server.stop(1.0)
    assert set(ends) <= {"PeerGone", "CancelledError"}
