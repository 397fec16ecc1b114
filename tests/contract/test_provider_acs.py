"""The Azure email provider against a stub that verifies signatures, beside the vendor's own client."""

import asyncio
import json
import uuid
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import pytest
from azure.communication.email import EmailClient
from azure.core.credentials import AzureKeyCredential

from carillon.domain.errors import ConfigurationError
from carillon.domain.notifications import Message
from carillon.domain.outcomes import Outcome, Refused, Sent, Throttled, Unavailable, Unknown
from carillon.domain.ports import Probed, Provider
from carillon.providers import channels, load
from carillon.providers.acs.send import operation_id, signed_headers
from carillon.providers.http import HttpClient
from carillon.providers.tools import Secret
from tests.support.acs_stub import ACCESS_KEY, AcsStub, failure
from tests.support.dispatches import mail, tools
from tests.support.ports import free_port
from tests.support.vendor import Reply

NOW = 1_700_000_100.5
ID = "0191f0a0-0000-7000-8000-000000000001"


@pytest.fixture
def stub(tmp_path: Path) -> Iterator[AcsStub]:
    with AcsStub(tmp_path / "acs.jsonl", now=NOW) as stub:
        yield stub


def make(stub: AcsStub, http: HttpClient, *, wall: float = NOW, **options: Any) -> Provider:
    given = {"endpoint": stub.url, "access_key": ACCESS_KEY, "sender": "Carillon <bells@carillon.example>", **options}
    return load("AZURE_ACS", "acs", given, tools(http, wall=wall))


def test_it_serves_email() -> None:
    assert channels("acs") == frozenset({"email"})


@pytest.mark.req("S2-57")
async def test_one_signed_call_and_the_operations_id(stub: AcsStub, http: HttpClient) -> None:
    outcome = await make(stub, http).send(mail())
    [entry] = stub.entries
    assert (entry["method"], entry["path"]) == ("POST", "/emails:send?api-version=2023-03-31")
    assert entry["status"] == 202
    [(operation, sent)] = stub.mails.items()
    assert outcome == Sent(message_id=operation)
    assert sent == {
        "senderAddress": "bells@carillon.example",
        "recipients": {"to": [{"address": "ada@example.com"}]},
        "content": {
            "subject": "Table 7",
            "plainText": "Your table is ready.",
            "html": "<p>Your table is <b>ready</b>.</p>",
        },
        "headers": {"Auto-Submitted": "auto-generated", "X-Carillon-Notification": ID},
    }


@pytest.mark.req("S2-57")
async def test_a_repeat_is_the_same_operation(stub: AcsStub, http: HttpClient) -> None:
    outcomes = [await make(stub, http, wall=NOW + attempt).send(mail(attempt=attempt)) for attempt in (1, 2)]
    assert len(stub.entries) == 2
    assert len(stub.mails) == 1
    assert outcomes[0] == outcomes[1]
    await make(stub, http).send(mail(notification_id="another"))
    await make(stub, http).send(mail("bea@example.com"))
    assert len(stub.mails) == 3


def test_an_operations_id_is_forever() -> None:
    assert operation_id("a/b") == "72d6c8a4-e1fb-5265-a9df-80d1bbd1a7ab"
    assert uuid.UUID(operation_id("a/b")).version == 5


async def test_plain_text_alone(stub: AcsStub, http: HttpClient) -> None:
    text = "ümlaut ✓\r\n.\r\n\x00 end"
    assert isinstance(await make(stub, http).send(mail(message=Message(text=text, subject="Grüße 👩‍🚀"))), Sent)
    [sent] = stub.mails.values()
    assert sent["content"] == {"subject": "Grüße 👩‍🚀", "plainText": text}


@pytest.mark.req("S2-57")
@pytest.mark.parametrize("suffix", ["", "/"])
async def test_it_says_what_the_vendors_own_client_says(stub: AcsStub, http: HttpClient, suffix: str) -> None:
    await make(stub, http, endpoint=stub.url + suffix).send(mail())
    [(operation, sent)] = stub.mails.items()
    stub.mails.clear()
    stub.now = None
    await asyncio.to_thread(_send_with_their_client, stub.url, operation, sent)
    ours, theirs, *_ = stub.entries
    assert list(stub.mails) == [operation]
    assert json.loads(ours["body"]) == json.loads(theirs["body"])
    assert ours["path"] == theirs["path"]
    for name in ("content-type", "accept", "operation-id", "host"):
        assert ours["headers"][name] == theirs["headers"][name]
    at = parsedate_to_datetime(theirs["headers"]["x-ms-date"]).timestamp()
    proof = signed_headers(Secret(ACCESS_KEY), "POST", stub.url + theirs["path"], theirs["body"].encode(), at)
    for name, value in proof.items():
        assert theirs["headers"][name.lower()] == value


def _send_with_their_client(url: str, operation: str, message: dict[str, Any]) -> None:
    with EmailClient(url, AzureKeyCredential(ACCESS_KEY), api_version="2023-03-31") as client:
        sending = client.begin_send(message, operation_id=operation, polling_interval=0)
        assert sending.result()["status"] == "Succeeded"


@pytest.mark.parametrize(
    ("endpoint", "host"),
    [
        ("https://r.communication.azure.com", "r.communication.azure.com"),
        ("https://r.communication.azure.com:443", "r.communication.azure.com"),
        ("https://r.communication.azure.com:80", "r.communication.azure.com:80"),
        ("http://127.0.0.1:80", "127.0.0.1"),
        ("http://127.0.0.1:8080", "127.0.0.1:8080"),
        ("http://[::1]:8080", "[::1]:8080"),
        ("http://[::1]", "[::1]"),
    ],
)
def test_the_host_is_signed_as_it_is_sent(endpoint: str, host: str) -> None:
    assert signed_headers(Secret(ACCESS_KEY), "GET", f"{endpoint}/x", b"", NOW)["Host"] == host


async def test_what_is_not_signed_right_is_not_taken(stub: AcsStub, http: HttpClient) -> None:
    outcomes = [
        await make(stub, http, access_key="d3Jvbmc=").send(mail()),
        await make(stub, http, wall=NOW - 400).send(mail()),
    ]
    assert [outcome.error for outcome in outcomes if isinstance(outcome, Unavailable)] == [
        "HTTP 401 Denied the signature does not hold",
        "HTTP 401 Denied the date is too far from now",
    ]
    assert not stub.mails


ANSWERS: list[tuple[Reply, Outcome]] = [
    (failure(400, "BadRequest", "no."), Refused("HTTP 400 BadRequest no.", "bad_request")),
    (
        failure(400, "InvalidSenderUserName", "no."),
        Unavailable("HTTP 400 InvalidSenderUserName no.", "sender_not_ready"),
    ),
    (
        failure(400, "EmailDroppedAllRecipientsSuppressed", "no."),
        Refused("HTTP 400 EmailDroppedAllRecipientsSuppressed no.", "recipient_suppressed", recipient_gone=True),
    ),
    (failure(401, "Denied", "no."), Unavailable("HTTP 401 Denied no.", "auth_failed")),
    (failure(403, "Forbidden", "no."), Unavailable("HTTP 403 Forbidden no.", "forbidden")),
    (failure(404, "DomainNotLinked", "no."), Unavailable("HTTP 404 DomainNotLinked no.", "sender_not_ready")),
    (failure(404, "NotFound", "no."), Unavailable("HTTP 404 NotFound no.", "wrong_url")),
    (failure(408, "Timeout", "no."), Unknown("HTTP 408 Timeout no.", "http_408")),
    (failure(409, "Conflict", "no."), Unknown("HTTP 409 Conflict no.", "operation_exists")),
    (failure(413, "TooLarge", "no."), Refused("HTTP 413 TooLarge no.", "too_large")),
    (failure(422, "Strange", "no."), Refused("HTTP 422 Strange no.", "http_422")),
    (failure(429, "TooManyRequests", "no.", Retry_After="11"), Throttled("HTTP 429 TooManyRequests no.", 11.0)),
    (
        failure(429, "TooManyRequests", "no.", Retry_After="Tue, 14 Nov 2023 22:15:30 GMT"),
        Throttled("HTTP 429 TooManyRequests no.", 29.5),
    ),
    (failure(500, "InternalServerError", "no."), Unavailable("HTTP 500 InternalServerError no.", "http_500")),
    (failure(503, "Busy", "no.", Retry_After="5"), Unavailable("HTTP 503 Busy no.", "http_503", 5.0)),
    (
        Reply(404, {"x-ms-error-code": "DomainNotLinked"}, b""),
        Unavailable("HTTP 404 DomainNotLinked", "sender_not_ready"),
    ),
    (Reply(502, body="<html>\nBad Gateway"), Unavailable("HTTP 502 <html> Bad Gateway", "http_502")),
    (Reply(500, body='{"x":' + "[" * 2000), Unavailable(('HTTP 500 {"x":' + "[" * 2000)[:300], "http_500")),
    (Reply(200, body="{}"), Unavailable("HTTP 200 {}", "http_200")),
    (
        Reply(202, body={"id": "x", "status": "Failed", "error": {"code": "Denied", "message": "no."}}),
        Unavailable("HTTP 202 Denied no.", "auth_failed"),
    ),
    (
        Reply(202, body={"id": "x", "status": "Canceled"}),
        Unavailable('HTTP 202 {"id": "x", "status": "Canceled"}', "http_202"),
    ),
]


@pytest.mark.parametrize(("reply", "outcome"), ANSWERS)
async def test_what_its_answers_mean(stub: AcsStub, http: HttpClient, reply: Reply, outcome: Outcome) -> None:
    stub.answer(reply)
    provider = make(stub, http)
    assert await provider.send(mail()) == outcome
    assert isinstance(await provider.send(mail()), Sent)


async def test_operators_overrule_single_answers(stub: AcsStub, http: HttpClient) -> None:
    provider = make(stub, http, answers={"409": {"outcome": "sent", "classification": "already_there"}})
    stub.answer(failure(409, "Conflict", "x"), failure(401, "Denied", "x"))
    assert isinstance(await provider.send(mail()), Sent)
    assert isinstance(await provider.send(mail()), Unavailable)


@pytest.mark.parametrize("body", [b"", b"{}", b"<html>", b'{"id": 7}', b'{"id": null}'])
async def test_an_accepted_mail_has_an_id_whatever_else_is_said(stub: AcsStub, http: HttpClient, body: bytes) -> None:
    stub.answer(Reply(202, body=body))
    assert await make(stub, http).send(mail()) == Sent(operation_id(f"{ID}/email:ada@example.com"))


@pytest.mark.parametrize("reply", [Reply(hang=True), Reply(reset=True)])
async def test_silence_after_the_request_is_unknown(stub: AcsStub, http: HttpClient, reply: Reply) -> None:
    stub.answer(reply)
    assert isinstance(await make(stub, http).send(mail(timeout_seconds=2.0)), Unknown)


async def test_errors_show_neither_key_nor_recipient(stub: AcsStub, http: HttpClient) -> None:
    stub.answer(failure(400, "Odd", f"{ACCESS_KEY} may not write to ada@example.com"))
    assert await make(stub, http).send(mail()) == Refused("HTTP 400 Odd *** may not write to ***", "bad_request")
    assert ACCESS_KEY not in repr(vars(make(stub, http)))


@pytest.mark.parametrize(
    "fields",
    [
        {"message": None},
        {"address": None},
        {"message": Message(text="x")},
        {"message": Message(text="x", subject="two\nlines")},
        {"message": Message(text="x", subject="two\r\nBcc: eve@example.com")},
        {"message": Message(text="\ud800", subject="x")},
        {"address": "a@b, eve@example.com"},
        {"notification_id": "1\r\nBcc: eve@example.com"},
    ],
)
async def test_what_cannot_become_a_mail(stub: AcsStub, http: HttpClient, fields: dict[str, Any]) -> None:
    assert isinstance(await make(stub, http).send(mail(**fields)), Refused)
    assert not stub.entries


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"endpoint": "r.communication.azure.com"}, "endpoint"),
        ({"endpoint": "endpoint=https://r/;accesskey=word"}, "endpoint"),
        ({"access_key": "not base64!"}, "access_key"),
        ({"access_key": "===="}, "access_key"),
        ({"access_key": ""}, "access_key"),
        ({"sender": "nobody"}, "local@domain"),
        ({"unheard_of": 1}, "unheard_of"),
    ],
)
def test_wrong_settings_are_named(options: dict[str, Any], said: str) -> None:
    given = {"endpoint": "https://r.example", "access_key": ACCESS_KEY, "sender": "a@b.example", **options}
    with pytest.raises(ConfigurationError, match=said) as caught:
        load("mail", "acs", given, tools(HttpClient()))
    assert "word" not in str(caught.value)


async def test_a_probe_sends_nothing(stub: AcsStub, http: HttpClient) -> None:
    provider = make(stub, http)
    assert isinstance(provider, Probed)
    assert await provider.probe() is None
    [entry] = stub.entries
    assert (entry["method"], entry["status"]) == ("GET", 404)
    assert not stub.mails


async def test_a_probe_says_what_is_wrong(stub: AcsStub, http: HttpClient) -> None:
    wrong: Any = make(stub, http, access_key="d3Jvbmc=")
    assert "401" in str(await wrong.probe())
    right: Any = make(stub, http)
    for status in (403, 429, 500):
        stub.answer(failure(status, "Odd", "no."))
        assert str(status) in str(await right.probe())
    deaf: Any = make(stub, http, endpoint=f"http://127.0.0.1:{free_port()}")
    assert "cannot connect" in await deaf.probe()
