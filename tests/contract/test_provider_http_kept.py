"""The outbound HTTP client's handles and connections, which serve one request after the other."""

import asyncio
import select
import socket

import pycurl
import pytest

from carillon.providers.curl import Limits, Transfers
from carillon.providers.egress import EgressGuard, Rules, parse_networks, parse_ports
from carillon.providers.http import Call, HttpAnswer, HttpClient, HttpRequest, MaybeSent, NotSent, Reply, header_lines
from tests.support.peers import OK, Peer, read_request, request, saying, silent
from tests.support.waiting import until


async def test_an_answer_to_somebody_who_was_just_cancelled_harms_no_other(http: HttpClient) -> None:
    troubles: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: troubles.append(context))
    there: dict[bytes, asyncio.StreamWriter] = {}

    async def together(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there[(await read_request(reader))[-1:]] = writer
        if len(there) == 3:
            # All in one breath, and in this order: they are read in one breath as well.
            for number in sorted(there):
                there[number].write(OK)

    def first(_reply: Reply) -> None:
        cancelled.cancel()

    async with Peer(together) as peer, asyncio.timeout(60):
        cancelled = asyncio.create_task(http.post(request(peer.url, b"2")))
        other = asyncio.create_task(http.post(request(peer.url, b"3")))
        http.start(request(peer.url, b"1"), first)
        answers = await asyncio.gather(cancelled, other, return_exceptions=True)
    assert isinstance(answers[0], asyncio.CancelledError)
    assert isinstance(answers[1], HttpAnswer)
    assert not troubles


async def test_a_call_given_up_is_not_told_and_its_handle_serves_nobody_else(http: HttpClient) -> None:
    told: list[Reply] = []
    async with Peer(silent) as peer, asyncio.timeout(60):
        call = http.start(request(peer.url), told.append)
        assert isinstance(call, Call)
        await peer.visited.wait()
        call.cancel()
        call.cancel()
    async with Peer(saying(OK)) as peer:
        assert isinstance(await http.post(request(peer.url)), HttpAnswer)
    assert not told


async def test_a_call_that_has_ended_cannot_end_the_next_one_on_its_handle(http: HttpClient) -> None:
    answered, go = asyncio.Event(), asyncio.Event()

    async def patient(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(OK)
        await read_request(reader)
        await go.wait()
        writer.write(OK)

    async with Peer(patient) as peer, asyncio.timeout(60):
        first = http.start(request(peer.url), lambda _reply: answered.set())
        await answered.wait()
        second = asyncio.create_task(http.post(request(peer.url)))
        await asyncio.sleep(0)
        assert isinstance(first, Call)
        first.cancel()
        go.set()
        assert isinstance(await second, HttpAnswer)


async def test_what_a_peer_closed_while_it_was_kept_wakes_nobody_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    woken, ready = 0, Transfers._ready  # noqa: SLF001 - a loop that spins shows nowhere else
    closed = asyncio.Event()

    def counted(self: Transfers) -> None:
        nonlocal woken
        woken += 1
        ready(self)

    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(OK)
        await closed.wait()
        writer.close()

    monkeypatch.setattr(Transfers, "_ready", counted)
    http = HttpClient()
    async with Peer(once) as peer:
        assert isinstance(await http.post(request(peer.url)), HttpAnswer)
        before = woken
        closed.set()

        async def noticed() -> bool:
            return woken > before

        await until(noticed, timeout=20, what="the end of the connection")
        for _ in range(200):
            await asyncio.sleep(0)
    await http.aclose()
    assert woken - before == 1


RULES = Rules(allow_http=True, allow_networks=parse_networks(["127.0.0.0/8"]), allow_ports=parse_ports(["1024-65535"]))
CLOSES = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"


@pytest.mark.parametrize("guard", [None, EgressGuard(RULES)], ids=["unguarded", "guarded"])
async def test_a_descriptors_number_that_comes_back_is_watched_anew(
    http: HttpClient, guard: EgressGuard | None
) -> None:
    async with Peer(saying(CLOSES)) as peer:
        for number in range(1, 6):
            calls = (http.post(request(peer.url, guard=guard)) for _ in range(3))
            answers = await asyncio.gather(*calls)
            assert all(isinstance(answer, HttpAnswer) for answer in answers), answers
            assert peer.connections == 3 * number


@pytest.mark.parametrize("heard_of", [True, False])
async def test_a_number_is_taken_for_the_same_socket_unless_a_new_one_was_heard_of(*, heard_of: bool) -> None:
    transfers = Transfers(Limits(1, 1, 100, None), EgressGuard(RULES).admits)
    for number in range(2):
        ours, theirs = socket.socketpair()
        with ours, theirs:
            if number == 0 or heard_of:
                transfers._opened(ours.fileno(), 0)  # noqa: SLF001 - libcurl's part is played here
            transfers._watch(pycurl.POLL_IN, ours.fileno(), transfers._multi, None)  # noqa: SLF001 - likewise
            theirs.send(b"x")
            watched = transfers._epoll.poll(0)  # noqa: SLF001 - likewise
            assert watched == ([(ours.fileno(), select.EPOLLIN)] if number == 0 or heard_of else [])
            transfers._watch(pycurl.POLL_REMOVE, ours.fileno(), transfers._multi, None)  # noqa: SLF001 - likewise
    transfers.close()


async def test_a_handle_forgets_the_answer_and_the_bounds_before(http: HttpClient) -> None:
    seen: list[bytes] = []

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while body := (await read_request(reader)).partition(b"\r\n\r\n")[2]:
            seen.append(body)
            if len(seen) < 3:
                writer.write(b"HTTP/1.1 200 OK\r\nX-Body: %b\r\nContent-Length: %d\r\n\r\n%b" % (body, len(body), body))

    async with Peer(echo) as peer:
        first = await http.post(request(peer.url, b"a long one"))
        second = await http.post(request(peer.url, b"short"))
        third = await http.post(request(peer.url, b"unanswered", timeout_seconds=0.3))
    assert isinstance(first, HttpAnswer)
    assert isinstance(second, HttpAnswer)
    assert [(one.body, one.headers["x-body"]) for one in (first, second)] == [
        (b"a long one", "a long one"),
        (b"short", "short"),
    ]
    assert isinstance(third, MaybeSent)
    assert third.classification == "timeout"
    assert seen == [b"a long one", b"short", b"unanswered"]


async def test_an_interim_answers_head_is_not_the_answers(http: HttpClient) -> None:
    interim = b"HTTP/1.1 103 Early: Hints\r\nRetry-After: 1\r\n\r\n"
    async with Peer(saying(interim + b"HTTP/1.1 200 a:b\r\nServer: x\r\nContent-Length: 0\r\n\r\n")) as peer:
        answer = await http.post(request(peer.url))
    assert isinstance(answer, HttpAnswer)
    assert answer.headers == {"server": "x", "content-length": "0"}
    async with Peer(saying(interim + b"HTTP/1.1 200 OK\r\nContent-")) as peer:
        assert isinstance(await http.post(request(peer.url)), MaybeSent)


async def test_lines_made_once_are_judged_as_all_are(http: HttpClient) -> None:
    seen: list[bytes] = []

    async def record(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await read_request(reader))
        writer.write(OK)

    fixed = header_lines({"X-Fixed": "1", "X-Empty": ""})
    async with Peer(record) as peer:
        asked = HttpRequest(url=peer.url, timeout_seconds=30.0, headers={"X-Own": "2"}, lines=fixed)
        assert isinstance(await http.post(asked), HttpAnswer)
    assert b"\r\nX-Fixed: 1\r\nX-Empty:\r\nX-Own: 2\r\n" in seen[0]
    for headers in ({"a": "b\r\nX-Evil: 1"}, {"a b": "1"}, {"": "1"}):
        with pytest.raises(ValueError, match="forbidden"):
            header_lines(headers)


async def test_two_deadlines_end_in_their_order(http: HttpClient) -> None:
    """The timer of the later one stands already when the earlier one asks for its own."""
    ended: list[str] = []

    async def call(url: str, name: str, seconds: float) -> None:
        assert not isinstance(await http.post(request(url, timeout_seconds=seconds)), HttpAnswer | NotSent)
        ended.append(name)

    async with Peer(silent) as peer, asyncio.timeout(60):
        later = asyncio.create_task(call(peer.url, "later", 1.2))
        await peer.visited.wait()
        await call(peer.url, "earlier", 0.2)
        await later
    assert ended == ["earlier", "later"]


async def test_a_deadline_holds_although_an_earlier_ones_timer_still_stands(http: HttpClient) -> None:
    async with Peer(saying(OK)) as quick, Peer(silent) as slow, asyncio.timeout(60):
        assert isinstance(await http.post(request(quick.url, timeout_seconds=0.3)), HttpAnswer)
        assert isinstance(await http.post(request(slow.url, timeout_seconds=0.9)), MaybeSent)
