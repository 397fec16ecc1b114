"""Rebinding, redirects and proxy variables against a canary that must never hear from us."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from ipaddress import ip_address
from pathlib import Path

import aiohttp
import pytest
import trustme

from carillon.providers.egress import BLOCKED_TEXT, EgressGuard, IPAddress, Rules, parse_networks, parse_ports
from carillon.providers.http import HttpAnswer, HttpClient, HttpRequest, NotSent
from tests.support.peers import Peer, saying
from tests.support.waiting import until

OPEN = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"
# 127.0.0.2 plays the public address, 127.0.0.1 the private one; both listen on the same port.
RULES = Rules(
    allow_http=True,
    allow_networks=parse_networks(["127.0.0.2/32"]),
    allow_ports=parse_ports(["1024-65535"]),
)


class Rebinding:
    """A name server that tells the truth once and then the attacker's wish."""

    def __init__(self) -> None:
        self.asked = 0

    async def __call__(self, _host: str, _port: int) -> list[IPAddress]:
        self.asked += 1
        return [ip_address("127.0.0.2" if self.asked == 1 else "127.0.0.1")]


class TrustingGuard(EgressGuard):
    """The naive way: one DNS look-up for the check, and a second one to connect."""

    async def addresses(self, host: str, port: int) -> list[IPAddress]:
        await super().addresses(host, port)
        return await self._resolve(host, port)


class SleepingGuard(TrustingGuard):
    """Naive, and without the second look at the socket."""

    def admits(self, address: IPAddress, port: int) -> bool:
        return self._resolve.asked > 1 or super().admits(address, port)  # type: ignore[attr-defined]


@pytest.fixture
async def public() -> AsyncIterator[Peer]:
    async with Peer(saying(OPEN), host="127.0.0.2") as peer:
        yield peer


@pytest.fixture
async def canary(public: Peer) -> AsyncIterator[Peer]:
    async with Peer(saying(OPEN), host="127.0.0.1", port=public.port) as peer:
        yield peer


async def call(http: HttpClient, url: str, guard: EgressGuard) -> object:
    return await http.post(HttpRequest(url=url, timeout_seconds=5, body=b"{}", guard=guard))


async def test_rebinding_never_reaches_the_canary(public: Peer, canary: Peer, http: HttpClient) -> None:
    names = Rebinding()
    guard = EgressGuard(RULES, names, keep_seconds=0.0)
    url = f"http://rebind.example:{public.port}/"
    first = await call(http, url, guard)
    assert isinstance(first, HttpAnswer)
    assert names.asked == 1
    for _ in range(3):
        assert await call(http, url, guard) == NotSent(BLOCKED_TEXT, "blocked_address")
    assert (public.connections, canary.connections) == (1, 0)


async def test_what_was_judged_is_what_is_called_while_it_is_kept(public: Peer, canary: Peer, http: HttpClient) -> None:
    names = Rebinding()
    guard = EgressGuard(RULES, names, keep_seconds=600.0)
    url = f"http://rebind.example:{public.port}/"
    answers = [await call(http, url, guard), *await asyncio.gather(*(call(http, url, guard) for _ in range(5)))]
    assert {type(answer) for answer in answers} == {HttpAnswer}
    assert (names.asked, public.connections, canary.connections) == (1, 6, 0)


async def test_what_was_kept_is_looked_up_and_judged_again_after_its_time(
    public: Peer, canary: Peer, http: HttpClient
) -> None:
    names = Rebinding()
    guard = EgressGuard(RULES, names, keep_seconds=0.05)
    url = f"http://rebind.example:{public.port}/"
    assert isinstance(await call(http, url, guard), HttpAnswer)

    async def blocked() -> bool:
        return await call(http, url, guard) == NotSent(BLOCKED_TEXT, "blocked_address")

    await until(blocked, timeout=40, what="a name that is looked up again")
    assert canary.connections == 0


async def test_those_who_ask_at_once_share_one_lookup_and_its_end(public: Peer, http: HttpClient) -> None:
    asked: list[asyncio.Event] = []
    beginning: asyncio.Queue[None] = asyncio.Queue()

    async def resolve(_host: str, _port: int) -> list[IPAddress]:
        asked.append(asyncio.Event())
        beginning.put_nowait(None)
        await asked[-1].wait()
        if len(asked) == 1:
            raise OSError("no answer from the name server")
        return [ip_address("127.0.0.2")]

    guard, url = EgressGuard(RULES, resolve), f"http://slow.example:{public.port}/"
    for outcome in (NotSent, HttpAnswer):
        calls = [asyncio.create_task(call(http, url, guard)) for _ in range(4)]
        await asyncio.wait_for(beginning.get(), 40)
        # One who gives up takes the answer from nobody.
        calls.pop(0).cancel()
        asked[-1].set()
        assert {type(found) for found in await asyncio.gather(*calls)} == {outcome}
    assert len(asked) == 2, "a failure is not kept"


async def test_the_socket_is_judged_even_if_the_lookup_was_fooled(public: Peer, canary: Peer, http: HttpClient) -> None:
    guard = TrustingGuard(RULES, Rebinding())
    blocked = await call(http, f"http://rebind.example:{public.port}/", guard)
    assert blocked == NotSent(BLOCKED_TEXT, "blocked_address")
    assert (public.connections, canary.connections) == (0, 0)


async def test_control_without_pinning_and_veto_the_canary_is_hit(public: Peer, canary: Peer, http: HttpClient) -> None:
    guard = SleepingGuard(RULES, Rebinding())
    assert isinstance(await call(http, f"http://rebind.example:{public.port}/", guard), HttpAnswer)
    assert (public.connections, canary.connections) == (0, 1)


async def test_literal_addresses_are_blocked_before_a_socket(canary: Peer, http: HttpClient) -> None:
    for host in ("127.0.0.1", "localhost", "2130706433", "127.1", "0x7f.0.0.1", "[::ffff:127.0.0.1]", "0.0.0.0"):  # noqa: S104 - called, not bound
        blocked = await call(http, f"http://{host}:{canary.port}/", EgressGuard(RULES))
        assert blocked == NotSent(BLOCKED_TEXT, "blocked_address")
    assert canary.connections == 0


async def test_a_connection_made_without_rules_never_serves_a_request_under_them(
    canary: Peer, http: HttpClient
) -> None:
    assert isinstance(await http.post(HttpRequest(url=canary.url, timeout_seconds=5)), HttpAnswer)
    assert isinstance(await call(http, canary.url, EgressGuard(RULES)), NotSent)
    assert canary.connections == 1


@pytest.mark.req("G-11")
async def test_redirects_are_answers(canary: Peer, http: HttpClient) -> None:
    moved = f"HTTP/1.1 307 Moved\r\nLocation: {canary.url}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    async with Peer(saying(moved.encode()), host="127.0.0.2") as peer:
        answer = await call(http, peer.url, EgressGuard(RULES))
        assert isinstance(answer, HttpAnswer)
        assert answer.status == 307
        assert canary.connections == 0
        async with aiohttp.ClientSession() as naive, naive.post(peer.url, allow_redirects=True):
            assert canary.connections == 1


async def test_proxy_variables_are_ignored(
    public: Peer, canary: Peer, http: HttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, canary.url)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    assert isinstance(await call(http, public.url, EgressGuard(RULES)), HttpAnswer)
    assert isinstance(await http.post(HttpRequest(url=public.url, timeout_seconds=5)), HttpAnswer)
    assert (public.connections, canary.connections) == (2, 0)
    async with aiohttp.ClientSession(trust_env=True) as naive, naive.post(public.url):
        assert (public.connections, canary.connections) == (2, 1)


@pytest.mark.parametrize(("certificate", "reached"), [("hooks.customer.example", True), ("127.0.0.2", False)])
async def test_the_certificate_is_checked_against_the_name_not_the_address(
    certificate: str, tmp_path: Path, *, reached: bool
) -> None:
    authority = trustme.CA()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(certificate).configure_cert(server)
    asked: list[str] = []
    server.sni_callback = lambda _socket, name, _context: asked.append(name)
    authority_file = tmp_path / "authority.pem"
    authority.cert_pem.write_to_path(str(authority_file))
    http = HttpClient(ca_file=str(authority_file))

    async def resolve(_host: str, _port: int) -> list[IPAddress]:
        return [ip_address("127.0.0.2")]

    async with Peer(saying(OPEN), host="127.0.0.2", tls=server) as peer:
        answer = await call(http, f"https://hooks.customer.example:{peer.port}/", EgressGuard(RULES, resolve))
    assert isinstance(answer, HttpAnswer) is reached
    assert asked == ["hooks.customer.example"]
    await http.aclose()
