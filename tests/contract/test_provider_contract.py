"""What every provider promises, whatever the other side does."""

import asyncio
import dataclasses
import json
import re
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from carillon.domain.claims import Dispatch
from carillon.domain.outcomes import Outcome, Refused, Sent, Throttled, Unavailable, Unknown
from carillon.domain.ports import Provider
from carillon.providers import kinds, load
from carillon.providers.http import HttpClient
from tests.support import fcm_stub, sns_stub, twilio_stub
from tests.support.dispatches import LOOPBACK, SECRET, dispatch, tools
from tests.support.peers import Behaviour, Peer, closing, read_request, resetting, saying, saying_on_accept, silent
from tests.support.ports import free_port
from tests.support.waiting import some_turns

# Apprise loads every plugin at once, one of which still asks for a module that Python is retiring.
pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
DEADLINE = 0.6
IN_TIME = DEADLINE + 15.0
"""When a provider that keeps its deadline has answered on the slowest machine; no peer below ends its talk so soon."""
DEVICE = {"address": "device-1", "channel": "push"}
PHONE = {"address": "+14155550100", "channel": "sms"}


@dataclass(frozen=True)
class Subject:
    """One way to configure a kind: how to aim it at a port, a peer that takes its messages, where its id is."""

    kind: str
    options: Callable[[int], dict[str, Any]]
    fields: Callable[[int], dict[str, Any]]
    willing: Behaviour
    identity: Callable[[bytes], str] | None
    """Finds in what the peer heard the id that every repeat must carry; None where the wire has no place for one."""


HEARD: list[bytes] = []
REDISES: list[Redis] = []


async def _http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        HEARD.append(await read_request(reader))
        writer.write(OK)


async def _accepting(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        HEARD.append(await read_request(reader))
        writer.write(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")


async def _smtp(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"220 willing\r\n")
    while line := await reader.readline():
        if line.upper().startswith(b"DATA"):
            writer.write(b"354 go on\r\n")
            HEARD.append(await reader.readuntil(b"\r\n.\r\n"))
        writer.write(b"250 fine\r\n")


async def _redis(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while line := await reader.readline():
        parts = [await reader.readuntil(b"\r\n") for _ in range(2 * int(line[1:]))]
        if parts[1] == b"XADD\r\n":
            HEARD.append(b"".join(parts[1::2]))
            writer.write(b"$3\r\n1-0\r\n")
        else:
            writer.write(b"+OK\r\n")


def _find(pattern: bytes) -> Callable[[bytes], str]:
    def find(heard: bytes) -> str:
        found = re.search(pattern + rb": *(.+?)\r\n", heard, re.IGNORECASE)
        assert found is not None
        return found[1].decode()

    return find


def _endpoint(port: int) -> dict[str, Any]:
    return {"address": f"http://127.0.0.1:{port}/in"}


SUBJECTS = {
    "webhook": Subject("webhook", lambda _: {"secrets": [SECRET], **LOOPBACK}, _endpoint, _http, _find(rb"webhook-id")),
    "x-webhook": Subject(
        "webhook",
        lambda _: {"secrets": ["s"], "scheme": "x-webhook", **LOOPBACK},
        _endpoint,
        _http,
        _find(rb"x-webhook-event-id"),
    ),
    "smtp": Subject(
        "smtp",
        lambda port: {
            "url": f"smtp://127.0.0.1:{port}?starttls=0",
            "sender": "a@b.example",
            "local_hostname": "me.test",
        },
        lambda _: {"address": "ada@example.com", "channel": "email"},
        _smtp,
        _find(rb"message-id"),
    ),
    "redis_stream": Subject(
        "redis_stream",
        lambda _: {"stream": "events", "encoder": "id"},
        lambda _: {},
        _redis,
        lambda heard: heard.split(b"\r\n")[4].decode(),
    ),
    "sendgrid": Subject(
        "sendgrid",
        lambda port: {"base_url": f"http://127.0.0.1:{port}", "api_key": "SG.x", "sender": "a@b.example"},
        lambda _: {"address": "ada@example.com", "channel": "email"},
        _accepting,
        lambda heard: str(json.loads(heard.split(b"\r\n\r\n", 1)[1])["custom_args"]["carillonRoute"]),
    ),
    "fcm": Subject("fcm", fcm_stub.options_for, lambda _: DEVICE, fcm_stub.willing(HEARD), fcm_stub.tag_in),
    "fcm legacy": Subject(
        "fcm",
        lambda port: {"base_url": f"http://127.0.0.1:{port}", "server_key": "k"},
        lambda _: DEVICE,
        fcm_stub.willing(HEARD),
        None,
    ),
    "twilio": Subject("twilio", twilio_stub.options_for, lambda _: PHONE, _http, twilio_stub.callback_in),
    "sns": Subject("sns", sns_stub.options_for, lambda _: PHONE, _http, None),
    "acs": Subject(
        "acs",
        lambda port: {"endpoint": f"http://127.0.0.1:{port}", "access_key": "a2V5", "sender": "a@b.example"},
        lambda _: {"address": "ada@example.com", "channel": "email"},
        _accepting,
        _find(rb"operation-id"),
    ),
    "apprise": Subject("apprise", lambda port: {"url": f"json://127.0.0.1:{port}/"}, lambda _: {}, _http, None),
}
WITHOUT_ADDRESS = {"apprise", "redis_stream"}
# The sandbox and the inbox have no other side; they are tested on their own.
WITHOUT_PEER = {"inbox", "sandbox", "sse"}

BEHAVIOURS: dict[str, Behaviour] = {
    "close": closing,
    "reset": resetting,
    "silence": silent,
    "garbage": saying_on_accept(b"\x00\xff\x00\xff\r\n\r\n"),
    "garbage after the request": saying(b"\xff" * 1000),
    "half an answer": saying(b"HTTP/1.1 2"),
    "drip": saying(*[b"2"] * 2000, pause=0.02),
    "one endless line": saying_on_accept(b"2" * 20_000_000),
}


@pytest.fixture(params=SUBJECTS)
def subject(request: pytest.FixtureRequest) -> Subject:
    HEARD.clear()
    return SUBJECTS[request.param]


@pytest.fixture
async def http() -> AsyncIterator[HttpClient]:
    client = HttpClient()
    yield client
    await client.aclose()
    while REDISES:
        await REDISES.pop().aclose()


def make(subject: Subject, http: HttpClient, port: int) -> Provider:
    redis = Redis(port=port, protocol=2, retry=Retry(NoBackoff(), 0))
    REDISES.append(redis)
    encoders = {"id": lambda claim: {"event_id": claim.idempotency_key}}
    given = dataclasses.replace(tools(http), redis=redis, encoders=encoders)
    return load("under-test", subject.kind, subject.options(port), given)


def call(subject: Subject, port: int, timeout_seconds: float = DEADLINE, **fields: Any) -> Dispatch:
    return dispatch(timeout_seconds=timeout_seconds, **subject.fields(port) | fields)


def test_every_kind_is_held_to_the_contract() -> None:
    held = {subject.kind for subject in SUBJECTS.values()} | WITHOUT_PEER
    assert not set(kinds()) - held, "add the new kind to SUBJECTS"


async def test_a_willing_peer_gets_the_message(subject: Subject, http: HttpClient) -> None:
    async with Peer(subject.willing) as peer:
        provider = make(subject, http, peer.port)
        assert isinstance(await provider.send(call(subject, peer.port, 5.0)), Sent)
        assert len(HEARD) == 1
        await provider.aclose()


async def test_every_repeat_carries_the_same_id(subject: Subject, http: HttpClient) -> None:
    if subject.identity is None:
        return
    async with Peer(subject.willing) as peer:
        for attempt in (1, 2):
            # A new provider each time: the repeat may come from another process.
            provider = make(subject, http, peer.port)
            await provider.send(call(subject, peer.port, 5.0, attempt=attempt, token=attempt))
            await provider.aclose()
        provider = make(subject, http, peer.port)
        await provider.send(call(subject, peer.port, 5.0, notification_id="another"))
        await provider.aclose()
    first, second, other = map(subject.identity, HEARD)
    assert first == second != other


async def test_nobody_listens(subject: Subject, http: HttpClient) -> None:
    port = free_port()
    provider = make(subject, http, port)
    assert isinstance(await provider.send(call(subject, port, 5.0)), Unavailable)
    await provider.aclose()


@pytest.mark.parametrize("name", BEHAVIOURS)
async def test_it_answers_in_time_whatever_the_peer_does(subject: Subject, http: HttpClient, name: str) -> None:
    async with Peer(BEHAVIOURS[name]) as peer:
        provider = make(subject, http, peer.port)
        for _ in range(2):
            began = time.monotonic()
            outcome: Outcome = await provider.send(call(subject, peer.port))
            assert time.monotonic() - began < IN_TIME
            assert isinstance(outcome, Unavailable | Unknown)
            assert len(outcome.error) <= 1100
        await provider.aclose()


async def test_the_deadline_is_used_and_kept(subject: Subject, http: HttpClient) -> None:
    async with Peer(silent) as peer:
        provider = make(subject, http, peer.port)
        began = time.monotonic()
        await provider.send(call(subject, peer.port))
        assert DEADLINE * 0.9 <= time.monotonic() - began < IN_TIME
        await provider.aclose()


async def test_a_cancelled_call_is_cancelled_and_leaves_nothing_behind(subject: Subject, http: HttpClient) -> None:
    async with Peer(silent) as peer:
        provider = make(subject, http, peer.port)
        # More than any bound on concurrent calls, fewer than Apprise has threads, which nothing can cancel.
        for _ in range(7):
            task = asyncio.create_task(provider.send(call(subject, peer.port, 5.0)))
            peer.visited.clear()
            await peer.visited.wait()
            # In the very turn in which a connection is made, wait_for of Python 3.11 swallows a cancellation.
            await some_turns(10)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        began = time.monotonic()
        assert not isinstance(await provider.send(call(subject, peer.port)), Throttled)
        assert time.monotonic() - began < IN_TIME
        await provider.aclose()


@pytest.mark.parametrize("address", [None, "", "\x00", "a\r\nb", "http://[", "://", "a@b@c", "é", "x" * 10_000])
async def test_an_address_that_is_none(subject: Subject, http: HttpClient, address: str | None) -> None:
    if subject.kind in WITHOUT_ADDRESS:
        return
    provider = make(subject, http, free_port())
    assert isinstance(await provider.send(call(subject, 1, address=address)), Refused)
    await provider.aclose()


async def test_closing_twice_is_fine(subject: Subject, http: HttpClient, tmp_path: Path) -> None:
    made = [make(subject, http, 1), load("s", "sandbox", {"ledger_path": str(tmp_path / "l")}, tools(http))]
    for provider in made:
        await provider.aclose()
        await provider.aclose()
