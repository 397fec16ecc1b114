"""Replies that last on granian: they end when they are over, wait for their reader, and look broken when they are."""

import asyncio
import gc
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from carillon.web import KNOWN, Answer, Endpoint, Outlet, Reply, Request, Server, ServerSettings, app, pacing, server
from tests.support.waiting import until

PIECE = b"x" * 65_536
MANY = 400
END = b"0\r\n\r\n"


class Body:
    """Writes so many pieces, and says how far it came."""

    def __init__(self, pieces: int, breaks_at: int | None = None) -> None:
        self._pieces = pieces
        self._breaks_at = breaks_at
        self.written = 0
        self.how = ""

    async def __call__(self, outlet: Outlet) -> None:
        try:
            for number in range(self._pieces):
                await outlet.write(bytes(PIECE) if number != self._breaks_at else _broken())
                self.written += 1
            self.how = "done"
        except BaseException as error:
            self.how = type(error).__name__
            raise


@asynccontextmanager
async def serving(body: Body, write_seconds: float = 10.0) -> AsyncIterator[socket.socket]:
    """A client that has asked; the request is part of a cycle, as a request with a token once was."""
    cycle: list[object] = []

    async def call(request: Request) -> Reply:
        cycle.append((request, cycle))
        return Reply(200, body, {"Cache-Control": "no-store"}, "application/x-ndjson")

    answers = (Answer(status=200, description="Fine"),)
    endpoint = Endpoint(method="GET", path="/", call=call, name="pour", summary="Pour", answers=answers, about=KNOWN)
    running = Server(app([endpoint]), ServerSettings(port=0, write_seconds=write_seconds))
    await running.start()
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", running.port))
    client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    client.settimeout(5)
    gc.disable()
    try:
        yield client
    finally:
        gc.enable()
        client.close()
        await running.stop(1)


async def read_all(client: socket.socket) -> bytes:
    def read() -> bytes:
        text = b""
        while piece := client.recv(1 << 20):
            text += piece
        return text

    return await asyncio.to_thread(read)


async def test_a_reply_ends_without_the_garbage_collector() -> None:
    body = Body(3)
    async with serving(body) as client:
        text = await read_all(client)
    assert text.endswith(END)
    assert text.count(PIECE[:1000]) > 0
    assert body.how == "done"


async def test_a_reply_that_breaks_off_looks_unfinished() -> None:
    async with serving(Body(9, breaks_at=2)) as client:
        try:
            text = await read_all(client)
        except ConnectionResetError:
            return
    assert not text.endswith(END)


async def test_a_reader_that_reads_nothing_is_waited_for_and_then_cut_off() -> None:
    body = Body(MANY)
    async with serving(body, write_seconds=0.5) as client:
        await until(lambda: _is(lambda: body.how == "PeerGone"), timeout=20, what="the reader cut off")
        assert body.written < MANY / 4
        del client


async def test_a_slow_reader_gets_everything() -> None:
    body = Body(MANY // 8)
    async with serving(body, write_seconds=5) as client:
        text = await read_all(client)
    assert len(text) > len(PIECE) * MANY // 8
    assert text.endswith(END)


async def test_a_reader_that_leaves_ends_the_reply() -> None:
    body = Body(MANY)
    async with serving(body) as client:
        await asyncio.to_thread(client.recv, 100)
        client.close()
        await until(lambda: _is(lambda: body.how == "PeerGone"), timeout=20, what="the reply over")


@pytest.mark.parametrize("guard", ["end", "pace", "cut"])
async def test_each_guard_is_needed(monkeypatch: pytest.MonkeyPatch, guard: str) -> None:
    """Without the guard, the tests above go red."""
    if guard == "end":
        monkeypatch.setattr(server._Exchange, "end", lambda _: None)  # noqa: SLF001 - the guard itself
        async with serving(Body(1)) as client:
            client.settimeout(1)
            with pytest.raises(TimeoutError):
                await read_all(client)
    elif guard == "pace":
        monkeypatch.setattr(pacing, "AHEAD_BYTES", 1 << 40)
        body = Body(MANY)
        async with serving(body):
            await until(lambda: _is(lambda: body.how == "done"), timeout=20, what="all of it in memory")
    else:
        monkeypatch.setattr(pacing.PacedSink, "cut", lambda _: None)
        async with serving(Body(9, breaks_at=2)) as client:
            assert (await read_all(client)).endswith(END)


def _broken() -> bytes:
    raise ValueError("the ledger went away")


async def _is(met: Callable[[], bool]) -> bool:
    return met()
