"""How the listener of streams frames its replies, over real sockets: lengths, chunks, and whether more may follow."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from carillon.web import KNOWN, Answer, Endpoint, Outlet, Reply, Request, ServerSettings, app
from carillon.web.h11_server import StreamServer

HOST = b"Host: localhost\r\n"


async def plain(_: Request) -> Reply:
    return Reply(200, {"ok": True})


async def nothing(_: Request) -> Reply:
    return Reply(204, b"")


async def two_pieces(_: Request) -> Reply:
    async def pour(outlet: Outlet) -> None:
        await outlet.write(b"one\n\n")
        # Meanwhile it is watched whether the reader leaves.
        await asyncio.sleep(0)
        await outlet.write(b"two\n\n")

    return Reply(200, pour, {"Cache-Control": "no-cache"}, "text/event-stream")


async def echo(request: Request) -> Reply:
    return Reply(200, request.value())


async def split(request: Request) -> Reply:
    return Reply(200, {"ok": True}, {"X-Name": "a" + chr(int(request.scope["query_string"])) + "X-Other: b"})


@asynccontextmanager
async def serving() -> AsyncIterator[int]:
    answers = (Answer(status=200, description="Fine"),)
    calls = [("GET", plain), ("GET", nothing), ("GET", two_pieces), ("POST", echo), ("GET", split)]
    endpoints = [
        Endpoint(
            method=method,
            path=f"/{call.__name__}",
            call=call,
            name=call.__name__,
            summary="It",
            answers=answers,
            about=KNOWN,
            body=dict if method == "POST" else None,
        )
        for method, call in calls
    ]
    server = StreamServer(app(endpoints), ServerSettings(port=0))
    await server.start()
    try:
        yield server.port
    finally:
        await server.stop(1)


async def say(*pieces: bytes) -> bytes:
    """Say it and hear until the listener hangs up."""
    async with serving() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)
            return await asyncio.wait_for(reader.read(), 30)
        finally:
            writer.close()


def get(path: bytes, *headers: bytes, version: bytes = b"1.1") -> bytes:
    return b"GET /%b HTTP/%b\r\n%b%b\r\n" % (path, version, HOST, b"".join(line + b"\r\n" for line in headers))


LAST = get(b"plain", b"Connection: Keep-Alive, Close")


async def test_several_requests_are_answered_one_after_the_other() -> None:
    heard = await say(get(b"plain") + get(b"nothing") + b"HEAD /plain HTTP/1.1\r\n" + HOST + b"\r\n", LAST)
    first, second, third, fourth = heard.split(b"HTTP/1.1 ")[1:]
    assert first.startswith(b"200 OK\r\n")
    assert b"content-length: 11\r\n" in first
    assert first.endswith(b'\r\n\r\n{"ok":true}')
    assert b"\r\ndate: " in first
    assert b"connection:" not in first
    assert second.startswith(b"204 No Content\r\n")
    assert b"transfer-encoding" not in second
    assert second.endswith(b"\r\n\r\n")
    assert b"content-length: 11\r\n" in third
    assert third.endswith(b"\r\n\r\n")
    assert b"connection: close\r\n" in fourth


async def test_who_proposes_another_protocol_is_answered_in_this_one_and_may_go_on() -> None:
    heard = await say(get(b"plain", b"Connection: Upgrade", b"Upgrade: websocket"), LAST)
    assert heard.count(b"HTTP/1.1 200 OK\r\n") == 2


@pytest.mark.parametrize("request_text", [get(b"plain", version=b"1.0"), LAST])
async def test_the_last_reply_says_so(request_text: bytes) -> None:
    heard = await say(request_text + get(b"plain"))
    assert heard.count(b"HTTP/1.1 ") == 1
    assert heard.count(b"connection: close\r\n") == 1


@pytest.mark.req("P-900")
async def test_a_reply_before_the_body_has_arrived_says_that_the_connection_ends() -> None:
    """A client that keeps its connections would lose its next request."""
    heard = await say(get(b"plain", b"Content-Length: 5"))
    assert heard.startswith(b"HTTP/1.1 200 OK\r\n")
    assert heard.count(b"connection: close\r\n") == 1
    assert heard.endswith(b'\r\n\r\n{"ok":true}')


async def test_who_speaks_the_old_protocol_hears_no_chunks() -> None:
    heard = await say(get(b"two_pieces", version=b"1.0"))
    assert b"transfer-encoding" not in heard
    assert heard.endswith(b"\r\n\r\none\n\ntwo\n\n")


async def test_chunks_have_an_end() -> None:
    heard = await say(get(b"two_pieces"))
    assert heard.count(b"transfer-encoding: chunked\r\n") == 1
    assert heard.endswith(b"\r\n\r\n5\r\none\n\n\r\n5\r\ntwo\n\n\r\n0\r\n\r\n")


async def test_who_waits_for_leave_to_go_on_is_given_it_once() -> None:
    head = b"POST /echo HTTP/1.1\r\n" + HOST + b"Content-Type: application/json\r\nContent-Length: 2\r\n"
    async with serving() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head + b"Expect: 100-continue\r\nConnection: close\r\n\r\n")
        leave = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)
        writer.write(b"{}")
        heard = await asyncio.wait_for(reader.read(), 30)
        writer.close()
    assert leave.startswith(b"HTTP/1.1 100 ")
    assert heard.startswith(b"HTTP/1.1 200 OK\r\n")
    assert heard.endswith(b"\r\n\r\n{}")


async def test_leave_is_not_given_in_the_middle_of_a_reply() -> None:
    heard = await say(get(b"two_pieces", b"Expect: 100-continue", b"Content-Length: 5"))
    assert heard.count(b"HTTP/1.1 ") == 1
    assert heard.startswith(b"HTTP/1.1 200 OK\r\n")


@pytest.mark.parametrize("end", [b"10", b"13", b"0"])
async def test_a_header_never_becomes_two(caplog: pytest.LogCaptureFixture, end: bytes) -> None:
    assert await say(get(b"split?" + end)) == b""
    assert "reply failed" in caplog.text
