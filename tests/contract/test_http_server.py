"""The servers and the application around endpoints, over real sockets."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from carillon.domain.errors import BadIntent, ConfigurationError, LedgerUnavailable, Overloaded
from carillon.web import (
    ADMINISTRATORS,
    EVERYBODY,
    KNOWN,
    Answer,
    Endpoint,
    JwtSettings,
    Reply,
    Request,
    Server,
    ServerSettings,
    WebSettings,
    app,
)
from carillon.web.h11_server import StreamServer
from tests.unit.test_web_auth import SECRET, token

GET = b"GET /ok HTTP/1.1\r\nHost: localhost\r\n\r\n"
Either = Server | StreamServer


@pytest.fixture(params=[Server, StreamServer], autouse=True)
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test holds for both."""
    monkeypatch.setitem(globals(), "Kind", request.param)


Kind: type[Either] = Server


class Desk:
    """Endpoints that wait for the test."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.leave = asyncio.Event()

    async def ok(self, request: Request) -> Reply:
        return Reply(200, {"sub": request.caller.sub})

    async def wait(self, _: Request) -> Reply:
        self.entered.set()
        await self.leave.wait()
        return Reply(200, {"waited": True})

    async def read(self, request: Request) -> Reply:
        self.entered.set()
        return Reply(200, request.value())

    async def fail(self, request: Request) -> Reply:
        errors = {
            "ledger": LedgerUnavailable("down"),
            "full": Overloaded("full"),
            "intent": BadIntent("TEMPLATE_NOT_FOUND", "none"),
            "bug": RuntimeError("SELECT secret FROM vault"),
        }
        raise errors[request.params["how"]]

    def endpoints(self) -> list[Endpoint]:
        return [
            _endpoint("GET", "/ok", self.ok),
            _endpoint("GET", "/wait", self.wait),
            _endpoint("POST", "/read", self.read, body=dict),
            _endpoint("GET", "/fail/{how}", self.fail),
            _endpoint("GET", "/admin", self.ok, about=ADMINISTRATORS),
            _endpoint("GET", "/alive", self.ok, always=True, about=EVERYBODY),
        ]


def _endpoint(method: str, path: str, call: Any, **more: Any) -> Endpoint:
    answers = (Answer(status=200, description="Fine"),)
    return Endpoint(
        method=method, path=path, call=call, name=path, summary=path, answers=answers, **{"about": KNOWN, **more}
    )


@asynccontextmanager
async def serving(desk: Desk, web: WebSettings | None = None, **server: Any) -> AsyncIterator[Either]:
    running = Kind(app(desk.endpoints(), web), ServerSettings(**{"port": 0, **server}))
    await running.start()
    try:
        yield running
    finally:
        desk.leave.set()
        await running.stop(5)


async def get(server: Either, path: str, **headers: str) -> tuple[int, dict[str, str], Any]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{server.port}{path}", headers=headers) as response,
    ):
        text = await response.text()
        return response.status, {name.lower(): value for name, value in response.headers.items()}, json.loads(text)


async def talk(server: Either, *pieces: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    for piece in pieces:
        writer.write(piece)
        await writer.drain()
    answer = await asyncio.wait_for(reader.read(), 30)
    writer.close()
    return answer


async def test_a_free_port_is_taken_and_told() -> None:
    async with serving(Desk()) as one, serving(Desk()) as other:
        assert 0 != one.port != other.port != 0
        assert (await get(one, "/ok"))[0] == 200


async def test_a_port_in_use_stops_the_start() -> None:
    async with serving(Desk()) as server:
        with pytest.raises(ConfigurationError, match="cannot listen"):
            await Kind(app([]), ServerSettings(port=server.port)).start()


@pytest.mark.parametrize("host", ["localhost", "0.0.0.0", "::1"])  # noqa: S104 - every address is one of the cases
async def test_a_name_and_every_kind_of_address_is_listened_on(host: str) -> None:
    async with serving(Desk(), host=host) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1" if host == "0.0.0.0" else host, server.port)  # noqa: S104
        writer.write(GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        assert (await asyncio.wait_for(reader.read(), 30)).startswith(b"HTTP/1.1 200 ")
        writer.close()


async def test_a_port_can_be_shared_by_those_who_all_say_so() -> None:
    async with serving(Desk(), share_port=True) as one, serving(Desk(), share_port=True, port=one.port) as other:
        assert one.port == other.port
        assert (await get(one, "/ok"))[0] == 200
        await other.stop(1)
        statuses = [(await get(one, "/ok"))[0] for _ in range(20)]
        assert statuses == [200] * 20


@pytest.mark.req("G-06")
async def test_stopping_lets_a_running_request_finish_and_takes_no_new_one() -> None:
    desk = Desk()
    async with serving(desk) as server:
        running = asyncio.create_task(get(server, "/wait"))
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        await desk.entered.wait()
        stopping = asyncio.create_task(server.stop(60))
        assert await asyncio.wait_for(reader.read(), 30) == b""
        with pytest.raises(OSError, match="Connect"):
            await asyncio.open_connection("127.0.0.1", server.port)
        assert not stopping.done()
        desk.leave.set()
        assert (await running)[2] == {"waited": True}
        await asyncio.wait_for(stopping, 30)
        writer.close()


async def test_a_request_that_outlives_the_grace_is_told_to_come_back() -> None:
    desk = Desk()
    async with serving(desk) as server:
        running = asyncio.create_task(get(server, "/wait"))
        await desk.entered.wait()
        await asyncio.wait_for(server.stop(0.05), 30)
        status, headers, body = await running
        assert (status, body["error"]["code"]) == (503, "UNAVAILABLE")
        assert "retry-after" in headers


async def test_a_client_that_leaves_in_mid_body_leaves_no_trace(caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk()
    with caplog.at_level(logging.WARNING):
        async with serving(desk) as server:
            _, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(b"POST /read HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n")
            writer.write(b"Content-Length: 50\r\n\r\n{")
            await writer.drain()
            # Answered behind the head of the other: by then the server waits for the rest of the body.
            assert (await get(server, "/ok"))[0] == 200
            writer.transport.abort()
            assert (await get(server, "/ok"))[0] == 200
    assert not caplog.records


async def test_broken_chunks_are_a_bad_request() -> None:
    async with serving(Desk()) as server:
        head = b"POST /read HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"
        answer = await talk(server, head + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 400 ")


async def test_a_slow_head_and_a_slow_body_are_cut_off() -> None:
    async with serving(Desk(), WebSettings(body_seconds=0.2), head_seconds=0.5) as server:
        # Granian hangs up without a word; the listener on h11 says why.
        said = await talk(server, b"GET /ok HTTP/1.1\r\nHo")
        assert said == b"" if isinstance(server, Server) else said.startswith(b"HTTP/1.1 408 ")
        head = b"POST /read HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        assert b" 408 " in await talk(server, head + b"Content-Length: 9\r\n\r\n{")


async def test_a_head_too_large_is_refused() -> None:
    async with serving(Desk()) as server:
        long = GET.replace(b"\r\n\r\n", b"\r\nX: " + b"x" * 20_000 + b"\r\n\r\n")
        assert (await talk(server, long)).startswith(b"HTTP/1.1 431 ")
        many = GET.replace(b"\r\n\r\n", b"\r\n" + b"".join(b"X-%d: x\r\n" % n for n in range(120)) + b"\r\n")
        assert (await talk(server, many)).startswith(b"HTTP/1.1 431 ")


async def test_too_many_at_once_are_turned_away_before_their_body_is_read() -> None:
    desk = Desk()
    async with serving(desk, WebSettings(max_in_flight=1)) as server:
        running = asyncio.create_task(get(server, "/wait"))
        await desk.entered.wait()
        head = b"POST /read HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(head + b"Content-Length: 9\r\n\r\n")
        answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: 1" in answer
        writer.close()
        assert (await get(server, "/alive"))[0] == 200
        desk.leave.set()
        assert (await running)[0] == 200
        assert (await get(server, "/ok"))[0] == 200


@pytest.mark.parametrize(("how", "status"), [("ledger", 503), ("full", 503), ("intent", 404), ("bug", 500)])
async def test_errors_become_problems_without_their_insides(how: str, status: int) -> None:
    async with serving(Desk()) as server:
        found, headers, body = await get(server, f"/fail/{how}", **{"X-Correlation-Id": "c-1"})
        assert (found, body["status"], body["error"]["traceId"]) == (status, status, "c-1")
        assert ("retry-after" in headers) == (status == 503)
        assert "secret" not in json.dumps(body)


async def test_rates_are_limited_when_asked_to() -> None:
    async with serving(Desk(), WebSettings(requests_per_second=0.01, requests_burst=2)) as server:
        answers = [await get(server, "/ok") for _ in range(3)]
        assert [status for status, _, _ in answers] == [200, 200, 429]
        assert int(answers[2][1]["retry-after"]) > 1
        assert (await get(server, "/alive"))[0] == 200


async def test_callers_behind_a_proxy_are_limited_one_by_one() -> None:
    limits = WebSettings(requests_per_second=0.01, requests_burst=1)
    behind = WebSettings(requests_per_second=0.01, requests_burst=1, trusted_proxies=("127.0.0.0/8",))
    async with serving(Desk(), behind) as server:
        # What stands further left in the header is the caller's own word.
        for address, status in [("192.0.2.1", 200), ("192.0.2.2", 200), ("192.0.2.9, 192.0.2.1", 429)]:
            assert (await get(server, "/ok", **{"X-Forwarded-For": address}))[0] == status
        assert (await get(server, "/ok", **{"X-Forwarded-For": "192.0.2.3, 127.0.0.5"}))[0] == 200
    async with serving(Desk(), limits) as server:
        told = [(await get(server, "/ok", **{"X-Forwarded-For": f"192.0.2.{number}"}))[0] for number in (1, 2)]
        assert told == [200, 429]


async def test_only_loopback_names_are_served_without_a_secret() -> None:
    async with serving(Desk(), WebSettings(allowed_hosts=("bell.example",))) as server:
        for host, status in [("localhost", 200), ("[::1]:80", 200), ("bell.example", 200), ("evil.example", 421)]:
            assert (await get(server, "/ok", Host=host))[0] == status
    async with serving(Desk(), WebSettings(jwt=JwtSettings(secret=SECRET))) as server:
        assert (await get(server, "/alive", Host="evil.example"))[0] == 200


@pytest.mark.req("S2-15")
async def test_tokens_roles_and_failed_logins() -> None:
    web = WebSettings(jwt=JwtSettings(secret=SECRET), auth_failures_per_minute=3)
    async with serving(Desk(), web) as server:
        assert (await get(server, "/ok", Authorization=f"Bearer {token()}"))[2] == {"sub": "ada"}
        assert (await get(server, "/admin", Authorization=f"Bearer {token()}"))[0] == 403
        assert (await get(server, "/admin", Authorization=f"Bearer {token(role='admin')}"))[0] == 200
        assert [(await get(server, "/ok", Authorization="Bearer x"))[0] for _ in range(4)] == [401, 401, 401, 429]
        assert (await get(server, "/ok", Authorization=f"Bearer {token()}"))[0] == 200
        assert (await get(server, "/openapi.json", Authorization=f"Bearer {token()}"))[0] == 200
        assert (await get(server, "/openapi.json"))[0] in {401, 429}
    async with serving(Desk(), WebSettings(docs=False)) as server:
        assert (await get(server, "/openapi.json"))[0] == 404


async def test_the_page_and_the_document_are_served_under_a_strict_policy() -> None:
    async with serving(Desk()) as server, aiohttp.ClientSession() as session:
        for path in ("/docs", "/docs/style.css", "/docs/schema.js", "/docs/docs.js", "/openapi.json"):
            async with session.get(f"http://127.0.0.1:{server.port}{path}") as response:
                assert response.status == 200
                policy = response.headers["Content-Security-Policy"]
                assert "unsafe" not in policy
                assert "http" not in policy
                text = await response.text()
                assert "https://" not in text.replace("https://example.org", "")
                assert " style=" not in text
                assert "onclick=" not in text
