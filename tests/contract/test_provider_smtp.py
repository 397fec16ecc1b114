"""The SMTP provider against a real server with STARTTLS and AUTH, and against rude peers."""

import asyncio
import base64
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest

from carillon.domain.errors import ConfigurationError
from carillon.domain.notifications import Message
from carillon.domain.outcomes import Outcome, Refused, Sent, Unavailable, Unknown
from carillon.domain.ports import Provider
from carillon.providers import load
from carillon.providers.http import HttpClient
from tests.support.dispatches import mail, tools
from tests.support.peers import Behaviour, Peer, reset, saying_on_accept, silent
from tests.support.ports import free_port
from tests.support.smtp import SmtpServer

Make = Callable[..., Provider]


@pytest.fixture
def server() -> Iterator[SmtpServer]:
    with SmtpServer() as server:
        yield server


@pytest.fixture
async def make() -> AsyncIterator[Make]:
    made: list[Provider] = []

    def smtp(url: str, **options: Any) -> Provider:
        given = {"url": url, "sender": "Carillon <bells@carillon.example>", "local_hostname": "here.test", **options}
        made.append(load("mail", "smtp", given, tools(HttpClient())))
        return made[-1]

    yield smtp
    for provider in made:
        await provider.aclose()


async def test_a_mail_arrives_encrypted_and_authenticated(server: SmtpServer, make: Make) -> None:
    outcome = await make(server.url, ca_file=str(server.ca_file)).send(mail())
    [arrived] = server.mails
    content = arrived.parsed()
    assert outcome == Sent(message_id=f"{content['Message-ID']} 2.0.0 OK")
    assert (arrived.sender, arrived.recipients) == ("bells@carillon.example", ("ada@example.com",))
    assert (arrived.user, arrived.encrypted) == ("ringer", True)
    assert content["Subject"] == "Table 7"


async def test_a_repeat_carries_the_same_id(server: SmtpServer, make: Make) -> None:
    provider = make(server.url, ca_file=str(server.ca_file))
    for attempt in (1, 2):
        await provider.send(mail(attempt=attempt))
    first, second = (arrived.parsed() for arrived in server.mails)
    assert first["Message-ID"] == second["Message-ID"]
    assert first["X-Carillon-Notification"] == second["X-Carillon-Notification"]


@pytest.mark.req("P-214")
async def test_the_link_to_leave_is_one_word_in_one_line(server: SmtpServer, make: Make) -> None:
    url = "https://messages.example.org/u/" + "A1_-" * 60
    provider = make(server.url, ca_file=str(server.ca_file))
    for attempt in (1, 2):
        await provider.send(
            mail(attempt=attempt, unsubscribe_url=url, message=Message(text="Hi", subject="Long " * 30))
        )
    await provider.send(mail())
    first, second, plain = server.mails
    assert f"\r\nList-Unsubscribe: <{url}>\r\n".encode() in first.content
    assert b"\r\nList-Unsubscribe-Post: List-Unsubscribe=One-Click\r\n" in first.content
    dated = re.compile(rb"\r\nDate: [^\r]*")
    assert dated.sub(b"", first.content) == dated.sub(b"", second.content)
    assert b"List-Unsubscribe" not in plain.content


async def test_what_is_sent_is_what_arrives(server: SmtpServer, make: Make) -> None:
    text = "one\r\n.\r\nMAIL FROM:<evil@example.com>\r\n..two\r\n.three\rfour\n" + "long " * 500 + "\nümlaut"
    await make(server.url, ca_file=str(server.ca_file)).send(mail(message=Message(text=text, subject="Grüße ✓")))
    [arrived] = server.mails
    assert arrived.parsed().get_content().splitlines() == text.splitlines()
    assert arrived.parsed()["Subject"] == "Grüße ✓"
    assert server.recipients_seen == ["ada@example.com"]


async def test_international_addresses(server: SmtpServer, make: Make) -> None:
    provider = make(server.url, ca_file=str(server.ca_file))
    assert isinstance(await provider.send(mail("jörg@bücher.example")), Sent)
    assert server.mails[0].recipients == ("jörg@xn--bcher-kva.example",)
    assert "jörg" in server.mails[0].parsed()["To"]


@pytest.mark.parametrize(
    ("reply", "outcome"),
    [
        ("450 4.2.0 greylisted", Unavailable("450 4.2.0 greylisted", "greylisted")),
        ("451 4.3.0 later", Unavailable("451 4.3.0 later", "greylisted")),
        ("452 4.2.2 full", Unavailable("452 4.2.2 full", "smtp_452")),
        ("421 4.3.2 closing", Unavailable("421 4.3.2 closing", "smtp_421")),
        ("550 5.1.1 nobody", Refused("550 5.1.1 nobody", "smtp_550", recipient_gone=True)),
        ("551 5.1.6 moved", Refused("551 5.1.6 moved", "smtp_551", recipient_gone=True)),
        ("553 5.1.3 no", Refused("553 5.1.3 no", "smtp_553", recipient_gone=True)),
        ("550 5.7.1 spam", Refused("550 5.7.1 spam", "smtp_550")),
        ("552 5.2.2 full", Refused("552 5.2.2 full", "smtp_552")),
        ("554 5.7.0 policy", Refused("554 5.7.0 policy", "smtp_554")),
    ],
)
async def test_the_recipient_is_answered(server: SmtpServer, make: Make, reply: str, outcome: Outcome) -> None:
    server.answer_recipient("ada@example.com", reply)
    provider = make(server.url, ca_file=str(server.ca_file))
    assert await provider.send(mail()) == outcome
    assert isinstance(await provider.send(mail()), Sent)


@pytest.mark.parametrize(
    ("reply", "outcome"),
    [
        ("451 4.3.0 later", Unavailable("451 4.3.0 later", "smtp_451")),
        ("452 4.3.1 full", Unavailable("452 4.3.1 full", "smtp_452")),
        ("550 5.7.1 spam", Refused("550 5.7.1 spam", "smtp_550")),
        ("554 5.6.0 no", Refused("554 5.6.0 no", "smtp_554")),
    ],
)
async def test_the_content_is_answered(server: SmtpServer, make: Make, reply: str, outcome: Outcome) -> None:
    server.answer_data(reply)
    provider = make(server.url, ca_file=str(server.ca_file))
    assert await provider.send(mail()) == outcome
    assert isinstance(await provider.send(mail()), Sent)
    assert len(server.mails) == 1


async def test_wrong_credentials_are_not_the_recipients_fault(server: SmtpServer, make: Make) -> None:
    outcome = await make(server.url.replace("rope", "w%72ong"), ca_file=str(server.ca_file)).send(mail())
    assert isinstance(outcome, Unavailable)
    assert outcome.classification == "auth_failed"
    assert "wrong" not in outcome.error
    outcome = await make(f"smtp://127.0.0.1:{server.port}?starttls=1", ca_file=str(server.ca_file)).send(mail())
    assert isinstance(outcome, Unavailable)
    assert outcome.classification == "auth_failed"


async def test_an_untrusted_server_gets_no_password(server: SmtpServer, make: Make) -> None:
    outcome = await make(server.url).send(mail())
    assert isinstance(outcome, Unavailable)
    assert not server.mails


async def test_starttls_is_not_optional_when_it_was_asked_for(make: Make) -> None:
    with SmtpServer(tls=False, credentials=None) as plain:
        outcome = await make(f"{plain.url}?starttls=1").send(mail())
        assert isinstance(outcome, Unavailable)
        assert isinstance(await make(plain.url).send(mail()), Sent)
        assert len(plain.mails) == 1


@pytest.mark.parametrize(
    "fields",
    [
        {"address": None},
        {"message": None},
        {"address": "ada@example.com\r\nRCPT TO:<evil@example.com>"},
        {"address": "ada@example.com> NOTIFY=NEVER"},
        {"address": "ada@example.com,eve@example.com"},
        {"message": Message(text="x", subject="a\r\nBcc: eve@example.com")},
        {"message": Message(text="\ud800")},
    ],
    ids=ascii,
)
async def test_what_must_not_become_a_mail(server: SmtpServer, make: Make, fields: dict[str, Any]) -> None:
    outcome = await make(server.url, ca_file=str(server.ca_file)).send(mail(**fields))
    assert isinstance(outcome, Refused)
    assert not outcome.recipient_gone
    assert not server.recipients_seen


def dialogue(after_data: Callable[[asyncio.StreamWriter], Awaitable[None]]) -> Behaviour:
    """An SMTP server that does `after_data` when it has the whole mail."""

    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 rude\r\n")
        while line := await reader.readline():
            if line.upper().startswith(b"DATA"):
                writer.write(b"354 go on\r\n")
                await reader.readuntil(b"\r\n.\r\n")
                await after_data(writer)
            else:
                writer.write(b"250 fine\r\n")

    return behave


async def _hang(_writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


async def _reset(writer: asyncio.StreamWriter) -> None:
    reset(writer)


async def _garbage(writer: asyncio.StreamWriter) -> None:
    writer.write(b"\x00\xff what?\r\n")


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()


async def _take(writer: asyncio.StreamWriter) -> None:
    writer.write(b"250 taken\r\n")


async def test_many_mails_share_few_connections(make: Make) -> None:
    async with Peer(dialogue(_take)) as peer:
        provider = make(f"smtp://127.0.0.1:{peer.port}?starttls=0", connections=2)
        outcomes = await asyncio.gather(*(provider.send(mail(f"user{number}@example.com")) for number in range(20)))
        assert all(isinstance(outcome, Sent) for outcome in outcomes)
        assert peer.connections == 2


@pytest.mark.parametrize("after_data", [_hang, _reset, _garbage, _close])
async def test_silence_after_the_mail_was_sent_is_unknown(
    make: Make, after_data: Callable[[asyncio.StreamWriter], Awaitable[None]]
) -> None:
    async with Peer(dialogue(after_data)) as peer:
        outcome = await make(f"smtp://127.0.0.1:{peer.port}?starttls=0").send(mail(timeout_seconds=3.0))
        assert isinstance(outcome, Unknown)
        assert peer.connections == 1


@pytest.mark.parametrize(
    "behaviour",
    [silent, saying_on_accept(b""), saying_on_accept(b"\x00\xff\r\n"), saying_on_accept(b"554 5.7.1 go away\r\n")],
    ids=["silent", "close", "garbage", "refuse"],
)
async def test_trouble_before_the_mail_is_unavailable(make: Make, behaviour: Behaviour) -> None:
    async with Peer(behaviour) as peer:
        outcome = await make(f"smtp://127.0.0.1:{peer.port}?starttls=0").send(mail(timeout_seconds=0.5))
    assert isinstance(outcome, Unavailable)


async def test_nobody_listens(make: Make) -> None:
    outcome = await make(f"smtp://127.0.0.1:{free_port()}").send(mail())
    assert isinstance(outcome, Unavailable)
    assert outcome.classification == "connect"


async def test_a_kept_connection_that_died_is_replaced_before_anything_was_sent(make: Make) -> None:
    mails = 0

    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal mails
        writer.write(b"220 forgetful\r\n")
        while not (line := await reader.readline()).upper().startswith(b"DATA"):
            writer.write(b"421 bye\r\n" if line.startswith(b"RSET") else b"250 fine\r\n")
        writer.write(b"354 go on\r\n")
        await reader.readuntil(b"\r\n.\r\n")
        mails += 1
        writer.write(b"250 taken\r\n")

    async with Peer(once) as peer:
        provider = make(f"smtp://127.0.0.1:{peer.port}?starttls=0")
        for _ in range(3):
            assert isinstance(await provider.send(mail()), Sent)
        assert (mails, peer.connections) == (3, 3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"url": "http://a.example"}, "providers.mail: url: expected smtp://"),
        ({"url": "smtp://u:hunter2@h:99999999"}, "providers.mail: url: not a URL"),
        ({"url": "smtp://u:hunter2@h?nonsense=1"}, "providers.mail: url: the only option"),
        ({"url": "smtp://u:hunter2@"}, "providers.mail: url: expected smtp://"),
        ({"sender": "nobody"}, "providers.mail: not a plain local@domain"),
        ({"connections": 0}, "providers.mail.connections: "),
        ({"ca_file": "absent.pem"}, "providers.mail: "),
    ],
)
def test_wrong_settings_are_named_and_passwords_never_shown(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError) as wrong:
        load("mail", "smtp", {"url": "smtp://h", "sender": "a@b.example", **options}, tools(HttpClient()))
    assert str(wrong.value).startswith(message)
    assert "hunter2" not in str(wrong.value)


def test_the_password_never_shows(make: Make) -> None:
    provider = make("smtp://user:hunter2@mail.example")
    assert "hunter2" not in f"{provider!r} {vars(provider)!r}"


@pytest.mark.parametrize("code", [250, 451, 554])
async def test_a_server_that_repeats_the_password_is_not_quoted(server: SmtpServer, make: Make, code: int) -> None:
    word = "a-rope-of-hemp"
    encoded = base64.b64encode(f"\0ringer\0{word}".encode()).decode()
    server.credentials = ("ringer", word)
    server.answer_data(f"{code} AUTH PLAIN {encoded} {word} was good")
    said = str(await make(server.url, ca_file=str(server.ca_file)).send(mail()))
    assert "***" in said
    assert word not in said
    assert encoded[12:20] not in said
