"""The outbound HTTP client against peers that answer, hang, drip, lie and go away."""

import asyncio
import gc
import gzip
import ssl
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
import trustme

from carillon.providers.http import MAX_BODY, HttpAnswer, HttpClient, MaybeSent, NotSent
from tests.support.peers import OK, Behaviour, Peer, closing, read_request, request, resetting, saying, silent
from tests.support.ports import free_port


async def call(
    http: HttpClient, behaviour: Behaviour, timeout_seconds: float = 30.0
) -> HttpAnswer | NotSent | MaybeSent:
    async with Peer(behaviour) as peer:
        return await http.post(request(peer.url, timeout_seconds=timeout_seconds))


async def test_an_answer_comes_whole(http: HttpClient) -> None:
    seen: list[bytes] = []

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            seen.append(await read_request(reader))
            writer.write(b"HTTP/1.1 202 Accepted\r\nRetry-After: 7\r\nSet-Cookie: a=b\r\nContent-Length: 3\r\n\r\nyes")

    async with Peer(echo) as peer:
        first = await http.post(request(f"{peer.url}a%2Fb?c=%20d"))
        await http.post(request(peer.url))
    assert isinstance(first, HttpAnswer)
    assert (first.status, first.ok, first.body, first.complete) == (202, True, b"yes", True)
    assert first.headers["retry-after"] == "7"
    assert seen[0].startswith(b"POST /a%2Fb?c=%20d HTTP/1.1\r\n")
    assert seen[0].endswith(b'\r\n\r\n{"a":1}')
    assert b"cookie" not in seen[1].lower()
    assert b"accept-encoding: identity" in seen[1].lower()


async def test_connections_are_kept(http: HttpClient) -> None:
    async def keep(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await read_request(reader)
            writer.write(OK)

    async with Peer(keep) as peer:
        for _ in range(5):
            assert isinstance(await http.post(request(peer.url)), HttpAnswer)
        assert peer.connections == 1


async def test_nobody_listens(http: HttpClient) -> None:
    failure = await http.post(request(f"http://127.0.0.1:{free_port()}/"))
    assert isinstance(failure, NotSent)
    assert failure.classification == "connect"


async def test_a_name_without_address(http: HttpClient) -> None:
    failure = await http.post(request("http://nowhere.invalid/", timeout_seconds=30))
    assert isinstance(failure, NotSent)
    assert failure.classification == "dns"


@pytest.mark.parametrize("url", ["", "http://", "nonsense", "http://[::1", "http://a:99999999/", "ftp://a.example/"])
async def test_a_url_that_is_none(http: HttpClient, url: str) -> None:
    assert isinstance(await http.post(request(url)), NotSent)


@pytest.mark.parametrize("value", ["a\r\nX-Evil: 1", "a\nb", "a\x00", "a\x0b", "\u2028", "caf\u00e9"])
async def test_a_header_that_would_break_out(http: HttpClient, value: str) -> None:
    async with Peer(silent) as peer:
        failure = await http.post(request(peer.url, headers={"Custom": value}))
        assert isinstance(failure, NotSent)
        assert failure.classification == "bad_request"
        assert isinstance(await http.post(request(peer.url, headers={"a b": "1"})), NotSent)
        assert peer.connections == 0


@pytest.mark.parametrize(
    ("behaviour", "classification"),
    [
        (closing, "connection_lost"),
        (resetting, "connection_lost"),
        (saying(), "connection_lost"),
        (saying(b"\x00\xff garbage \r\n\r\n"), "connection_lost"),
        (saying(b"HTTP/1.1 200 OK\r\nContent-"), "connection_lost"),
        (saying(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000 + b"\r\n\r\n"), "connection_lost"),
        (silent, "timeout"),
        (saying(b"HTTP/1.1 ", b"200 ", *[b"O"] * 100, pause=0.05), "timeout"),
    ],
    ids=["close", "reset", "read-close", "garbage", "half-head", "huge-head", "silent", "head-drip"],
)
async def test_no_status_may_still_mean_sent(http: HttpClient, behaviour: Behaviour, classification: str) -> None:
    failure = await call(http, behaviour, timeout_seconds=2.0 if classification == "timeout" else 30.0)
    assert isinstance(failure, MaybeSent)
    assert failure.classification == classification


@pytest.mark.parametrize(
    "behaviour",
    [
        saying(b"HTTP/1.1 201 Made\r\nContent-Length: 9999\r\n\r\npart"),
        saying(b"HTTP/1.1 201 Made\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart\r\n", b"nonsense", pause=0.05),
        saying(b"HTTP/1.1 201 Made\r\nContent-Length: 9999\r\n\r\npart", *[b"."] * 200, pause=0.05),
    ],
    ids=["cut", "bad-chunk", "drip"],
)
async def test_a_status_is_an_answer_whatever_follows(http: HttpClient, behaviour: Behaviour) -> None:
    answer = await call(http, behaviour, timeout_seconds=3.0)
    assert isinstance(answer, HttpAnswer)
    assert answer.status == 201
    assert not answer.complete
    assert answer.body.startswith(b"part")


@pytest.mark.parametrize(
    "behaviour", [silent, saying(b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n", *[b"."] * 500, pause=0.05)]
)
@pytest.mark.req("G-11")
async def test_one_deadline_covers_everything(http: HttpClient, behaviour: Behaviour) -> None:
    began = time.monotonic()
    await call(http, behaviour, timeout_seconds=0.5)
    # The peer would go on for twenty-five.
    assert 0.45 <= time.monotonic() - began < 15.0


def _bomb() -> list[bytes]:
    packed = gzip.compress(bytes(200 * 1024 * 1024), compresslevel=9)
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {len(packed)}\r\n\r\n"
    return [head.encode() + packed]


def _flood() -> list[bytes]:
    return [b"HTTP/1.1 200 OK\r\nContent-Length: 10000000000\r\n\r\n", *[bytes(65536)] * 1000]


@pytest.mark.parametrize("make", [_bomb, _flood])
@pytest.mark.req("G-11")
async def test_a_body_bomb_is_cut_and_its_connection_closed(http: HttpClient, make: Callable[[], list[bytes]]) -> None:
    pieces, peaks = make(), []
    async with Peer(saying(*pieces)) as peer:
        tracemalloc.start()
        try:
            for _ in range(3):
                gc.collect()
                before, _ = tracemalloc.get_traced_memory()
                tracemalloc.reset_peak()
                answer = await http.post(request(peer.url, timeout_seconds=60))
                peaks.append(tracemalloc.get_traced_memory()[1] - before)
                assert isinstance(answer, HttpAnswer)
                assert (answer.status, len(answer.body), answer.complete) == (200, MAX_BODY, False)
        finally:
            tracemalloc.stop()
        assert peer.connections == 3
    assert max(peaks) < 5 * 1024 * 1024


async def test_an_excerpt_is_one_printable_line(http: HttpClient) -> None:
    answer = await call(
        http, saying(b"HTTP/1.1 500 No\r\nConnection: close\r\n\r\na\r\nb\x00\x1b[31m\xff" + b"x" * 5000)
    )
    assert isinstance(answer, HttpAnswer)
    assert answer.excerpt().startswith("a b [31m\ufffdxxx")
    assert len(answer.excerpt()) <= 1024


async def test_a_kept_connection_that_died_is_not_retried_behind_our_back(http: HttpClient) -> None:
    requests = 0

    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal requests
        await read_request(reader)
        requests += 1
        writer.write(OK)
        await read_request(reader)
        requests += 1

    async with Peer(once) as peer:
        assert isinstance(await http.post(request(peer.url)), HttpAnswer)
        failure = await http.post(request(peer.url))
        assert isinstance(failure, MaybeSent)
        assert (requests, peer.connections) == (2, 1)


async def test_handles_that_change_hands_lose_no_answer(http: HttpClient) -> None:
    async def chat(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await read_request(reader):
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    async with Peer(chat) as peer:
        left = iter(range(2000))

        async def caller() -> int:
            return sum([isinstance(await http.post(request(peer.url)), HttpAnswer) for _ in left])

        async with asyncio.timeout(90):
            assert sum(await asyncio.gather(*(caller() for _ in range(150)))) == 2000


async def test_waiting_for_a_connection_is_not_sending() -> None:
    http = HttpClient(calls_per_host=1)
    async with Peer(silent) as peer:
        first = asyncio.create_task(http.post(request(peer.url, timeout_seconds=5.0)))
        await peer.visited.wait()
        second = await http.post(request(peer.url, timeout_seconds=0.2))
        assert isinstance(second, NotSent)
        assert isinstance(await first, MaybeSent)
    await http.aclose()


async def test_a_certificate_of_somebody_else_sends_nothing(tmp_path: Path) -> None:
    authority = trustme.CA()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("other.example").configure_cert(server)
    authority_file = tmp_path / "authority.pem"
    authority.cert_pem.write_to_path(str(authority_file))
    http = HttpClient(ca_file=str(authority_file))
    seen: list[bytes] = []

    async def record(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.read(100))

    async with Peer(record, tls=server) as peer:
        for one in (http, HttpClient()):
            failure = await one.post(request(peer.url))
            assert isinstance(failure, NotSent)
            assert failure.classification == "tls"
            await one.aclose()
    assert not any(seen)


async def test_plain_speech_to_a_tls_client_sends_nothing(http: HttpClient) -> None:
    async with Peer(silent) as peer:
        failure = await http.post(request(peer.url.replace("http:", "https:"), timeout_seconds=0.5))
    assert isinstance(failure, NotSent)
