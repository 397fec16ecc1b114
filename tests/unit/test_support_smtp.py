"""The SMTP server demands STARTTLS and AUTH, and refuses whom it is told to."""

import ssl
from email.message import EmailMessage

import aiosmtplib
import pytest

from tests.support.smtp import SmtpServer


def letter(*recipients: str) -> EmailMessage:
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = "bell@test", ", ".join(recipients), "Glocke läutet"
    message.set_content("ding")
    return message


def client(server: SmtpServer, password: str = "rope") -> aiosmtplib.SMTP:
    trust = ssl.create_default_context(cafile=str(server.ca_file))
    return aiosmtplib.SMTP(
        hostname="127.0.0.1", port=server.port, start_tls=True, tls_context=trust, username="ringer", password=password
    )


async def test_keeps_mail_sent_over_tls_with_auth() -> None:
    with SmtpServer() as server:
        async with client(server) as smtp:
            await smtp.send_message(letter("a@test"))
        (mail,) = await server.until(1)
    assert (mail.sender, mail.recipients, mail.user, mail.encrypted) == ("bell@test", ("a@test",), "ringer", True)
    assert mail.parsed()["Subject"] == "Glocke läutet"


async def test_answers_per_recipient_and_per_message() -> None:
    with SmtpServer() as server:
        server.answer_recipient("gone@test", "550 5.1.1 no such person")
        server.answer_data("451 4.3.0 later")
        async with client(server) as smtp:
            with pytest.raises(aiosmtplib.SMTPDataError, match="later"):
                await smtp.send_message(letter("a@test"))
            refused, _ = await smtp.send_message(letter("a@test", "gone@test"))
            assert refused["gone@test"][0] == 550
        assert [mail.recipients for mail in server.mails] == [("a@test",)]


async def test_refuses_wrong_passwords() -> None:
    with SmtpServer() as server:
        with pytest.raises(aiosmtplib.SMTPAuthenticationError):
            await client(server, password="wrong").connect()
        assert server.url == f"smtp://ringer:rope@127.0.0.1:{server.port}?starttls=1"
