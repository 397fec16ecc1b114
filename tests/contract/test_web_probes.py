"""The surface of probes alone, over real sockets: two answers, three deadlines, and nothing else."""

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import chain, repeat
from typing import Any

import h11
import pytest
import uvloop
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from carillon.domain.errors import ConfigurationError
from carillon.domain.events import Event, PartStarted, PartStopped, RequestServed
from carillon.upkeep.health import Readiness, probes
from carillon.web import ProbeServer, ServerSettings
from carillon.web.http_exchange import HeadReader
from tests.support.examples import examples

GET = b"GET /healthz HTTP/1.1\r\nHost: probe\r\n\r\n"
STALLED = b"GET /healthz HTTP/1.1\r\nHost: pro"
SLOW_BODY = b"POST /healthz HTTP/1.1\r\nHost: probe\r\nContent-Length: 60000\r\n\r\n"
DROP_SECONDS = 0.02


class Stand:
    """A listener with what it told."""

    def __init__(self, **patience: Any) -> None:
        self.readiness = Readiness()
        self.readiness.ready = True
        self.events: list[Event] = []
        self.server = ProbeServer(probes(self.readiness), ServerSettings(**{"port": 0, **patience}), self.events.append)

    def served(self) -> list[tuple[str, str, int]]:
        return [(event.method, event.path, event.status) for event in self.events if isinstance(event, RequestServed)]


@asynccontextmanager
async def standing(**patience: Any) -> AsyncIterator[Stand]:
    stand = Stand(**patience)
    await stand.server.start()
    try:
        yield stand
    finally:
        await stand.server.stop(0.1)


async def talk(stand: Stand, *pieces: bytes) -> tuple[bytes, float]:
    """Say all of it, then listen until the other side hangs up; the seconds this took."""
    return await drip(stand, chain(pieces, repeat(b"")))


async def drip(stand: Stand, pieces: Iterator[bytes]) -> tuple[bytes, float]:
    """Say one piece after another, slowly, for as long as anybody listens."""
    reader, writer = await asyncio.open_connection("127.0.0.1", stand.server.port)
    began, heard = time.monotonic(), b""
    try:
        while True:
            writer.write(next(pieces))
            try:
                said = await asyncio.wait_for(reader.read(65_536), DROP_SECONDS)
            except TimeoutError:
                continue
            if not said:
                return heard, time.monotonic() - began
            heard += said
    except ConnectionError:
        return heard, time.monotonic() - began
    finally:
        writer.close()


async def ask(stand: Stand, method: str, path: str) -> tuple[int, dict[str, str], bytes]:
    text, _ = await talk(stand, f"{method} {path} HTTP/1.1\r\nHost: probe\r\nConnection: close\r\n\r\n".encode())
    head, _, body = text.partition(b"\r\n\r\n")
    line, *fields = head.decode().split("\r\n")
    return int(line.split()[1]), {name.lower(): value for name, value in (f.split(": ", 1) for f in fields)}, body


@pytest.mark.req("S1-09", "S1-10")
async def test_the_two_probes_say_exactly_this() -> None:
    async with standing() as stand:
        status, headers, body = await ask(stand, "GET", "/healthz")
        assert (status, headers["content-type"], body) == (200, "application/json", b'{"status":"ok"}')
        status, headers, body = await ask(stand, "GET", "/readyz?verbose=1")
        assert (status, headers["content-type"], body) == (200, "application/json", b'{"status":"ready"}')


async def test_readiness_is_what_the_process_says_of_itself() -> None:
    async with standing() as stand:
        stand.readiness.ready = False
        assert (await ask(stand, "GET", "/readyz"))[::2] == (503, b'{"status":"draining"}')
        assert (await ask(stand, "GET", "/healthz"))[0] == 200


@pytest.mark.req("S1-12", "S1-13", "S1-179")
@pytest.mark.parametrize(
    "path",
    ["/metrics", "/", "/health", "/docs", "/openapi.json", "/healthz/", "/HEALTHZ", "//healthz", "/%68ealthz", "*"],
)
async def test_nothing_else_is_served(path: str) -> None:
    async with standing() as stand:
        status, headers, body = await ask(stand, "GET", path)
        assert (status, headers["content-type"]) == (404, "application/problem+json")
        assert json.loads(body)["title"] == "Not Found"


@pytest.mark.req("S1-13")
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "get", "BREW"])
async def test_other_methods_are_not_allowed(method: str) -> None:
    async with standing() as stand:
        status, headers, _ = await ask(stand, method, "/readyz")
        assert (status, headers["allow"]) == (405, "GET, HEAD")


async def test_head_is_get_without_a_body() -> None:
    async with standing() as stand:
        status, headers, body = await ask(stand, "HEAD", "/healthz")
        assert (status, headers["content-length"], body) == (200, "15", b"")


@pytest.mark.req("S1-15")
async def test_start_requests_and_stop_are_told() -> None:
    async with standing() as stand:
        await ask(stand, "GET", "/healthz")
        await ask(stand, "POST", "/nowhere")
    assert isinstance(stand.events[0], PartStarted)
    assert stand.events[0].detail == f"127.0.0.1:{stand.server.port}"
    assert stand.served() == [("GET", "/healthz", 200), ("POST", "/nowhere", 404)]
    assert isinstance(stand.events[-1], PartStopped)


@pytest.mark.req("S1-16")
async def test_a_head_that_does_not_come_is_cut_off() -> None:
    async with standing(head_seconds=0.4, read_seconds=30, idle_seconds=30) as stand:
        for pieces in ([STALLED], [b""], [b"\r\n\r\n"]):
            _, seconds = await talk(stand, *pieces)
            assert 0.35 < seconds < 20.0, pieces
        _, seconds = await drip(stand, chain([STALLED], repeat(b"b")))
        assert 0.35 < seconds < 20.0, "every byte is a sign of life and none buys time"
        assert stand.served()[0] == ("-", "-", 408)


@pytest.mark.req("S1-16")
async def test_a_body_that_does_not_come_is_cut_off_later() -> None:
    async with standing(head_seconds=1.0, read_seconds=3.0, idle_seconds=30) as stand:
        heard, seconds = await drip(stand, chain([SLOW_BODY], repeat(b"x")))
        assert heard.startswith(b"HTTP/1.1 408 ")
        assert 2.8 < seconds < 20.0


@pytest.mark.req("S1-16")
async def test_a_kept_connection_may_be_silent_for_longer_than_a_head_may_take() -> None:
    async with standing(head_seconds=1.0, read_seconds=1.5, idle_seconds=4.0) as stand:
        heard, seconds = await talk(stand, GET)
        assert heard.startswith(b"HTTP/1.1 200 OK")
        assert b"connection: close" not in heard.lower()
        assert 3.8 < seconds < 20.0
    async with standing(head_seconds=1.0, read_seconds=1.5, idle_seconds=60) as stand:
        heard, seconds = await talk(stand, GET, STALLED)
        assert heard.count(b"HTTP/1.1") == 2
        assert b"HTTP/1.1 408 " in heard
        assert seconds < 20.0, "the second head has a head's time, not the idle time"


async def test_requests_on_one_connection_are_answered_in_order() -> None:
    async with standing(idle_seconds=30) as stand:
        heard, _ = await talk(
            stand,
            GET + b"POST /readyz HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nGET /",
            b"\r\nGET http://any.example/readyz HTTP/1.1\r\nHost: a\r\n\r\nGET /x HTTP/1.0\r\n\r\n" + GET,
        )
        assert stand.served() == [
            ("GET", "/healthz", 200),
            ("POST", "/readyz", 405),
            ("GET", "/readyz", 200),
            ("GET", "/x", 404),
        ]
        assert heard.count(b"HTTP/1.1 ") == 4, "nothing is served after a connection was to be closed"


@pytest.mark.parametrize(
    ("text", "status"),
    [
        (b"GET /healthz HTTP/1.1\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"GET /healthz HTTP/2.0\r\nHost: a\r\n\r\n", 400),
        (b"GET  /healthz HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nHost : a\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nHost: a\nX: b\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nHost: a\x00\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nHost: a\x01\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nHost: a\rX: b\r\n\r\n", 400),
        (b"GET /heal\xe9 HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999\r\n\r\n", 413),
        (b"GET /healthz HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 20_000 + b"\r\n\r\n", 431),
        (b"POST /healthz HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", 405),
        (b"POST /healthz HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n", 405),
        (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", 400),
    ],
)
async def test_what_is_not_plainly_right_is_refused_and_hung_up_on(text: bytes, status: int) -> None:
    async with standing(head_seconds=60, idle_seconds=60) as stand:
        heard, seconds = await talk(stand, text + GET)
        assert heard.startswith(f"HTTP/1.1 {status} ".encode())
        assert heard.count(b"HTTP/1.1 ") == 1, "what stands behind it is not read as a request"
        assert seconds < 30


async def test_stopping_lets_what_has_begun_finish_and_takes_nothing_new() -> None:
    async with standing() as stand:
        reader, writer = await asyncio.open_connection("127.0.0.1", stand.server.port)
        writer.write(GET[:-2])
        silent, quiet = await asyncio.open_connection("127.0.0.1", stand.server.port)
        quiet.write(GET)
        await silent.readuntil(b'"ok"}')
        stopping = asyncio.create_task(stand.server.stop(60))
        assert await silent.read() == b"", "a silent connection is closed at once"
        with pytest.raises(ConnectionError):
            await asyncio.open_connection("127.0.0.1", stand.server.port)
        writer.write(b"\r\n")
        assert b"connection: close" in (await reader.read()).lower()
        writer.close()
        quiet.close()
        await stopping


async def test_stopping_does_not_wait_for_ever() -> None:
    async with standing(head_seconds=60) as stand:
        reader, writer = await asyncio.open_connection("127.0.0.1", stand.server.port)
        writer.write(STALLED)
        await asyncio.wait_for(stand.server.stop(0.1), 30)
        assert await reader.read() == b""
        writer.close()


async def test_more_connections_than_allowed_are_turned_away() -> None:
    async with standing(max_connections=1, read_seconds=30) as stand:
        reader, writer = await asyncio.open_connection("127.0.0.1", stand.server.port)
        writer.write(GET + SLOW_BODY)
        # Behind the first reply the second request has begun.
        await reader.readuntil(b'"ok"}')
        heard, _ = await talk(stand, GET)
        assert heard == b""
        writer.close()


async def test_an_idle_connection_makes_room_for_another() -> None:
    async with standing(max_connections=1, idle_seconds=30) as stand:
        reader, writer = await asyncio.open_connection("127.0.0.1", stand.server.port)
        writer.write(GET)
        await reader.readuntil(b'"ok"}')
        assert (await ask(stand, "GET", "/healthz"))[0] == 200
        assert await asyncio.wait_for(reader.read(), 30) == b""
        writer.close()


async def test_a_port_in_use_stops_the_start() -> None:
    async with standing() as stand:
        with pytest.raises(ConfigurationError, match="cannot listen"):
            await Stand(port=stand.server.port).server.start()


async def test_a_flood_of_requests_whose_answers_nobody_reads_ends() -> None:
    async with standing(idle_seconds=0.3, head_seconds=0.3, write_seconds=0.3) as stand:
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", stand.server.port))
        _, writer = await asyncio.open_connection(sock=client, limit=1)

        async def pour() -> None:
            while True:
                writer.write(GET * 100)
                await writer.drain()

        with pytest.raises(ConnectionError):
            await asyncio.wait_for(pour(), 60)
        writer.close()


@examples(300, *HealthCheck)
@given(st.lists(st.sampled_from([b"GET", b" ", b"/healthz", b"HTTP/1.1", b"\r\n", b"Host: a", b":", b"\x00", b"7"])))
def test_a_head_in_pieces_is_read_or_refused_as_it_is_in_one(pieces: list[bytes]) -> None:
    def read(parts: list[bytes]) -> bytes | None:
        reader, found = HeadReader(16_384), None
        for part in parts:
            found = reader.feed(part)
            if found is not None:
                break
        return found

    text = b"".join(pieces)
    try:
        whole = read([text])
    except h11.RemoteProtocolError:
        with pytest.raises(h11.RemoteProtocolError):
            read([text[at : at + 1] for at in range(len(text))])
    else:
        bytewise = read([text[at : at + 1] for at in range(len(text))])
        assert (bytewise is None) == (whole is None)
        assert whole is None or (bytewise is not None and whole.startswith(bytewise))


def test_the_loop_that_serves_in_earnest_serves_the_same() -> None:
    async def scenario() -> None:
        async with standing(head_seconds=1.0, read_seconds=2.0, idle_seconds=1.5) as stand:
            assert (await ask(stand, "GET", "/healthz"))[::2] == (200, b'{"status":"ok"}')
            heard, seconds = await talk(stand, GET)
            assert heard.startswith(b"HTTP/1.1 200 OK")
            assert 1.4 < seconds < 20.0
            heard, _ = await drip(stand, chain([SLOW_BODY], repeat(b"x")))
            assert heard.startswith(b"HTTP/1.1 408 ")
            heard, _ = await talk(stand, STALLED)
            assert heard.startswith(b"HTTP/1.1 408 ")
        assert isinstance(stand.events[-1], PartStopped)

    uvloop.run(scenario())
