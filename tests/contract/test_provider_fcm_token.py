"""FCM's access tokens: fetched once for all who wait, renewed in time, replaced when refused."""

import asyncio
import base64
import json
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest

from carillon.domain.claims import Dispatch
from carillon.domain.outcomes import Refused, Sent, Unavailable
from carillon.providers import Tools, load
from carillon.providers.fcm.send import Fcm
from carillon.providers.http import HttpClient
from tests.support.clocks import ManualClock
from tests.support.dispatches import dispatch
from tests.support.fcm_stub import SCOPE, FcmStub, fcm_error, recorded
from tests.support.vendor import Reply

START = 1_700_000_000.0
LIFE = 3599.0
DEVICE = "fcm_device_token_xyz123"
NOT_USABLE = "no access token: HTTP 200 without a usable token"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START)


@pytest.fixture
def stub(tmp_path: Path) -> Iterator[FcmStub]:
    with FcmStub(tmp_path / "fcm.jsonl") as stub:
        stub.now = START
        yield stub


@pytest.fixture
async def fcm(stub: FcmStub, clock: ManualClock, tmp_path: Path) -> AsyncIterator[Fcm]:
    http = HttpClient()
    options = {"base_url": stub.url, "credentials_file": stub.key_file(tmp_path)}
    provider = load("fcm", "fcm", options, Tools(clock, lambda: 0.5, http))
    assert isinstance(provider, Fcm)
    yield provider
    await provider.aclose()
    await http.aclose()


def push(**fields: Any) -> Dispatch:
    return dispatch(address=DEVICE, channel="push", **fields)


def bearers(stub: FcmStub) -> list[str]:
    return [entry["headers"]["authorization"].removeprefix("Bearer ya29.") for entry in stub.sends]


async def landed(fcm: Fcm) -> None:
    """Wait until a renewal that nobody waits for is over: nothing outside tells it."""
    flight = fcm._tokens._fetching  # type: ignore[union-attr]  # noqa: SLF001 - as the sentence says
    if flight is not None:
        await asyncio.wait({flight.task})


def later(stub: FcmStub, clock: ManualClock, seconds: float) -> None:
    clock.now = START + seconds
    stub.now = clock.now


async def test_the_question_is_the_one_googles_library_asks(stub: FcmStub, fcm: Fcm) -> None:
    await fcm.send(push())
    [entry] = stub.token_requests
    form = dict(parse_qsl(entry["body"]))
    header, claims = (json.loads(base64.urlsafe_b64decode(part + "==")) for part in form["assertion"].split(".")[:2])
    oracle = recorded()["token_request"]
    assert (entry["method"], entry["headers"]["content-type"]) == ("POST", oracle["content_type"])
    assert sorted(form) == oracle["fields"]
    assert form["grant_type"] == oracle["grant_type"]
    assert header == oracle["header"]
    assert claims["iat"] == int(START)
    assert claims.pop("exp") - claims.pop("iat") == oracle["lifetime"]
    # We ask for less than Google's library does.
    assert claims == oracle["claims"] | {"scope": SCOPE}
    assert SCOPE in recorded()["scopes"]


async def test_one_token_serves_all_who_wait_and_all_who_follow(stub: FcmStub, fcm: Fcm) -> None:
    gate = threading.Event()
    stub.answer(lambda entry: Reply(gate=gate, body=stub._grant(entry).body), path="/token")  # noqa: SLF001 - held back
    calls = [asyncio.create_task(fcm.send(push())) for _ in range(50)]
    await stub.until(1)
    gate.set()
    assert all(isinstance(outcome, Sent) for outcome in await asyncio.gather(*calls))
    await fcm.send(push())
    assert len(stub.token_requests) == 1
    assert set(bearers(stub)) == {"stub-1"}


async def test_it_is_renewed_while_the_old_one_still_serves(stub: FcmStub, fcm: Fcm, clock: ManualClock) -> None:
    await fcm.send(push())
    later(stub, clock, LIFE - 301)
    await fcm.send(push())
    assert len(stub.token_requests) == 1
    later(stub, clock, LIFE - 299)
    gate = threading.Event()
    stub.answer(lambda entry: Reply(gate=gate, body=stub._grant(entry).body), path="/token")  # noqa: SLF001 - held back
    assert isinstance(await fcm.send(push()), Sent)
    assert isinstance(await fcm.send(push()), Sent)
    assert len(await stub.until(2, lambda entry: entry["path"] == "/token")) == 2
    assert bearers(stub)[-1] == "stub-1"
    gate.set()
    await landed(fcm)
    await fcm.send(push())
    assert bearers(stub)[-1] != "stub-1"
    assert len(stub.token_requests) == 2


async def test_a_renewal_that_fails_is_not_felt_before_the_end(stub: FcmStub, fcm: Fcm, clock: ManualClock) -> None:
    await fcm.send(push())
    stub.answer(*[Reply(503, body=b"")] * 2, path="/token")
    for seconds, asked in ((LIFE - 299, 2), (LIFE - 295, 2), (LIFE - 288, 3)):
        later(stub, clock, seconds)
        assert isinstance(await fcm.send(push()), Sent)
        await stub.until(asked, lambda entry: entry["path"] == "/token")
        await landed(fcm)
        assert len(stub.token_requests) == asked
    assert set(bearers(stub)) == {"stub-1"}
    later(stub, clock, LIFE)
    assert isinstance(await fcm.send(push()), Sent)
    assert bearers(stub)[-1] == "stub-2"


async def test_an_ended_token_is_never_used(stub: FcmStub, fcm: Fcm, clock: ManualClock) -> None:
    await fcm.send(push())
    for seconds in (LIFE - 5, 10 * LIFE):
        stub.live.clear()
        later(stub, clock, seconds)
        assert isinstance(await fcm.send(push()), Sent)
    assert bearers(stub) == ["stub-1", "stub-2", "stub-3"]


async def test_a_refused_token_is_replaced_once_for_everybody(stub: FcmStub, fcm: Fcm) -> None:
    await fcm.send(push())
    stub.live.clear()
    outcomes = await asyncio.gather(*(fcm.send(push()) for _ in range(20)))
    assert all(isinstance(outcome, Sent) for outcome in outcomes)
    assert len(stub.token_requests) == 2
    taken = [entry for entry in stub.sends if entry["status"] == 200]
    assert (len(stub.sends), len(taken)) == (1 + 20 + 20, 21)


async def test_who_learns_late_of_a_refused_token_takes_the_new_one(stub: FcmStub, fcm: Fcm) -> None:
    await fcm.send(push())
    gate = threading.Event()
    stub.live.clear()
    stub.answer(Reply(401, body=b"", gate=gate), path="/v1")
    late = asyncio.create_task(fcm.send(push()))
    await stub.until(3)
    assert isinstance(await fcm.send(push()), Sent)
    gate.set()
    assert isinstance(await late, Sent)
    assert len(stub.token_requests) == 2


async def test_a_refusal_that_a_new_token_does_not_mend(stub: FcmStub, fcm: Fcm) -> None:
    stub.answer(*[Reply(401, body=b"")] * 9, path="/v1")
    outcome = await fcm.send(push())
    assert isinstance(outcome, Refused)
    assert (outcome.classification, outcome.recipient_gone) == ("bad_credentials", False)
    assert (len(stub.sends), len(stub.token_requests)) == (2, 2)


async def test_somebody_elses_credential_is_not_our_token(stub: FcmStub, fcm: Fcm) -> None:
    stub.devices[DEVICE] = fcm_error("THIRD_PARTY_AUTH_ERROR")
    assert isinstance(await fcm.send(push()), Refused)
    assert (len(stub.sends), len(stub.token_requests)) == (1, 1)


@pytest.mark.parametrize(
    ("reply", "classification", "text"),
    [
        (Reply(503, {"Retry-After": "7"}, b""), "token_unavailable", "no access token: HTTP 503"),
        (
            Reply(400, body={"error": "invalid_grant", "error_description": "Invalid JWT Signature."}),
            "token_refused",
            "no access token: HTTP 400 invalid_grant Invalid JWT Signature.",
        ),
        (Reply(reset=True), "token_unavailable", "no access token: "),
        (Reply(200, body=b"nonsense"), "token_unavailable", NOT_USABLE),
        (Reply(200, body=b"[1]"), "token_unavailable", NOT_USABLE),
        (Reply(200, body={"access_token": ""}), "token_unavailable", NOT_USABLE),
        (Reply(200, body={"access_token": 7}), "token_unavailable", NOT_USABLE),
        (Reply(200, body={"access_token": "a\r\nX-B: c"}), "token_unavailable", NOT_USABLE),
        (Reply(302, {"Location": "/elsewhere"}, b""), "token_refused", "no access token: HTTP 302"),
    ],
)
async def test_without_a_token_nothing_is_sent(
    stub: FcmStub, fcm: Fcm, reply: Reply, classification: str, text: str
) -> None:
    stub.answer(reply, path="/token")
    outcome = await fcm.send(push())
    assert isinstance(outcome, Unavailable)
    assert outcome.classification == classification
    assert outcome.error.startswith(text)
    assert outcome.retry_after == (7.0 if reply.status == 503 else None)
    assert not stub.sends
    assert isinstance(await fcm.send(push()), Sent)


async def test_a_refused_token_and_no_other(stub: FcmStub, fcm: Fcm) -> None:
    await fcm.send(push())
    stub.live.clear()
    stub.answer(Reply(500, body=b""), path="/token")
    outcome = await fcm.send(push())
    assert isinstance(outcome, Unavailable)
    assert outcome.classification == "token_unavailable"
    assert len(stub.sends) == 2


async def test_who_gives_up_takes_nobody_along(stub: FcmStub, fcm: Fcm) -> None:
    gate = threading.Event()
    stub.answer(lambda entry: Reply(gate=gate, body=stub._grant(entry).body), path="/token")  # noqa: SLF001 - held back
    patient = asyncio.create_task(fcm.send(push()))
    hasty = asyncio.create_task(fcm.send(push(timeout_seconds=0.1)))
    cancelled = asyncio.create_task(fcm.send(push()))
    await stub.until(1)
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    assert await hasty == Unavailable("no access token within 0.1 s", "token_timeout")
    gate.set()
    assert isinstance(await patient, Sent)
    assert len(stub.token_requests) == 1


async def test_the_last_to_give_up_ends_the_fetch(stub: FcmStub, fcm: Fcm) -> None:
    stub.answer(Reply(hang=True), path="/token")
    calls = [asyncio.create_task(fcm.send(push())) for _ in range(2)]
    await stub.until(1)
    for call in calls:
        call.cancel()
    await asyncio.wait(calls)
    assert isinstance(await fcm.send(push()), Sent)
    assert len(stub.token_requests) == 2


async def test_nobody_boards_a_fetch_that_was_given_up(stub: FcmStub, fcm: Fcm) -> None:
    stub.answer(Reply(hang=True), path="/token")
    # No turn of the loop lies between the two: the first fetch has not heard of its end.
    assert isinstance(await fcm.send(push(timeout_seconds=0.1)), Unavailable)
    assert isinstance(await fcm.send(push()), Sent)


async def test_who_gives_up_does_not_end_a_renewal(stub: FcmStub, fcm: Fcm, clock: ManualClock) -> None:
    await fcm.send(push())
    later(stub, clock, LIFE - 299)
    gate = threading.Event()
    stub.answer(lambda entry: Reply(gate=gate, body=stub._grant(entry).body), path="/token")  # noqa: SLF001 - held back
    await fcm.send(push())
    await stub.until(2, lambda entry: entry["path"] == "/token")
    stub.live.discard("ya29.stub-1")
    assert isinstance(await fcm.send(push(timeout_seconds=0.2)), Unavailable)
    gate.set()
    await landed(fcm)
    assert isinstance(await fcm.send(push()), Sent)
    assert len(stub.token_requests) == 2


async def test_closing_ends_a_fetch_under_way(stub: FcmStub, fcm: Fcm) -> None:
    stub.answer(Reply(hang=True), path="/token")
    call = asyncio.create_task(fcm.send(push()))
    await stub.until(1)
    await fcm.aclose()
    assert isinstance(await call, Unavailable)


@pytest.mark.parametrize(("given", "lasts"), [(None, 3600), ("x", 3600), (-1, 3600), (0, 3600), (60, 60), (1.5, 1.5)])
async def test_how_long_a_token_lasts(stub: FcmStub, fcm: Fcm, clock: ManualClock, given: Any, lasts: float) -> None:
    stub.token_seconds = given
    await fcm.send(push())
    later(stub, clock, lasts * 0.49)
    await fcm.send(push())
    assert len(stub.token_requests) == 1
    later(stub, clock, lasts)
    await fcm.send(push())
    assert len(stub.token_requests) == 2
