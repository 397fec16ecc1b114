"""The Twilio provider over the wire, beside Twilio's own client."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest
from twilio.http.http_client import TwilioHttpClient
from twilio.rest import Client

from carillon.domain.decide import Standing, decide
from carillon.domain.errors import ConfigurationError
from carillon.domain.notifications import Message
from carillon.domain.outcomes import Outcome, Refused, Sent, Throttled, Unavailable, Unknown
from carillon.domain.policy import RetryPolicy
from carillon.domain.ports import Probed
from carillon.domain.verdicts import Bury, FailOver
from carillon.providers import channels, load
from carillon.providers.http import HttpClient
from carillon.providers.twilio.send import Twilio
from tests.support.dispatches import dispatch, tools
from tests.support.ports import free_port
from tests.support.twilio_stub import ACCOUNT, RECIPIENT, SENDER, TOKEN, TwilioStub, error
from tests.support.vendor import Reply

CALLBACK = "https://notify.example/api/v1/webhooks/twilio/sms-status"
NOW = 1_700_000_100.0


@pytest.fixture
def stub(tmp_path: Path) -> Iterator[TwilioStub]:
    with TwilioStub(tmp_path / "twilio.jsonl") as stub:
        yield stub


def twilio(http: HttpClient, url: str, **options: Any) -> Twilio:
    given = {"base_url": url, "account_sid": ACCOUNT, "auth_token": TOKEN, "sender": SENDER}
    provider = load("Twilio", "twilio", given | options, tools(http, wall=NOW))
    assert isinstance(provider, Twilio)
    return provider


def text(address: str | None = RECIPIENT, **fields: Any) -> Any:
    return dispatch(address=address, channel="sms", route_id="sms:user-7", **fields)


class Redirected(TwilioHttpClient):  # type: ignore[misc] # ships no types
    """Twilio's own client, aimed at the stub."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url

    def request(self, method: str, url: str, *given: Any, **named: Any) -> Any:
        return super().request(method, url.replace("https://api.twilio.com", self._url), *given, **named)


@pytest.mark.req("S2-54")
async def test_a_message_arrives(stub: TwilioStub, http: HttpClient) -> None:
    provider = twilio(http, f"{stub.url}/", status_callback=CALLBACK)
    outcome = await provider.send(text())
    assert outcome == Sent(message_id=f"SM{0:032x}")
    [entry] = stub.entries
    assert (entry["method"], entry["path"]) == ("POST", f"/2010-04-01/Accounts/{ACCOUNT}/Messages.json")
    assert dict(parse_qsl(entry["body"])) == {
        "To": RECIPIENT,
        "From": SENDER,
        "Body": "Your table is ready.",
        "StatusCallback": CALLBACK,
    }
    assert channels("twilio") == frozenset({"sms"})


@pytest.mark.req("S2-54")
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"status_callback": CALLBACK},
        {"sender": None, "messaging_service_sid": "MG0123"},
        {"messaging_service_sid": "MG0123", "status_callback": f"{CALLBACK}?a=b&c=%20d"},
    ],
)
@pytest.mark.parametrize("body", ["Table 7", "ü €5 & more = 100% + x\r\ny", "\U0001f514 " + "x" * 1600, "a%20b~*.-_ "])
async def test_the_bytes_are_those_of_twilios_own_client(
    stub: TwilioStub, http: HttpClient, options: dict[str, Any], body: str
) -> None:
    await twilio(http, stub.url, **options).send(text(message=Message(text=body)))
    sender = {"sender": SENDER} | options
    named = {"from_": sender["sender"], "messaging_service_sid": options.get("messaging_service_sid")}
    named |= {"status_callback": options.get("status_callback")}
    theirs = Client(ACCOUNT, TOKEN, http_client=Redirected(stub.url))
    theirs.messages.create(to=RECIPIENT, body=body, **{name: value for name, value in named.items() if value})
    ours, other = stub.entries
    for part in ("method", "path", "body"):
        assert ours[part] == other[part]
    for name in ("authorization", "content-type", "accept", "content-length"):
        assert ours["headers"][name] == other["headers"][name]
    assert ours["status"] == other["status"] == 201


@pytest.mark.parametrize(
    ("reply", "outcome"),
    [
        (error(20003, "Authenticate"), Refused("HTTP 401 20003 Authenticate", "credentials")),
        (error(20005), Refused("HTTP 403 20005 as documented", "account_inactive")),
        (error(21211), Refused("HTTP 400 21211 as documented", "invalid_number", recipient_gone=True)),
        (error(21610), Refused("HTTP 400 21610 as documented", "opted_out", recipient_gone=True)),
        (error(21614), Refused("HTTP 400 21614 as documented", "not_mobile", recipient_gone=True)),
        (error(21635), Refused("HTTP 400 21635 as documented", "landline", recipient_gone=True)),
        (error(30006), Refused("HTTP 400 30006 as documented", "landline", recipient_gone=True)),
        (error(30007), Refused("HTTP 400 30007 as documented", "filtered")),
        (error(30003), Unavailable("HTTP 400 30003 as documented", "unreachable")),
        (error(30005), Refused("HTTP 400 30005 as documented", "unknown_handset")),
        (error(30008), Unknown("HTTP 400 30008 as documented", "unknown_error")),
        (error(21617), Refused("HTTP 400 21617 as documented", "too_long")),
        (error(21611), Throttled("HTTP 400 21611 as documented", 60.0)),
        (error(20429), Throttled("HTTP 429 20429 as documented", None)),
        (error(20429, Retry_After="7"), Throttled("HTTP 429 20429 as documented", 7.0)),
        (error(14107), Throttled("HTTP 429 14107 as documented", 30.0)),
        (error(20500), Unavailable("HTTP 500 20500 as documented", "unavailable")),
        (error(20503, Retry_After="9"), Unavailable("HTTP 503 20503 as documented", "unavailable", 9.0)),
        (error(99999), Refused("HTTP 400 99999 as documented", "http_400")),
        (Reply(429, body=b""), Throttled("HTTP 429", None)),
        (Reply(408, body=b""), Unknown("HTTP 408", "http_408")),
        (Reply(502, body="<html>bad gateway"), Unavailable("HTTP 502 <html>bad gateway", "http_502")),
        (Reply(503, body=b"\xff\xfe"), Unavailable("HTTP 503 \ufffd\ufffd", "http_503")),
        (Reply(401, body=b"{"), Refused("HTTP 401 {", "credentials")),
        (Reply(302, {"Location": "/elsewhere"}, b""), Unavailable("HTTP 302", "http_302")),
        (Reply(201, body=b""), Sent()),
        (Reply(201, body=b'{"sid": 7}'), Sent()),
        (
            Reply(201, body={"sid": "SM1", "status": "failed", "error_code": 21610, "error_message": "STOP"}),
            Refused("HTTP 201 21610 STOP", "opted_out", recipient_gone=True),
        ),
        (
            Reply(201, body={"sid": "SM1", "status": "undelivered", "error_code": None}),
            Refused('HTTP 201 {"sid": "SM1", "status": "undelivered", "error_code": null}', "http_400"),
        ),
    ],
)
async def test_what_answers_mean(stub: TwilioStub, http: HttpClient, reply: Reply, outcome: Outcome) -> None:
    stub.answer(reply)
    assert await twilio(http, stub.url).send(text()) == outcome
    assert len(stub.entries) == 1


@pytest.mark.parametrize(
    ("address", "classification", "gone", "verdict"),
    [
        ("+15005550001", "invalid_number", True, FailOver),
        ("+15005550002", "unroutable", False, FailOver),
        ("+15005550003", "region_not_enabled", False, FailOver),
        ("+15005550004", "opted_out", True, Bury),
        ("+15005550009", "not_mobile", True, FailOver),
    ],
)
async def test_twilios_test_numbers(
    stub: TwilioStub, http: HttpClient, address: str, classification: str, verdict: type, *, gone: bool
) -> None:
    outcome = await twilio(http, stub.url).send(text(address))
    assert isinstance(outcome, Refused)
    assert (outcome.classification, outcome.recipient_gone) == (classification, gone)
    # Another vendor may know a number that this one does not; a person who opted out must not be asked again.
    policy = RetryPolicy(max_attempts=6, on_refused="fail_over")
    standing = Standing(attempt=1, attempts_here=1, max_attempts=6, age_seconds=0.0, next_provider="AWS_SNS", dice=0.5)
    assert isinstance(decide(outcome, policy, standing), verdict)


async def test_operators_overrule_the_table(stub: TwilioStub, http: HttpClient) -> None:
    answers = {
        "21610": {"outcome": "unavailable", "classification": "ours"},
        "4xx": {"outcome": "throttled", "classification": "wait", "wait_seconds": 3},
    }
    provider = twilio(http, stub.url, answers=answers)
    stub.answer(error(21610), error(99999), error(21211))
    assert await provider.send(text()) == Unavailable("HTTP 400 21610 as documented", "ours")
    assert await provider.send(text()) == Throttled("HTTP 400 99999 as documented", 3.0)
    assert isinstance(await provider.send(text()), Refused)


async def test_silence_after_sending_is_unknown_and_before_it_is_not(stub: TwilioStub, http: HttpClient) -> None:
    stub.answer(Reply(hang=True), Reply(reset=True))
    provider = twilio(http, stub.url)
    timed_out = await provider.send(text(timeout_seconds=2.0))
    assert timed_out == Unknown("no answer within 2 s", classification="timeout")
    assert isinstance(await provider.send(text()), Unknown)
    nobody = twilio(http, f"http://127.0.0.1:{free_port()}")
    assert isinstance(await nobody.send(text()), Unavailable)
    assert len(stub.entries) == 2


async def test_a_status_counts_even_when_its_body_never_ends(stub: TwilioStub, http: HttpClient) -> None:
    gate = threading.Event()
    stub.answer(Reply(201, body=b'{"sid": "SM1"}' + b" " * 100, drip=0.05), Reply(201, gate=gate))
    provider = twilio(http, stub.url)
    assert isinstance(await provider.send(text(timeout_seconds=2.0)), Sent)
    # The control: without a status nothing is known.
    assert isinstance(await provider.send(text(timeout_seconds=2.0)), Unknown)
    gate.set()


@pytest.mark.parametrize("address", [None, "", "ada@example.com", "4155550100", "+0123", "+1415555010\n", "+1" * 20])
async def test_what_is_no_number_is_never_sent(stub: TwilioStub, http: HttpClient, address: str | None) -> None:
    outcome = await twilio(http, stub.url).send(text(address))
    assert isinstance(outcome, Refused)
    assert outcome.classification == "bad_address"
    assert isinstance(await twilio(http, stub.url).send(text(message=None)), Refused)
    assert not stub.entries


async def test_the_callback_can_carry_the_messages_id(stub: TwilioStub, http: HttpClient) -> None:
    for url in (CALLBACK, f"{CALLBACK}?a=b", f"{CALLBACK}#rc=2"):
        provider = twilio(http, stub.url, status_callback=url, callback_key="message")
        for attempt in (1, 2):
            await provider.send(text(attempt=attempt))
    urls = [form["StatusCallback"] for form in stub.messages.values()]
    carried = "message=0191f0a0-0000-7000-8000-000000000001%2Fsms%3Auser-7"
    assert (
        urls[::2] == urls[1::2] == [f"{CALLBACK}?{carried}", f"{CALLBACK}?a=b&{carried}", f"{CALLBACK}?{carried}#rc=2"]
    )


@pytest.mark.req("S2-61")
async def test_a_probe_asks_about_the_account_and_sends_nobody_anything(stub: TwilioStub, http: HttpClient) -> None:
    provider = twilio(http, stub.url)
    assert isinstance(provider, Probed)
    assert await provider.probe() is None
    stub.account_status = "suspended"
    assert await provider.probe() == "the account is suspended"
    assert await twilio(http, stub.url, auth_token="wrong").probe() == "HTTP 401 20003 Authenticate"
    stub.answer(Reply(500, body="down"))
    assert await provider.probe() == "HTTP 500 down"
    assert "connect" in str(await twilio(http, f"http://127.0.0.1:{free_port()}").probe())
    assert {(entry["method"], entry["path"]) for entry in stub.entries} == {
        ("GET", f"/2010-04-01/Accounts/{ACCOUNT}.json")
    }
    assert not stub.messages


async def test_an_error_never_quotes_the_token(stub: TwilioStub, http: HttpClient) -> None:
    provider = twilio(http, stub.url)
    stub.answer(error(20003, f"{TOKEN} is wrong"), Reply(500, body=f"{TOKEN}"))
    for _ in range(2):
        assert TOKEN not in str(await provider.send(text()))
    assert TOKEN not in f"{provider!r} {vars(provider)!r}"


@pytest.mark.parametrize(
    ("options", "callback"),
    [
        ({"status_callback": "/in", "public_base_url": "https://notify.example/a/"}, "https://notify.example/a/in"),
        ({"status_callback": "/in"}, None),
        ({"public_base_url": "https://notify.example"}, None),
    ],
)
async def test_a_callback_without_a_host_lies_under_the_public_address(
    http: HttpClient, stub: TwilioStub, options: dict[str, str], callback: str | None
) -> None:
    assert isinstance(await twilio(http, stub.url, **options).send(text()), Sent)
    assert dict(parse_qsl(stub.entries[-1]["body"])).get("StatusCallback") == callback


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sender": None}, "providers.Twilio: sender: a number to send from is needed"),
        ({"account_sid": "AC/../x"}, "providers.Twilio.account_sid: "),
        ({"auth_token": ""}, "providers.Twilio.auth_token: "),
        ({"base_url": "api.twilio.com"}, "providers.Twilio.base_url: "),
        ({"status_callback": "relative"}, "providers.Twilio.status_callback: "),
        ({"public_base_url": "https://"}, "providers.Twilio.public_base_url: "),
        ({"callback_key": "a b"}, "providers.Twilio.callback_key: "),
        ({"answers": {"21610": {"outcome": "lost", "classification": "x"}}}, "providers.Twilio.answers"),
        ({"answers": {"44x": {"outcome": "refused", "classification": "x"}}}, "providers.Twilio: answers: "),
        ({"token": "x"}, "providers.Twilio.token: "),
    ],
)
def test_wrong_settings_are_named(http: HttpClient, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError) as wrong:
        twilio(http, "http://127.0.0.1:1", **options)
    assert str(wrong.value).startswith(message)
