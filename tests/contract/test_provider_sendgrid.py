"""The SendGrid provider against a stub that speaks its wire, beside the vendor's own client."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sendgrid
from sendgrid.helpers.mail import CustomArg, From, Header, Mail, To

from carillon.domain.errors import ConfigurationError
from carillon.domain.notifications import Message
from carillon.domain.outcomes import Outcome, Refused, Sent, Throttled, Unavailable, Unknown
from carillon.domain.ports import Probed, Provider
from carillon.providers import channels, load
from carillon.providers.http import HttpClient
from carillon.providers.sendgrid.send import RouteSeal
from carillon.providers.tools import Secret
from tests.support.dispatches import mail, tools
from tests.support.ports import free_port
from tests.support.sendgrid_stub import API_KEY, SendGridStub, complaint
from tests.support.vendor import Reply

NOW = 1_700_000_100.0
ID = "0191f0a0-0000-7000-8000-000000000001"


@pytest.fixture
def stub(tmp_path: Path) -> Iterator[SendGridStub]:
    with SendGridStub(tmp_path / "sendgrid.jsonl") as stub:
        yield stub


def make(stub: SendGridStub, http: HttpClient, **options: Any) -> Provider:
    given = {"base_url": stub.url, "api_key": API_KEY, "sender": "Carillon <bells@carillon.example>", **options}
    return load("SendGrid", "sendgrid", given, tools(http, wall=NOW))


def test_it_serves_email() -> None:
    assert channels("sendgrid") == frozenset({"email"})


@pytest.mark.req("S2-55")
async def test_one_call_and_the_vendors_id(stub: SendGridStub, http: HttpClient) -> None:
    outcome = await make(stub, http).send(mail())
    [entry] = stub.entries
    assert (entry["method"], entry["path"]) == ("POST", "/v3/mail/send")
    assert entry["headers"]["authorization"] == f"Bearer {API_KEY}"
    assert entry["status"] == 202
    [(message_id, sent)] = stub.mails.items()
    assert outcome == Sent(message_id=message_id)
    assert sent["from"] == {"email": "bells@carillon.example", "name": "Carillon"}
    assert sent["personalizations"] == [{"to": [{"email": "ada@example.com"}]}]
    assert sent["subject"] == "Table 7"
    assert sent["content"] == [
        {"type": "text/plain", "value": "Your table is ready."},
        {"type": "text/html", "value": "<p>Your table is <b>ready</b>.</p>"},
    ]
    assert sent["custom_args"]["notificationId"] == ID


async def test_plain_text_alone(stub: SendGridStub, http: HttpClient) -> None:
    text = "ümlaut ✓\r\n.\r\nline \u2028 end"
    provider = make(stub, http, sender="bells@carillon.example")
    assert isinstance(await provider.send(mail(message=Message(text=text, subject="Grüße 👩‍🚀"))), Sent)
    [sent] = stub.mails.values()
    assert sent["content"] == [{"type": "text/plain", "value": text}]
    assert sent["from"] == {"email": "bells@carillon.example"}
    assert sent["subject"] == "Grüße 👩‍🚀"


@pytest.mark.req("S2-55")
async def test_what_sendgrid_keeps_for_years_names_nobody(stub: SendGridStub, http: HttpClient) -> None:
    await make(stub, http).send(mail(user_id="ada", recipient_ref="ada@example.com", metadata={"phone": "+123"}))
    [sent] = stub.mails.values()
    kept = json.dumps({"custom_args": sent["custom_args"], "headers": sent["headers"]})
    assert "ada" not in kept
    assert "+123" not in kept
    assert RouteSeal(Secret(API_KEY)).open(sent["custom_args"]["carillonRoute"]) == f"{ID}/email:ada@example.com"
    assert RouteSeal(Secret("another")).open(sent["custom_args"]["carillonRoute"]) is None


async def test_a_repeat_is_the_same_request(stub: SendGridStub, http: HttpClient) -> None:
    for attempt in (1, 2):
        await make(stub, http).send(mail(attempt=attempt, token=attempt))
    first, second = stub.entries
    assert first["body"] == second["body"]


@pytest.mark.req("S2-55")
async def test_it_says_what_the_vendors_own_client_says(stub: SendGridStub, http: HttpClient) -> None:
    await make(stub, http).send(mail())
    ours, *_ = stub.mails.values()
    theirs = Mail(
        from_email=From("bells@carillon.example", "Carillon"),
        to_emails=To("ada@example.com"),
        subject="Table 7",
        plain_text_content="Your table is ready.",
        html_content="<p>Your table is <b>ready</b>.</p>",
    )
    theirs.header = [Header(name, value) for name, value in ours["headers"].items()]
    theirs.custom_arg = [CustomArg(name, value) for name, value in ours["custom_args"].items()]
    client = sendgrid.SendGridAPIClient(API_KEY, host=stub.url)
    answer = await asyncio.to_thread(client.send, theirs)
    assert answer.status_code == 202
    our_entry, their_entry = stub.entries
    # The client files single recipients' headers and arguments under the recipient; both places mean the same.
    assert _flat(json.loads(their_entry["body"])) == _flat(json.loads(our_entry["body"]))
    for name in ("authorization", "content-type"):
        assert our_entry["headers"][name] == their_entry["headers"][name]
    assert our_entry["path"] == their_entry["path"]


def _flat(mail: dict[str, Any]) -> dict[str, Any]:
    person: dict[str, Any]
    [person] = mail.pop("personalizations")
    return mail | person


ANSWERS: list[tuple[Reply, Outcome]] = [
    (complaint(400, "Bad.", "template_id"), Refused("HTTP 400 Bad.", "bad_request")),
    (
        complaint(400, "Does not contain a valid address.", "personalizations.0.to.0.email"),
        Refused("HTTP 400 Does not contain a valid address.", "bad_address"),
    ),
    (complaint(400, "No.", "from.email"), Unavailable("HTTP 400 No.", "sender_not_ready")),
    (complaint(401, "expired"), Unavailable("HTTP 401 expired", "auth_failed")),
    (
        complaint(401, "Maximum credits exceeded"),
        Unavailable("HTTP 401 Maximum credits exceeded", "quota_exhausted"),
    ),
    (complaint(403, "not verified", "from"), Unavailable("HTTP 403 not verified", "sender_not_ready")),
    (complaint(403, "access forbidden"), Unavailable("HTTP 403 access forbidden", "forbidden")),
    (complaint(404, "not found"), Unavailable("HTTP 404 not found", "wrong_url")),
    (complaint(405, "method"), Unavailable("HTTP 405 method", "wrong_url")),
    (complaint(408, "slow"), Unknown("HTTP 408 slow", "http_408")),
    (complaint(413, "too large"), Refused("HTTP 413 too large", "too_large")),
    (complaint(415, "type"), Refused("HTTP 415 type", "http_415")),
    (complaint(429, "slow down", Retry_After="7"), Throttled("HTTP 429 slow down", 7.0)),
    (complaint(429, "slow down", X_RateLimit_Reset="1700000130"), Throttled("HTTP 429 slow down", 30.0)),
    (complaint(429, "slow down", X_RateLimit_Reset="1600000000"), Throttled("HTTP 429 slow down", 0.0)),
    (complaint(429, "slow down", X_RateLimit_Reset="soon"), Throttled("HTTP 429 slow down", None)),
    (complaint(451, "elsewhere"), Unavailable("HTTP 451 elsewhere", "wrong_region")),
    (complaint(500, "oops"), Unavailable("HTTP 500 oops", "http_500")),
    # Told with every answer, of calls that went well too: only for one too many it is a request to wait.
    (complaint(500, "oops", X_RateLimit_Reset="1700000130"), Unavailable("HTTP 500 oops", "http_500")),
    (complaint(503, "soon", Retry_After="9"), Unavailable("HTTP 503 soon", "http_503", 9.0)),
    (Reply(502, body="<html>\nBad Gateway"), Unavailable("HTTP 502 <html> Bad Gateway", "http_502")),
    (Reply(500, body='{"errors": 7}'), Unavailable('HTTP 500 {"errors": 7}', "http_500")),
    (Reply(500, body='{"x":' + "[" * 2000), Unavailable(('HTTP 500 {"x":' + "[" * 2000)[:300], "http_500")),
    (Reply(200, body="{}"), Unavailable("HTTP 200 {}", "not_queued")),
    (Reply(302, {"Location": "https://elsewhere.example"}, b""), Unavailable("HTTP 302", "http_302")),
]


@pytest.mark.parametrize(("reply", "outcome"), ANSWERS)
async def test_what_its_answers_mean(stub: SendGridStub, http: HttpClient, reply: Reply, outcome: Outcome) -> None:
    stub.answer(reply)
    provider = make(stub, http)
    assert await provider.send(mail()) == outcome
    assert isinstance(await provider.send(mail()), Sent)


async def test_operators_overrule_single_answers(stub: SendGridStub, http: HttpClient) -> None:
    rules = {
        "expired": {"outcome": "throttled", "classification": "ours"},
        "451": {"outcome": "sent", "classification": "y"},
    }
    provider = make(stub, http, answers=rules)
    stub.answer(complaint(401, "expired"), complaint(451, "x"), complaint(413, "x"))
    outcomes = [await provider.send(mail()) for _ in range(3)]
    assert [type(outcome) for outcome in outcomes] == [Throttled, Sent, Refused]


async def test_an_accepted_mail_without_an_id_is_still_accepted(stub: SendGridStub, http: HttpClient) -> None:
    stub.answer(Reply(202, body=b""), Reply(202, {"X-Message-Id": "x" * 5000}, b""))
    assert await make(stub, http).send(mail()) == Sent()
    assert await make(stub, http).send(mail()) == Sent("x" * 200)


@pytest.mark.parametrize("reply", [Reply(hang=True), Reply(reset=True)])
async def test_silence_after_the_request_is_unknown(stub: SendGridStub, http: HttpClient, reply: Reply) -> None:
    stub.answer(reply)
    assert isinstance(await make(stub, http).send(mail(timeout_seconds=2.0)), Unknown)


async def test_errors_show_neither_key_nor_recipient(stub: SendGridStub, http: HttpClient) -> None:
    stub.answer(complaint(400, f"{API_KEY} may not write to ada@example.com"))
    outcome = await make(stub, http).send(mail())
    assert outcome == Refused("HTTP 400 *** may not write to ***", "bad_request")
    assert API_KEY not in repr(vars(make(stub, http)))


@pytest.mark.parametrize(
    "subject", ["two\nlines", "two\r\nBcc: eve@example.com", "nul\x00", "\u2028", "\x85", "\ud800"]
)
async def test_no_subject_becomes_a_header(stub: SendGridStub, http: HttpClient, subject: str) -> None:
    outcome = await make(stub, http).send(mail(message=Message(text="x", subject=subject)))
    assert isinstance(outcome, Refused)
    assert outcome.classification == "bad_content"
    assert not stub.entries


@pytest.mark.parametrize(
    "fields",
    [
        {"message": None},
        {"address": None},
        {"message": Message(text="x")},
        {"message": Message(text="x", subject="")},
        {"address": "a@b\r\nBcc: eve@example.com"},
        {"address": "Eve <eve@example.com>"},
        {"address": "a@b, eve@example.com"},
        {"notification_id": "1\r\nBcc: eve@example.com"},
        {"notification_id": "=?utf-8?q?x?="},
        {"message": Message(text="\ud800", subject="x")},
    ],
)
async def test_what_cannot_become_a_mail(stub: SendGridStub, http: HttpClient, fields: dict[str, Any]) -> None:
    assert isinstance(await make(stub, http).send(mail(**fields)), Refused)
    assert not stub.entries


async def test_an_international_domain_is_spelt_in_ascii(stub: SendGridStub, http: HttpClient) -> None:
    await make(stub, http).send(mail("ada@bücher.example"))
    [sent] = stub.mails.values()
    assert sent["personalizations"] == [{"to": [{"email": "ada@xn--bcher-kva.example"}]}]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"base_url": "api.sendgrid.com"}, "base_url"),
        ({"base_url": "https://host/?x=1"}, "base_url"),
        ({"base_url": "https://user:word@host"}, "base_url"),
        ({"base_url": "https://ho st"}, "base_url"),
        ({"base_url": "https://host:99999"}, "base_url"),
        ({"api_key": "SG.x\n"}, "api_key"),
        ({"api_key": ""}, "api_key"),
        ({"sender": "nobody"}, "local@domain"),
        ({"webhook_public_key": "AAAA"}, "webhook_public_key"),
        ({"webhook_public_key": "not base64!"}, "webhook_public_key"),
        ({"webhook_tolerance_seconds": 0}, "webhook_tolerance_seconds"),
        ({"answers": {"429": {"outcome": "maybe", "classification": "x"}}}, "answers"),
        ({"unheard_of": 1}, "unheard_of"),
    ],
)
def test_wrong_settings_are_named(options: dict[str, Any], said: str) -> None:
    given = {"api_key": API_KEY, "sender": "a@b.example", **options}
    with pytest.raises(ConfigurationError, match=said) as caught:
        load("mail", "sendgrid", given, tools(HttpClient()))
    assert "word" not in str(caught.value)


async def test_a_probe_sends_nothing(stub: SendGridStub, http: HttpClient) -> None:
    provider = make(stub, http)
    assert isinstance(provider, Probed)
    assert await provider.probe() is None
    assert [(entry["method"], entry["path"]) for entry in stub.entries] == [("GET", "/v3/scopes")]
    assert not stub.mails


async def test_a_probe_says_what_is_wrong(stub: SendGridStub, http: HttpClient) -> None:
    wrong: Any = make(stub, http, api_key="SG.wrong")
    assert "401" in str(await wrong.probe())
    stub.scopes = ["alerts.read"]
    right: Any = make(stub, http)
    assert await right.probe() == "the API key may not send mail"
    stub.answer(Reply(200, body="<html>"))
    assert await right.probe() == "the server does not answer like SendGrid"
    deaf: Any = make(stub, http, base_url=f"http://127.0.0.1:{free_port()}")
    assert "cannot connect" in await deaf.probe()
