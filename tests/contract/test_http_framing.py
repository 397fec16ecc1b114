"""One table for both listeners: what a proxy and a server may read differently is refused, and nothing follows it.

Each case is sent together with a second request. Where a listener refuses, it answers 400 and closes, so the second
request is never read. Where it accepts, both requests are answered.
"""

import asyncio
import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from carillon.web import KNOWN, Answer, Endpoint, Reply, Request, Server, ServerSettings, app
from carillon.web.h11_server import StreamServer

pytestmark = pytest.mark.asyncio(loop_scope="module")

HEAD = b"Host: localhost\r\nContent-Type: application/json\r\n"
LINE = b"POST / HTTP/1.1\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"
BODY = b"2\r\n{}\r\n0\r\n\r\n"
SECOND = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


def post(headers: bytes, body: bytes = b"{}", line: bytes = LINE) -> bytes:
    return line + HEAD + headers + b"\r\n" + body


def chunked(body: bytes) -> bytes:
    return post(CHUNKED, body)


READ = {
    "a length": post(b"Content-Length: 2\r\n"),
    "a length with zeros before it": post(b"Content-Length: 0002\r\n"),
    "a length behind a tab": post(b"Content-Length:\t2\r\n"),
    "chunks": chunked(BODY),
    "chunks in capitals": post(b"Transfer-Encoding: CHUNKED\r\n", BODY),
    "a chunk with zeros before its size": chunked(b"0002\r\n{}\r\n0\r\n\r\n"),
    "a chunk with an extension": chunked(b"2;a=b\r\n{}\r\n0\r\n\r\n"),
    "a chunk with a quoted extension": chunked(b'2;a="b\\"c"\r\n{}\r\n0\r\n\r\n'),
    "a space behind a chunk's size": chunked(b"2 \r\n{}\r\n0\r\n\r\n"),
    "an underscore instead of a hyphen": post(b"Transfer_Encoding: chunked\r\nContent-Length: 2\r\n"),
    "empty lines before the request": b"\r\n\r\n" + post(b"Content-Length: 2\r\n"),
    "an offer of HTTP/2": post(b"Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 2\r\n"),
    "a GET with a body": b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}",
}
REFUSED = {
    "two lengths": post(b"Content-Length: 2\r\nContent-Length: 3\r\n"),
    "a list of one length": post(b"Content-Length: 2, 2\r\n"),
    "a list of two lengths": post(b"Content-Length: 2, 3\r\n"),
    "a negative length": post(b"Content-Length: -2\r\n"),
    "a length with a plus": post(b"Content-Length: +2\r\n"),
    "a hexadecimal length": post(b"Content-Length: 0x2\r\n"),
    "a length with a fraction": post(b"Content-Length: 2.0\r\n"),
    "a quoted length": post(b'Content-Length: "2"\r\n'),
    "an empty length": post(b"Content-Length: \r\n"),
    "a length with a gap": post(b"Content-Length: 2 2\r\n"),
    "a length in other digits": post(b"Content-Length: \xc2\xb2\r\n"),
    "a length behind a vertical tab": post(b"Content-Length: \x0b2\r\n"),
    "a length beyond 64 bits": post(b"Content-Length: 99999999999999999999999\r\n"),
    "chunks said twice": post(CHUNKED + CHUNKED, BODY),
    "chunks twice in one line": post(b"Transfer-Encoding: chunked, chunked\r\n", BODY),
    "identity": post(b"Transfer-Encoding: identity\r\n", BODY),
    "gzip and chunks": post(b"Transfer-Encoding: gzip, chunked\r\n", BODY),
    "chunks and gzip": post(b"Transfer-Encoding: chunked, gzip\r\n", BODY),
    "identity and chunks": post(b"Transfer-Encoding: identity, chunked\r\n", BODY),
    "chunks and identity": post(CHUNKED + b"Transfer-Encoding: identity\r\n", BODY),
    "xchunked": post(b"Transfer-Encoding: xchunked\r\n", BODY),
    "quoted chunks": post(b'Transfer-Encoding: "chunked"\r\n', BODY),
    "chunks and a comma": post(b"Transfer-Encoding: chunked,\r\n", BODY),
    "a comma and chunks": post(b"Transfer-Encoding: ,chunked\r\n", BODY),
    "chunks with a parameter": post(b"Transfer-Encoding: chunked;q=1\r\n", BODY),
    "chunks behind a vertical tab": post(b"Transfer-Encoding: \x0bchunked\r\n", BODY),
    "no coding": post(b"Transfer-Encoding:\r\n", BODY),
    "chunks in HTTP/1.0": post(CHUNKED, BODY, b"POST / HTTP/1.0\r\n"),
    "chunks on a folded line": post(b"Transfer-Encoding:\r\n chunked\r\n", BODY),
    "chunks folded into another header": post(b"X-A: b\r\n Transfer-Encoding: chunked\r\n", BODY),
    "a folded header": post(b"X-A: b\r\n c\r\nContent-Length: 2\r\n"),
    "a space before the colon": post(b"Content-Length : 2\r\n"),
    "a tab before the colon": post(b"Content-Length\t: 2\r\n"),
    "a space before the colon of chunks": post(b"Transfer-Encoding : chunked\r\n", BODY),
    "a space before the first header": LINE + b" " + HEAD + b"Content-Length: 2\r\n\r\n{}",
    "a header without a colon": post(b"Nothing\r\nContent-Length: 2\r\n"),
    "a header without a name": post(b": x\r\nContent-Length: 2\r\n"),
    "NUL in a value": post(b"X-A: b\0c\r\nContent-Length: 2\r\n"),
    "NUL in a name": post(b"X\0A: b\r\nContent-Length: 2\r\n"),
    "a control character in a value": post(b"X-A: b\x01c\r\nContent-Length: 2\r\n"),
    "a bare CR": post(b"X-A: b\rContent-Length: 2\r\n"),
    "two CRs": post(b"X-A: b\r\r\nContent-Length: 2\r\n"),
    "Host twice": LINE + b"Host: localhost\r\n" + HEAD + b"Content-Length: 2\r\n\r\n{}",
    "no version": post(b"Content-Length: 2\r\n", line=b"POST /\r\n"),
    "HTTP/1.2": post(b"Content-Length: 2\r\n", line=b"POST / HTTP/1.2\r\n"),
    "HTTP/2.0": post(b"Content-Length: 2\r\n", line=b"POST / HTTP/2.0\r\n"),
    "two spaces in the first line": post(b"Content-Length: 2\r\n", line=b"POST  / HTTP/1.1\r\n"),
    "tabs in the first line": post(b"Content-Length: 2\r\n", line=b"POST\t/\tHTTP/1.1\r\n"),
    "NUL in the first line": post(b"Content-Length: 2\r\n", line=b"POST /\0 HTTP/1.1\r\n"),
    "a negative chunk": chunked(b"-2\r\n{}\r\n0\r\n\r\n"),
    "a chunk with a plus": chunked(b"+2\r\n{}\r\n0\r\n\r\n"),
    "a chunk with 0x": chunked(b"0x2\r\n{}\r\n0\r\n\r\n"),
    "a chunk without a size": chunked(b"\r\n{}\r\n0\r\n\r\n"),
    "a chunk of 2^64+2 bytes": chunked(b"10000000000000002\r\n{}\r\n0\r\n\r\n"),
    "a space before a chunk's size": chunked(b" 2\r\n{}\r\n0\r\n\r\n"),
    "a bare LF behind a chunk's size": chunked(b"2\n{}\r\n0\r\n\r\n"),
    "a bare LF in an extension": chunked(b"2;a\nb\r\n{}\r\n0\r\n\r\n"),
    "a bare CR in an extension": chunked(b"2;a\rb\r\n{}\r\n0\r\n\r\n"),
    "an extension of 20,000 bytes": chunked(b"2;" + b"a" * 20_000 + b"\r\n{}\r\n0\r\n\r\n"),
    "a bare LF behind a chunk": chunked(b"2\r\n{}\n0\r\n\r\n"),
    "two bytes instead of the end of a chunk": chunked(b"2\r\n{}xx0\r\n\r\n"),
    "bare LFs at the end": chunked(b"2\r\n{}\r\n0\n\n"),
    "a header behind the body": chunked(b"2\r\n{}\r\n0\r\nX-A: b\r\n\r\n"),
    "a length behind the body": chunked(b"2\r\n{}\r\n0\r\nContent-Length: 9\r\n\r\n"),
    "a folded header behind the body": chunked(b"2\r\n{}\r\n0\r\nX-A: b\r\n c\r\n\r\n"),
    "NUL behind the body": chunked(b"2\r\n{}\r\n0\r\nX-A: b\0\r\n\r\n"),
    "a request behind the body": chunked(b"2\r\n{}\r\n0\r\nGET / HTTP/1.1\r\n\r\n"),
}
GRANIAN_READS = {
    # Granian hides what happened: RFC 9112 lets a server read these, and the listener on h11 refuses them.
    "one length twice": (post(b"Content-Length: 2\r\nContent-Length: 2\r\n"), [200, 200]),
    "a bare LF behind a header": (post(b"X-A: b\nContent-Length: 2\r\n"), [200, 200]),
    "bare LFs only": (post(b"Content-Length: 2\r\n").replace(b"\r\n", b"\n"), [200, 200]),
    "a bare LF behind the first line": (post(b"Content-Length: 2\r\n", line=b"POST / HTTP/1.1\n"), [200, 200]),
    "a bare LF before the request": (b"\n" + post(b"Content-Length: 2\r\n"), [200, 200]),
    "NUL in an extension": (chunked(b"2;a\0b\r\n{}\r\n0\r\n\r\n"), [200, 200]),
    "a hundred zeros before a chunk's size": (chunked(b"0" * 100 + b"2\r\n{}\r\n0\r\n\r\n"), [200, 200]),
    # The chunks count, and granian closes: the second request is never read.
    "a length and chunks": (post(b"Content-Length: 2\r\n" + CHUNKED, BODY), [200]),
    "chunks and a length": (post(CHUNKED + b"Content-Length: 2\r\n", BODY), [200]),
}


def endpoints() -> list[Endpoint]:
    async def get(_: Request) -> Reply:
        return Reply(200, {})

    async def take(request: Request) -> Reply:
        return Reply(200, request.value())

    answers = (Answer(status=200, description="Fine"),)
    return [
        Endpoint(method="GET", path="/", call=get, name="get", summary="Get", answers=answers, about=KNOWN),
        Endpoint(
            method="POST", path="/", call=take, name="take", summary="Take", answers=answers, about=KNOWN, body=dict
        ),
    ]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def granian() -> AsyncIterator[int]:
    server = Server(app(endpoints()), ServerSettings(port=0))
    await server.start()
    yield server.port
    await server.stop(1)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def h11() -> AsyncIterator[int]:
    server = StreamServer(app(endpoints()), ServerSettings(port=0))
    await server.start()
    yield server.port
    await server.stop(1)


async def statuses(port: int, *pieces: bytes) -> list[int]:
    """The statuses of all replies until the server closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    said = b""
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        while piece := await asyncio.wait_for(reader.read(65_536), 30):
            said += piece
    except ConnectionError:
        pass
    finally:
        writer.close()
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d+)", said)]


@pytest.mark.parametrize("case", REFUSED)
async def test_what_two_parsers_may_read_differently_is_refused(granian: int, h11: int, case: str) -> None:
    for port in (granian, h11):
        assert await statuses(port, REFUSED[case] + SECOND) == [400]


@pytest.mark.parametrize("case", READ)
async def test_what_is_plain_is_read_alike(granian: int, h11: int, case: str) -> None:
    for port in (granian, h11):
        assert await statuses(port, READ[case] + SECOND) == [200, 200]


@pytest.mark.parametrize("case", GRANIAN_READS)
async def test_what_granian_does_not_show_is_read_in_one_way(granian: int, h11: int, case: str) -> None:
    text, answered = GRANIAN_READS[case]
    assert await statuses(granian, text + SECOND) == answered
    assert await statuses(h11, text + SECOND) == [400]


@pytest.mark.parametrize("case", ["two bytes instead of the end of a chunk", "a header behind the body"])
async def test_the_pieces_in_which_it_arrives_do_not_matter(granian: int, h11: int, case: str) -> None:
    text = REFUSED[case]
    for port in (granian, h11):
        for at in range(len(text) - 25, len(text)):
            assert (await statuses(port, text[:at], text[at:] + SECOND)) == [400], text[:at]


async def test_a_body_that_ends_with_the_connection_is_not_whole(granian: int, h11: int) -> None:
    for port in (granian, h11):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(chunked(b"2\r\n{}\r\n"))
        writer.write_eof()
        # A client that is gone may hear nothing; what counts is that no handler took the part for the whole.
        assert b" 200 " not in await asyncio.wait_for(reader.read(), 30)
        writer.close()


@pytest.mark.parametrize(("target", "status"), [(b"http://localhost/", 200), (b"http://evil.example/", 421)])
async def test_the_address_of_the_first_line_goes_before_host(
    granian: int, h11: int, target: bytes, status: int
) -> None:
    hosts = {200: b"evil.example", 421: b"localhost"}
    text = b"GET %b HTTP/1.1\r\nHost: %b\r\nConnection: close\r\n\r\n" % (target, hosts[status])
    for port in (granian, h11):
        assert await statuses(port, text) == [status]
