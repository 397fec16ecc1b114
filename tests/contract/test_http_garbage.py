"""For any bytes that a client sends, the stream listener answers or hangs up, logs no error, and serves the next."""

import asyncio
import gc
import logging

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from carillon.web import KNOWN, Answer, Endpoint, Reply, Request, ServerSettings, app
from carillon.web.h11_server import StreamServer
from tests.support.examples import examples

PIECES = [
    b"GET / HTTP/1.1\r\n",
    b"POST / HTTP/1.1\r\n",
    b"HEAD / HTTP/1.0\r\n",
    b"CONNECT x:1 HTTP/1.1\r\n",
    b"GET http://evil/ HTTP/1.1\r\n",
    b"GET /%ff%00 HTTP/1.1\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"Host: localhost\r\n",
    b"Content-Length: 5\r\n",
    b"Content-Length: -1\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Transfer-Encoding: gzip\r\n",
    b"Connection: close\r\n",
    b"Connection: upgrade\r\nUpgrade: websocket\r\n",
    b"Expect: 100-continue\r\n",
    b"Content-Type: application/json\r\n",
    b" folded\r\n",
    b"\r\n",
    b"5\r\nhello\r\n",
    b"0\r\n\r\n",
    b"ffffffffffffffff\r\n",
    b"hello",
    b"\x16\x03\x01\x02\x00",
]


def endpoints() -> list[Endpoint]:
    async def get(_: Request) -> Reply:
        return Reply(200, {"ok": True})

    async def post(request: Request) -> Reply:
        return Reply(200, request.value())

    answers = (Answer(status=200, description="Fine"),)
    return [
        Endpoint(method="GET", path="/", call=get, name="get", summary="Get", answers=answers, about=KNOWN),
        Endpoint(
            method="POST", path="/", call=post, name="post", summary="Post", answers=answers, about=KNOWN, body=dict
        ),
    ]


async def talk(port: int, *pieces: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for piece in pieces:
            writer.write(piece)
            await asyncio.sleep(0)
        writer.write_eof()
        return await asyncio.wait_for(reader.read(), 30)
    except ConnectionError:
        return b""
    finally:
        writer.close()


@pytest.fixture
def swept() -> None:
    """What earlier tests of this process left is complained about now, and not in the middle of somebody else's."""
    gc.collect()


@pytest.mark.usefixtures("swept")
@given(st.lists(st.one_of(st.sampled_from(PIECES), st.binary(max_size=20)), max_size=12))
@examples(150, HealthCheck.function_scoped_fixture)
def test_nothing_a_client_sends_hurts(caplog: pytest.LogCaptureFixture, pieces: list[bytes]) -> None:
    async def run() -> tuple[bytes, bytes]:
        server = StreamServer(app(endpoints()), ServerSettings(port=0, head_seconds=5))
        await server.start()
        try:
            said = await talk(server.port, *pieces)
            return said, await talk(server.port, b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        finally:
            await server.stop(1)

    with caplog.at_level(logging.WARNING):
        said, after = asyncio.run(run())
    assert said == b"" or said.startswith(b"HTTP/1.1 ")
    assert b" 500 " not in said
    assert after.endswith(b'{"ok":true}')
    assert not caplog.records
